//! Arms: the ways of running a scenario's programs that are compared.

use super::scenario::{Device, Scenario};
use detshare_policy::{POLICIES, Policy};

/// One way of running the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    /// For people, in a line.
    pub(crate) about: &'static str,
    pub(crate) way: Way,
    /// Each program by itself, one after the other.
    pub(crate) is_alone: bool,
}

/// What the programs run under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nothing: what the driver does with several programs.
    Bare,
    /// MPS; with a hint which programs come first.
    Mps { priority: bool },
    /// MPS, and for each class a part of the SMs that never changes.
    Fixed { width: u32 },
    /// Tenants of a daemon.
    DetShare { policy: &'static str },
}

impl Arm {
    /// Whether the daemon's dial changes what happens to tenants that run together: only who foresees something can risk it.
    pub(crate) fn has_dial(&self) -> bool {
        let Way::DetShare { policy } = self.way else { return false };
        let policy = detshare_policy::number(policy).and_then(detshare_policy::policy);
        !self.is_alone && policy.is_some_and(|policy| policy.foresees)
    }
}

/// What all others are compared with.
pub(crate) const ALONE: &str = "alone";

pub(crate) const BARE_ALONE: Arm =
    Arm { name: ALONE, about: "alone on the GPU, without DetShare", way: Way::Bare, is_alone: true };
const SHARED: Arm =
    Arm { name: "shared", about: "together, with nothing between them", way: Way::Bare, is_alone: false };
const TIME_SLICING: Arm =
    Arm { name: "time-slicing", about: "together, with the GPU's time sliced by the driver", ..SHARED };
const MPS: Arm = Arm { name: "mps", about: "together under MPS", way: Way::Mps { priority: false }, is_alone: false };
const MPS_PRIORITY: Arm = Arm {
    name: "mps-priority",
    about: "together under MPS with client priorities",
    way: Way::Mps { priority: true },
    ..MPS
};
const FIXED_64: Arm = Arm {
    name: "fixed-64",
    about: "together under MPS, on parts of the GPU for good: 64 SMs for the latency programs, or the first one, and the rest",
    way: Way::Fixed { width: 64 },
    is_alone: false,
};
const FIXED_96: Arm = Arm {
    name: "fixed-96",
    about: "together under MPS, on parts of the GPU for good: 96 SMs for the latency programs, or the first one, and the rest",
    way: Way::Fixed { width: 96 },
    is_alone: false,
};

/// The policies that are compared if nobody says otherwise, as far as they exist.
const USUAL_POLICIES: [&str; 4] = ["slo-aware", "throughput", "fair", "exclusive"];
/// The same where programs of both classes run: the others do not protect anybody.
const USUAL_POLICIES_OF_BOTH: [&str; 1] = ["slo-aware"];
/// The same for scenarios with LLM servers, which take longer.
const USUAL_LLM_POLICIES: [&str; 3] = ["slo-aware", "throughput", "tpot-first"];

/// Why there is nothing to compare.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArmError {
    #[error("{scenario} has no arm {name:?}: it has {known}")]
    Unknown { scenario: &'static str, name: String, known: String },
}

/// All that make sense for the scenario, in the order in which they are run first: what all are compared with leads.
pub(crate) fn known(scenario: &Scenario) -> Vec<Arm> {
    let bare: &[Arm] = match scenario.device {
        Device::Gpu => &[BARE_ALONE, TIME_SLICING, MPS, MPS_PRIORITY, FIXED_64, FIXED_96],
        Device::Soft => &[BARE_ALONE, SHARED],
    };
    // A hint who comes first is none where all are equal.
    let makes_sense = |arm: &&Arm| scenario.has_both_classes() || arm.way != (Way::Mps { priority: true });
    let policies = usual_policies().into_iter().chain(other_policies());
    let detshare_alone = usual_policies().first().map(|policy| Arm {
        name: "detshare-alone",
        about: "alone, as a tenant of DetShare",
        way: Way::DetShare { policy: policy.name },
        is_alone: true,
    });
    let detshare = policies.map(|policy| Arm {
        name: policy.name,
        about: policy.about,
        way: Way::DetShare { policy: policy.name },
        is_alone: false,
    });
    bare.iter().filter(makes_sense).copied().chain(detshare_alone).chain(detshare).collect()
}

/// The arms with these names, in that order: what matters most is then not what a limit leaves out. What all are compared
/// with leads all the same. Without names, the usual ones.
pub(crate) fn choose(scenario: &'static Scenario, names: &[String]) -> Result<Vec<Arm>, ArmError> {
    let mut known = known(scenario);
    let by_name = |name: &String| known.iter().find(|arm| arm.name == name.as_str()).copied();
    if let Some(name) = names.iter().find(|name| known.iter().all(|arm| arm.name != name.as_str())) {
        let known = known.iter().map(|arm| arm.name).collect::<Vec<_>>().join(", ");
        return Err(ArmError::Unknown { scenario: scenario.name, name: name.clone(), known });
    }
    if names.is_empty() {
        known.retain(|arm| is_usual(scenario, arm));
        return Ok(known);
    }
    let mut chosen: Vec<Arm> = Vec::new();
    for arm in names.iter().filter_map(by_name) {
        if !chosen.contains(&arm) {
            chosen.push(arm);
        }
    }
    chosen.sort_by_key(|arm| arm.name != ALONE);
    Ok(chosen)
}

