//! The result of `detshare verify`, for people and for programs.

use super::compare::{Difference, EntryDifference, Side, StdoutDifference};
use super::digest::{Channel, Counts};
use super::runs::{Kind, Run, Totals};
use crate::program::Ending;
use crate::table;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Identical,
    Different,
    /// Plain runs differ too, so that moved ones say nothing.
    DiffersFromItself,
    /// The plain run did not end well.
    ProgramFailed,
    /// The plain run left no record.
    NotSeen,
}

impl Verdict {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 5] =
        [Self::Identical, Self::Different, Self::DiffersFromItself, Self::ProgramFailed, Self::NotSeen];

    /// As in JSON.
    fn name(self) -> &'static str {
        match self {
            Self::Identical => "identical",
            Self::Different => "different",
            Self::DiffersFromItself => "differs_from_itself",
            Self::ProgramFailed => "program_failed",
            Self::NotSeen => "not_seen",
        }
    }

    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Identical => 0,
            Self::Different => 1,
            Self::DiffersFromItself => 2,
            Self::ProgramFailed | Self::NotSeen => 3,
        }
    }
}

/// A run that differs from the first, plain one.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DifferingRun {
    /// Its number.
    pub(crate) run: usize,
    #[serde(flatten)]
    pub(crate) difference: Difference,
}

/// What the runs showed.
#[derive(Debug)]
pub(crate) struct Findings {
    /// The first one is plain, and there; a plain one at the end is the second plain run.
    pub(crate) runs: Vec<Run>,
    pub(crate) moved_difference: Option<DifferingRun>,
    pub(crate) plain_difference: Option<DifferingRun>,
}

/// The result; as JSON, all that there is to say.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    verdict: Verdict,
    exit_code: u8,
    summary: String,
    /// What to do next, and what to be careful about.
    advice: Vec<String>,
    program: Vec<String>,
    shim: String,
    /// What was compared with the plain run, over all moved runs.
    compared: Compared,
    runs: Vec<Run>,
    /// Where a moved run differs from the plain one.
    moved_difference: Option<DifferingRun>,
    /// Where a second plain run differs from the first.
    plain_difference: Option<DifferingRun>,
    /// The run that ended badly, if one did, and the end of its standard error.
    bad_ending: Option<BadEnding>,
    /// Where the records are, if they were to be kept.
    kept: Option<String>,
}

