//! The other process of a test: this binary again, told what to do.

use detshare_board::{Class, SPIN, Tenant, TenantView, Waited, clock, receive_fds, send_fds, wait_spinning};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

const ROLE: &str = "DETSHARE_BOARD_TEST_ROLE";
const SOCKET: &str = "DETSHARE_BOARD_TEST_SOCKET";

/// Long enough for a machine that has much else to do; nothing waits that long unless it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that was started for a test, and the socket that it has connected.
pub(crate) struct Child {
    pub(crate) process: std::process::Child,
    pub(crate) stream: UnixStream,
}

impl Child {
    pub(crate) fn start(role: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let process = Command::new(std::env::current_exe().expect("this binary"))
            .args(["child::plays_its_role", "--exact", "--ignored"])
            .env(ROLE, role)
            .env(SOCKET, &path)
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        let (stream, _) = listener.accept().expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Self { process, stream }
    }

    /// One byte there, one byte back.
    pub(crate) fn tell(&mut self, command: u8) -> u8 {
        self.stream.write_all(&[command]).expect("told");
        self.answer()
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
    let (Ok(role), Ok(socket)) = (std::env::var(ROLE), std::env::var(SOCKET)) else { return };
    let stream = UnixStream::connect(socket).expect("the test listens");
    match role.as_str() {
        "tenant" => tenant(stream),
        "waiter" => waiter(stream),
        _ => panic!("no such role: {role}"),
    }
}

/// Hands out its group and publishes what it is told.
fn tenant(mut stream: UnixStream) {
    let tenant = Tenant::create(Class::Latency).expect("a group");
    send_fds(&stream, b"t", &[tenant.file()]).expect("sent");
    let mut command = [0];
    while stream.read_exact(&mut command).is_ok() {
        match &command {
            b"b" => _ = tenant.launch(),
            b"i" => assert!(tenant.finish(tenant.launched(), clock::now())),
            b"l" => tenant.set_lane(3, 32),
            b"h" => core::mem::forget(tenant.hold()),
            _ => return,
        }
        stream.write_all(&command).expect("answered");
    }
}

/// Waits for each step of the tenant whose group it gets to end, by turns with and without spinning.
fn waiter(mut stream: UnixStream) {
    let received = receive_fds(&stream, &mut [0]).expect("a group");
    let view = TenantView::map(&received.files[0]).expect("mapped");
    let mut command = [0];
    while stream.read_exact(&mut command).is_ok() {
        let step = view.step();
        assert!(step.is_busy());
        stream.write_all(b"w").expect("said that it waits");
        let spin = if step.number().is_multiple_of(2) { SPIN } else { Duration::ZERO };
        while wait_spinning(&[view.watch(step)], spin, PATIENCE) == Waited::Over {}
        assert_ne!(view.step(), step);
        stream.write_all(b"r").expect("said that it runs again");
    }
}
