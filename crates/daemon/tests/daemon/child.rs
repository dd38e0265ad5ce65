//! A tenant in a process of its own: this binary again, told what to do.

use crate::PATIENCE;
use crate::tenant::{TestTenant, hello};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FOLDER: &str = "DETSHARE_DAEMON_TEST_FOLDER";
const NAME: &str = "DETSHARE_DAEMON_TEST_NAME";
const SOCKET: &str = "DETSHARE_DAEMON_TEST_SOCKET";

/// What it answers when it has joined, and when it was not taken in.
pub(crate) const JOINED: u8 = b'j';
pub(crate) const REFUSED: u8 = b'r';

/// A process that was started for a test, and the socket that it has connected.
pub(crate) struct Child {
    pub(crate) process: std::process::Child,
    stream: UnixStream,
}

impl Child {
    /// Starts it; it joins when it is told to.
    pub(crate) fn start(folder: &Path, name: &str) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let process = Command::new(std::env::current_exe().expect("this binary"))
            .args(["child::plays_its_role", "--exact", "--ignored"])
            .envs([(FOLDER, folder), (SOCKET, &path)])
            .env(NAME, name)
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        let (stream, _) = listener.accept().expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Self { process, stream }
    }

    /// Starts it and has it join.
    pub(crate) fn join(folder: &Path, name: &str) -> Self {
        let mut child = Self::start(folder, name);
        assert_eq!(child.tell(b'j'), JOINED);
        child
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// One byte there, one byte back.
    pub(crate) fn tell(&mut self, command: u8) -> u8 {
        self.say(command);
        self.answer()
    }

    pub(crate) fn say(&mut self, command: u8) {
        self.stream.write_all(&[command]).expect("told");
    }

    pub(crate) fn answer(&mut self) -> u8 {
        let mut answer = [0];
        self.stream.read_exact(&mut answer).expect("answered");
        answer[0]
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

#[test]
#[ignore = "the other tests run it, in a process of its own"]
fn plays_its_role() {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(folder), Some(socket)) = (variable(FOLDER), variable(SOCKET)) else { return };
    let name = std::env::var(NAME).expect("a name");
    let mut stream = UnixStream::connect(socket).expect("the test listens");
    let mut tenant = None;
    let mut command = [0];
    while stream.read_exact(&mut command).is_ok() {
        let answer = match &command {
            b"j" => match TestTenant::join(&folder, &hello(&name)) {
                Ok(joined) => {
                    tenant = Some(joined);
                    JOINED
                }
                Err(_) => REFUSED,
            },
            b"l" => {
                drop(tenant.take());
                b'l'
            }
            b"s" => {
                tenant.as_ref().expect("joined").step(1_000_000);
                b's'
            }
            _ => return,
        };
        stream.write_all(&[answer]).expect("answered");
    }
}
