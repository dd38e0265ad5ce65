//! What a tenant is given: pure, from the settings, what it said of itself, and what was changed since.

use crate::config::{Config, TenantSettings};
use detshare_api::{Class, Isolation, TenantPatch};
use detshare_board::join::Hello;
use detshare_board::{Entry, Limits, Objective, SplitLadder};

/// The driver hands out SMs in groups of so many.
const GRANULE: u32 = 8;

/// What the settings have for tenants of one of these names, the first before the second.
pub(crate) fn settings_for(config: &Config, names: [&str; 2]) -> TenantSettings {
    names.iter().find_map(|name| config.tenants.get(*name)).copied().unwrap_or_default()
}

/// The later goes before the earlier: the defaults, the settings for its name, what it was started with, what was changed
/// since.
pub(crate) fn entry(
    config: &Config,
    settings: &TenantSettings,
    isolation: Isolation,
    hello: &Hello,
    patch: &TenantPatch,
) -> Entry {
    let class = patch.class.or(hello.class.map(from_board)).or(settings.class).unwrap_or(config.default_class);
    let usual = Entry::new(to_board(class));
    let said = hello.objective;
    let best_effort = config.classes.best_effort;
    let limits = Limits {
        memory: patch.memory.unwrap_or(hello.memory.or(settings.memory.map(|bytes| bytes.0))),
        longest_hold_ns: config.longest_hold.0,
        least_share: config.least_share.0,
    };
    Entry {
        class: to_board(class),
        weight: patch.weight.or(settings.weight.map(|weight| weight.0)).unwrap_or(usual.weight),
        paused: patch.paused.unwrap_or(false),
        objective: Objective {
            p99_ns: patch.p99_ns.unwrap_or(said.p99_ns.or(settings.p99.map(|ns| ns.0))),
            ttft_ns: patch.ttft_ns.unwrap_or(said.ttft_ns.or(settings.ttft.map(|ns| ns.0))),
            tpot_ns: patch.tpot_ns.unwrap_or(said.tpot_ns.or(settings.tpot.map(|ns| ns.0))),
        },
        ladder: ladder(&config.ladder.0, isolation, hello.width),
        limits,
        turnaround_ns: (class == Class::BestEffort && (hello.block_level || best_effort.block_level))
            .then_some(best_effort.turnaround.0),
    }
}

/// The splits that this GPU can have. One that is as wide as the GPU leaves no rest.
fn ladder(widths: &[u32], isolation: Isolation, gpu_width: u32) -> SplitLadder {
    if isolation == Isolation::Process {
        return SplitLadder::NONE;
    }
    let possible = widths.iter().copied().filter(|width| width.is_multiple_of(GRANULE) && *width < gpu_width);
    SplitLadder::new(&possible.collect::<Vec<_>>()).unwrap_or_default()
}

/// The class as the board has it.
pub(crate) const fn to_board(class: Class) -> detshare_board::Class {
    match class {
        Class::Latency => detshare_board::Class::Latency,
        Class::BestEffort => detshare_board::Class::BestEffort,
    }
}

/// The class as the interface has it.
pub(crate) const fn from_board(class: detshare_board::Class) -> Class {
    match class {
        detshare_board::Class::Latency => Class::Latency,
        detshare_board::Class::BestEffort => Class::BestEffort,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BestEffortSettings, Bytes, Nanoseconds, Weight};

    fn hello() -> Hello {
        Hello { width: 132, gpu: "NVIDIA H200".to_string(), ..Hello::default() }
    }

    #[test]
    fn the_later_goes_before_the_earlier() {
        let config = Config { default_class: Class::Latency, ..Config::default() };
        let settings = TenantSettings {
            class: Some(Class::BestEffort),
            weight: Some(Weight(7)),
            memory: Some(Bytes(1 << 30)),
            p99: Some(Nanoseconds(5)),
            ..TenantSettings::default()
        };
        let nothing = TenantPatch::default();
        let plain = entry(&config, &TenantSettings::default(), Isolation::Mps, &hello(), &nothing);
        assert_eq!(plain.class, detshare_board::Class::Latency);
        let set = entry(&config, &settings, Isolation::Mps, &hello(), &nothing);
        assert_eq!((set.class, set.weight), (detshare_board::Class::BestEffort, 7));
        assert_eq!((set.limits.memory, set.objective.p99_ns), (Some(1 << 30), Some(5)));

        let said = Hello { class: Some(detshare_board::Class::Latency), memory: Some(1 << 20), ..hello() };
        let set = entry(&config, &settings, Isolation::Mps, &said, &nothing);
        assert_eq!((set.class, set.limits.memory), (detshare_board::Class::Latency, Some(1 << 20)));

        let patch = TenantPatch { memory: Some(None), paused: Some(true), weight: Some(9), ..nothing };
        let set = entry(&config, &settings, Isolation::Mps, &said, &patch);
        assert_eq!((set.limits.memory, set.paused, set.weight), (None, true, 9));
    }

    #[test]
    fn block_level_is_for_best_effort_tenants_that_ask_for_it_or_whose_class_does() {
        let given = |config: &Config, said: &Hello, patch: &TenantPatch| {
            entry(config, &TenantSettings::default(), Isolation::Mps, said, patch).turnaround_ns
        };
        let (mut config, nothing) = (Config::default(), TenantPatch::default());
        let asks = Hello { block_level: true, ..hello() };
        assert_eq!((given(&config, &hello(), &nothing), given(&config, &asks, &nothing)), (None, Some(32_000)));
        let latency = TenantPatch { class: Some(Class::Latency), ..nothing };
        assert_eq!(given(&config, &asks, &latency), None);
        config.classes.best_effort = BestEffortSettings { block_level: true, turnaround: Nanoseconds(50_000) };
        assert_eq!(given(&config, &hello(), &nothing), Some(50_000));
    }

    #[test]
    fn splits_fit_the_gpu() {
        let widths = |widths: &[u32], isolation, width| ladder(widths, isolation, width).widths().to_vec();
        assert_eq!(widths(&[12, 16, 64, 132, 136], Isolation::Mps, 132), [16, 64]);
        assert_eq!(widths(&[16, 32], Isolation::None, 16), [0_u32; 0]);
        assert_eq!(widths(&[16, 32], Isolation::Process, 132), [0_u32; 0]);
        assert_eq!(widths(&[16, 32], Isolation::None, 0), [0_u32; 0]);
    }

    #[test]
    fn the_second_of_a_name_has_its_settings_too() {
        let mut config = Config::default();
        let weight = |weight| TenantSettings { weight: Some(Weight(weight)), ..TenantSettings::default() };
        config.tenants.insert("train".to_string(), weight(1));
        assert_eq!(settings_for(&config, ["train-2", "train"]), weight(1));
        config.tenants.insert("train-2".to_string(), weight(2));
        assert_eq!(settings_for(&config, ["train-2", "train"]), weight(2));
        assert_eq!(settings_for(&config, ["serve", "serve"]), TenantSettings::default());
    }
}
