//! The table of `homenode compare`: contenders over workloads, paired by seed.
//!
//! Speeds are told against the first contender. With `a` and `b` the speeds of two contenders with
//! the same seed, ln b − ln a is a sample; the mean of these and its 95 % interval (Student's)
//! give the ratio and its range. A star says that the range leaves 1 out.
//!
//! Example: 10.0 and 10.2 against 11.0 and 11.2: the logarithms differ by 0.0953 and 0.0935, so
//! the ratio is 1.099, from 1.087 to 1.112 (one degree of freedom: 12.7 deviations of the mean).
//!
//! Source: specs/compare.md#stars.

use crate::picture::Glyphs;
use crate::stats;
use serde::{Deserialize, Serialize};

/// One run: a workload, a contender, a seed. It is judged from the first slice after the first
/// touch to the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompareCell {
    /// The seed.
    pub seed: u64,
    /// Accesses in the judged time.
    pub accesses: u64,
    /// The judged time in seconds, and how long a slice of it is.
    pub seconds: f64,
    /// See `seconds`.
    pub slice: f64,
    /// By slice: accesses a second, in millions.
    pub speeds: Vec<f64>,
    /// By slice: the share of accesses that the fast tier served, in per cent.
    pub shares: Vec<f64>,
    /// Pages that moved between nodes, in the whole run.
    pub moved: u64,
    /// Share of moves in vain, in per cent; none where nothing moved.
    pub vain_percent: Option<f64>,
    /// CPU time that was used, in seconds: all of it, and that of programs without the kernel.
    pub busy: f64,
    /// See `busy`.
    pub user: f64,
    /// Accesses of each program that has some beside its first touch, from its start to the end.
    #[serde(default)]
    pub programs: Vec<u64>,
    /// What CPUs did in the last quarter of the slices.
    pub late: CompareLate,
    /// What could have been, if that was looked for.
    pub optimum: Option<CompareOptimum>,
}

/// What CPUs did in the last quarter of the slices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompareLate {
    /// Accesses.
    pub accesses: u64,
    /// Its length in seconds.
    pub seconds: f64,
    /// CPU time that was used, in seconds: all of it, and that of programs without the kernel.
    pub busy: f64,
    /// See `busy`.
    pub user: f64,
}

/// What could have been: CPU time of an access, all in, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareOptimum {
    /// `exact` or `bound`.
    pub how: String,
    /// No placement takes less.
    pub least_ns: f64,
    /// A plan that can be carried out takes this.
    pub reached_ns: f64,
    /// In the last quarter, the best placement that is there before and stays takes this.
    pub late_ns: f64,
}

impl CompareCell {
    /// Accesses a second, in millions.
    pub fn speed(&self) -> f64 {
        self.accesses as f64 / self.seconds / 1e6
    }
    /// The geometric mean over its programs of how much each of them accessed.
    fn each(&self) -> f64 {
        let logs: Vec<f64> = self.programs.iter().map(|n| (*n as f64).ln()).collect();
        stats::mean(&logs).exp()
    }
    /// The mean of the last quarter of slices.
    fn last(of: &[f64]) -> f64 {
        stats::mean(&of[of.len() - of.len().div_ceil(4)..])
    }
    /// Share of all accesses in the fast tier.
    fn fast(&self) -> f64 {
        let all: f64 = self.speeds.iter().sum();
        self.speeds.iter().zip(&self.shares).map(|(n, s)| n * s).sum::<f64>() / all
    }
    /// CPU time of an access, all in, in nanoseconds.
    fn ns(&self) -> f64 {
        self.busy * 1e9 / self.accesses as f64
    }
    /// The same in the last quarter.
    fn late_ns(&self) -> f64 {
        self.late.busy * 1e9 / self.late.accesses as f64
    }
    /// Seconds until nine tenths of the way from `from` to the share at the end were made; none
    /// where that way is less than a hundredth, or leads down.
    fn there_after(&self, from: f64) -> Option<f64> {
        let way = Self::last(&self.shares) - from;
        let at = self.shares.iter().position(|s| s - from >= 0.9 * way)?;
        (way >= 1.0).then(|| (at + 1) as f64 * self.slice)
    }
}

