//! The result of `detshare bench`, for people and for programs, and the folder that it is left in.

use super::arm::ALONE;
use super::figures::LEVELS;
use super::flags::Settings;
use super::identity::Identity;
use super::machine::Machine;
use super::paired_table::Bound;
use super::plot;
use super::replay::Replay;
use super::rounds::{Measurements, rounds_in_words};
use super::runner::ArmRun;
use super::scenario::{Device, Program, Scenario};
use super::service_summary::ServiceSummary;
use super::summary::{ArmSummary, ProgramSummary, Spread, summarise};
use super::timeline::Timeline;
use super::unrest::Unrest;
use super::{json, page, paired_table, service_table, words};
use crate::exit;
use crate::quantity;
use crate::table::{self, Align};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const DIFFERENT: u8 = 1;
pub(crate) const INCOMPLETE: u8 = 2;

/// Everything that is known.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    exit_code: u8,
    /// One line that says it all.
    pub(crate) summary: String,
    scenario: ScenarioFacts,
    date: String,
    /// What was typed.
    command: Vec<String>,
    pub(crate) machine: Machine,
    pub(crate) settings: SettingsFacts,
    /// What the times are.
    pub(crate) timing: &'static str,
    dropped_rounds: usize,
    /// What LLM servers were sent, and what they were to keep to.
    pub(crate) replays: Vec<Replay>,
    /// How near to alone they could be at each load.
    pub(crate) bounds: Vec<Bound>,
    /// Of all rounds.
    pub(crate) arms: Vec<ArmSummary>,
    /// Of the quantiles, in percent.
    levels: Vec<f64>,
    runs: Vec<ArmRun>,
    timeline: Option<Timeline>,
    /// Why there is none.
    no_timeline: Option<String>,
}

#[derive(Debug, Serialize)]
struct ScenarioFacts {
    name: &'static str,
    about: &'static str,
    programs: Vec<ProgramFacts>,
}

#[derive(Debug, Serialize)]
struct ProgramFacts {
    name: &'static str,
    class: detshare_api::Class,
    file: &'static str,
    arguments: &'static [&'static str],
}

#[derive(Debug, Serialize)]
pub(crate) struct SettingsFacts {
    pub(crate) seconds: u32,
    pub(crate) rounds: usize,
    arms: Vec<&'static str>,
    aggressiveness: Vec<f64>,
    isolation: &'static str,
    limit_s: f64,
}

/// Why the results are not where they should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error("cannot make the folder {}: {source}; choose another one with --out", .folder.display())]
    NotMade { folder: PathBuf, source: std::io::Error },
    #[error("{} is not empty: choose a new or empty folder for --out", .0.display())]
    Occupied(PathBuf),
    #[error("cannot write {}: {source}; check that the disk is not full", .file.display())]
    NotWritten { file: PathBuf, source: std::io::Error },
}

impl FolderError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Occupied(_) => exit::USAGE,
            Self::NotMade { .. } | Self::NotWritten { .. } => exit::FILES,
        }
    }
}

