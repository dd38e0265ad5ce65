//! Starting, and why a daemon does not; ending, and what is left behind.

use crate::house::House;
use crate::tenant::{TestTenant, hello};
use crate::until;
use detshare_api::ClientError;
use detshare_board::{Class, Tenant};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

/// To where the harness does not keep it: who reads the output must not take it for passed.
fn skipped(test: &str, why: &str) {
    _ = writeln!(std::io::stderr(), "{test}: SKIPPED, {why}");
}

fn refused(house: &House) -> (Option<i32>, String) {
    let output = house.fail();
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(text.lines().filter(|line| line.starts_with("detshared: ")).count(), 1, "one clear line: {text}");
    (output.status.code(), text)
}

#[test]
fn a_second_daemon_is_refused() {
    let mut house = House::new();
    let (code, text) = refused(&house);
    assert_eq!(code, Some(75));
    assert!(
        text.contains(&format!("pid {}", house.pid().as_raw_nonzero())) && text.contains("detshare down"),
        "{text}"
    );
    house.client().status().expect("the first one is not disturbed");
    house.kill();
    house.start();
    house.client().status().expect("the lock of a dead daemon is free, and so are its sockets");
}

#[test]
fn what_is_not_ours_is_refused_and_left_as_it_is() {
    let mut house = House::empty();
    fs::create_dir(house.run_folder()).expect("made");
    fs::set_permissions(house.run_folder(), Permissions::from_mode(0o755)).expect("set");
    let (code, text) = refused(&house);
    assert!(code == Some(77) && text.contains("chmod 700"), "{text}");
    fs::set_permissions(house.run_folder(), Permissions::from_mode(0o700)).expect("set");

    for socket in ["daemon.sock", "tenants.sock"] {
        let path = house.run_folder().join(socket);
        fs::write(&path, "precious").expect("written");
        let (code, text) = refused(&house);
        assert!(code == Some(77) && text.contains(socket), "{text}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "precious");
        fs::remove_file(&path).expect("removed");
        symlink(house.path("elsewhere"), &path).expect("linked");
        let (code, text) = refused(&house);
        assert!(code == Some(77) && text.contains(socket), "{text}");
        assert!(path.is_symlink());
        fs::remove_file(&path).expect("removed");
    }
    house.start();
    house.stop();

    fs::rename(house.run_folder(), house.path("real")).expect("renamed");
    symlink(house.path("real"), house.run_folder()).expect("linked");
    let (code, text) = refused(&house);
    assert!(code == Some(77) && text.contains("symbolic link"), "{text}");
}

/// Of another user, which only root can make them: a socket that somebody listens at, one that nobody does, and the folder.
#[test]
fn what_another_user_made_is_refused_and_left_as_it_is() {
    const NOBODY: u32 = 65534;
    let house = House::empty();
    fs::create_dir(house.run_folder()).expect("made");
    fs::set_permissions(house.run_folder(), Permissions::from_mode(0o700)).expect("set");
    if chown(house.run_folder(), Some(NOBODY), None).is_err() {
        skipped("what_another_user_made_is_refused_and_left_as_it_is", "only root can give a folder to another user");
        return;
    }
    let (code, text) = refused(&house);
    assert_eq!(code, Some(77), "{text}");
    assert!(text.contains(&format!("belongs to user {NOBODY}")) && text.contains("DETSHARE_DIR"), "{text}");
    assert_eq!(fs::read_dir(house.run_folder()).expect("there").count(), 0, "nothing was made in it");

    chown(house.run_folder(), Some(rustix::process::geteuid().as_raw()), None).expect("ours again");
    for socket in ["daemon.sock", "tenants.sock"] {
        let path = house.run_folder().join(socket);
        let listener = UnixListener::bind(&path).expect("bound");
        chown(&path, Some(NOBODY), None).expect("given away");
        for state in ["somebody listens", "nobody listens"] {
            let (code, text) = refused(&house);
            assert_eq!(code, Some(77), "{socket}, {state}: {text}");
            assert!(text.contains(socket) && text.contains("not a socket of yours"), "{text}");
            assert_eq!(fs::symlink_metadata(&path).expect("it is still there").uid(), NOBODY);
            if state == "somebody listens" {
                // The first look left it as it was: whoever connects reaches its owner.
                UnixStream::connect(&path).expect("it is listened at");
                listener.set_nonblocking(true).expect("set");
                listener.accept().expect("somebody came");
            }
        }
        drop(listener);
        assert_eq!(refused(&house).0, Some(77), "{socket}, whose owner has gone");
        fs::remove_file(&path).expect("removed");
    }
}

/// The unit is what a service manager takes, with programs that are there.
#[test]
fn the_unit_is_understood() {
    let analyze = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).output();
    if !analyze(&["--version"]).is_ok_and(|output| output.status.success()) {
        skipped("the_unit_is_understood", "systemd-analyze is not here");
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/detshared.service");
    let text = fs::read_to_string(unit).expect("the unit");
    // It is looked for where it will be, which is not where it is now.
    let (at_home, here) = ("%h/.local/bin/detshared", env!("CARGO_BIN_EXE_detshared"));
    assert_eq!(text.matches(at_home).count(), 1, "{text}");
    let path = place.path().join("detshared.service");
    fs::write(&path, text.replace(at_home, here)).expect("written");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--user", "--man=no"]).arg(&path);
    let output = verify.env("XDG_RUNTIME_DIR", place.path()).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("detshared.service"), "{said}");
    let wrong = fs::read_to_string(&path).expect("there").replace("WatchdogSec=30", "WatchdogSec=soon");
    fs::write(&path, wrong).expect("written");
    let output = verify.output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    // It goes on without what it does not understand, and says so.
    assert!(said.contains("detshared.service:"), "what is wrong is noticed: {said}");
}

