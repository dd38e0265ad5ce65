//! What keeps tenants apart on this machine, and what follows from that.

use crate::config::IsolationSetting;
use crate::mps;
use detshare_api::Isolation;
use std::path::{Path, PathBuf};

/// There whenever NVIDIA's kernel driver is.
const DEVICE: &str = "/dev/nvidiactl";
/// What is in force instead of a policy that needs partitions, where there are none.
const ONE_AT_A_TIME: &str = "exclusive";

/// Whether a policy can be in force there.
pub(crate) fn allows(isolation: Isolation, policy: &str) -> bool {
    let shares = detshare_policy::POLICIES.iter().any(|known| known.name == policy && known.shares);
    isolation != Isolation::Process || !shares
}

/// MPS is wanted and is not there.
#[derive(Debug, thiserror::Error)]
#[error(
    "isolation is \"mps\", but there is no {} on PATH: install NVIDIA's driver utilities, or set isolation to \"auto\"",
    mps::PROGRAM
)]
pub struct NoMps;

/// What was found, with MPS's control program if it is to be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) isolation: Isolation,
    pub(crate) control: Option<PathBuf>,
}

/// By the setting and the machine.
pub(crate) fn find(setting: IsolationSetting) -> Result<Found, NoMps> {
    decide(setting, Path::new(DEVICE).exists(), mps::find_on_path(mps::PROGRAM))
}

fn decide(setting: IsolationSetting, has_device: bool, control: Option<PathBuf>) -> Result<Found, NoMps> {
    let without = |isolation| Found { isolation, control: None };
    match (setting, control) {
        (IsolationSetting::Process, _) => Ok(without(Isolation::Process)),
        (IsolationSetting::Auto, _) if !has_device => Ok(without(Isolation::None)),
        (IsolationSetting::Auto | IsolationSetting::Mps, Some(control)) => {
            Ok(Found { isolation: Isolation::Mps, control: Some(control) })
        }
        (IsolationSetting::Auto, None) => Ok(without(Isolation::Process)),
        (IsolationSetting::Mps, None) => Err(NoMps),
    }
}

/// The policy in force, and why it is not simply the configured one.
pub(crate) fn policy(configured: &str, by_hand: Option<&str>, isolation: Isolation) -> (String, Option<String>) {
    let wanted = by_hand.unwrap_or(configured);
    if !allows(isolation, wanted) {
        let reason = format!("without MPS there are no partitions, so {wanted} is not possible");
        return (ONE_AT_A_TIME.to_string(), Some(reason));
    }
    let reason = (wanted != configured).then(|| format!("set by hand; the configuration says {configured}"));
    (wanted.to_string(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_offers() {
        let control = || Some(PathBuf::from("/usr/bin/nvidia-cuda-mps-control"));
        let isolation = |setting, device, control| decide(setting, device, control).map(|found| found.isolation).ok();
        for (setting, device, control, wanted) in [
            (IsolationSetting::Auto, false, control(), Some(Isolation::None)),
            (IsolationSetting::Auto, true, control(), Some(Isolation::Mps)),
            (IsolationSetting::Auto, true, None, Some(Isolation::Process)),
            (IsolationSetting::Mps, false, control(), Some(Isolation::Mps)),
            (IsolationSetting::Mps, true, None, None),
            (IsolationSetting::Process, true, control(), Some(Isolation::Process)),
        ] {
            assert_eq!(isolation(setting, device, control), wanted, "{setting:?}");
        }
    }

    #[test]
    fn the_policy_says_why_it_is_another() {
        assert_eq!(policy("fair", None, Isolation::Mps), ("fair".to_string(), None));
        let (name, reason) = policy("fair", None, Isolation::Process);
        assert!(name == "exclusive" && reason.is_some_and(|reason| reason.contains("MPS")));
        assert_eq!(policy("exclusive", None, Isolation::Process), ("exclusive".to_string(), None));
        assert_eq!(policy("slo-aware", None, Isolation::Process), ("slo-aware".to_string(), None));
        let (name, reason) = policy("fair", Some("exclusive"), Isolation::None);
        assert!(name == "exclusive" && reason.is_some_and(|reason| reason.contains("fair")));
    }
}
