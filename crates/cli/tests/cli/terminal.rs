//! `detshare` on a terminal of its own, with a program that watches and types; and what `detshare run` leaves of the terminal to
//! the program that it starts: everything.

use crate::daemon::DaemonStage;
use crate::stage::{Outcome, outcome};
use std::process::Command;

/// Runs `detshare` with these words on a terminal of 24 lines and 80 columns, and a program that watches and types. What it prints
/// last is the exit code, or the signal below zero.
pub(crate) fn on_a_terminal(prepare: impl FnOnce(&mut Command), words: &[&str], watch: &str) -> Outcome {
    let program = format!(
        r#"
import os, pty, select, signal, sys, time, fcntl, struct, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    # Whoever started the tests may have it ignored, and what is ignored stays so.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
deadline = time.monotonic() + 60
def more(wanted):
    """Reads on; whether there is anybody left to say more."""
    global seen
    if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
        sys.exit(f"{{wanted!r}} did not come: {{seen!r}}")
    try:
        seen += os.read(terminal, 65536)
    except OSError:
        return False
    return True
def read_until(text):
    while text.encode() not in seen:
        if not more(text):
            sys.exit(f"{{text!r}} did not come before the end: {{seen!r}}")
def read_until_closed():
    while more("the end of all that have the terminal"):
        pass
def type(keys):
    os.write(terminal, keys.encode())
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"
{watch}
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status))
"#
    );
    let mut python = Command::new("python3");
    prepare(&mut python);
    let python = python.args(["-c", &program, env!("CARGO_BIN_EXE_detshare")]).args(words);
    outcome(python.env("TERM", "xterm-256color"))
}

/// What a program of a person at a terminal relies on: it has the terminal on all three streams, it is in the foreground, it knows
/// the size, and Ctrl-C reaches it. The daemon that is started on the way has no part of it.
#[test]
fn the_terminal_is_the_programs() {
    let house = DaemonStage::new();
    let program = "
import os, signal, sys
# It stays pending until it is waited for, whenever it comes.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print('terminal', [os.isatty(stream) for stream in range(3)])
print('foreground', os.tcgetpgrp(0) == os.getpgrp(), 'leader', os.getpid() == os.getsid(0))
print('size', tuple(os.get_terminal_size(0)))
print('ready', flush=True)
print('got', signal.Signals(signal.sigwait([signal.SIGINT])).name, flush=True)
sys.exit(5)";
    let watch = r#"
# To the end of its line: with Ctrl-C the terminal forgets what nobody has read yet.
read_until("ready\r\n")
type("\x03")
read_until("got ")
read_until_closed()
for line in seen.decode().replace("^C", "").split("\r\n"):
    print(line)"#;
    let words = ["run", "--", "python3", "-c", program];
    let watched = on_a_terminal(|command| house.prepare(command), &words, watch);
    let expected = "\
terminal [True, True, True]
foreground True leader True
size (80, 24)
ready
got SIGINT

5
";
    assert_eq!((watched.stdout.as_str(), watched.stderr.as_str()), (expected, ""));
    assert!(house.pid().is_some(), "a daemon was started, and the terminal was closed while it runs");
}