#[test]
fn the_manual_has_every_flag_and_exit_code() {
    let page = Command::new(env!("CARGO_BIN_EXE_detshared")).arg("--manual").output().expect("run");
    assert!(page.status.success() && page.stderr.is_empty());
    let page = String::from_utf8(page.stdout).expect("text");
    assert!(page.contains(".TH detshared 1"), "{page}");
    for flag in ["folder", "config", "log", "idle", "save"] {
        assert!(page.contains(&format!("\\-\\-{flag}")), "{flag}: {page}");
    }
    for code in [64, 69, 71, 74, 75, 77, 78] {
        assert!(page.contains(&format!("  {code}   ")), "{code}: {page}");
    }
}

#[test]
fn completions_know_every_flag_that_the_help_shows() {
    for shell in ["bash", "zsh", "fish"] {
        let script =
            Command::new(env!("CARGO_BIN_EXE_detshared")).args(["--completions", shell]).output().expect("run");
        assert!(script.status.success() && script.stderr.is_empty(), "{shell}");
        let script = String::from_utf8(script.stdout).expect("text");
        for flag in ["folder", "config", "log-format", "idle-exit", "save-every"] {
            assert!(script.contains(flag), "{shell} has no {flag}: {script}");
        }
        for hidden in ["manual", "completions"] {
            assert!(!script.contains(hidden), "{shell} offers {hidden}: {script}");
        }
    }
}