#[derive(Debug, Serialize)]
struct BadEnding {
    run: usize,
    last_words: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Compared {
    moved_runs: usize,
    #[serde(flatten)]
    totals: Totals,
    counts: Counts,
}

impl Findings {
    pub(crate) fn verdict(&self) -> Verdict {
        let plain = &self.runs[0];
        match (&self.moved_difference, &self.plain_difference) {
            (_, Some(_)) => Verdict::DiffersFromItself,
            (Some(_), None) => Verdict::Different,
            (None, None) if plain.ending != Ending::Exit(0) => Verdict::ProgramFailed,
            (None, None) if plain.totals.processes == 0 => Verdict::NotSeen,
            (None, None) => Verdict::Identical,
        }
    }
}

impl Report {
    pub(crate) fn new(findings: Findings, program: Vec<String>, shim: &Path, kept: Option<&Path>) -> Self {
        let verdict = findings.verdict();
        let moved = || findings.runs.iter().filter(|run| run.kind != Kind::Plain);
        let compared = Compared {
            moved_runs: moved().count(),
            totals: moved().fold(Totals::default(), |sum, run| sum.plus(run.totals)),
            counts: moved().fold(Counts::default(), |sum, run| sum.plus(run.counts)),
        };
        let bad = findings.runs.iter().find(|run| run.ending != Ending::Exit(0));
        let bad_ending = bad.map(|run| BadEnding { run: run.number, last_words: run.last_words.clone() });
        let Findings { runs, moved_difference, plain_difference } = findings;
        let mut report = Self {
            verdict,
            exit_code: verdict.exit_code(),
            summary: String::new(),
            advice: Vec::new(),
            program,
            shim: shim.display().to_string(),
            compared,
            runs,
            moved_difference,
            plain_difference,
            bad_ending,
            kept: kept.map(|kept| kept.display().to_string()),
        };
        report.summary = report.summarise();
        report.advice = report.advise().into_iter().map(str::to_string).collect();
        report
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// One line that says it all.
    fn summarise(&self) -> String {
        let plain = &self.runs[0];
        match (self.verdict, &self.moved_difference, &self.plain_difference) {
            (Verdict::DiffersFromItself, _, Some(found)) => format!(
                "the program differs from itself in two plain runs: {}",
                details(found).first().map_or("", String::as_str)
            ),
            (Verdict::Different, Some(found), _) => format!(
                "different: run {} ({}) differs from run 1 (plain), and a second plain run does not",
                found.run,
                self.runs[found.run - 1].kind
            ),
            (Verdict::ProgramFailed, ..) => {
                format!("the program failed by itself: its plain run ended with {}", plain.ending)
            }
            (Verdict::NotSeen, ..) if plain.counts.processes > 0 => {
                "nothing to compare: the shim counted the program's calls and recorded no copies".to_string()
            }
            (Verdict::NotSeen, ..) => {
                "the program did not use CUDA through the shim: its plain run left no record".to_string()
            }
            _ => format!("identical: {}", self.compared.in_words()),
        }
    }

    fn advise(&self) -> Vec<&'static str> {
        let plain = &self.runs[0];
        let mut advice = Vec::new();
        match self.verdict {
            Verdict::Identical => {
                if self.compared.totals.bytes == 0 {
                    advice.push("no byte left the GPU: only standard output and the exit code were compared");
                }
                match self.compared.counts.moves {
                    Some(0) => {
                        advice.push("no launch was moved, so this says nothing about moving: is the GPU divisible?")
                    }
                    Some(_) => {}
                    None => advice.push("the shim did not count its moves: whether any launch was moved is not known"),
                }
            }
            Verdict::Different => {
                advice.push("repeat with the same --seed to see the same moves, and with --keep to keep the records");
            }
            Verdict::DiffersFromItself => {
                advice.push(
                    "make it repeat itself first (fixed seeds, deterministic algorithms, no times or addresses \
                     printed), then verify again; if it keeps compiled kernels from run to run, add --warm-up",
                );
                let differs =
                    |found: &Option<DifferingRun>| found.as_ref().is_some_and(|run| run.difference.gpu.is_some());
                match (differs(&self.plain_difference), differs(&self.moved_difference)) {
                    (false, false) => advice.push("what left the GPU was the same in all runs"),
                    (false, true) => {
                        advice.push("what left the GPU was the same in both plain runs, not in the moved one")
                    }
                    (true, _) => {}
                }
            }
            Verdict::ProgramFailed if plain.ending == Ending::TimedOut => {
                advice.push("raise --timeout, or give the program less to do");
            }
            Verdict::ProgramFailed => {
                advice.push(
                    "run it without detshare: if it ends well there, set DETSHARE_LOG=1 and verify again with --keep",
                );
            }
            Verdict::NotSeen if plain.counts.processes > 0 => {
                advice.push("if it does copy from the GPU, use the shim library that came with this command");
            }
            Verdict::NotSeen => {
                advice.push("the program must be dynamically linked, not set-user-ID, and use the CUDA driver");
                advice.push("if it starts others, they must inherit LD_PRELOAD");
            }
        }
        if self.verdict == Verdict::Different && self.runs.iter().any(|run| run.ending == Ending::TimedOut) {
            advice.push("the moved run was not over in time: if the plain run was close to it too, raise --timeout");
        }
        if self.runs.iter().any(|run| run.truncated) {
            advice.push("a record ends in the middle of a line: a process was killed while it wrote");
        }
        advice
    }

    /// A row for each run, with the verdict on all of them.
    pub(crate) fn csv(&self) -> String {
        let count = |count: Option<u64>| count.map_or(String::new(), |count| count.to_string());
        let row = |run: &Run| {
            let Run { number, kind, seconds, ending, totals, counts, truncated, .. } = run;
            let (kind, seed) = match kind {
                Kind::Plain => ("plain", None),
                Kind::Moved { seed } => ("moved", Some(*seed)),
            };
            [
                self.verdict.name().to_string(),
                number.to_string(),
                kind.to_string(),
                count(seed),
                seconds.to_string(),
                ending.to_string(),
                totals.processes.to_string(),
                totals.copies.to_string(),
                totals.memory_changes.to_string(),
                totals.bytes.to_string(),
                count(counts.launches),
                count(counts.graph_launches),
                count(counts.moves),
                truncated.to_string(),
            ]
        };
        let headings = [
            "verdict",
            "number",
            "kind",
            "seed",
            "seconds",
            "ending",
            "processes",
            "copies",
            "memory_changes",
            "bytes",
            "launches",
            "graph_launches",
            "moves",
            "truncated",
        ];
        table::csv(headings, &self.runs.iter().map(row).collect::<Vec<_>>())
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{}\n", self.summary);
        let plain_details = self.plain_difference.iter().flat_map(|found| details(found).into_iter().skip(1));
        let moved_details = self.moved_difference.iter().flat_map(|found| {
            let besides = if self.plain_difference.is_some() { "the moved run: " } else { "" };
            details(found).into_iter().map(move |detail| format!("{besides}{detail}"))
        });
        plain_details.chain(moved_details).for_each(|detail| line(&mut text, &detail));
        if let Some(BadEnding { run, last_words }) = self.bad_ending.as_ref().filter(|bad| !bad.last_words.is_empty()) {
            text.push_str(&format!("\nrun {run} said last on standard error:\n"));
            last_words.iter().for_each(|words| line(&mut text, words));
        }
        text.push('\n');
        text.push_str(&runs_table(&self.runs));
        if !self.advice.is_empty() || self.kept.is_some() {
            text.push('\n');
        }
        self.advice.iter().for_each(|advice| text.push_str(&format!("{advice}\n")));
        self.kept.iter().for_each(|kept| text.push_str(&format!("the records are in {kept}\n")));
        text
    }
}

fn line(text: &mut String, what: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "  {what}");
}

