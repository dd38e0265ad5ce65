//! `detshare top` as text, and on a terminal.

use crate::fake::FakeDaemon;
use crate::stage::{Outcome, Stage, outcome};
use crate::terminal;
use std::process::Command;

#[test]
fn one_frame_as_text() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let frame = outcome(stage.detshare().args(["top", "--once"]));
    assert_eq!((frame.code, frame.stderr.as_str()), (Some(0), ""));
    let expected = "\
detshare: policy exclusive, isolation process, 2 tenants, daemon up 1m 01s

tenant          pid class lane    steps    p50    p99 launch holds memory last
                                     /s                   /s    /s        minute
● serve        4001 lat   full     20.5 1.23ms 4.56ms  1.02k     0  40.0G
· train        4002 best  rest16      0      -      -  1.02k     0  40.0G

↑↓ choose  p pause/resume  c class  s sort (by name)  q quit
";
    assert_eq!(frame.stdout, expected);
}

#[test]
fn a_pipe_is_no_terminal() {
    let stage = Stage::new();
    let refused = outcome(stage.detshare().arg("top"));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""));
    assert!(refused.stderr.contains("--once"), "{}", refused.stderr);
}

/// Runs `detshare top` on a terminal of its own until it has left it as it was, and a program that watches and types.
fn on_a_terminal(stage: &Stage, watch: &str) -> Outcome {
    terminal::on_a_terminal(|command| stage.prepare(command), &["top"], &format!("{watch}\nread_until(LEFT)"))
}

#[test]
fn q_ends_it_and_the_terminal_is_as_before() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let watched = on_a_terminal(&stage, "read_until(ENTERED); read_until('serve'); type('q')");
    assert_eq!((watched.stdout.as_str(), watched.stderr.as_str()), ("0\n", ""));
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_before() {
    for (name, code) in [("SIGTERM", "143\n"), ("SIGHUP", "129\n"), ("SIGINT", "130\n")] {
        let stage = Stage::new();
        let _daemon = FakeDaemon::start(&stage);
        let watch = format!("read_until('serve'); os.kill(pid, signal.{name})");
        let watched = on_a_terminal(&stage, &watch);
        assert_eq!((watched.stdout.as_str(), watched.stderr.as_str()), (code, ""));
    }
}

#[test]
fn keys_pause_the_chosen_tenant_and_change_its_class() {
    let stage = Stage::new();
    let daemon = FakeDaemon::start(&stage);
    let watched = on_a_terminal(&stage, "read_until('serve'); type('p'); read_until('‖'); type('jc'); type('q')");
    assert_eq!((watched.stdout.as_str(), watched.stderr.as_str()), ("0\n", ""));
    assert_eq!(daemon.changes()[0], r#"PATCH /v1/tenants/4001 {"paused":true}"#);
}

/// It says "no daemon, waiting…"; only what differs from the frame before, and is not empty, is sure to be written.
#[test]
fn it_waits_for_a_daemon() {
    let stage = Stage::new();
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            on_a_terminal(&stage, "read_until('daemon,'); open('waits', 'w'); read_until('serve'); type('q')")
        });
        while !stage.path("waits").exists() && !watching.is_finished() {
            std::thread::yield_now();
        }
        let _daemon = FakeDaemon::start(&stage);
        let watched = watching.join().unwrap();
        assert_eq!((watched.stdout.as_str(), watched.stderr.as_str()), ("0\n", ""));
    });
}

/// The terminal is closed, and the signal that comes with that is blocked, as it is lost in other ways too.
#[test]
fn it_ends_when_the_terminal_is_gone() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let program = r#"
import fcntl, os, pty, signal, struct, sys, termios
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "top"])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
seen = b""
while b"serve" not in seen:
    seen += os.read(terminal, 65536)
os.close(terminal)
os.waitpid(pid, 0)
print("ended")
"#;
    let mut python = Command::new("python3");
    stage.prepare(&mut python);
    let watched = outcome(python.args(["-c", program, env!("CARGO_BIN_EXE_detshare")]).env("TERM", "xterm-256color"));
    assert_eq!((watched.stdout.as_str(), watched.stderr.as_str()), ("ended\n", ""));
}
