//! The system that all runs on.

use super::Finding;
use rustix::process::{Resource, getrlimit};

type Version = (u32, u32);

/// Deaths are seen by files of processes.
const PIDFD: Version = (5, 3);
/// Several words of memory can be waited for at once; before that they are looked at in turn.
const WAIT_FOR_SEVERAL: Version = (5, 16);
/// Since Linux 6.3: which memory files may be made at all.
const MEMORY_FILES: &str = "/proc/sys/vm/memfd_noexec";
/// Only those that say of themselves that they cannot be executed.
const ONLY_SEALED: &str = "2";
/// A tenant has the page of every other open, and a program has files of its own.
const FEW_FILES: u64 = 512;

/// Whether the kernel has what the board is built on.
pub(super) fn kernel() -> Finding {
    let name = rustix::system::uname();
    let memory_files = std::fs::read_to_string(MEMORY_FILES).unwrap_or_default();
    judge_kernel(&name.release().to_string_lossy(), memory_files.trim())
}

fn judge_kernel(release: &str, memory_files: &str) -> Finding {
    const CHECK: &str = "kernel";
    let found = format!("Linux {release}");
    match version(release) {
        None => Finding::warning(CHECK, found, "5.3 or newer is needed; this name says nothing"),
        Some(version) if version < PIDFD => Finding::problem(CHECK, found, "5.3 or newer is needed"),
        Some(version) if version < WAIT_FOR_SEVERAL => {
            Finding::warning(CHECK, found, "holds end a little later than with 5.16 or newer")
        }
        Some(_) if memory_files == ONLY_SEALED => Finding::problem(
            CHECK,
            format!("{found} refuses the board's memory files (vm.memfd_noexec is {ONLY_SEALED})"),
            "set it to 1 with `sysctl vm.memfd_noexec=1`",
        ),
        Some(_) => Finding::ok(CHECK, found),
    }
}

fn version(release: &str) -> Option<Version> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether there is room for a file for each tenant.
pub(super) fn open_files() -> Finding {
    judge_open_files(getrlimit(Resource::Nofile).current)
}

fn judge_open_files(limit: Option<u64>) -> Finding {
    const CHECK: &str = "open files";
    match limit {
        Some(limit) if limit < FEW_FILES => Finding::warning(
            CHECK,
            format!("at most {limit} for a process"),
            format!("raise it with `ulimit -n {FEW_FILES}` or more before starting tenants and daemon"),
        ),
        Some(limit) => Finding::ok(CHECK, format!("at most {limit} for a process")),
        None => Finding::ok(CHECK, "no limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn kernels() {
        for (release, verdict) in [
            ("4.18.0-553.el8.x86_64", Verdict::Problem),
            ("5.3", Verdict::Warning),
            ("5.15.0-105-generic", Verdict::Warning),
            ("5.16-rc1", Verdict::Ok),
            ("6.8.0", Verdict::Ok),
            ("strange", Verdict::Warning),
        ] {
            assert_eq!(judge_kernel(release, "").verdict, verdict, "{release}");
        }
        assert_eq!(judge_kernel("6.8.0", "1").verdict, Verdict::Ok);
        assert_eq!(judge_kernel("6.8.0", "2").verdict, Verdict::Problem);
    }

    #[test]
    fn limits_on_files() {
        assert_eq!(judge_open_files(Some(256)).verdict, Verdict::Warning);
        assert_eq!(judge_open_files(Some(1024)).verdict, Verdict::Ok);
        assert_eq!(judge_open_files(None).verdict, Verdict::Ok);
    }
}