impl Compared {
    /// `1 moved run, 12 copies (4096 bytes), 30 launches, 29 moves compared; …`
    fn in_words(&self) -> String {
        let mut parts = vec![counted(self.moved_runs as u64, "moved run")];
        parts.push(format!("{} ({})", counted(self.totals.copies, "copy"), counted(self.totals.bytes, "byte")));
        if self.totals.memory_changes > 0 {
            parts.push(counted(self.totals.memory_changes, "change") + " of mapped memory");
        }
        parts.extend(self.counts.launches.map(|count| counted(count, "launch")));
        let graph_launches = self.counts.graph_launches.filter(|count| *count > 0);
        parts.extend(graph_launches.map(|count| counted(count, "graph launch")));
        parts.extend(self.counts.moves.map(|count| counted(count, "move")));
        format!("{} compared; standard output and exit code too", parts.join(", "))
    }
}

/// `1 copy`, `2 copies`.
fn counted(count: u64, noun: &str) -> String {
    match (count, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) if noun.ends_with("ch") => format!("{count} {noun}es"),
        (_, None) => format!("{count} {noun}s"),
    }
}

/// Where a run differs from the first, what left the GPU first.
fn details(found: &DifferingRun) -> Vec<String> {
    let DifferingRun { run, difference } = found;
    let mut details = Vec::new();
    if let Some(gpu) = &difference.gpu {
        details.push(entry_in_words(&gpu.first, *run));
        if gpu.different > 1 {
            details.push(format!("in all, {} of what left the GPU differ or have no counterpart", gpu.different));
        }
    }
    details.extend(difference.stdout.as_ref().map(|stdout| stdout_in_words(stdout, *run)));
    details.extend(
        difference
            .ending
            .map(|ending| format!("the endings: {} in run 1, {} in run {run}", ending.plain, ending.other)),
    );
    details
}

/// `copy 17 on stream 2, 4096 bytes (process 1, python3): digest … in run 1, … in run 2`
fn entry_in_words(found: &EntryDifference, run: usize) -> String {
    let EntryDifference { process, program, process_missing, place } = found;
    let name = |side: Side| match place.channel {
        Channel::Copy { stream } => format!("copy {} on stream {stream}", side.number),
        Channel::Memory { allocation } => format!("change {} of mapped memory, allocation {allocation}", side.number),
    };
    let program = program.rsplit('/').next().unwrap_or(program);
    let owner = format!("(process {process}, {program})");
    let missing = |from: usize| {
        let what = if *process_missing { "has no such process" } else { "has none to match it" };
        format!("run {from} {what}")
    };
    let bytes = |side: Side| counted(side.bytes, "byte");
    match (place.plain, place.other) {
        (Some(plain), Some(other)) if plain.bytes != other.bytes => {
            format!("{}, {} {owner}: {} in run {run}", name(plain), bytes(plain), bytes(other))
        }
        (Some(plain), Some(other)) => format!(
            "{}, {} {owner}: digest {} in run 1, {} in run {run}",
            name(plain),
            bytes(plain),
            plain.digest,
            other.digest
        ),
        (Some(plain), None) => format!("{}, {} {owner}: {}", name(plain), bytes(plain), missing(run)),
        (None, Some(other)) => format!("{} of run {run}, {} {owner}: {}", name(other), bytes(other), missing(1)),
        (None, None) => "nothing".to_string(),
    }
}

fn stdout_in_words(found: &StdoutDifference, run: usize) -> String {
    let side = |text: &Option<String>| text.as_ref().map_or("nothing".to_string(), |text| format!("{text:?}"));
    let StdoutDifference { line, plain, other, .. } = found;
    format!("standard output, line {line}: {} in run 1, {} in run {run}", side(plain), side(other))
}

/// One row for each run.
fn runs_table(runs: &[Run]) -> String {
    const HEADINGS: [&str; 9] =
        ["run", "kind", "seconds", "ending", "copies", "bytes", "launches", "graph launches", "moves"];
    let count = |count: Option<u64>| count.map_or("-".to_string(), |count| count.to_string());
    let rows = runs.iter().map(|run| {
        [
            run.number.to_string(),
            run.kind.to_string(),
            format!("{:.1}", run.seconds),
            run.ending.to_string(),
            run.totals.copies.to_string(),
            run.totals.bytes.to_string(),
            count(run.counts.launches),
            count(run.counts.graph_launches),
            count(run.counts.moves),
        ]
    });
    let rows: Vec<_> = std::iter::once(HEADINGS.map(str::to_string)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in &rows {
        let aligned = row.iter().enumerate().map(|(column, cell)| format!("{cell:>0$}", width(column)));
        let cells: Vec<_> = aligned.collect();
        line(&mut text, &cells.join("  "));
    }
    text
}
