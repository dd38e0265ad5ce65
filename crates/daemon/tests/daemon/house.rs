//! A daemon in a folder of its own.

use crate::{PATIENCE, until};
use detshare_api::{Client, RuntimeFolder, Tenant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::FdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Everything that a daemon reads or writes.
pub(crate) struct House {
    place: TempDir,
    /// What it keeps, in memory where there is such a folder: what is written there is written through to the disk, which others may keep
    /// busy for seconds. `state` in its place leads to it.
    _state: TempDir,
    daemon: Option<Child>,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl House {
    /// Without a daemon yet.
    pub(crate) fn empty() -> Self {
        let place = tempfile::tempdir().expect("a folder");
        fs::create_dir(place.path().join("bin")).expect("a folder");
        let state = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        std::os::unix::fs::symlink(state.path(), place.path().join("state")).expect("a link");
        Self { place, _state: state, daemon: None, arguments: Vec::new(), variables: Vec::new() }
    }

    /// With a daemon that is ready.
    pub(crate) fn new() -> Self {
        let mut house = Self::empty();
        house.start();
        house
    }

    pub(crate) fn with_config(text: &str) -> Self {
        let mut house = Self::empty();
        house.write_config(text);
        house.start();
        house
    }

    pub(crate) fn with_arguments(arguments: &[&str]) -> Self {
        let mut house = Self::empty();
        house.arguments = arguments.iter().map(ToString::to_string).collect();
        house.start();
        house
    }

    /// For its environment, from the next start on.
    pub(crate) fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_string(), value.to_string()));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn run_folder(&self) -> PathBuf {
        self.path("run")
    }

    pub(crate) fn folder(&self) -> RuntimeFolder {
        RuntimeFolder::open(&self.run_folder()).expect("the daemon made it")
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.path("detshare.toml")
    }

    pub(crate) fn write_config(&self, text: &str) {
        // In one step: the daemon may look at any time.
        fs::write(self.path("new.toml"), text).expect("written");
        fs::rename(self.path("new.toml"), self.config_file()).expect("renamed");
    }

    /// A program that only this house's daemon finds.
    pub(crate) fn write_program(&self, name: &str, text: &str) {
        // By a process of its own: what is open for writing here may be so in a child that another test just forked, and is not executed
        // then.
        fs::write(self.path("program"), text).expect("written");
        let mut install = Command::new("install");
        install.args(["-m", "755"]).arg(self.path("program")).arg(self.path("bin").join(name));
        assert!(install.status().expect("run").success());
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_detshared"));
        command
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("HOME", self.place.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .args(["--folder".as_ref(), self.run_folder().as_os_str()])
            .args(["--config".as_ref(), self.config_file().as_os_str()])
            .args(&self.arguments)
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stderr(fs::File::options().append(true).create(true).open(self.path("log")).expect("a log"));
        command
    }

    /// Starts the daemon and waits until it says that it is ready.
    pub(crate) fn start(&mut self) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let number = writer.as_raw_fd();
        let mut command = self.command();
        command.env("DETSHARE_READY_FD", number.to_string());
        let inherit = move || {
            // SAFETY: open in the child as it was in its parent.
            let writer = unsafe { BorrowedFd::borrow_raw(number) };
            Ok(rustix::io::fcntl_setfd(writer, FdFlags::empty())?)
        };
        // SAFETY: one system call, which may be made between fork and exec.
        unsafe { command.pre_exec(inherit) };
        self.daemon = Some(command.spawn().expect("started"));
        drop(writer);
        let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&limit)).expect("polled");
        let mut byte = [0];
        let said = rustix::io::read(&reader, &mut byte).expect("read");
        assert_eq!(said, 1, "it is not ready:\n{}", self.log());
        // The descriptor is closed then.
        assert_eq!(rustix::io::read(&reader, &mut byte), Ok(0));
    }

    /// Starts a daemon that is to fail.
    pub(crate) fn fail(&self) -> Output {
        // One that starts all the same ends by itself, and the test is over.
        self.command().args(["--idle-exit", "1s"]).stderr(Stdio::piped()).output().expect("started")
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.daemon.as_ref().expect("started"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it lives");
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut daemon = self.daemon.take().expect("started");
        until("the daemon's end", || daemon.try_wait().expect("waited")).code()
    }

    /// Ends it as a service manager does.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.ended(), Some(0), "{}", self.log());
    }

    /// Ends it as a bug does.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.folder()).expect("a client").with_time_limit(PATIENCE)
    }

    /// Waits until the tenant is so.
    #[track_caller]
    pub(crate) fn until_tenant(&self, who: &str, what: &str, is: impl Fn(&Tenant) -> bool) -> Tenant {
        let client = self.client();
        until(what, || client.tenant(who).ok().filter(&is))
    }

    /// Waits until there are so many.
    #[track_caller]
    pub(crate) fn until_count(&self, count: usize) {
        let client = self.client();
        until(&format!("{count} tenants"), || (client.tenants().expect("answered").len() == count).then_some(()));
    }

    /// Files that the daemon has open.
    pub(crate) fn open_files(&self) -> usize {
        fs::read_dir(self.proc("fd")).expect("it lives").count()
    }

    /// Groups of pages that it has mapped.
    pub(crate) fn mapped_groups(&self) -> usize {
        let maps = fs::read_to_string(self.proc("maps")).expect("it lives");
        maps.lines().filter(|line| line.contains("memfd:")).count()
    }

    fn proc(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.pid().as_raw_nonzero().to_string()).join(file)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // In order, so that whatever it has started goes with it.
            _ = kill_process(Pid::from_child(&daemon), Signal::TERM);
            let ended = (0..2_000).any(|_| {
                std::thread::sleep(crate::LOOK);
                daemon.try_wait().is_ok_and(|status| status.is_some())
            });
            if !ended {
                _ = daemon.kill();
                _ = daemon.wait();
            }
        }
    }
}
