//! Processes that end with this one, and what the kernel says of them.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

/// A process of ours: it never outlives this one, whatever happens.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it. To be called by the main thread: the process is ended with the thread that started it.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let die_with_parent = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: one system call, which may be made between fork and exec.
        unsafe { command.pre_exec(die_with_parent) };
        let program = command.get_program().to_os_string();
        Ok(Self(command.spawn().with_context(|| format!("cannot start {}", program.display()))?))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // Until it is waited for, its pid is its own: at worst it has ended.
        _ = kill_process(Pid::from_child(&self.0), signal);
    }

    /// Ends it at once and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.0.wait().context("a child is lost")
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.0.try_wait().context("a child is lost")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.kill();
    }
}

/// What a process has of the board and otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// Open files.
    pub(crate) files: usize,
    /// Open files of the board.
    pub(crate) groups: usize,
    /// Sockets among the open files.
    pub(crate) sockets: usize,
    /// Processes among the open files.
    pub(crate) pidfds: usize,
    /// Mappings of tenants' groups.
    pub(crate) tenants_mapped: usize,
    /// Mappings of daemons' groups.
    pub(crate) daemons_mapped: usize,
}

impl Holdings {
    /// Whether it is nothing more than that.
    pub(crate) fn is_within(&self, most: &Self) -> bool {
        self.files <= most.files
            && self.groups <= most.groups
            && self.sockets <= most.sockets
            && self.pidfds <= most.pidfds
            && self.tenants_mapped <= most.tenants_mapped
            && self.daemons_mapped <= most.daemons_mapped
    }
}

/// Nothing if the process has gone meanwhile.
pub(crate) fn holdings(pid: u32) -> Option<Holdings> {
    let (mut files, mut groups, mut sockets, mut pidfds) = (0, 0, 0, 0);
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        // Closed meanwhile.
        let Ok(target) = entry.and_then(|entry| fs::read_link(entry.path())) else { continue };
        let target = target.to_string_lossy();
        files += 1;
        groups += usize::from(target.starts_with("/memfd:detshare-"));
        sockets += usize::from(target.starts_with("socket:"));
        // As kernels before 6.9 name them, and as later ones may.
        pidfds += usize::from(target == "anon_inode:[pidfd]" || target.starts_with("pidfd:"));
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mapped = |name: &str| maps.lines().filter(|line| line.contains(name)).count();
    Some(Holdings {
        files,
        groups,
        sockets,
        pidfds,
        tenants_mapped: mapped("/memfd:detshare-tenant"),
        daemons_mapped: mapped("/memfd:detshare-daemon"),
    })
}

/// From now on a process whose parent ends before it becomes a child of this one, so that [`descendants`] has it.
pub(crate) fn adopt_orphans() -> Result<()> {
    set_child_subreaper(Some(getpid())).context("orphans cannot be adopted")
}

/// Processes that this one has started, and that those have, and so on; also those that have ended and were not waited for.
pub(crate) fn descendants() -> Result<BTreeSet<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes that end meanwhile are none.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_ascii_whitespace().nth(1));
        parents.push((pid, parent.and_then(|parent| parent.parse().ok()).context("a process without a parent")?));
    }
    let mut found = BTreeSet::new();
    let mut generation = BTreeSet::from([std::process::id()]);
    while !generation.is_empty() {
        generation = parents.iter().filter(|(_, parent)| generation.contains(parent)).map(|(pid, _)| *pid).collect();
        found.extend(&generation);
    }
    Ok(found)
}

/// Its memory, in KiB.
pub(crate) fn resident_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// What all its threads have computed so far, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    const USER_TIME_AFTER_NAME: usize = 14 - 3;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no name in the process's state")?;
    let ticks: u32 = fields
        .split_ascii_whitespace()
        .skip(USER_TIME_AFTER_NAME)
        .take(2)
        .map(|field| field.parse::<u32>())
        .sum::<Result<u32, _>>()?;
    #[expect(clippy::cast_precision_loss, reason = "a hundred or a thousand")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok(f64::from(ticks) / per_second)
}

/// What its threads are doing, for a report of one that does not go on.
pub(crate) fn threads(pid: u32) -> String {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return "it has gone".to_string() };
    let line = |task: fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default().trim().to_string();
        let state = read("stat").rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next()).unwrap_or('?');
        format!("    {} {state} {} {}", read("comm"), read("wchan"), read("syscall"))
    };
    tasks.flatten().map(line).collect::<Vec<_>>().join("\n")
}