/// A contender on a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompareRow {
    /// The contender.
    pub column: String,
    /// Its runs, in the order of seeds.
    pub cells: Vec<CompareCell>,
}

/// A workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompareWorkload {
    /// Its name.
    pub name: String,
    /// A sentence.
    pub about: String,
    /// The machine's name.
    pub machine: String,
    /// Contenders, the baseline first; all with the same seeds.
    pub rows: Vec<CompareRow>,
}

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CompareRatio {
    /// The ratio.
    pub ratio: f64,
    /// The interval; infinite with one seed, which JSON has as `null`.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Whether the interval leaves 1 out.
    pub significant: bool,
}

impl CompareRatio {
    /// Of pairs of logarithms.
    fn of(base: &[f64], x: &[f64]) -> Self {
        let (middle, half) = stats::paired_interval(base, x);
        let significant = middle.abs() > half;
        let [low, high] = [(middle - half).exp(), (middle + half).exp()];
        Self { ratio: middle.exp(), low, high, significant }
    }
    /// With a star where the interval leaves 1 out.
    fn shown(self) -> String {
        let star = if self.significant { "*" } else { " " };
        format!("{:.3}{star}", self.ratio)
    }
    /// Whether it is known to a hundredth of itself on either side.
    pub fn is_sure(&self) -> bool {
        self.high / self.ratio < 1.01
    }
}

/// What is said of a contender on a workload: means over its seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Told<'a> {
    column: &'a str,
    /// Accesses a second in millions, by seed.
    speeds: Vec<f64>,
    against_first: CompareRatio,
    /// The same in the last quarter of the time.
    last_quarter: CompareRatio,
    /// The geometric mean over programs of what each has accessed, against the first contender;
    /// none where there is one only.
    each_program: Option<CompareRatio>,
    fast_percent: f64,
    there_after_s: Option<f64>,
    moved: f64,
    vain_percent: Option<f64>,
    /// CPU time of the kernel and the policy, of one CPU.
    beside_percent: f64,
    /// All CPU time for an access.
    access_ns: f64,
    /// The optimum's CPU time for an access over this one's.
    of_optimum_percent: Option<f64>,
    /// The same in the last quarter, and the CPU time of the kernel and the policy then.
    late_of_optimum_percent: Option<f64>,
    late_beside_percent: f64,
}

fn mean_of<T>(cells: &[T], of: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let all: Option<Vec<f64>> = cells.iter().map(of).collect();
    all.filter(|x| !x.is_empty()).map(|x| stats::mean(&x))
}

