//! The flags of `detshare bench` for scenarios with LLM servers, and what they resolve to.

use super::replay::Source;
use super::scenario::{SCENARIOS, Scenario};
use super::service::Objectives;
use crate::{exit, quantity};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use std::time::Duration;

const DEFAULT_LOAD: f64 = 0.5;
/// Above it a server is hardly less busy however many requests it is sent, up to where its queue only grows.
const MOST_LOAD: f64 = 0.95;
const MOST_PER_SECOND: f64 = 10_000.0;
/// The models of the server that a GPU is needed for.
const MODELS: [&str; 2] = ["1b", "8b"];

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "LLM servers")]
pub(crate) struct LlmArguments {
    /// For which part of the time the servers would be busy alone, such as 0.5, or several of them, separated by commas
    ///
    /// How many requests a second that are is found out at first. Several servers share the load: at 0.5, two of them would be
    /// busy for a quarter of the time each. All arms are run at each load, in the order in which loads are named; without
    /// this, at 0.5.
    #[arg(long, alias = "loads", value_name = "X,...", value_delimiter = ',', value_parser = load)]
    load: Vec<f64>,

    /// Requests a second for each server, separated by commas: nothing is found out then
    ///
    /// With one --load, as an earlier run found them for it: runs with the same rates have the same requests at the same times.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = rate)]
    rates: Vec<f64>,

    /// Only find out how many requests a second each load is: the --rates for later runs; nothing is measured
    #[arg(long, conflicts_with = "rates")]
    find_rates: bool,

    /// In the arm alone run only the servers: the others are not compared with themselves
    ///
    /// For a training whose speed alone an earlier run found out. It has no share then, and its bits are not compared.
    #[arg(long)]
    servers_alone: bool,

    /// The folder with azure-llm-2023-conv.csv and azure-llm-2023-code.csv; without this, requests are made up
    #[arg(long, value_name = "DIR")]
    trace_folder: Option<PathBuf>,

    /// The size of the servers' models; without this, as the scenario says
    #[arg(long, value_name = "SIZE", value_parser = model())]
    model: Option<&'static str>,

    /// The time to the first token that servers are to keep to, such as 1s; without this, 1.5 times p99 alone
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration, allow_hyphen_values = true)]
    ttft: Option<Duration>,

    /// The time for each further token that servers are to keep to, such as 50ms; without this, 1.25 times p99 alone
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration, allow_hyphen_values = true)]
    tpot: Option<Duration>,
}

fn load(text: &str) -> Result<f64, String> {
    let load = text.trim().parse().ok().filter(|load| *load > 0.0 && *load <= MOST_LOAD);
    load.ok_or(format!("a load is a number above 0 and up to {MOST_LOAD}; 1 is always busy"))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.trim().parse().ok().filter(|rate| *rate > 0.0 && *rate <= MOST_PER_SECOND);
    rate.ok_or(format!("requests a second are a number above 0 and up to {MOST_PER_SECOND}"))
}

fn model() -> impl TypedValueParser<Value = &'static str> {
    PossibleValuesParser::new(MODELS)
        .try_map(|name| MODELS.into_iter().find(|model| *model == name).ok_or("there is no such model"))
}

/// Why the flags make no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LlmFlagsError {
    #[error("{flag} is for LLM servers, and {scenario} has none: leave it out, or choose {}", with_servers())]
    NoServers { flag: &'static str, scenario: &'static str },
    #[error("{scenario} has no levels, as every arm answers the same requests: leave out --aggressiveness")]
    Levels { scenario: &'static str },
    #[error("--rates needs a number for each of {servers}")]
    Rates { servers: String },
    #[error("--rates are those of one load: leave the others out")]
    RatesOfLoads,
    #[error("no {}: name the folder that has it with --trace-folder, or leave that out for requests that are made up", .file.display())]
    NoTrace { file: PathBuf },
}

impl LlmFlagsError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NoServers { .. } | Self::Levels { .. } | Self::Rates { .. } | Self::RatesOfLoads => exit::USAGE,
            Self::NoTrace { .. } => exit::FILES,
        }
    }
}

