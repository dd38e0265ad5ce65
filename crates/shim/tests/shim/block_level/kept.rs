//! What was measured of a kernel's versions outlives the program and the daemon, both of which are real here.

use super::{program, read_report};
use crate::stage::{built, shim};
use crate::tenants::until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A daemon, and a latency tenant that does nothing but be there.
struct House {
    place: tempfile::TempDir,
    daemon: Child,
    idle: Option<Child>,
}

impl House {
    fn open(place: tempfile::TempDir) -> Self {
        let mut command = Command::new(built("detshared"));
        command.env_clear().env("HOME", place.path()).env("XDG_STATE_HOME", place.path().join("state"));
        command.arg("--folder").arg(place.path().join("run")).arg("--config").arg(place.path().join("detshare.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = command.spawn().expect("it can be started");
        let mut house = Self { place, daemon, idle: None };
        until("the daemon lets tenants in", || UnixStream::connect(house.run_folder().join("tenants.sock")).is_ok());
        house.idle = Some(house.idle_tenant());
        house
    }

    fn run_folder(&self) -> PathBuf {
        self.place.path().join("run")
    }

    fn idle_tenant(&self) -> Child {
        let (start, ready) = (self.place.path().join("never"), self.place.path().join("never.ready"));
        let mut command = Command::new(built("steps"));
        command.env_clear().env("LD_PRELOAD", shim()).env("DETSHARE_DRIVER", built("libdetshare_softgpu.so"));
        command.env("DETSHARE_DIR", self.run_folder()).env("DETSHARE_CLASS", "latency");
        command.arg("--start-file").arg(start).stdout(Stdio::null());
        let child = command.spawn().expect("it can be started");
        until("the other tenant is there", || ready.exists());
        std::fs::remove_file(ready).expect("it is there");
        child
    }

    /// A best-effort program with long kernels, which goes on until it is killed.
    fn program(&self) -> Child {
        let mut command = program(&["--blocks", "1500", "--rounds", "100", "--until-told", "--wait"]);
        command.env("DETSHARE_DIR", self.run_folder()).env("DETSHARE_CLASS", "best-effort");
        command.env("DETSHARE_BLOCK_LEVEL", "on").spawn().expect("it can be started")
    }

    /// What is said of its kernel, as soon as something is that it is asked for.
    fn shape(&self, program: &Child, is: impl Fn(&Value) -> bool) -> Value {
        let mut found = Value::Null;
        until("something is known of the kernel", || {
            let report = read_report(&self.run_folder(), program.id());
            found = report.map_or(Value::Null, |report| report["shapes"][0].clone());
            found != Value::Null && is(&found)
        });
        found
    }

    /// Ends as a service does; what it has learnt is on disk then.
    fn close(mut self) -> tempfile::TempDir {
        end(self.idle.take().expect("it was started"));
        let process = self.daemon.id().to_string();
        let told = Command::new("kill").args(["-TERM", &process]).status().expect("it can be told");
        assert!(told.success() && self.daemon.wait().expect("it ends").success());
        self.place
    }
}

fn end(mut child: Child) {
    child.kill().expect("it is ours");
    child.wait().expect("it has ended");
}

fn is_decided(shape: &Value) -> bool {
    let undecided = ["the original is measured first", "versions are being measured"];
    shape["because"].as_str().is_some_and(|because| !undecided.contains(&because))
}

/// What each version took, and how often that was measured.
fn measured(shape: &Value) -> BTreeMap<String, (u64, u64)> {
    let versions = shape["versions"].as_array().into_iter().flatten();
    let number = |version: &Value, key: &str| version[key].as_u64().expect("a number");
    let one = |version: &Value| {
        let name = version["version"].as_str().expect("a name").to_string();
        (name, (number(version, "took_ns"), number(version, "measured")))
    };
    versions.map(one).collect()
}

/// A program that is started again, under a daemon that is started again, chooses at once, by what was measured before.
#[test]
fn a_second_run_chooses_without_trying_anew() {
    let house = House::open(tempfile::tempdir().expect("a temporary folder"));
    let first = house.program();
    let before = measured(&house.shape(&first, is_decided));
    end(first);
    let house = House::open(house.close());
    let second = house.program();
    let shape = house.shape(&second, |_| true);
    let now = measured(&shape);
    end(second);
    house.close();
    assert!(is_decided(&shape), "{shape}");
    // Nobody measures the same nanoseconds again. The chosen one is measured now and then, and the original at its own times.
    let is_measured_anew = |name: &str| name == "original" || shape["chosen"] == name;
    let kept = before.iter().filter(|(name, known)| is_measured_anew(name) || now.get(*name) == Some(known)).count();
    assert!(kept == before.len() && before.len() > 1, "{before:?} became {now:?}");
}
