//! The flags of `detshare run`, and what they resolve to.

use crate::{flags, quantity};
use clap::{Args, ValueEnum};
use detshare_api::Class;
use std::ffi::OsString;
use std::time::Duration;

/// As much as the daemon takes.
const LONGEST_NAME: usize = 63;

const EXIT_CODES: &str = "\
Exit codes: the program's own; where it was not started:
  64   bad usage
  66   the program was not found, or the shim cannot be loaded into it
  69   the shim or the daemon is missing, or the daemon could not be started
  71   the system did not start a process
  76   the daemon gave an answer that makes no sense
  77   the runtime folder is not the user's alone
  78   the configuration file is broken";

/// Run a program as a tenant of the GPU
///
/// The program is unchanged and runs in this very process: its exit code, signals, terminal and standard streams are its
/// own. Where no daemon runs, one is started; it stays until `detshare down`. With `--device soft` alone none is started.
#[derive(Debug, Args)]
#[command(override_usage = "detshare run [OPTIONS] -- PROGRAM [ARGS]...", after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// How urgent its work is; without this, what the configuration says for its name or for all
    #[arg(long, value_name = "CLASS", value_parser = flags::class())]
    class: Option<Class>,

    /// What to call it; without this, by its program or script
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,

    /// The 99th percentile of its steps that it is to keep to, such as 5ms
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration, allow_hyphen_values = true)]
    p99: Option<Duration>,

    /// The time to the first token that it is to keep to, such as 1s
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration, allow_hyphen_values = true)]
    ttft: Option<Duration>,

    /// The time for each further token that it is to keep to, such as 50ms
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration, allow_hyphen_values = true)]
    tpot: Option<Duration>,

    /// The most GPU memory that it may have, such as 40GiB
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_size)]
    mem: Option<u64>,

    /// Let its long kernels give way in the middle, where they come as PTX and can be rewritten safely
    #[arg(long)]
    block_level: bool,

    /// Use this instead of the machine's GPU; without a daemon and without flags of sharing, the program has it alone
    #[arg(long, value_enum, value_name = "DEVICE")]
    device: Option<Device>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// What stands in for the machine's GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// The software GPU, which runs PTX kernels on the CPU
    Soft,
}

pub(super) fn parse_name(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.is_empty() || text.len() > LONGEST_NAME || !text.bytes().all(is_allowed) {
        return Err(format!("a name has 1 to {LONGEST_NAME} letters, digits, dots, dashes and underscores"));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a name of digits alone would be taken for a process: add a letter".to_string());
    }
    Ok(text.to_string())
}

/// What the flags resolve to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) class: Option<Class>,
    pub(crate) name: Option<String>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) ttft_ns: Option<u64>,
    pub(crate) tpot_ns: Option<u64>,
    /// In bytes.
    pub(crate) memory: Option<u64>,
    pub(crate) block_level: bool,
    pub(crate) device: Option<Device>,
    /// The program and its arguments.
    pub(crate) program: Vec<OsString>,
}

impl From<Arguments> for Settings {
    fn from(arguments: Arguments) -> Self {
        let Arguments { class, name, p99, ttft, tpot, mem, block_level, device, program } = arguments;
        let [p99_ns, ttft_ns, tpot_ns] = [p99, ttft, tpot].map(|time| time.map(flags::nanoseconds));
        Self { class, name, p99_ns, ttft_ns, tpot_ns, memory: mem, block_level, device, program }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use clap::error::ErrorKind;

    #[derive(Debug, Parser)]
    struct Run {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn resolved(line: &str) -> Result<Settings, ErrorKind> {
        let parsed = Run::try_parse_from(std::iter::once("run").chain(line.split_whitespace()));
        parsed.map(|run| run.arguments.into()).map_err(|error| error.kind())
    }

    #[test]
    fn without_flags_nothing_is_set() {
        let settings = resolved("-- python3 --class x").unwrap();
        assert_eq!(settings.program, ["python3", "--class", "x"]);
        assert!(settings.environment().is_empty());
    }

    #[test]
    fn all_flags_reach_the_environment() {
        let line = "--class latency --name serve.1 --p99 5ms --ttft 1s --tpot 50ms --mem 40GiB --block-level --device soft -- a";
        let settings = resolved(line).unwrap();
        assert_eq!(settings.device, Some(Device::Soft));
        let variables: Vec<_> = settings.environment().into_iter().collect();
        let expected = [
            ("DETSHARE_BLOCK_LEVEL", "on"),
            ("DETSHARE_CLASS", "latency"),
            ("DETSHARE_MEM", "42949672960"),
            ("DETSHARE_NAME", "serve.1"),
            ("DETSHARE_P99", "5000000"),
            ("DETSHARE_TPOT", "50000000"),
            ("DETSHARE_TTFT", "1000000000"),
        ];
        assert_eq!(variables, expected.map(|(name, value)| (name, value.into())));
    }

    #[test]
    fn what_makes_no_sense() {
        for flags in ["--name a/b", "--name 42", "--p99 5", "--ttft 0s", "--mem 0", "--mem lots"] {
            assert_eq!(resolved(&format!("{flags} -- a")), Err(ErrorKind::ValueValidation), "{flags}");
        }
        assert_eq!(resolved("--class fast -- a"), Err(ErrorKind::InvalidValue));
        assert_eq!(resolved("--device hard -- a"), Err(ErrorKind::InvalidValue));
        assert_eq!(resolved("--class latency"), Err(ErrorKind::MissingRequiredArgument));
        assert_eq!(resolved(&format!("--name {} -- a", "x".repeat(64))), Err(ErrorKind::ValueValidation));
    }
}
