//! The flags of `detshare bench`, and what they resolve to.

use super::arm::{self, Arm, ArmError, Way};
use super::llm_flags::{LlmArguments, LlmFlagsError, LlmSettings, Offered};
use super::scenario::{self, Device, Program, Protocol, Scenario};
use crate::exit;
use crate::table::Format;
use clap::{Args, ValueEnum, value_parser};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const EXIT_CODES: &str = "\
Exit codes:
  0    all arms ran, and every program computed the same bits as alone
  1    a program computed other bits than alone
  2    an arm has no figures; what was measured is in the results. Or it could not be found out what LLM servers do at a load
  64   bad usage
  66   a program of the scenario was not found
  71   the system did not start or watch a process
  74   a file could not be read or written
  128+N  ended by signal N; what was measured is in the results";

/// The longest that an arm is measured.
const MOST_SECONDS: i64 = 3600;

/// Measure what sharing one GPU costs and gives
///
/// Runs the programs of a scenario alone and together, under each way of sharing: an arm. Says for latency programs how
/// much their latencies grow against alone, for best-effort programs which share of their speed is left, and whether all
/// computed the same bits. Results, plots and a page with all of it are left in a folder; everything that was started is
/// ended. Nothing else should use the GPU meanwhile.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// The programs that are run
    #[arg(value_name = "SCENARIO", value_parser = scenario::parser())]
    scenario: &'static Scenario,

    /// The arms to compare, separated by commas; without this, all usual ones
    ///
    /// They are run in this order, alone first, so that what --limit leaves out is the last of them.
    /// alone, time-slicing, mps, mps-priority (where programs of both classes run), fixed-64, fixed-96, detshare-alone, or a
    /// policy; on the software GPU alone, shared, detshare-alone, or a policy.
    #[arg(long, value_name = "ARM,...", value_delimiter = ',')]
    arms: Vec<String>,

    /// How often each arm is run; all are run once before any is run again
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// How long an arm is measured, in seconds; without this, as long as the scenario says
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MOST_SECONDS))]
    seconds: Option<u32>,

    /// Run an arm again, at most so often, if the machine itself was not at rest (threads were woken late); the calmest run counts
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u32).range(0..=10))]
    again: u32,

    /// Measure the first policy that has a dial at each of these levels, from 0 to 1, separated by commas; or none
    ///
    /// Without this and without --arms, where programs of both classes run: also at 0,0.25,0.5,0.75,1, in the first round.
    #[arg(long, value_name = "X,...", value_delimiter = ',', value_parser = level)]
    aggressiveness: Vec<LevelArgument>,

    /// What keeps tenants apart in the arms of DetShare; without this, MPS, and nothing on the software GPU
    #[arg(long, value_enum, value_name = "ISOLATION")]
    isolation: Option<Isolation>,

    /// The folder with the scenario's programs; otherwise beside the executable, ../workloads or
    /// ../share/detshare/workloads from there, or workloads in the current folder
    #[arg(long, value_name = "DIR")]
    workloads: Option<PathBuf>,

    /// The folder for the results, which must be new or empty; without this, bench-SCENARIO-DATE
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// A new or empty folder for what each program did: its requests and steps, as ARM-LOAD-PROGRAM.json.gz
    ///
    /// In arms of DetShare it also has what was taken for prefill and decode, which the result then compares with what LLM
    /// servers say themselves.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// How long all of it may take, such as 8m; what does not fit is left out
    #[arg(long, value_name = "DURATION", default_value = "8m", value_parser = humantime::parse_duration)]
    limit: Duration,

    /// Leave out the timeline, for which tenants run once more in the end
    #[arg(long)]
    no_timeline: bool,

    /// How to print the result
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,

    #[command(flatten)]
    llm: LlmArguments,
}

/// Why the flags make no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlagsError {
    #[error(transparent)]
    Arm(#[from] ArmError),
    #[error(transparent)]
    Llm(#[from] LlmFlagsError),
    #[error("--aggressiveness none means that there are no levels: name none or levels, not both")]
    NoneAndLevels,
    #[error(
        "--aggressiveness is for policies that have a dial, and none of the arms is one: name slo-aware among --arms"
    )]
    NoDial,
}