fn with_servers() -> String {
    let names: Vec<_> = SCENARIOS.iter().filter(|one| one.has_servers()).map(|one| one.name).collect();
    names.join(", ")
}

/// What servers are sent, and what they are to keep to.
#[derive(Debug, PartialEq)]
pub(crate) struct LlmSettings {
    pub(crate) offered: Offered,
    pub(crate) traces: Option<PathBuf>,
    model: Option<&'static str>,
    pub(crate) objectives: Objectives,
    /// Whether nothing is done but to find out what servers are sent.
    pub(crate) finds_rates: bool,
    /// Whether only servers run alone.
    pub(crate) servers_alone: bool,
}

/// How much servers are sent.
#[derive(Debug, PartialEq)]
pub(crate) enum Offered {
    /// For which part of the time they would be busy alone; all arms run at each.
    Loads(Vec<f64>),
    /// Requests a second, server by server, and of which load they are.
    Rates(Vec<f64>, Option<f64>),
}

impl LlmSettings {
    /// Nothing where the scenario has no servers.
    pub(crate) fn resolve(
        scenario: &Scenario,
        arguments: LlmArguments,
        has_levels: bool,
    ) -> Result<Option<Self>, LlmFlagsError> {
        if !scenario.has_servers() {
            return match arguments.first_flag() {
                Some(flag) => Err(LlmFlagsError::NoServers { flag, scenario: scenario.name }),
                None => Ok(None),
            };
        }
        if has_levels {
            return Err(LlmFlagsError::Levels { scenario: scenario.name });
        }
        let LlmArguments { load, rates, find_rates, servers_alone, trace_folder, model, ttft, tpot } = arguments;
        let servers: Vec<_> = scenario.servers().collect();
        let names = servers.iter().map(|(program, _)| program.name).collect::<Vec<_>>();
        if !rates.is_empty() && rates.len() != servers.len() {
            return Err(LlmFlagsError::Rates { servers: names.join(", ") });
        }
        if !rates.is_empty() && load.len() > 1 {
            return Err(LlmFlagsError::RatesOfLoads);
        }
        let of_load = load.first().copied();
        // Absolute, as programs may run elsewhere.
        let traces = trace_folder.map(|folder| std::path::absolute(&folder).unwrap_or(folder));
        for file in traces.iter().flat_map(|folder| servers.iter().map(|(_, trace)| folder.join(trace.file))) {
            if !file.is_file() {
                return Err(LlmFlagsError::NoTrace { file });
            }
        }
        let mut loads: Vec<f64> = Vec::new();
        for load in if load.is_empty() { vec![DEFAULT_LOAD] } else { load } {
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        let offered = if rates.is_empty() { Offered::Loads(loads) } else { Offered::Rates(rates, of_load) };
        let milliseconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e3);
        let objectives = Objectives { ttft_ms: milliseconds(ttft), tpot_ms: milliseconds(tpot) };
        Ok(Some(Self { offered, traces, model, objectives, finds_rates: find_rates, servers_alone }))
    }

    pub(crate) fn source(&self) -> Source<'_> {
        Source { folder: self.traces.as_deref(), model: self.model, objectives: self.objectives }
    }
}

impl LlmArguments {
    /// One that was given.
    fn first_flag(&self) -> Option<&'static str> {
        let given = [
            ("--load", !self.load.is_empty()),
            ("--rates", !self.rates.is_empty()),
            ("--find-rates", self.find_rates),
            ("--servers-alone", self.servers_alone),
            ("--trace-folder", self.trace_folder.is_some()),
            ("--model", self.model.is_some()),
            ("--ttft", self.ttft.is_some()),
            ("--tpot", self.tpot.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Bench {
        #[command(flatten)]
        arguments: LlmArguments,
    }

    fn resolved(scenario: &str, line: &str) -> Result<Option<LlmSettings>, String> {
        let scenario = SCENARIOS.iter().find(|one| one.name == scenario).unwrap();
        let parsed = Bench::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()));
        let arguments = parsed.map_err(|error| error.to_string())?.arguments;
        LlmSettings::resolve(scenario, arguments, false).map_err(|error| error.to_string())
    }

