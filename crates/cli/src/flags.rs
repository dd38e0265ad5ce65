//! Values that several subcommands take.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use detshare_api::Class;
use detshare_policy::POLICIES;
use std::time::Duration;

/// A class by its name; the names are offered by completions and in the help.
pub(crate) fn class() -> impl TypedValueParser<Value = Class> {
    let names = [Class::Latency, Class::BestEffort].map(Class::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Class>())
}

/// A policy by its name.
pub(crate) fn policy() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(POLICIES.iter().map(|policy| PossibleValue::new(policy.name).help(policy.about)))
}

/// As the shim and the daemon count time.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