impl FlagsError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Arm(_) | Self::NoneAndLevels | Self::NoDial => exit::USAGE,
            Self::Llm(error) => error.exit_code(),
        }
    }
}

/// What keeps tenants apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Isolation {
    /// Tenants run side by side
    Mps,
    /// The driver gives the GPU to one at a time
    Process,
}

/// A value of `--aggressiveness`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LevelArgument {
    /// No levels.
    Off,
    At(f64),
}

fn level(text: &str) -> Result<LevelArgument, String> {
    if text.trim() == "none" {
        return Ok(LevelArgument::Off);
    }
    let level = text.trim().parse().ok().filter(|level| (0.0..=1.0).contains(level));
    level.map(LevelArgument::At).ok_or("a level is a number from 0 to 1, or none for no levels".to_string())
}

/// At which levels the first policy that has a dial is measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Levels {
    /// As it is.
    None,
    /// As it is and, in the first round, at each of [`USUAL_LEVELS`]: enough for a line, for which time is left.
    Usual,
    /// At these in every round.
    Asked(Vec<f64>),
}

/// From never disturbing to using everything.
const USUAL_LEVELS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

impl Levels {
    fn resolve(
        scenario: &Scenario,
        asked: &[LevelArgument],
        arms: &[Arm],
        are_arms_usual: bool,
    ) -> Result<Self, FlagsError> {
        let levels: Vec<f64> = asked
            .iter()
            .filter_map(|one| match one {
                LevelArgument::Off => None,
                LevelArgument::At(level) => Some(*level),
            })
            .collect();
        let has_dial = arms.iter().any(Arm::has_dial);
        match (asked.len(), levels.len()) {
            (0, _) if are_arms_usual && has_dial && scenario.has_usual_levels() => Ok(Self::Usual),
            (0 | 1, 0) => Ok(Self::None),
            (asked, levels) if asked != levels => Err(FlagsError::NoneAndLevels),
            _ if !has_dial => Err(FlagsError::NoDial),
            _ => Ok(Self::Asked(levels)),
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[f64] {
        match self {
            Self::None => &[],
            Self::Usual => &USUAL_LEVELS,
            Self::Asked(levels) => levels,
        }
    }
}

/// What the flags resolve to.
#[derive(Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) scenario: &'static Scenario,
    pub(crate) arms: Vec<Arm>,
    pub(crate) rounds: usize,
    pub(crate) again: u32,
    pub(crate) seconds: u32,
    /// The least, where time is short.
    pub(crate) least_seconds: u32,
    pub(crate) aggressiveness: Levels,
    isolation: Option<&'static str>,
    pub(crate) workloads: Option<PathBuf>,
    pub(crate) out: PathBuf,
    /// Where what programs did is kept.
    pub(crate) keep: Option<PathBuf>,
    pub(crate) limit: Duration,
    /// Whether it is shown in the end what tenants did.
    pub(crate) has_timeline: bool,
    pub(crate) format: Format,
    /// Where the scenario has LLM servers.
    pub(crate) llm: Option<LlmSettings>,
}

impl TryFrom<Arguments> for Settings {
    type Error = FlagsError;

    fn try_from(arguments: Arguments) -> Result<Self, FlagsError> {
        let Arguments {
            scenario,
            arms,
            rounds,
            again,
            seconds,
            aggressiveness,
            isolation,
            workloads,
            out,
            keep,
            limit,
            no_timeline,
            format,
            llm,
        } = arguments;
        let isolation = isolation.map(|isolation| match isolation {
            Isolation::Mps => "mps",
            Isolation::Process => "process",
        });
        let chosen = arm::choose(scenario, &arms)?;
        let aggressiveness = Levels::resolve(scenario, &aggressiveness, &chosen, arms.is_empty())?;
        Ok(Self {
            scenario,
            arms: chosen,
            llm: LlmSettings::resolve(scenario, llm, aggressiveness != Levels::None)?,
            rounds: usize::try_from(rounds).unwrap_or(1),
            again,
            seconds: seconds.unwrap_or(scenario.seconds),
            least_seconds: seconds.unwrap_or(scenario.least_seconds()),
            aggressiveness,
            isolation,
            workloads,
            out: out.unwrap_or_else(|| format!("bench-{}-{}", scenario.name, date(SystemTime::now())).into()),
            keep,
            limit,
            has_timeline: !no_timeline,
            format,
        })
    }
}

impl Settings {
    /// As the daemon's configuration says it.
    pub(crate) fn isolation(&self) -> &'static str {
        self.isolation.unwrap_or(match self.scenario.device {
            Device::Gpu => "mps",
            Device::Soft => "auto",
        })
    }

