//! Asking the daemon.

use crate::folder::RuntimeFolder;
use crate::status::{ErrorBody, PolicyChange, Status};
use crate::tenant::{Explanation, Tenant, TenantPatch};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// How long a call may take if nobody says otherwise.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// More than the metrics of all tenants are; what is longer is not ours.
const LONGEST_ANSWER: usize = 16 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no daemon runs in {}: start one with `detshare up`", .0.display())]
    NotRunning(PathBuf),
    /// The socket is not for us, or its daemon is another user's.
    #[error("the daemon at {} is not yours: choose another folder with DETSHARE_DIR", .0.display())]
    NotOurs(PathBuf),
    /// It does not answer in time.
    #[error("the daemon has not answered within {0:?}: look at its log, or end it and start it again")]
    TimedOut(Duration),
    /// It ended in the middle, or the system refused.
    #[error("the daemon was not reached ({what}): {source}")]
    Broken {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        source: Box<dyn Error + Send + Sync>,
    },
    /// What it says is not what a daemon says.
    #[error("the daemon's answer makes no sense ({0}): are daemon and command line of the same version?")]
    Nonsense(String),
    /// It says no.
    #[error("{error}{}", hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default())]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What is wrong.
        error: String,
        /// What to do next.
        hint: Option<String>,
    },
}

fn broken(what: &'static str) -> impl FnOnce(hyper::Error) -> ClientError {
    move |source| ClientError::Broken { what, source: source.into() }
}

/// Asks the daemon of a runtime folder. Every call is a connection of its own, so one may be kept over a daemon's restart.
/// The functions block: they are not for use within an asynchronous runtime.
#[derive(Debug)]
pub struct Client {
    folder: PathBuf,
    socket: PathBuf,
    limit: Duration,
    runtime: Runtime,
}

impl Client {
    /// For a folder; connects to nobody yet.
    pub fn new(folder: &RuntimeFolder) -> Result<Self, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| ClientError::Broken { what: "prepare", source: source.into() })?;
        let (folder, socket) = (folder.path().to_path_buf(), folder.daemon_socket());
        Ok(Self { folder, socket, limit: TIME_LIMIT, runtime })
    }

    /// With another time limit for each call.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// How the daemon does.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.ask(Method::GET, "/v1/status", None)
    }

    /// All tenants.
    pub fn tenants(&self) -> Result<Vec<Tenant>, ClientError> {
        self.ask(Method::GET, "/v1/tenants", None)
    }

    /// One tenant, by name or pid.
    pub fn tenant(&self, name_or_pid: &str) -> Result<Tenant, ClientError> {
        self.ask(Method::GET, &tenant_path(name_or_pid), None)
    }

    /// Why a tenant's last launches went as they did.
    pub fn explain(&self, name_or_pid: &str) -> Result<Explanation, ClientError> {
        self.ask(Method::GET, &format!("{}/decisions", tenant_path(name_or_pid)), None)
    }

    /// Changes a tenant; returns how it is then.
    pub fn change(&self, name_or_pid: &str, patch: &TenantPatch) -> Result<Tenant, ClientError> {
        self.ask(Method::PATCH, &tenant_path(name_or_pid), Some(json(patch)?))
    }

    /// Lets all follow another policy, until the daemon ends.
    pub fn set_policy(&self, name: &str) -> Result<Status, ClientError> {
        self.change_policy(&PolicyChange { policy: Some(name.to_string()), aggressiveness: None })
    }

    /// Says how much best-effort tenants may disturb, from 0 to 1, until the daemon ends.
    pub fn set_aggressiveness(&self, part: f64) -> Result<Status, ClientError> {
        self.change_policy(&PolicyChange { policy: None, aggressiveness: Some(part) })
    }

    fn change_policy(&self, change: &PolicyChange) -> Result<Status, ClientError> {
        self.ask(Method::PUT, "/v1/policy", Some(json(change)?))
    }

    /// Has the configuration read again. A broken one is an error, and the settings from before stay.
    pub fn reload(&self) -> Result<Status, ClientError> {
        self.ask(Method::POST, "/v1/reload", None)
    }

    /// Asks the daemon to end; it answers and then does. Its tenants go on alone.
    pub fn shutdown(&self) -> Result<(), ClientError> {
        self.call(Method::POST, "/v1/shutdown", None).map(drop)
    }

    /// The metrics as text, as Prometheus reads them.
    pub fn metrics(&self) -> Result<String, ClientError> {
        let text = self.call(Method::GET, "/metrics", None)?;
        String::from_utf8(text.into()).map_err(|error| ClientError::Nonsense(error.to_string()))
    }

    fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<T, ClientError> {
        let answer = self.call(method, path, body)?;
        serde_json::from_slice(&answer).map_err(|error| ClientError::Nonsense(error.to_string()))
    }

    fn call(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Bytes, ClientError> {
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(self.limit, exchange(&self.folder, &self.socket, method, path, body));
            answer.await.unwrap_or(Err(ClientError::TimedOut(self.limit)))
        })
    }
}