    #[test]
    fn without_flags() {
        assert_eq!(resolved("small", ""), Ok(None));
        let settings = resolved("llm-llm", "").unwrap().unwrap();
        assert_eq!(settings.offered, Offered::Loads(vec![0.5]));
        assert_eq!((settings.traces, settings.objectives), (None, Objectives::default()));
        assert!(!settings.finds_rates && !settings.servers_alone);
    }

    #[test]
    fn with_all_flags() {
        let traces = tempfile::tempdir().unwrap();
        for file in ["azure-llm-2023-conv.csv", "azure-llm-2023-code.csv"] {
            std::fs::write(traces.path().join(file), "").unwrap();
        }
        let folder = traces.path().display();
        let line = format!("--loads 0.7,0.3,0.7 --trace-folder {folder} --model 8b --ttft 1s --tpot 50ms");
        let settings = resolved("llm-llm", &line).unwrap().unwrap();
        assert_eq!(settings.offered, Offered::Loads(vec![0.7, 0.3]), "what is named first is measured first");
        assert_eq!(settings.objectives, Objectives { ttft_ms: Some(1000.0), tpot_ms: Some(50.0) });
        assert_eq!(settings.source().model, Some("8b"));
        let settings = resolved("llm-llm", "--rates 3,1.5").unwrap().unwrap();
        assert_eq!(settings.offered, Offered::Rates(vec![3.0, 1.5], None));
        let settings = resolved("llm-llm", "--rates 3,1.5 --load 0.4").unwrap().unwrap();
        assert_eq!(settings.offered, Offered::Rates(vec![3.0, 1.5], Some(0.4)));
        let settings = resolved("llm-train", "--find-rates --loads 0.5,0.7 --servers-alone").unwrap().unwrap();
        assert_eq!(settings.offered, Offered::Loads(vec![0.5, 0.7]));
        assert!(settings.finds_rates && settings.servers_alone);
    }

    #[test]
    fn what_makes_no_sense_is_said_in_a_line() {
        for (scenario, line, reason) in [
            (
                "small",
                "--ttft 1s",
                "--ttft is for LLM servers, and small has none: leave it out, or choose llm-train, ",
            ),
            (
                "llm-train",
                "--trace-folder /no/such/folder",
                "no /no/such/folder/azure-llm-2023-conv.csv: name the folder",
            ),
            ("small", "--find-rates", "--find-rates is for LLM servers, and small has none"),
            ("small", "--servers-alone", "--servers-alone is for LLM servers, and small has none"),
            ("llm-llm", "--find-rates --rates 3,4", "cannot be used with '--rates"),
            ("llm-llm", "--rates 3", "--rates needs a number for each of chat, code"),
            ("llm-train", "--rates 3 --loads 0.3,0.5", "--rates are those of one load"),
            ("llm-train", "--load 0", "a load is a number above 0 and up to 0.95"),
            ("llm-train", "--load 50", "a load is a number above 0 and up to 0.95"),
            ("llm-train", "--load nan", "a load is a number above 0 and up to 0.95"),
            ("llm-train", "--rates inf", "requests a second are a number above 0"),
            ("llm-train", "--tpot 0ms", "it must be between 1us and 24 hours"),
            ("llm-train", "--ttft 5", "a duration is a number with a unit"),
            ("llm-train", "--ttft -1s", "a duration is a number with a unit"),
            ("llm-train", "--model 70b", "1b, 8b"),
        ] {
            let error = resolved(scenario, line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
        let scenario = SCENARIOS.iter().find(|one| one.name == "llm-train").unwrap();
        let error = LlmSettings::resolve(scenario, LlmArguments::default(), true).unwrap_err();
        assert!(error.to_string().contains("leave out --aggressiveness"), "{error}");
    }
}
