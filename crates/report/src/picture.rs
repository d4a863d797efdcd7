//! Where the hot pages are, drawn in a terminal.
//!
//! The address space is cut into columns of equal page ranges. Each snapshot is two
//! lines: how hot each range is (each level has half the accesses of the next, down
//! from the hottest range of all snapshots, so that they can be compared), and how
//! much of it lies in the fast tier.
//!
//! Example: with a hottest cell of 800 accesses, 401 to 800 are level 8, 201 to 400
//! are level 7, and 1 to 12 level 2 or 1.

use serde::Serialize;

/// One range of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Accesses in the snapshot's time.
    pub accesses: u64,
    /// Pages that are resident.
    pub resident: u64,
    /// Of these, pages in the fast tier.
    pub fast: u64,
}

/// The address space at one time under one configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// What stands before it, such as `mode 2, end`.
    pub label: String,
    /// Ranges of equal size, by rising address.
    pub columns: Vec<Column>,
}

/// What is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glyphs {
    /// Block elements.
    Blocks,
    /// ASCII only, for terminals and logs that have nothing else.
    Ascii,
}

impl Glyphs {
    const fn heat(self) -> [char; 9] {
        match self {
            Self::Blocks => [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            Self::Ascii => [' ', '.', ':', '-', '=', '+', '*', '#', '@'],
        }
    }
    const fn share(self) -> [char; 9] {
        match self {
            Self::Blocks => ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            Self::Ascii => [' ', '0', '1', '2', '3', '4', '5', '6', '7'],
        }
    }
    const fn edge(self) -> char {
        match self {
            Self::Blocks => '│',
            Self::Ascii => '|',
        }
    }
}

/// Draws snapshots under one another, with a legend.
///
/// * `width` – columns of the terminal, usually 80; labels are cut so that a line
///   never has more, where `width` is at least 30.
///
/// Ends with a line end. Without snapshots, or with empty ones, there is only what
/// there is to draw.
pub fn heat_picture(snapshots: &[Snapshot], width: usize, glyphs: Glyphs) -> String {
    const LEAST: usize = 30;
    let width = width.max(LEAST);
    let longest = snapshots.iter().map(|s| s.label.chars().count()).max().unwrap_or(0);
    let label_width = longest.min(width / 3);
    // Label, blank, "heat" or "fast", blank, two edges.
    let room = width - label_width - 8;
    let cells: Vec<Vec<Column>> = snapshots.iter().map(|s| fit(&s.columns, room)).collect();
    let hottest = cells.iter().flatten().map(|c| c.accesses).max().unwrap_or(0);

    let edge = glyphs.edge();
    let mut out = String::new();
    for (snapshot, cells) in snapshots.iter().zip(&cells) {
        let label: String = snapshot.label.chars().take(label_width).collect();
        let heat: String =
            cells.iter().map(|c| glyphs.heat()[heat_level(c.accesses, hottest)]).collect();
        let fast: String = cells.iter().map(|c| glyphs.share()[share_level(c)]).collect();
        out.push_str(&format!("{label:<label_width$} heat {edge}{heat}{edge}\n"));
        out.push_str(&format!("{:<label_width$} fast {edge}{fast}{edge}\n", ""));
    }
    let heat = glyphs.heat();
    let share = glyphs.share();
    let nothing = if share[0] == ' ' { "blank".to_owned() } else { share[0].to_string() };
    out.push_str(&format!(
        "heat: accesses to equal ranges, {1} most, half at each step to {0}, blank none\n",
        heat[1], heat[8]
    ));
    out.push_str(&format!(
        "fast: share of a range in the fast tier, {} none to {} all, {nothing} not resident\n",
        share[1], share[8]
    ));
    out
}

/// As many cells as there is room for, each with the sum of its columns; fewer
/// columns than room are drawn wider, each as it is.
fn fit(columns: &[Column], room: usize) -> Vec<Column> {
    let n = columns.len();
    if n == 0 {
        return Vec::new();
    }
    (0..room)
        .map(|i| {
            let from = i * n / room;
            let to = ((i + 1) * n / room).max(from + 1);
            columns[from..to].iter().fold(Column::default(), |sum, c| Column {
                accesses: sum.accesses.saturating_add(c.accesses),
                resident: sum.resident.saturating_add(c.resident),
                fast: sum.fast.saturating_add(c.fast),
            })
        })
        .collect()
}

/// 0 for no access, else 1 to 8.
fn heat_level(accesses: u64, hottest: u64) -> usize {
    if accesses == 0 {
        return 0;
    }
    let halvings = (hottest.max(accesses) / accesses).ilog2() as usize;
    8usize.saturating_sub(halvings).max(1)
}

/// 0 where nothing is resident, 1 for all slow, to 8 for all fast.
fn share_level(c: &Column) -> usize {
    if c.resident == 0 {
        return 0;
    }
    let fast = c.fast.min(c.resident);
    let eighths = (u128::from(fast) * 7 + u128::from(c.resident) / 2) / u128::from(c.resident);
    // Only what is wholly fast or slow looks so.
    match (fast, eighths as usize) {
        (0, _) => 1,
        (f, _) if f == c.resident => 8,
        (_, e) => (e + 1).clamp(2, 7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_as_the_primer_says() {
        let levels: Vec<usize> = [0, 1, 3, 15, 255].map(|n| heat_level(n, 255)).to_vec();
        assert_eq!(levels, [0, 1, 2, 4, 8]);
        assert_eq!(heat_level(u64::MAX, u64::MAX), 8);
        let share = |fast, resident| share_level(&Column { accesses: 0, resident, fast });
        assert_eq!(
            [share(0, 0), share(0, 9), share(1, 900), share(899, 900), share(9, 9)],
            [0, 1, 2, 7, 8]
        );
    }
}