impl CompareWorkload {
    fn logs(row: &CompareRow, of: fn(&CompareCell) -> f64) -> Vec<f64> {
        row.cells.iter().map(|c| of(c).ln()).collect()
    }
    /// A contender's speed in millions of accesses a second, the geometric mean over its seeds.
    pub fn mean_speed(&self, row: usize) -> f64 {
        stats::mean(&Self::logs(&self.rows[row], CompareCell::speed)).exp()
    }
    /// A contender's speed against the first one's.
    pub fn ratio(&self, row: usize) -> CompareRatio {
        let of = |i: usize| Self::logs(&self.rows[i], CompareCell::speed);
        CompareRatio::of(&of(0), &of(row))
    }
    /// The same of the geometric mean over programs; none where there are not several, the same in
    /// all runs.
    fn each_program(&self, row: usize) -> Option<CompareRatio> {
        let cells = || self.rows[0].cells.iter().chain(&self.rows[row].cells);
        let programs = cells().map(|c| c.programs.len()).min().unwrap_or(0);
        let same = cells().all(|c| c.programs.len() == programs && !c.programs.contains(&0));
        let of = |i: usize| Self::logs(&self.rows[i], CompareCell::each);
        (programs > 1 && same).then(|| CompareRatio::of(&of(0), &of(row)))
    }
    /// Judged seconds of a run.
    fn seconds(&self) -> f64 {
        self.rows[0].cells.first().map_or(0.0, |c| c.seconds)
    }
    fn told(&self) -> Vec<Told<'_>> {
        let base = &self.rows[0];
        let one = |(i, row): (usize, &'_ CompareRow)| {
            let pairs: Vec<(&CompareCell, &CompareCell)> =
                row.cells.iter().zip(&base.cells).collect();
            let late = |row| Self::logs(row, |c| CompareCell::last(&c.speeds));
            Told {
                column: &self.rows[i].column,
                speeds: row.cells.iter().map(CompareCell::speed).collect(),
                against_first: self.ratio(i),
                last_quarter: CompareRatio::of(&late(base), &late(row)),
                each_program: self.each_program(i),
                fast_percent: mean_of(&pairs, |(c, _)| Some(c.fast())).unwrap_or(f64::NAN),
                there_after_s: mean_of(&pairs, |(c, b)| {
                    c.there_after(CompareCell::last(&b.shares))
                }),
                moved: mean_of(&pairs, |(c, _)| Some(c.moved as f64)).unwrap_or(f64::NAN),
                vain_percent: mean_of(&pairs, |(c, _)| c.vain_percent),
                beside_percent: mean_of(&pairs, |(c, _)| {
                    Some((c.busy - c.user) * 100.0 / c.seconds)
                })
                .unwrap_or(f64::NAN),
                access_ns: mean_of(&pairs, |(c, _)| Some(c.ns())).unwrap_or(f64::NAN),
                of_optimum_percent: mean_of(&pairs, |(c, b)| {
                    b.optimum.as_ref().map(|o| o.least_ns * 100.0 / c.ns())
                }),
                late_of_optimum_percent: mean_of(&pairs, |(c, b)| {
                    b.optimum.as_ref().map(|o| o.late_ns * 100.0 / c.late_ns())
                }),
                late_beside_percent: mean_of(&pairs, |(c, _)| {
                    Some((c.late.busy - c.late.user) * 100.0 / c.late.seconds)
                })
                .unwrap_or(f64::NAN),
            }
        };
        self.rows.iter().enumerate().map(one).collect()
    }
    /// How the optimum was found, and the greatest gap to a plan, in per cent.
    fn optimum(&self) -> Option<(String, f64)> {
        let all: Option<Vec<&CompareOptimum>> =
            self.rows[0].cells.iter().map(|c| c.optimum.as_ref()).collect();
        let all = all.filter(|all| !all.is_empty())?;
        let gaps = all.iter().map(|o| (o.reached_ns / o.least_ns - 1.0) * 100.0);
        // One that is only bounded makes all of them bounded.
        let how = all.iter().map(|o| &o.how).find(|how| *how == "bound").unwrap_or(&all[0].how);
        Some((how.clone(), gaps.fold(0.0, f64::max)))
    }
}

/// The whole table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompareTable {
    /// Workloads, all with the same contenders in the same order.
    pub workloads: Vec<CompareWorkload>,
    /// Sentences below.
    pub notes: Vec<String>,
}

/// Cells of the bars.
const BAR: usize = 24;

impl Glyphs {
    /// A bar of this share of [`BAR`] cells.
    fn bar(self, share: f64) -> String {
        let eighths = (share.clamp(0.0, 1.0) * BAR as f64 * 8.0).round() as usize;
        match self {
            Self::Blocks => {
                const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
                format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
            }
            Self::Ascii => "#".repeat((eighths + 4) / 8),
        }
    }
}

