//! Where tasks ran over time, in as many cells as a terminal is wide.
//!
//! ```text
//!          0      1 ms    2 ms          cells double in width when there are too many
//! task 7   0 0 0 0 1 1 . . 0 0 …        the CPU that it ran on last in each cell
//! ```

use super::{BOOT, Ns};

/// Cells of a track at most.
const MOST: usize = 128;
/// A cell's width at first, in nanoseconds.
const FINEST: Ns = 1000;
/// Runs that are kept one by one.
const FIRST: usize = 32;
/// Tasks that are followed at most.
pub(crate) const FOLLOWED: usize = 24;
/// It did not run in a cell.
const NOWHERE: u16 = u16::MAX;

/// Where one task ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// The task's number.
    pub task: usize,
    /// By cell: the place of the CPU that it ran on last.
    cells: Vec<u16>,
    /// Places of the CPUs of its first runs, one for each time that it began to run.
    pub first: Vec<u16>,
    /// Since when and where it runs.
    runs: Option<(Ns, u16)>,
}

/// Where the tasks that are followed ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracks {
    /// A cell's width in nanoseconds.
    width: Ns,
    all: Vec<Track>,
}

impl Tracks {
    /// A task is to be followed; the place of its track, if there is room for one more.
    pub(crate) fn follow(&mut self, task: usize) -> Option<u8> {
        if self.all.len() == FOLLOWED {
            return None;
        }
        self.width = self.width.max(FINEST);
        self.all.push(Track { task, ..Track::default() });
        Some(self.all.len() as u8 - 1)
    }
    /// It begins to run on a CPU.
    pub(crate) fn begins(&mut self, track: u8, cpu: usize, now: Ns) {
        let it = &mut self.all[usize::from(track)];
        it.runs = Some((now, cpu as u16));
        if it.first.len() < FIRST {
            it.first.push(cpu as u16);
        }
    }
    /// It doesn't run any more.
    pub(crate) fn stops(&mut self, track: u8, now: Ns) {
        let Some((from, cpu)) = self.all[usize::from(track)].runs.take() else { return };
        // The last nanosecond in which it ran.
        let last = now.max(from + 1) - 1 - BOOT;
        while last / self.width >= MOST as Ns {
            self.coarsen();
        }
        let (from, to) = ((from - BOOT) / self.width, last / self.width);
        let cells = &mut self.all[usize::from(track)].cells;
        if cells.len() <= to as usize {
            cells.resize(to as usize + 1, NOWHERE);
        }
        cells[from as usize..=to as usize].fill(cpu);
    }
    /// Twice as wide, half as many.
    fn coarsen(&mut self) {
        self.width *= 2;
        for track in &mut self.all {
            let later = |two: &[u16]| *two.iter().rfind(|&&c| c != NOWHERE).unwrap_or(&NOWHERE);
            track.cells = track.cells.chunks(2).map(later).collect();
        }
    }
    /// The tracks as they are now, and the width of a cell in nanoseconds.
    pub(crate) fn told(&self, now: Ns) -> (Ns, Vec<Track>) {
        let mut all = self.clone();
        for track in 0..all.all.len() {
            all.stops(track as u8, now.max(BOOT + 1));
        }
        (all.width, all.all)
    }
}

impl Track {
    /// By cell: the place of the CPU that it ran on last; `None`: it did not run.
    pub fn cells(&self) -> impl Iterator<Item = Option<u16>> {
        self.cells.iter().map(|&c| (c != NOWHERE).then_some(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(t: &Tracks, now: Ns) -> String {
        let (width, tracks) = t.told(BOOT + now);
        let row = |t: &Track| -> String {
            t.cells().map(|c| c.map_or('.', |c| char::from(b'0' + c as u8))).collect()
        };
        format!("{width}: {}", tracks.iter().map(row).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn cells_get_wider_as_time_goes_on() {
        let mut t = Tracks::default();
        let a = t.follow(5).expect("there is room");
        t.begins(a, 0, BOOT);
        t.stops(a, BOOT + 3000);
        t.begins(a, 1, BOOT + 5000);
        assert_eq!(text(&t, 7000), "1000: 000..11");
        t.stops(a, BOOT + 7000);
        t.begins(a, 2, BOOT + 250_000);
        assert_eq!(text(&t, 256_000).len(), "2000: ".len() + 128, "{}", text(&t, 256_000));
        assert!(text(&t, 256_000).starts_with("2000: 0011"), "{}", text(&t, 256_000));
        assert_eq!(t.told(BOOT).1[0].first, [0, 1, 2]);
    }
}