#[test]
fn command_lines_that_make_no_sense() {
    for (arguments, word) in [
        (&["--idle-exit", "soon"][..], "--idle-exit"),
        (&["--log-format", "xml"], "xml"),
        (&["--colour"], "--colour"),
        (&["extra"], "extra"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_detshared")).args(arguments).output().expect("run");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(64), 0), "{arguments:?}");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.starts_with("detshared: ") && said.contains(word), "{said}");
        assert!(said.ends_with("; see `detshared --help`\n") && said.lines().count() == 1, "one clear line: {said}");
    }
    let help = Command::new(env!("CARGO_BIN_EXE_detshared")).arg("--help").output().expect("run");
    assert!(help.status.success() && !help.stdout.is_empty());
}

#[test]
fn asked_to_end_it_answers_and_ends() {
    let mut house = House::new();
    let page = Tenant::create(Class::Latency).expect("a group");
    page.set_lane(0, 132);
    let mut tenant = TestTenant::join_with(&house.run_folder(), &hello("serve"), page).expect("taken in");
    (0..3).for_each(|_| tenant.step(1_000_000));
    let profiles = house.path("state/detshare/profiles");
    let client = house.client();
    client.shutdown().expect("answered");
    assert_eq!(house.ended(), Some(0));
    tenant.until_alone();
    assert!(matches!(client.status(), Err(ClientError::NotRunning(_))));
    let left: Vec<_> =
        fs::read_dir(house.run_folder()).expect("there").map(|entry| entry.expect("read").file_name()).collect();
    assert_eq!(left, ["lock"], "nothing but the lock is left");
    let learnt: Vec<_> = fs::read_dir(profiles).expect("made").map(|entry| entry.expect("read").path()).collect();
    assert_eq!(learnt.len(), 1, "one GPU, one file");
    let learnt: serde_json::Value = serde_json::from_slice(&fs::read(&learnt[0]).expect("read")).expect("JSON");
    assert_eq!(learnt["gpu"], "DetShare software GPU");
    assert_eq!(learnt["tenants"]["serve"]["widths"]["132"]["count"], 3, "{learnt}");
}

#[test]
fn it_ends_by_itself_when_nobody_is_there() {
    // Long enough for the tenant to come in time on a busy machine.
    let mut house = House::with_arguments(&["--idle-exit", "5s"]);
    let tenant = TestTenant::join(&house.run_folder(), &hello("serve")).expect("taken in");
    // Longer than the limit by many beats, if it counted.
    let joined = std::time::Instant::now();
    until("time has passed", || (joined.elapsed().as_millis() > 6_500).then_some(()));
    assert_eq!(house.client().status().expect("it is not idle").tenants, 1);
    drop(tenant);
    assert_eq!(house.ended(), Some(0));
}

#[test]
fn the_service_manager_is_told() {
    let mut house = House::empty();
    let socket = UnixDatagram::bind(house.path("notify")).expect("bound");
    socket.set_read_timeout(Some(crate::PATIENCE)).expect("a limit");
    house.set_variable("NOTIFY_SOCKET", house.path("notify").to_str().expect("text"));
    house.set_variable("WATCHDOG_USEC", "400000");
    let heard = || {
        let mut bytes = [0; 1024];
        let count = socket.recv(&mut bytes).expect("told");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    house.start();
    let ready = heard();
    assert!(ready.contains("READY=1") && ready.contains("STATUS=0 tenants"), "{ready}");
    for _ in 0..3 {
        let alive = heard();
        assert!(alive.contains("WATCHDOG=1"), "{alive}");
    }
    house.stop();
    until("its last word", || heard().contains("STOPPING=1").then_some(()));
}

#[test]
fn the_log_can_be_json() {
    let house = House::with_arguments(&["--log-format", "json"]);
    let log = house.log();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(log.contains("\"ready\""), "{log}");
}

/// Only root can become somebody else; for others it is skipped, and says so.
#[test]
fn another_user_gets_nowhere() {
    if !rustix::process::geteuid().is_root() {
        skipped("another_user_gets_nowhere", "only root can become somebody else");
        return;
    }
    const NOBODY: u32 = 65_534;
    let house = House::new();
    let sockets = [house.folder().daemon_socket(), house.folder().tenants_socket()];
    let connect_as_nobody = |path: std::path::PathBuf| {
        std::thread::spawn(move || {
            let nobody = rustix::process::Uid::from_raw(NOBODY);
            // SAFETY: the thread does nothing but connect and ends.
            unsafe { become_user(nobody) };
            UnixStream::connect(path)
        })
        .join()
        .expect("no panic")
    };
    for socket in &sockets {
        let refused = connect_as_nobody(socket.clone()).expect_err("the folder is closed");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    }
    // Somebody has opened the folder: the daemon looks at who comes.
    fs::set_permissions(house.path(""), Permissions::from_mode(0o755)).expect("set");
    fs::set_permissions(house.run_folder(), Permissions::from_mode(0o755)).expect("set");
    for socket in &sockets {
        fs::set_permissions(socket, Permissions::from_mode(0o666)).expect("set");
        let mut stream = connect_as_nobody(socket.clone()).expect("connected");
        stream.set_read_timeout(Some(crate::PATIENCE)).expect("a limit");
        let read = std::io::Read::read(&mut stream, &mut [0; 64]);
        assert!(matches!(read, Ok(0)), "it is closed without a word: {read:?}");
    }
}

/// For this thread alone: the C library's function would do it for all.
///
/// # Safety
/// The thread must not go on to use what belongs to the user that it was.
unsafe fn become_user(user: rustix::process::Uid) {
    // SAFETY: numbers only; the caller says that it may.
    let answer = unsafe { libc::syscall(libc::SYS_setresuid, user.as_raw(), user.as_raw(), user.as_raw()) };
    assert_eq!(answer, 0);
}