impl CompareTable {
    /// By contender: the geometric mean of its speeds against the first one's over all workloads.
    /// Of each workload the seeds count that all have.
    pub fn means(&self) -> Vec<CompareRatio> {
        let contenders = self.workloads.first().map_or(0, |w| w.rows.len());
        let seeds = self.workloads.iter().map(|w| w.rows[0].cells.len()).min().unwrap_or(0);
        let mean = |row: usize| -> Vec<f64> {
            let of = |seed: usize| {
                let logs = self.workloads.iter().map(|w| w.rows[row].cells[seed].speed().ln());
                stats::mean(&logs.collect::<Vec<_>>())
            };
            (0..seeds).map(of).collect()
        };
        (0..contenders).map(|row| CompareRatio::of(&mean(0), &mean(row))).collect()
    }
    /// One JSON object on one line; what is no number becomes `null`.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Workload<'a> {
            name: &'a str,
            about: &'a str,
            machine: &'a str,
            /// That are judged.
            seconds: f64,
            seeds: Vec<u64>,
            optimum: Option<Optimum>,
            contenders: Vec<Told<'a>>,
        }
        #[derive(Serialize)]
        struct Optimum {
            how: String,
            gap_percent: f64,
        }
        #[derive(Serialize)]
        struct Mean<'a> {
            column: &'a str,
            against_first: CompareRatio,
        }
        #[derive(Serialize)]
        struct All<'a> {
            workloads: Vec<Workload<'a>>,
            geometric_mean: Vec<Mean<'a>>,
            notes: &'a [String],
        }
        fn workload(w: &CompareWorkload) -> Workload<'_> {
            Workload {
                name: &w.name,
                about: &w.about,
                machine: &w.machine,
                seconds: w.seconds(),
                seeds: w.rows[0].cells.iter().map(|c| c.seed).collect(),
                optimum: w.optimum().map(|(how, gap_percent)| Optimum { how, gap_percent }),
                contenders: w.told(),
            }
        }
        let names = self.workloads.first().map_or(&[][..], |w| &w.rows[..]);
        let all = All {
            workloads: self.workloads.iter().map(workload).collect(),
            geometric_mean: names
                .iter()
                .zip(self.means())
                .map(|(row, against_first)| Mean { column: &row.column, against_first })
                .collect(),
            notes: &self.notes,
        };
        serde_json::to_string(&all).expect("plain data with text keys")
    }
    /// The table for people.
    ///
    /// * `width` – columns of the terminal; bars are left out where there is no room for them.
    pub fn to_text(&self, width: usize, glyphs: Glyphs) -> String {
        let label = self.label();
        const FIGURES: [(&str, usize); 10] = [
            ("speed", 8),
            ("at end", 8),
            ("each", 7),
            ("fast %", 7),
            ("there s", 8),
            ("moved", 10),
            ("vain %", 7),
            ("beside %", 9),
            ("ns each", 8),
            ("of opt %", 9),
        ];
        let mut out = String::new();
        for w in &self.workloads {
            let told = w.told();
            // With one program it would be the speed once more.
            let several = told.iter().any(|t| t.each_program.is_some());
            let is_shown = |name: &str| several || name != "each";
            let figures = FIGURES.iter().filter(|(name, _)| is_shown(name));
            let wide = label + figures.clone().map(|f| f.1).sum::<usize>();
            let bars = width >= wide + 2 + BAR;
            let seeds = w.rows[0].cells.len();
            out += &format!("{}: {} ({:.0} s, seeds: {seeds})\n", w.name, w.about, w.seconds());
            out += &format!("{:label$}", "contender");
            for (name, width) in figures {
                out += &format!("{name:>width$}");
            }
            out.push('\n');
            let most = told.iter().map(|t| t.against_first.ratio).fold(0.0, f64::max);
            for t in &told {
                let shown = |x: Option<f64>, digits: usize| match x {
                    Some(x) if x.is_finite() => format!("{x:.digits$}"),
                    _ => "-".to_owned(),
                };
                let cells = [
                    t.against_first.shown(),
                    t.last_quarter.shown(),
                    t.each_program.map_or("- ".to_owned(), CompareRatio::shown),
                    shown(Some(t.fast_percent), 2),
                    shown(t.there_after_s, 1),
                    shown(Some(t.moved), 0),
                    shown(t.vain_percent, 1),
                    shown(Some(t.beside_percent), 2),
                    shown(Some(t.access_ns), 1),
                    shown(t.of_optimum_percent, 1),
                ];
                let mut line = format!("{:label$}", t.column);
                for (cell, (name, width)) in cells.iter().zip(FIGURES) {
                    if is_shown(name) {
                        line += &format!("{cell:>width$}");
                    }
                }
                if bars {
                    line += &format!("  {}", glyphs.bar(t.against_first.ratio / most));
                }
                out += line.trim_end();
                out.push('\n');
            }
            if let Some((how, gap)) = w.optimum() {
                out += &match how.as_str() {
                    "bound" => format!(
                        "the optimum is a bound by prices; a plan that can be carried out takes {gap:.1} % more\n"
                    ),
                    _ => format!(
                        "the optimum is exact, by a flow of least cost (all in, {gap:.1} % above its bound)\n"
                    ),
                };
            }
            out.push('\n');
        }
        out += &self.end(glyphs);
        out
    }
    /// The same with a line for each workload: speeds, and what it is.
    pub fn to_lines(&self, glyphs: Glyphs) -> String {
        let wide = |texts: &mut dyn Iterator<Item = &str>| {
            texts.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let label = wide(&mut self.workloads.iter().map(|w| w.name.as_str())).max("workload".len());
        let names = self.workloads.first().map_or(&[][..], |w| &w.rows[..]);
        let widths: Vec<usize> =
            names.iter().map(|row| row.column.chars().count().max("1.000*".len()) + 2).collect();
        let mut out = format!("{:label$}", "workload");
        for (row, width) in names.iter().zip(&widths) {
            out += &format!("{:>width$}", row.column);
        }
        out.push('\n');
        for w in &self.workloads {
            out += &format!("{:label$}", w.name);
            for (t, width) in w.told().iter().zip(&widths) {
                out += &format!("{:>width$}", t.against_first.shown());
            }
            out += &format!("  {}", w.about);
            out.push('\n');
        }
        out.push('\n');
        out += &self.end(glyphs);
        out
    }
    /// Columns of a contender's name.
    fn label(&self) -> usize {
        let names = self.workloads.iter().flat_map(|w| &w.rows).map(|r| r.column.chars().count());
        names.max().unwrap_or(0).max("contender".len())
    }
    /// Means and notes.
    fn end(&self, glyphs: Glyphs) -> String {
        let (label, mut out) = (self.label(), String::new());
        if let Some(first) = self.workloads.first() {
            let means = self.means();
            let most = means.iter().map(|m| m.ratio).fold(0.0, f64::max);
            let n = self.workloads.len();
            let of = if n == 1 { "one workload".into() } else { format!("{n} workloads") };
            out += &format!("geometric mean of speed over {of}\n");
            for (row, m) in first.rows.iter().zip(means) {
                let range = if m.low > 0.0 && m.high.is_finite() {
                    format!("{:.3} to {:.3}", m.low, m.high)
                } else {
                    String::new()
                };
                let bar = glyphs.bar(m.ratio / most);
                let line = format!("{:label$}{:>9}  {range:16}  {bar}", row.column, m.shown());
                out += line.trim_end();
                out.push('\n');
            }
        }
        for note in &self.notes {
            out += &format!("\n{note}\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn cell(seed: u64, rate: f64, share: f64, moved: u64) -> CompareCell {
        // Two slices of the first share, then six of the last.
        let shares = [50.0, 50.0, share, share, share, share, share, share].to_vec();
        CompareCell {
            seed,
            accesses: (rate * 8e6) as u64,
            seconds: 8.0,
            slice: 1.0,
            speeds: vec![rate; 8],
            shares,
            moved,
            vain_percent: (moved > 0).then_some(12.5),
            busy: 8.0 + moved as f64 / 1e5,
            user: 7.9,
            programs: vec![(rate * 8e6) as u64],
            late: CompareLate { accesses: (rate * 2e6) as u64, seconds: 2.0, busy: 2.0, user: 1.9 },
            optimum: (moved == 0).then(|| CompareOptimum {
                how: "bound".into(),
                least_ns: 80.0,
                reached_ns: 81.0,
                late_ns: 80.0,
            }),
        }
    }

    fn table() -> CompareTable {
        let row = |column: &str, rates: [f64; 2], share, moved| CompareRow {
            column: column.into(),
            cells: rates.iter().zip(1..).map(|(&r, seed)| cell(seed, r, share, moved)).collect(),
        };
        let rows =
            vec![row("off", [10.0, 10.2], 50.0, 0), row("mode 2", [11.0, 11.2], 80.0, 100_000)];
        let w = CompareWorkload {
            name: "zipf".into(),
            about: "a store".into(),
            machine: "small".into(),
            rows,
        };
        CompareTable { workloads: vec![w], notes: vec!["a note".into()] }
    }

    #[test]
    fn a_table_says_what_was_gained_and_what_it_cost() {
        let text = table().to_text(120, Glyphs::Ascii);
        expect![[r#"
            zipf: a store (8 s, seeds: 2)
            contender   speed  at end fast % there s     moved vain % beside % ns each of opt %
            off        1.000   1.000   50.00       -         0      -     1.25    99.0     80.8  ######################
            mode 2     1.099*  1.099*  72.50     3.0    100000   12.5    13.75   101.4     78.9  ########################
            the optimum is a bound by prices; a plan that can be carried out takes 1.2 % more

            geometric mean of speed over one workload
            off         1.000   1.000 to 1.000    ######################
            mode 2      1.099*  1.087 to 1.112    ########################

            a note
        "#]].assert_eq(&text);
    }

    // specs/compare.md#score: one gains a half where the other loses a third, so nobody is ahead.
    #[test]
    fn of_several_programs_each_counts_alike() {
        let mut t = table();
        for (row, programs) in t.workloads[0].rows.iter_mut().zip([[100, 900], [150, 600]]) {
            row.cells.iter_mut().for_each(|c| c.programs = programs.to_vec());
        }
        let text = t.to_text(120, Glyphs::Ascii);
        expect![[r#"
            zipf: a store (8 s, seeds: 2)
            contender   speed  at end   each fast % there s     moved vain % beside % ns each of opt %
            off        1.000   1.000  1.000   50.00       -         0      -     1.25    99.0     80.8  ######################
            mode 2     1.099*  1.099* 1.000   72.50     3.0    100000   12.5    13.75   101.4     78.9  ########################
        "#]].assert_eq(text.split_once("the optimum").unwrap().0);
        let v: serde_json::Value = serde_json::from_str(&t.to_json()).expect("JSON");
        assert_eq!(v["workloads"][0]["contenders"][1]["each_program"]["significant"], false);
        // One of them did nothing in a run: there is no such mean.
        t.workloads[0].rows[1].cells[0].programs = vec![150];
        let told = |t: &CompareTable| t.workloads[0].told()[1].each_program.is_some();
        assert!(!told(&t));
    }

    #[test]
    fn many_workloads_have_a_line_each() {
        let text = table().to_lines(Glyphs::Ascii);
        expect![[r#"
            workload     off  mode 2
            zipf      1.000   1.099*  a store

            geometric mean of speed over one workload
            off         1.000   1.000 to 1.000    ######################
            mode 2      1.099*  1.087 to 1.112    ########################

            a note
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn pairs_by_seed_give_the_interval() {
        let r = table().workloads[0].ratio(1);
        assert_eq!(
            format!("{:.3} {:.3} {:.3} {}", r.ratio, r.low, r.high, r.significant),
            "1.099 1.087 1.112 true"
        );
        assert!(!r.is_sure());
        assert!(table().workloads[0].ratio(0).is_sure());
    }

    #[test]
    fn json_has_the_same_figures() {
        let v: serde_json::Value = serde_json::from_str(&table().to_json()).expect("JSON");
        let mode2 = &v["workloads"][0]["contenders"][1];
        assert_eq!(v["workloads"][0]["seconds"], 8.0);
        assert_eq!(mode2["there_after_s"], 3.0);
        assert_eq!(mode2["vain_percent"], 12.5);
        // 11 M/s: 90.9 ns for an access in the first, 89.3 in the second.
        let late = mode2["late_of_optimum_percent"].as_f64().expect("a number");
        assert!((late - 88.8).abs() < 0.1, "{late}");
        let beside = mode2["late_beside_percent"].as_f64().expect("a number");
        assert!((beside - 5.0).abs() < 1e-9, "{beside}");
        assert_eq!(v["workloads"][0]["optimum"]["how"], "bound");
        assert_eq!(v["geometric_mean"][1]["column"], "mode 2");
        // One seed has no interval.
        let mut one = table();
        one.workloads[0].rows.iter_mut().for_each(|r| r.cells.truncate(1));
        let v: serde_json::Value = serde_json::from_str(&one.to_json()).expect("JSON");
        assert!(v["geometric_mean"][1]["against_first"]["high"].is_null());
        assert_eq!(v["geometric_mean"][1]["against_first"]["significant"], false);
    }
}