    /// The loads at which all arms are run; where there are none, once.
    pub(crate) fn loads(&self) -> Vec<Option<f64>> {
        match self.llm.as_ref().map(|llm| &llm.offered) {
            Some(Offered::Loads(loads)) => loads.iter().copied().map(Some).collect(),
            Some(Offered::Rates(_, load)) => vec![*load],
            None => vec![None],
        }
    }

    /// The programs that run by themselves where all do one after the other.
    pub(crate) fn alone(&self) -> impl Iterator<Item = &'static Program> {
        let are_all = self.llm.as_ref().is_none_or(|llm| !llm.servers_alone);
        self.scenario.programs.iter().filter(move |program| are_all || matches!(program.protocol, Protocol::Llm { .. }))
    }

    /// The arms in which all programs are tenants at once; those of the first that has figures write down what they launch, in the
    /// end.
    pub(crate) fn tenants_together(&self) -> impl Iterator<Item = &Arm> {
        self.arms.iter().filter(|arm| matches!(arm.way, Way::DetShare { .. }) && !arm.is_alone)
    }

    /// The levels at which an arm is measured in the round with that number, from 1; none is one of them: as it is.
    pub(crate) fn levels(&self, arm: &Arm, round: usize) -> Vec<Option<f64>> {
        if self.arms.iter().find(|arm| arm.has_dial()) != Some(arm) {
            return vec![None];
        }
        let levels = self.aggressiveness.all().iter().map(|level| Some(*level));
        match self.aggressiveness {
            Levels::Usual if round == 1 => std::iter::once(None).chain(levels).collect(),
            Levels::None | Levels::Usual => vec![None],
            Levels::Asked(_) => levels.collect(),
        }
    }
}

