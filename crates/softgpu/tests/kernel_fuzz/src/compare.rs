//! Two drivers' answers side by side, class by class.

use crate::answer::{Answer, Answers};
use crate::generate;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// What became of the kernels of a class.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) equal: usize,
    pub(crate) different: usize,
    pub(crate) explained: usize,
    pub(crate) not_supported: usize,
    pub(crate) failed: usize,
    pub(crate) stale: usize,
}

/// What became of all kernels of a seed.
pub(crate) struct Comparison {
    seed: u64,
    /// Whether what is right was compiled by NVIDIA's compiler, with its faults.
    compiled: bool,
    pub(crate) classes: BTreeMap<&'static str, Counts>,
    /// Kernels that differ, and those that failed, with both answers.
    pub(crate) wrong: Vec<(u64, String)>,
    /// Those among them on which both gave an output.
    pub(crate) different: Vec<u64>,
    /// Kernels that differ for a reason, by the reason. They are counted apart, never as equal.
    pub(crate) explained: BTreeMap<&'static str, Vec<u64>>,
    /// Instructions that are lacking, with the kernels that have them.
    pub(crate) lacking: BTreeMap<String, usize>,
}

impl Comparison {
    pub(crate) fn with(right: &Answers) -> Self {
        Self {
            seed: right.seed,
            compiled: right.device.starts_with("NVIDIA"),
            classes: BTreeMap::new(),
            wrong: Vec::new(),
            different: Vec::new(),
            explained: BTreeMap::new(),
            lacking: BTreeMap::new(),
        }
    }

    /// Takes in what two drivers answer to a kernel, the first of them the one that is right.
    pub(crate) fn add(&mut self, number: u64, right: &(u32, Answer), other: &(u32, Answer)) {
        let (seed, compiled) = (self.seed, self.compiled);
        let counts = self.classes.entry(generate::class(number)).or_default();
        if right.0 != other.0 {
            counts.stale += 1;
            self.wrong.push((number, "another kernel than the one that was answered".into()));
            return;
        }
        match (&right.1, &other.1) {
            (Answer::Hash(one), Answer::Hash(two)) if one == two => counts.equal += 1,
            (Answer::Hash(_), Answer::Hash(_)) => match generate::known_fault(seed, number).filter(|_| compiled) {
                Some(reason) => {
                    counts.explained += 1;
                    self.explained.entry(reason).or_default().push(number);
                }
                None => {
                    counts.different += 1;
                    self.different.push(number);
                    self.wrong.push((number, "different".into()));
                }
            },
            (Answer::NotSupported(instruction), _) | (_, Answer::NotSupported(instruction)) => {
                counts.not_supported += 1;
                *self.lacking.entry(instruction.clone()).or_default() += 1;
            }
            (one, two) => {
                counts.failed += 1;
                self.wrong.push((number, format!("{one} and {two}")));
            }
        }
    }

    pub(crate) fn total(&self) -> Counts {
        self.classes.values().fold(Counts::default(), |sum, counts| Counts {
            equal: sum.equal + counts.equal,
            different: sum.different + counts.different,
            explained: sum.explained + counts.explained,
            not_supported: sum.not_supported + counts.not_supported,
            failed: sum.failed + counts.failed,
            stale: sum.stale + counts.stale,
        })
    }

    /// One line a class, then what is lacking, then the sum.
    pub(crate) fn print(&self) {
        /// How many kernels that went wrong, and instructions that are lacking, are listed.
        const LISTED: usize = 30;
        println!(
            "{:22} {:>7} {:>9} {:>9} {:>13} {:>6} {:>5}",
            "class", "equal", "different", "explained", "not supported", "failed", "stale"
        );
        for (class, counts) in &self.classes {
            print_line(class, counts);
        }
        print_line("all", &self.total());
        for (reason, numbers) in &self.explained {
            let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
            println!("explained, {}: {reason}", numbers.join(" "));
        }
        let mut lacking: Vec<_> = self.lacking.iter().collect();
        lacking.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (instruction, count) in lacking.iter().take(LISTED) {
            println!("not supported: {instruction} ({count} kernels)");
        }
        if lacking.len() > LISTED {
            println!("not supported: {} more instructions", lacking.len() - LISTED);
        }
        for (number, what) in self.wrong.iter().take(LISTED) {
            println!("kernel {number}: {what}");
        }
        if self.wrong.len() > LISTED {
            println!("{} more kernels went wrong", self.wrong.len() - LISTED);
        }
    }
}

fn print_line(name: &str, counts: &Counts) {
    let Counts { equal, different, explained, not_supported, failed, stale } = counts;
    println!("{name:22} {equal:7} {different:9} {explained:9} {not_supported:13} {failed:6} {stale:5}");
}

/// Compares two files of answers.
pub(crate) fn compare(right: &Answers, other: &Answers) -> Result<Comparison> {
    ensure!(right.seed == other.seed, "the answers are to kernels of seeds {} and {}", right.seed, other.seed);
    let mut comparison = Comparison::with(right);
    for (number, (one, two)) in (0..).zip(right.answers.iter().zip(&other.answers)) {
        comparison.add(number, one, two);
    }
    Ok(comparison)
}