fn is_usual(scenario: &Scenario, arm: &Arm) -> bool {
    let usual: &[&str] = match scenario.device {
        Device::Gpu if scenario.has_servers() => &USUAL_LLM_POLICIES,
        Device::Gpu if scenario.has_both_classes() => &USUAL_POLICIES_OF_BOTH,
        Device::Gpu | Device::Soft => &USUAL_POLICIES,
    };
    match arm.way {
        Way::Bare | Way::Mps { .. } => true,
        Way::Fixed { .. } => !scenario.has_servers(),
        Way::DetShare { policy } => arm.is_alone || usual.contains(&policy),
    }
}

fn usual_policies() -> Vec<&'static Policy> {
    USUAL_POLICIES.iter().filter_map(|name| detshare_policy::policy(detshare_policy::number(name)?)).collect()
}

fn other_policies() -> Vec<&'static Policy> {
    POLICIES.iter().filter(|policy| !USUAL_POLICIES.contains(&policy.name)).collect()
}

/// In which order so many arms are run in a round, counted from 0: each round begins elsewhere, so that none always runs
/// on a GPU that is still cool.
pub(crate) fn order(arms: usize, round: usize, rounds: usize) -> Vec<usize> {
    let stride = (arms / rounds.max(1)).max(1);
    (0..arms).map(|place| (place + round * stride) % arms).collect()
}

#[cfg(test)]
mod tests {
    use super::super::scenario::SCENARIOS;
    use super::*;

    fn scenario(device: Device) -> &'static Scenario {
        SCENARIOS.iter().find(|scenario| scenario.device == device).unwrap()
    }

    fn names(arms: &[Arm]) -> Vec<&'static str> {
        arms.iter().map(|arm| arm.name).collect()
    }

    #[test]
    fn alone_leads_and_every_policy_is_an_arm() {
        for device in [Device::Gpu, Device::Soft] {
            let arms = names(&known(scenario(device)));
            assert_eq!(arms[0], ALONE);
            for policy in POLICIES {
                assert!(arms.contains(&policy.name), "{}", policy.name);
            }
        }
    }

    #[test]
    fn without_a_gpu_nothing_needs_mps() {
        let needs_none = |arm: &Arm| matches!(arm.way, Way::Bare | Way::DetShare { .. });
        assert!(known(scenario(Device::Soft)).iter().all(needs_none));
    }

    #[test]
    fn among_equals_none_has_priority() {
        for scenario in SCENARIOS.iter().filter(|scenario| scenario.device == Device::Gpu) {
            assert_eq!(
                names(&known(scenario)).contains(&"mps-priority"),
                scenario.has_both_classes(),
                "{}",
                scenario.name
            );
        }
    }

    #[test]
    fn arms_are_chosen_by_name_and_keep_the_order_in_which_they_are_named() {
        let soft = scenario(Device::Soft);
        let chosen = choose(soft, &["fair", "shared", "alone", "exclusive", "fair"].map(String::from)).unwrap();
        assert_eq!(names(&chosen), ["alone", "fair", "shared", "exclusive"]);
        let unknown = choose(soft, &["mps".to_string()]).unwrap_err().to_string();
        assert!(unknown.starts_with("soft has no arm \"mps\": it has alone, shared, "), "{unknown}");
        assert!(names(&choose(soft, &[]).unwrap()).contains(&"exclusive"));
    }

    #[test]
    fn where_somebody_is_protected_the_usual_policy_is_the_one_that_does_it() {
        let usual = |name: &str| {
            let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
            let arms = choose(scenario, &[]).unwrap();
            names(&arms).into_iter().filter(|name| detshare_policy::number(name).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(usual("small"), ["slo-aware"]);
        assert_eq!(usual("two-full"), USUAL_POLICIES);
        assert_eq!(usual("soft"), USUAL_POLICIES);
    }

    #[test]
    fn llm_servers_have_usual_arms_of_their_own() {
        let llm = SCENARIOS.iter().find(|scenario| scenario.name == "llm-llm").unwrap();
        let usual = names(&choose(llm, &[]).unwrap());
        let expected = ["alone", "time-slicing", "mps", "detshare-alone", "slo-aware", "throughput"];
        assert_eq!(usual[..expected.len()], expected);
        assert_eq!(usual.contains(&"tpot-first"), detshare_policy::number("tpot-first").is_some());
    }

    #[test]
    fn every_round_runs_all_and_begins_elsewhere() {
        assert_eq!(order(4, 0, 2), [0, 1, 2, 3]);
        assert_eq!(order(4, 1, 2), [2, 3, 0, 1]);
        assert_eq!(order(3, 1, 5), [1, 2, 0]);
        assert_eq!(order(1, 7, 9), [0]);
        for round in 0..5 {
            let mut all = order(7, round, 3);
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
        }
    }
}
