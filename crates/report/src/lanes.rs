//! Where tasks ran over time, drawn in a terminal: a line for each task, a character for each
//! stretch of time, which is the CPU's number.

use std::fmt::Write as _;

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// What stands before it.
    pub label: String,
    /// By stretch of time: the CPU that it ran on last; `None`: it did not run.
    pub cells: Vec<Option<u32>>,
    /// The CPUs of its first runs, one for each time that it began to run.
    pub first: Vec<u32>,
}

/// CPUs from here on are told as `+`.
const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Runs that are told one by one.
const RUNS: usize = 12;

/// Draws tasks under one another, with a legend. Without tasks there is nothing.
///
/// * `cell` – how long a stretch of time is, in nanoseconds.
/// * `width` – columns of the terminal, at least 30.
pub fn cpu_picture(lanes: &[Lane], cell: u64, width: usize) -> String {
    let width = width.max(30);
    let most = lanes.iter().map(|l| l.cells.len()).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let longest = lanes.iter().map(|l| l.label.chars().count()).max().unwrap_or(0);
    let label_width = longest.min(width / 3);
    let room = width - label_width - 1;
    let together = most.div_ceil(room).max(1);
    let mut out = String::new();
    for lane in lanes {
        let label: String = lane.label.chars().take(label_width).collect();
        let cells = lane.cells.chunks(together).map(|c| c.iter().rev().find_map(|c| *c));
        let drawn: String = cells.map(|c| c.map_or('.', digit)).collect();
        let line = format!("{label:label_width$} {}", drawn.trim_end_matches('.'));
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let time = cell as f64 * together as f64 / 1000.0;
    let _ = writeln!(out, "each character: {time} us, the CPU that the task ran on last; . none");
    for lane in lanes.iter().filter(|l| !l.first.is_empty()) {
        let label: String = lane.label.chars().take(label_width).collect();
        let runs: Vec<String> = lane.first.iter().take(RUNS).map(u32::to_string).collect();
        let more = if lane.first.len() > RUNS { ",…" } else { "" };
        let _ = writeln!(out, "{label:label_width$} runs on CPUs {}{more}", runs.join(","));
    }
    out
}

fn digit(cpu: u32) -> char {
    DIGITS.get(cpu as usize).map_or('+', |&d| char::from(d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_stand_under_one_another() {
        let lane = |label: &str, cells: &[i32], first: &[u32]| Lane {
            label: label.into(),
            cells: cells.iter().map(|&c| u32::try_from(c).ok()).collect(),
            first: first.to_vec(),
        };
        let lanes = [
            lane("a", &[0, 0, -1, 1, -1, -1], &[0, 1]),
            lane("worker", &[-1, 10, 100, -1, 3], &[10, 100, 3]),
            lane("never", &[], &[]),
        ];
        expect_test::expect![[r#"
            a      00.1
            worker .a+.3
            never
            each character: 1 us, the CPU that the task ran on last; . none
            a      runs on CPUs 0,1
            worker runs on CPUs 10,100,3
        "#]]
        .assert_eq(&cpu_picture(&lanes, 1000, 60));
        assert_eq!(cpu_picture(&[], 1000, 60), "");
        let long = [lane("long", &[5; 100], &[5; 20])];
        assert!(cpu_picture(&long, 1000, 40).lines().all(|l| l.chars().count() <= 80));
        assert!(cpu_picture(&long, 1000, 40).contains("each character: 3 us"));
    }
}