async fn exchange(
    folder: &Path,
    socket: &Path,
    method: Method,
    path: &str,
    body: Option<Vec<u8>>,
) -> Result<Bytes, ClientError> {
    let stream = connect(folder, socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken("begin"))?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "detshare")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.unwrap_or_default())))
        .map_err(|source| ClientError::Broken { what: "ask", source: source.into() })?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(broken("ask"))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|source| ClientError::Broken { what: "read the answer", source })?;
        judge(status, body.to_bytes())
    };
    // The connection's own end says nothing that the answer does not say; it is given up with the answer.
    let connection = async {
        _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connection => never,
    }
}

async fn connect(folder: &Path, socket: &Path) -> Result<UnixStream, ClientError> {
    let stream = UnixStream::connect(socket).await.map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NotRunning(folder.to_path_buf()),
        ErrorKind::PermissionDenied => ClientError::NotOurs(socket.to_path_buf()),
        _ => ClientError::Broken { what: "connect", source: source.into() },
    })?;
    let peer =
        stream.peer_cred().map_err(|source| ClientError::Broken { what: "see who is there", source: source.into() })?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(ClientError::NotOurs(socket.to_path_buf()));
    }
    Ok(stream)
}

fn judge(status: StatusCode, body: Bytes) -> Result<Bytes, ClientError> {
    if status.is_success() {
        return Ok(body);
    }
    let ErrorBody { error, hint } = serde_json::from_slice(&body)
        .map_err(|_| ClientError::Nonsense(format!("HTTP {status} without a reason that can be read")))?;
    Err(ClientError::Refused { status: status.as_u16(), error, hint })
}

fn json(body: &impl serde::Serialize) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(body).map_err(|source| ClientError::Broken { what: "write the question", source: source.into() })
}

/// Names have no character that means something in a path; what somebody types may have.
fn tenant_path(name_or_pid: &str) -> String {
    let mut path = String::from("/v1/tenants/");
    for byte in name_or_pid.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(folder: &Path) -> Client {
        Client::new(&RuntimeFolder::make(&folder.join("run")).unwrap()).unwrap()
    }

    #[test]
    fn nobody_there_is_said_so() {
        let place = tempfile::tempdir().unwrap();
        assert!(matches!(client(place.path()).status(), Err(ClientError::NotRunning(_))));
        let listener = std::os::unix::net::UnixListener::bind(place.path().join("run/daemon.sock")).unwrap();
        drop(listener);
        assert!(matches!(client(place.path()).status(), Err(ClientError::NotRunning(_))), "a socket that was left");
    }

    #[test]
    fn one_that_says_nothing_is_not_waited_for_without_end() {
        let place = tempfile::tempdir().unwrap();
        let client = client(place.path()).with_time_limit(Duration::from_millis(20));
        let _silent = std::os::unix::net::UnixListener::bind(place.path().join("run/daemon.sock")).unwrap();
        assert!(matches!(client.status(), Err(ClientError::TimedOut(_))));
    }

    /// A socket in our own folder, at which another user listens: only root can become somebody else.
    #[test]
    fn one_that_another_user_runs_is_not_asked() {
        use rustix::process::{Uid, geteuid};
        use std::fs::{Permissions, create_dir, rename, set_permissions};
        use std::io::Write;
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::net::UnixListener;
        const NOBODY: u32 = 65_534;
        if !geteuid().is_root() {
            let test = "one_that_another_user_runs_is_not_asked";
            // To where the harness does not keep it: who reads the output must not take it for passed.
            _ = writeln!(std::io::stderr(), "{test}: SKIPPED, only root can become somebody else");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let client = client(place.path());
        let open_to_all = place.path().join("open");
        create_dir(&open_to_all).unwrap();
        for folder in [place.path(), &open_to_all] {
            set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        }
        let theirs = open_to_all.join("daemon.sock");
        // Of this thread alone, which ends then; who listens is who it was when it began to.
        let listener = std::thread::scope(|scope| {
            let listen = || {
                let nobody = Uid::from_raw(NOBODY);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                UnixListener::bind(&theirs).unwrap()
            };
            scope.spawn(listen).join().unwrap()
        });
        rename(&theirs, &client.socket).unwrap();
        assert!(matches!(client.status(), Err(ClientError::NotOurs(socket)) if socket == client.socket));
        let (mut connection, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        std::io::Read::read_to_end(&mut connection, &mut asked).unwrap();
        assert!(asked.is_empty(), "it was told nothing");
    }

    #[test]
    fn refusals_carry_the_hint() {
        let refused = judge(StatusCode::NOT_FOUND, Bytes::from(r#"{"error": "no tenant x", "hint": "see `ps`"}"#));
        assert_eq!(refused.unwrap_err().to_string(), "no tenant x: see `ps`");
        assert!(matches!(judge(StatusCode::BAD_GATEWAY, Bytes::from("<html>")), Err(ClientError::Nonsense(_))));
    }

    #[test]
    fn what_is_typed_stays_one_segment_of_the_path() {
        assert_eq!(tenant_path("train-2"), "/v1/tenants/train-2");
        assert_eq!(tenant_path("../x?y"), "/v1/tenants/..%2Fx%3Fy");
    }
}