/// `2026-01-31-235959`, in UTC.
fn date(now: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(now).to_string();
    text.trim_end_matches('Z').replace('T', "-").replace(':', "")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::error::ErrorKind;
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    struct Bench {
        #[command(flatten)]
        arguments: Arguments,
    }

    pub(crate) fn resolved(line: &str) -> Result<Settings, ErrorKind> {
        let parsed = Bench::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()));
        parsed.map(|bench| bench.arguments.try_into().unwrap()).map_err(|error| error.kind())
    }

    #[test]
    fn without_flags() {
        let settings = resolved("small").unwrap();
        assert_eq!((settings.rounds, settings.seconds, settings.limit), (2, 4, Duration::from_secs(480)));
        assert_eq!((settings.isolation(), settings.format, settings.has_timeline), ("mps", Format::Table, true));
        assert!(settings.out.display().to_string().starts_with("bench-small-2"), "{}", settings.out.display());
        assert_eq!(settings.arms[0].name, "alone");
        assert_eq!(resolved("soft").unwrap().isolation(), "auto");
    }

    #[test]
    fn with_all_flags() {
        let line = "7b --arms fair,alone --rounds 3 --again 2 --seconds 5 --isolation process --workloads w --out o --keep k --limit 90s \
                    --no-timeline --format csv";
        let settings = resolved(line).unwrap();
        assert_eq!(settings.arms.iter().map(|arm| arm.name).collect::<Vec<_>>(), ["alone", "fair"]);
        assert_eq!((settings.rounds, settings.again, settings.seconds), (3, 2, 5));
        assert_eq!(settings.limit, Duration::from_secs(90));
        assert_eq!((settings.isolation(), settings.format, settings.has_timeline), ("process", Format::Csv, false));
        assert_eq!((settings.workloads, settings.out, settings.keep), (Some("w".into()), "o".into(), Some("k".into())));
    }

    /// How many levels each arm has in the first round, and in the second.
    fn levels(line: &str) -> Vec<(&'static str, usize, usize)> {
        let settings = resolved(line).unwrap();
        let of = |arm: &Arm| (arm.name, settings.levels(arm, 1).len(), settings.levels(arm, 2).len());
        settings.arms.iter().map(of).collect()
    }

    #[test]
    fn levels_are_those_of_the_first_policy_that_has_a_dial() {
        let asked = levels("small --arms alone,detshare-alone,fair,slo-aware,tpot-first --aggressiveness 0,0.5,1");
        assert_eq!(asked[1..], [("detshare-alone", 1, 1), ("fair", 1, 1), ("slo-aware", 3, 3), ("tpot-first", 1, 1)]);
        assert_eq!(resolved("small --aggressiveness 2"), Err(ErrorKind::ValueValidation));
        assert_eq!(resolved("small --aggressiveness often"), Err(ErrorKind::ValueValidation));
    }

    #[test]
    fn the_usual_arms_have_levels_in_the_first_round_beside_the_policy_as_it_is() {
        let settings = resolved("small").unwrap();
        let dial = settings.arms.iter().find(|arm| arm.name == "slo-aware").unwrap();
        assert_eq!(settings.levels(dial, 1), [None, Some(0.0), Some(0.25), Some(0.5), Some(0.75), Some(1.0)]);
        assert_eq!(settings.levels(dial, 2), [None]);
        let several: Vec<_> = levels("small").into_iter().filter(|(_, first, _)| *first > 1).collect();
        assert_eq!(several, [("slo-aware", 6, 1)]);
        for line in ["small --aggressiveness none", "small --arms alone,slo-aware", "two-full", "llm-train", "soft"] {
            assert!(levels(line).iter().all(|(_, first, second)| (*first, *second) == (1, 1)), "{line}");
        }
    }

    #[test]
    fn levels_that_make_no_sense_are_refused() {
        let refused = |line: &str| {
            let parsed = Bench::try_parse_from(std::iter::once("bench").chain(line.split_whitespace())).unwrap();
            Settings::try_from(parsed.arguments).unwrap_err().to_string()
        };
        assert!(refused("small --aggressiveness none,0.5").contains("name none or levels"));
        assert!(refused("small --arms alone,fair --aggressiveness 0.5").contains("name slo-aware among --arms"));
        assert!(refused("llm-train --aggressiveness 0.5").contains("leave out --aggressiveness"));
    }

    #[test]
    fn alone_all_programs_run_unless_servers_are_to() {
        let alone = |line: &str| resolved(line).unwrap().alone().map(|program| program.name).collect::<Vec<_>>();
        assert_eq!(alone("llm-llm-train"), ["chat", "code", "train"]);
        assert_eq!(alone("llm-llm-train --servers-alone"), ["chat", "code"]);
        assert_eq!(alone("small"), ["serve", "train"]);
    }

    #[test]
    fn arms_are_run_at_each_load() {
        assert_eq!(resolved("small").unwrap().loads(), [None]);
        assert_eq!(resolved("llm-train").unwrap().loads(), [Some(0.5)]);
        assert_eq!(resolved("llm-train --loads 0.3,0.5").unwrap().loads(), [Some(0.3), Some(0.5)]);
        assert_eq!(resolved("llm-train --rates 2").unwrap().loads(), [None]);
        assert_eq!(resolved("llm-train --rates 2 --load 0.3").unwrap().loads(), [Some(0.3)]);
    }

    #[test]
    fn what_makes_no_sense() {
        for line in
            ["", "small --limit soon", "small --seconds 0", "small --rounds 0", "huge", "small --isolation none"]
        {
            assert!(resolved(line).is_err(), "{line}");
        }
    }

    #[test]
    fn dates_are_names_of_folders() {
        assert_eq!(date(SystemTime::UNIX_EPOCH), "1970-01-01-000000");
    }

    #[test]
    fn help_names_every_exit_code_and_scenario() {
        use crate::exit;
        let help = Bench::command().render_long_help().to_string();
        for code in [0, 1, 2, exit::USAGE, exit::NO_PROGRAM, exit::SYSTEM, exit::FILES] {
            assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{code} "))), "{code}: {help}");
        }
        for scenario in scenario::SCENARIOS {
            assert!(help.contains(scenario.name) && help.contains(scenario.about), "{}", scenario.name);
        }
    }
}
