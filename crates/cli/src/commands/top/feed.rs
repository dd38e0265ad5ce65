//! News from the daemon, asked for in the background.

use crate::daemon;
use detshare_api::{Client, Status, Tenant, TenantPatch};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// A daemon that takes longer is as good as gone.
const LONGEST_ANSWER: Duration = Duration::from_secs(2);

/// What came of asking.
#[derive(Debug)]
pub(super) enum News {
    Seen {
        status: Box<Status>,
        tenants: Vec<Tenant>,
    },
    /// Nobody answers.
    Gone(String),
    /// A change was made, or refused.
    Said(String),
}

/// A change that was asked for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) pid: u32,
    pub(super) patch: TenantPatch,
}

/// The thread that asks; it ends when this goes.
#[derive(Debug)]
pub(super) struct Feed {
    news: Receiver<News>,
    requests: Sender<Request>,
}

impl Feed {
    /// Asks at that interval from now on.
    pub(super) fn start(interval: Duration) -> std::io::Result<Self> {
        let (send_news, news) = mpsc::channel();
        let (requests, to_do) = mpsc::channel();
        let ask = move || ask(interval, &to_do, &send_news);
        std::thread::Builder::new().name("feed".to_string()).spawn(ask)?;
        Ok(Self { news, requests })
    }

    /// What has come since the last time.
    pub(super) fn news(&self) -> impl Iterator<Item = News> {
        self.news.try_iter()
    }

    /// Has something changed.
    pub(super) fn request(&self, request: Request) {
        // The thread ends only after us.
        let _ = self.requests.send(request);
    }
}

fn ask(interval: Duration, requests: &Receiver<Request>, news: &Sender<News>) {
    // Kept over a daemon's restart; made anew while there is no folder.
    let mut client = None;
    loop {
        let next = Instant::now() + interval;
        if news.send(look(&mut client)).is_err() {
            return;
        }
        match requests.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(request) => {
                if let Some(said) = change(client.as_ref(), &request)
                    && news.send(News::Said(said)).is_err()
                {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn look(client: &mut Option<Client>) -> News {
    if client.is_none() {
        match daemon::client() {
            Ok(found) => *client = Some(found.with_time_limit(LONGEST_ANSWER)),
            Err(error) => return News::Gone(error.to_string()),
        }
    }
    let Some(client) = client else { return News::Gone(String::new()) };
    match client.status().and_then(|status| Ok((status, client.tenants()?))) {
        Ok((status, tenants)) => News::Seen { status: Box::new(status), tenants },
        Err(error) => News::Gone(error.to_string()),
    }
}

/// What there is to say about it: nothing if it was done, since that shows.
fn change(client: Option<&Client>, request: &Request) -> Option<String> {
    client?.change(&request.pid.to_string(), &request.patch).err().map(|error| error.to_string())
}
