//! What stands in the environment in the place of a flag.
//!
//! The shim reads these variables, and it is silent in other people's programs: what it cannot read, it ignores. A person who
//! exported a class with a typing error would have a tenant of another class, so it is said here, where flags are judged too.

use super::flags::{Settings, parse_name};
use crate::quantity;
use detshare_api::Class;
use std::ffi::OsString;

/// A variable that the shim could not read, or that no flag could say.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value {value:?} for {name} in the environment: {allowed}; see `detshare run --help`")]
pub(crate) struct InheritedError {
    name: &'static str,
    value: OsString,
    /// What is allowed.
    allowed: String,
}

/// Reads a variable's text; an error says what is allowed.
type Reading = fn(&str) -> Result<(), String>;

/// In the order in which the documentation has them.
const VARIABLES: [(&str, Reading); 7] = [
    ("DETSHARE_CLASS", |text| text.parse::<Class>().map(drop).map_err(|_| "it is latency or best-effort".into())),
    ("DETSHARE_NAME", |text| parse_name(text).map(drop)),
    ("DETSHARE_MEM", |text| quantity::parse_size(text).map(drop)),
    ("DETSHARE_P99", objective),
    ("DETSHARE_TTFT", objective),
    ("DETSHARE_TPOT", objective),
    ("DETSHARE_BLOCK_LEVEL", block_level),
];

/// Judges what no flag replaces. The shim takes an empty variable for none.
pub(crate) fn check(
    settings: &Settings,
    variable: impl Fn(&'static str) -> Option<OsString>,
) -> Result<(), InheritedError> {
    let replaced = settings.environment();
    let inherited = VARIABLES.iter().filter(|(name, _)| !replaced.contains_key(name));
    for (name, read) in inherited {
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
        let judged = value.to_str().map_or_else(|| Err("it must be text".to_string()), read);
        judged.map_err(|allowed| InheritedError { name, value, allowed })?;
    }
    Ok(())
}

/// In nanoseconds: so `run` writes them for the shim, and so the shim reads them.
fn objective(text: &str) -> Result<(), String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let judged = if is_number { quantity::parse_duration(&format!("{text}ns")).ok() } else { None };
    judged
        .map(drop)
        .ok_or_else(|| "it is a number of nanoseconds between 1us and 24 hours, such as 5000000".to_string())
}

/// As a person asks for it, or as tests do.
fn block_level(text: &str) -> Result<(), String> {
    let is_forced = text.split_once(':').is_some_and(|(way, number)| match way {
        "random" => number.parse::<u64>().is_ok(),
        "slices" | "preempt" | "others" => number.parse::<u32>().is_ok_and(|blocks| blocks > 0),
        _ => false,
    });
    let is_fine = text == "on" || is_forced;
    is_fine
        .then_some(())
        .ok_or_else(|| "it is on, or for tests random:SEED, slices:BLOCKS or preempt:BLOCKS".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_flags() -> Settings {
        Settings {
            class: None,
            name: None,
            p99_ns: None,
            ttft_ns: None,
            tpot_ns: None,
            memory: None,
            block_level: false,
            device: None,
            program: Vec::new(),
        }
    }

    fn judge(settings: &Settings, name: &str, value: &str) -> Result<(), String> {
        check(settings, |asked| (asked == name).then(|| value.into())).map_err(|error| error.to_string())
    }

    #[test]
    fn what_run_itself_writes_is_taken() {
        let settings = Settings {
            class: Some(Class::Latency),
            name: Some("serve".to_string()),
            p99_ns: Some(1_000),
            ttft_ns: Some(86_400_000_000_000),
            tpot_ns: Some(5_000_000),
            memory: Some(1),
            block_level: true,
            ..without_flags()
        };
        let written = settings.environment();
        assert_eq!(written.len(), VARIABLES.len(), "each flag's variable is judged");
        assert_eq!(check(&without_flags(), |name| written.get(name).cloned()), Ok(()));
    }

    #[test]
    fn what_makes_no_sense_is_named_with_what_does() {
        for (name, value, allowed) in [
            ("DETSHARE_CLASS", "fast", "latency or best-effort"),
            ("DETSHARE_NAME", "a b", "letters"),
            ("DETSHARE_MEM", "lots", "40GiB"),
            ("DETSHARE_P99", "5ms", "nanoseconds"),
            ("DETSHARE_TTFT", "0", "between 1us and 24 hours"),
            ("DETSHARE_TPOT", "99999999999999999999", "between 1us and 24 hours"),
            ("DETSHARE_BLOCK_LEVEL", "slices:many", "slices:BLOCKS"),
        ] {
            let said = judge(&without_flags(), name, value).unwrap_err();
            assert!(said.contains(name) && said.contains(value) && said.contains(allowed), "{said}");
        }
    }

    #[test]
    fn nothing_is_fine_and_so_is_what_a_flag_replaces() {
        assert_eq!(judge(&without_flags(), "DETSHARE_CLASS", ""), Ok(()));
        let settings = Settings { class: Some(Class::BestEffort), ..without_flags() };
        assert_eq!(judge(&settings, "DETSHARE_CLASS", "fast"), Ok(()));
    }
}
