//! Processes that are started here and end here, whatever happens.
//!
//! Each gets a process group of its own: it is ended with all its workers, and a Ctrl-C at the terminal is ours to act
//! upon. Were we killed, the system would end it.

use crate::program::{self, Ending, RunError};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, set_parent_process_death_signal, waitid,
};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long a process that is told to end may take to do so by itself.
const GRACE: Duration = Duration::from_secs(3);
/// How long the system may take to end it.
const LONGEST_END: Duration = Duration::from_secs(10);
/// Between two looks at something that does not announce itself.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// A process of ours. Dropped, it is ended.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    ending: Option<Ending>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self, RunError> {
        command.process_group(0);
        // SAFETY: the closure makes one system call, which a forked child may make.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let child = command.spawn().map_err(|error| program::not_started(command, error))?;
        Ok(Self { child, ending: None })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it writes, if that is a pipe; once.
    pub(crate) fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// What it reads, if that is a pipe; once.
    pub(crate) fn take_stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// How it ended, if it has. What it left of its group ends with it.
    pub(crate) fn ending(&mut self) -> Option<Ending> {
        if self.ending.is_none() && self.has_ended() {
            self.send(Signal::KILL);
            // It has ended, so this does not wait.
            self.ending = self.child.wait().ok().map(Ending::from);
        }
        self.ending
    }

    /// Waits for its end; none if that does not come in time.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<Ending> {
        let until = Instant::now() + limit;
        loop {
            match self.ending() {
                None if Instant::now() < until => std::thread::sleep(PAUSE),
                ending => return ending,
            }
        }
    }

    /// Ends it, at first by asking.
    pub(crate) fn end(&mut self) {
        for (signal, limit) in [(Signal::TERM, GRACE), (Signal::KILL, LONGEST_END)] {
            if self.ending().is_some() {
                return;
            }
            self.send(signal);
            self.wait(limit);
        }
    }

    /// Looks without taking notice, so that its number stays its own until its group is ended.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let looked = waitid(WaitId::Pid(Pid::from_child(&self.child)), options);
        // One that is no child of ours any more has ended.
        looked.map_or(true, |status| status.is_some())
    }

    /// To all of its group. It was not waited for yet, so its number is still its own.
    fn send(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script]).stdout(Stdio::piped())).unwrap()
    }

    fn is_there(pid: u32) -> bool {
        // One that has ended and was not waited for, by whoever that falls to, is not there.
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z'))
    }

    /// The number that it prints.
    fn number(process: &mut Process) -> u32 {
        let mut line = String::new();
        BufReader::new(process.take_stdout().unwrap()).read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    fn until_gone(pid: u32) {
        let deadline = Instant::now() + LONGEST_END;
        while is_there(pid) {
            assert!(Instant::now() < deadline, "{pid} is still there");
            std::thread::sleep(PAUSE);
        }
    }

    #[test]
    fn its_own_end_is_seen() {
        assert_eq!(shell("exit 3").wait(LONGEST_END), Some(Ending::Exit(3)));
    }

    #[test]
    fn it_ends_with_its_workers() {
        let mut process = shell("sleep 1000 & echo $!; wait");
        let worker = number(&mut process);
        assert!(is_there(worker) && process.ending().is_none());
        drop(process);
        until_gone(worker);
    }

    #[test]
    fn workers_that_it_leaves_behind_end_too() {
        let mut process = shell("sleep 1000 >/dev/null 2>&1 & echo $!");
        let worker = number(&mut process);
        assert_eq!(process.wait(LONGEST_END), Some(Ending::Exit(0)));
        until_gone(worker);
    }

    #[test]
    fn one_that_does_not_listen_is_killed() {
        let mut process = shell("trap '' TERM; echo $$; while :; do sleep 1; done");
        let pid = number(&mut process);
        process.end();
        let killed = 9;
        assert_eq!(process.ending(), Some(Ending::Signal(killed)));
        assert!(!is_there(pid));
    }
}