/// Makes the folder, before anything is measured for it.
pub(crate) fn make_folder(folder: &Path) -> Result<(), FolderError> {
    let failed = |source| FolderError::NotMade { folder: folder.to_path_buf(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    match folder.read_dir().map_err(failed)?.next() {
        None => Ok(()),
        Some(_) => Err(FolderError::Occupied(folder.to_path_buf())),
    }
}

impl Report {
    pub(crate) fn new(settings: &Settings, measured: Measurements, command: Vec<String>) -> Self {
        let Measurements { runs, replays, ideals, dropped_rounds, timeline } = measured;
        let arms = summarise(&settings.arms, &runs);
        let (timeline, no_timeline) = match timeline {
            Some(Ok(timeline)) => (Some(timeline), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, Some("it was ended before".to_string())),
        };
        let scenario = settings.scenario;
        let program =
            |&Program { name, class, file, arguments, .. }: &Program| ProgramFacts { name, class, file, arguments };
        let mut report = Self {
            exit_code: 0,
            summary: String::new(),
            scenario: ScenarioFacts {
                name: scenario.name,
                about: scenario.about,
                programs: scenario.programs.iter().map(program).collect(),
            },
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command,
            machine: Machine::look(scenario.device, &runs),
            settings: SettingsFacts {
                seconds: settings.seconds,
                rounds: runs.iter().map(|run| run.round).max().unwrap_or(0),
                arms: settings.arms.iter().map(|arm| arm.name).collect(),
                aggressiveness: settings.aggressiveness.all().to_vec(),
                isolation: settings.isolation(),
                limit_s: settings.limit.as_secs_f64(),
            },
            timing: timing(scenario),
            dropped_rounds,
            bounds: Bound::all(&replays, &ideals, &arms),
            replays,
            arms,
            levels: LEVELS.iter().map(|level| quantity::approximate(*level as u64) / 10.0).collect(),
            timeline,
            no_timeline,
            runs,
        };
        report.summary = report.summarise();
        report.exit_code = report.judge();
        report
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    pub(crate) fn timeline(&self) -> Result<&Timeline, &str> {
        self.timeline.as_ref().ok_or(self.no_timeline.as_deref().unwrap_or_default())
    }

    pub(crate) fn title(&self) -> String {
        format!("{}: {}", self.scenario.name, self.scenario.about)
    }

    fn summarise(&self) -> String {
        let rounds = match self.settings.rounds {
            1 => "1 round".to_string(),
            rounds => format!("{rounds} rounds"),
        };
        let measured = self.arms.iter().filter(|arm| !arm.programs.is_empty()).count();
        let bits = match self.first_difference() {
            Some(difference) => difference,
            None => self.sameness().to_string(),
        };
        let dropped = match self.dropped_rounds {
            0 => String::new(),
            dropped => format!("; the last {} did not fit into --limit", rounds_in_words(dropped)),
        };
        let failed: Vec<&str> =
            self.arms.iter().filter(|arm| arm.programs.is_empty()).map(|arm| arm.name.as_str()).collect();
        let failed = if failed.is_empty() { String::new() } else { format!("; no figures of {}", failed.join(", ")) };
        format!("{measured} arms, {rounds} of {} s: {bits}{failed}{dropped}", self.settings.seconds)
    }

    fn programs(&self) -> impl Iterator<Item = (&ArmSummary, &ProgramSummary)> {
        self.arms.iter().flat_map(|arm| arm.programs.iter().map(move |program| (arm, program)))
    }

    fn first_difference(&self) -> Option<String> {
        let measured = self.programs().map(|(arm, program)| (program.program, arm.name.as_str(), &program.bits));
        let shown = self.timeline.iter().flat_map(|shown| shown.tenants.iter().map(move |one| (shown, one)));
        let shown = shown.map(|(shown, tenant)| (tenant.tenant, shown.arm, &tenant.bits));
        let (program, arm, bits) = measured.chain(shown).find(|(.., bits)| bits.is_different())?;
        Some(format!("{program} under {arm} is {}", bits.in_words()))
    }

    fn judge(&self) -> u8 {
        let has_all =
            |arm: &ArmSummary| !arm.programs.is_empty() && arm.programs.iter().all(|one| one.per_second.is_some());
        let is_incomplete = self.arms.iter().any(|arm| !has_all(arm) || !arm.failures.is_empty());
        match (self.first_difference(), is_incomplete) {
            (Some(_), _) => DIFFERENT,
            (None, true) => INCOMPLETE,
            (None, false) => 0,
        }
    }

    /// That arms were measured for less time than they should, if they were.
    fn shortened(&self) -> Option<String> {
        let asked = self.settings.seconds;
        let measured = || self.runs.iter().filter(|run| run.failure.is_none());
        let shorter = measured().filter(|run| run.measured_s < asked);
        let least = shorter.clone().map(|run| run.measured_s).min()?;
        Some(format!(
            "{} of {} runs were measured for less than {asked} s, down to {least} s, so that all fit: programs took long to set \
             themselves up; raise --limit for more",
            shorter.count(),
            measured().count()
        ))
    }

    /// What is known of the bits where no program computed other ones.
    fn sameness(&self) -> &'static str {
        let all = || self.programs().map(|(_, program)| &program.bits);
        let is_unknown = all().any(|bits| matches!(bits, Identity::Unknown { .. }));
        let is_compared = all().any(|bits| matches!(bits, Identity::Identical { .. }));
        match (is_compared, is_unknown) {
            (true, false) => "every program computed the same bits as alone",
            (true, true) => "every program computed the same bits as alone, as far as they could be compared",
            (false, _) => "bits were not compared",
        }
    }

    /// What was left out or failed, a line each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for arm in &self.arms {
            for failure in &arm.failures {
                let note = format!("{}: {failure}", arm.arm);
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        let restless = self.arms.iter().filter_map(|arm| Some((arm, arm.unrest.filter(Unrest::is_great)?)));
        notes.extend(restless.map(|(arm, unrest)| {
            format!(
                "{}: the machine itself was not at rest, so its tail is in part the machine's: {}",
                arm.name,
                unrest.in_words()
            )
        }));
        notes.extend(self.shortened());
        notes.extend(service_table::notes(&self.arms));
        notes.extend(self.replays.iter().filter_map(Replay::warning));
        notes
    }

    /// For people.
    pub(crate) fn table(&self, folder: &Path) -> String {
        use Align::{Left, Right};
        let aligned = [Left, Left, Right, Right, Right, Right, Right, Right, Right, Right, Left];
        let headings: [(&str, Align); COLUMNS] = std::array::from_fn(|column| (HEADINGS[column], aligned[column]));
        let mut text = format!("{}\n{}\n\n", self.title(), self.machine.in_words());
        text.push_str(&table::columns(headings, &self.rows()));
        text.push('\n');
        if !self.replays.is_empty() {
            text.push_str(&table::columns(service_table::HEADINGS, &service_table::rows(&self.arms)));
            text.push('\n');
            let paired = paired_table::rows(&self.arms);
            if !paired.is_empty() {
                text.push_str(&table::columns(paired_table::HEADINGS, &paired));
                text.push('\n');
            }
        }
        for line in self.about_servers() {
            text.push_str(&table::harmless(&line));
            text.push('\n');
        }
        for line in
            self.notes().into_iter().chain([self.summary.clone(), format!("see {}", folder.join(PAGE).display())])
        {
            text.push_str(&table::harmless(&line));
            text.push('\n');
        }
        text
    }

    /// What LLM servers were sent, how near to alone they could be, and whether their steps were told apart, a line each.
    pub(crate) fn about_servers(&self) -> Vec<String> {
        let sent = self.replays.iter().map(Replay::in_words);
        let possible = self.bounds.iter().filter_map(Bound::in_words);
        let told_apart = self.programs().filter_map(|(arm, program)| {
            let found = program.told_apart.as_ref()?;
            Some(format!("{}: {}'s steps told apart: {}", arm.name, program.program, found.in_words()))
        });
        sent.chain(possible).chain(told_apart).collect()
    }

    /// A row for each program of each arm, under [`HEADINGS`].
    pub(crate) fn rows(&self) -> Vec<[String; COLUMNS]> {
        self.programs().map(|(arm, program)| row(arm, program)).collect()
    }

    pub(crate) fn json(&self) -> String {
        json::text(self)
    }

    /// A row for each program of each arm, with all figures.
    pub(crate) fn csv(&self) -> String {
        let headings = [
            "arm",
            "load",
            "aggressiveness",
            "program",
            "class",
            "rounds",
            "requests",
            "per_second",
            "p50_ms",
            "p90_ms",
            "p99_ms",
            "max_ms",
            "p50_overhead",
            "p99_overhead",
            "p99_overhead_min",
            "p99_overhead_max",
            "share",
            "share_min",
            "share_max",
            "ttft_p50_ms",
            "ttft_p99_ms",
            "ttft_p99_overhead",
            "tpot_p50_ms",
            "tpot_p99_ms",
            "tpot_p99_overhead",
            "mean_latency_ms",
            "mean_latency_overhead",
            "ttft_violations",
            "ttft_violations_part",
            "tpot_violations",
            "tpot_violations_part",
            "goodput",
            "bits",
        ];
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let median = |spread: Option<Spread>| number(spread.map(|spread| spread.median));
        let row = |(arm, program): (&ArmSummary, &ProgramSummary)| {
            let served =
                |figure: fn(&ServiceSummary) -> Option<Spread>| median(program.service.as_ref().and_then(figure));
            [
                arm.arm.to_string(),
                number(arm.load),
                number(arm.aggressiveness),
                program.program.to_string(),
                program.class.to_string(),
                program.per_second.map_or(0, |spread| spread.rounds).to_string(),
                program.requests.map_or(String::new(), |requests| requests.to_string()),
                median(program.per_second),
                median(program.p50_ms),
                median(program.p90_ms),
                median(program.p99_ms),
                median(program.max_ms),
                median(program.p50_overhead),
                median(program.p99_overhead),
                number(program.p99_overhead.map(|spread| spread.min)),
                number(program.p99_overhead.map(|spread| spread.max)),
                median(program.share),
                number(program.share.map(|spread| spread.min)),
                number(program.share.map(|spread| spread.max)),
                served(|service| service.ttft_p50_ms),
                served(|service| service.ttft_p99_ms),
                served(|service| service.ttft_p99_overhead),
                served(|service| service.tpot_p50_ms),
                served(|service| service.tpot_p99_ms),
                served(|service| service.tpot_p99_overhead),
                served(|service| service.mean_latency_ms),
                served(|service| service.mean_latency_overhead),
                served(|service| service.ttft_violations),
                served(|service| service.ttft_violations_part),
                served(|service| service.tpot_violations),
                served(|service| service.tpot_violations_part),
                served(|service| service.goodput),
                program.bits.in_words(),
            ]
        };
        table::csv(headings, &self.programs().map(row).collect::<Vec<_>>())
    }

    /// Leaves everything in the folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), FolderError> {
        let plots = plot::Plots::of(self);
        let page = page::page(self, &plots);
        let files = [(RESULTS, &self.json()), (PAGE, &page)];
        let plots = plots.all.iter().map(|plot| (plot.file, &plot.svg));
        for (name, text) in files.into_iter().chain(plots) {
            write(&folder.join(name), text)?;
        }
        Ok(())
    }
}

pub(crate) fn write(file: &Path, text: &str) -> Result<(), FolderError> {
    std::fs::write(file, text).map_err(|source| FolderError::NotWritten { file: file.to_path_buf(), source })
}

/// Everything, for programs.
pub(crate) const RESULTS: &str = "results.json";
/// The page with everything.
const PAGE: &str = "index.html";

pub(crate) const COLUMNS: usize = 11;
pub(crate) const HEADINGS: [&str; COLUMNS] =
    ["arm", "program", "p50", "p90", "p99", "max", "per s", "p50 added", "p99 added", "share", "bits"];

fn row(arm: &ArmSummary, program: &ProgramSummary) -> [String; COLUMNS] {
    let nothing = || "-".to_string();
    let time = |spread: Option<Spread>| spread.map_or_else(nothing, |spread| words::milliseconds(spread.median));
    // Alone against alone says nothing.
    let part = |spread: Option<Spread>, form: fn(f64) -> String| {
        spread.filter(|_| arm.arm != ALONE).map_or_else(nothing, |spread| words::with_range(spread, form))
    };
    [
        arm.name.clone(),
        program.program.to_string(),
        time(program.p50_ms),
        time(program.p90_ms),
        time(program.p99_ms),
        time(program.max_ms),
        program.per_second.map_or_else(nothing, |spread| quantity::number(spread.median)),
        part(program.p50_overhead.map(|spread| Spread { rounds: 1, ..spread }), words::added),
        part(program.p99_overhead, words::added),
        part(program.share, words::percent),
        program.bits.in_words(),
    ]
}

fn timing(scenario: &Scenario) -> &'static str {
    match scenario.device {
        Device::Gpu if scenario.has_servers() => {
            "The programs take the times themselves. A latency counts from the arrival of a request to its last token, TTFT to \
             its first one, time in the queue included; TPOT is the time from each token to the next. All requests after the first two seconds \
             count, and all arms have the same ones."
        }
        Device::Gpu => {
            "The programs take the times themselves. A latency counts from the arrival of a request, time in the queue \
             included."
        }
        Device::Soft => {
            "Times are those at which a program's lines were read. A latency counts from when the pause after the step \
             before was to end; it has the time in it that it takes to wake up and to read a line."
        }
    }
}
