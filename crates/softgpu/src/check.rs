//! What kernels were found to do wrong: told on standard error, each thing once, and counted.
//!
//! `DETSHARE_SOFTGPU_CHECK=1` has every kernel checked (`exec::check` says for what); with `fail` a kernel that does
//! something wrong ends with `CUDA_ERROR_LAUNCH_FAILED`, as after a fault. `DETSHARE_SOFTGPU_CHECK_LIMIT` is how many
//! findings are told (100), and `DETSHARE_SOFTGPU_CHECK_EXIT` a status with which the process ends if there were any.

use crate::boundary::tell;
use crate::exec::{Finding, FindingKind};
use std::collections::HashMap;
use std::sync::{Mutex, Once};

/// How many findings are told where nothing else is asked for.
const USUAL_LIMIT: usize = 100;

/// How kernels are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Check {
    /// Findings end the kernel.
    pub(crate) fails: bool,
    /// How many findings are told.
    limit: usize,
    /// What the process ends with after findings.
    exit: Option<i32>,
}

impl Check {
    pub(crate) fn from_environment() -> Option<Self> {
        Self::from_words(|name| std::env::var(name).ok())
    }

    fn from_words(word: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let mode = word("DETSHARE_SOFTGPU_CHECK").filter(|mode| !mode.is_empty() && mode != "0")?;
        let limit = word("DETSHARE_SOFTGPU_CHECK_LIMIT").and_then(|limit| limit.trim().parse().ok());
        // Others are no statuses of a process.
        let exit = word("DETSHARE_SOFTGPU_CHECK_EXIT").and_then(|status| status.trim().parse::<u8>().ok());
        Some(Self {
            fails: mode == "fail",
            limit: limit.unwrap_or(USUAL_LIMIT),
            exit: exit.filter(|status| *status != 0).map(i32::from),
        })
    }
}

/// A thing that was found: what, in which kernel, at which instructions.
type Key = (FindingKind, String, [u32; 2]);

/// How often each thing was found.
#[derive(Default)]
struct Found {
    counts: HashMap<Key, u64>,
    told: usize,
}

static FOUND: Mutex<Option<Found>> = Mutex::new(None);

/// Tells what is new in the findings of a block, and counts.
pub(crate) fn report(check: Check, kernel: &str, findings: Vec<Finding>) {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: a function without arguments; the library's end calls it where that comes before the process's.
        let failed = unsafe { libc::atexit(summary) };
        if failed != 0 {
            tell(format_args!("check: there will be no summary at the end"));
        }
    });
    let mut found = FOUND.lock().expect("no panic while it is held");
    let found = found.get_or_insert_default();
    for finding in findings {
        let count = found.counts.entry((finding.kind, kernel.to_string(), finding.sites)).or_default();
        let is_new = *count == 0;
        *count += finding.count;
        if is_new && found.told < check.limit {
            found.told += 1;
            tell(format_args!("check: {}", finding.words));
        }
    }
}

/// Says at the end how much there was, and lets the process fail if that is asked for.
extern "C" fn summary() {
    let Some(check) = crate::device::settings().check else { return };
    // A thread that was ended while it held the lock is no reason to hang now.
    let Ok(found) = FOUND.try_lock() else { return };
    let Some(found) = &*found else { return };
    let places = found.counts.len();
    let times: u64 = found.counts.values().sum();
    let untold = places - found.told;
    let rest = if untold > 0 { format!(", {untold} of them not shown") } else { String::new() };
    tell(format_args!("check: findings: {places}{rest}, which occurred {times} times"));
    if let Some(status) = check.exit {
        // SAFETY: writes what the program left in its buffers.
        unsafe { libc::fflush(core::ptr::null_mut()) };
        // SAFETY: ends the process.
        unsafe { libc::_exit(status) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[(&str, &str)]) -> Option<Check> {
        Check::from_words(|name| words.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn what_the_environment_asks_for() {
        let on = ("DETSHARE_SOFTGPU_CHECK", "1");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("DETSHARE_SOFTGPU_CHECK", "0")]), None);
        assert_eq!(of(&[on]), Some(Check { fails: false, limit: USUAL_LIMIT, exit: None }));
        assert!(of(&[("DETSHARE_SOFTGPU_CHECK", "fail")]).unwrap().fails);
        let all = of(&[on, ("DETSHARE_SOFTGPU_CHECK_LIMIT", "3"), ("DETSHARE_SOFTGPU_CHECK_EXIT", "9")]);
        assert_eq!(all, Some(Check { fails: false, limit: 3, exit: Some(9) }));
        assert_eq!(of(&[on, ("DETSHARE_SOFTGPU_CHECK_EXIT", "0")]).unwrap().exit, None);
    }
}
