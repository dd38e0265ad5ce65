//! From nothing to ready, and back.

use crate::attend;
use crate::config::{ConfigError, ConfigFile};
use crate::exit;
use crate::http;
use crate::isolation::{self, NoMps};
use crate::lock::{Lock, LockError};
use crate::log::LogControl;
use crate::mps::{self, Control, Mps};
use crate::profiles::Store;
use crate::ready::{self, Waiting};
use crate::service::{Parts, Service};
use crate::sockets::{self, Listening, SocketsError};
use detshare_api::{FolderError, RuntimeFolder, places};
use detshare_board::{Daemon, MapError};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The beat while there are tenants, and while there are none.
const BEAT: Duration = Duration::from_millis(100);
const IDLE_BEAT: Duration = Duration::from_secs(1);
/// How long MPS may take before we say that we are ready all the same.
const MPS_LIMIT: Duration = Duration::from_secs(15);
/// How long MPS may take to end: the time that it has to quit, and what it takes to ask for it.
const MPS_STOP_LIMIT: Duration = Duration::from_secs(12);
/// How long the last answers may take to be fetched.
const ANSWERS_LIMIT: Duration = Duration::from_millis(200);

/// What the daemon is started with.
#[derive(Debug)]
pub struct Settings {
    /// The runtime folder.
    pub folder: PathBuf,
    /// The configuration file, if there is a place for one.
    pub config: Option<PathBuf>,
    /// After so long without tenants and questions it ends by itself.
    pub idle_exit: Option<Duration>,
    /// How often what was learnt is written to disk.
    pub save_every: Duration,
    /// Its log.
    pub log: LogControl,
    /// Whoever waits until it is ready.
    pub waiting: Waiting,
}

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is broken.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The runtime folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The lock cannot be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There are no sockets.
    #[error(transparent)]
    Sockets(#[from] SocketsError),
    /// MPS is wanted and is not there.
    #[error(transparent)]
    NoMps(#[from] NoMps),
    /// There is no shared memory.
    #[error(transparent)]
    Board(#[from] MapError),
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl StartError {
    /// The code to exit with.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => exit::CONFIG,
            Self::Folder(error) if error.is_about_permissions() => exit::NO_PERMISSION,
            Self::Lock(LockError::Taken { .. }) => exit::RUNS_ALREADY,
            Self::Lock(LockError::NotOurs(_)) | Self::Sockets(SocketsError::Foreign(_)) => exit::NO_PERMISSION,
            Self::Folder(_) | Self::Lock(_) | Self::Sockets(_) => exit::FILES,
            Self::NoMps(_) => exit::NO_PROGRAM,
            Self::Board(_) | Self::Io { .. } => exit::SYSTEM,
        }
    }
}

fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Io { what, source }
}

/// Runs the daemon until it is told to end. It is the whole process: its file mask and limits are set.
pub fn run(settings: Settings) -> Result<(), StartError> {
    // Nothing that we make is for others, not even until it has its permissions.
    umask(Mode::RWXG | Mode::RWXO);
    let mut config_file = ConfigFile::new(settings.config);
    let config = config_file.read()?;
    let found = isolation::find(config.isolation)?;
    let folder = RuntimeFolder::make(&settings.folder)?;
    let _lock = Lock::take(&folder)?;
    let listening = sockets::bind(&folder)?;
    raise_file_limit();
    let control = found.control.map(|program| Control::new(program, &folder)).transpose();
    let control = control.map_err(io_error("make MPS's folders"))?;
    // Not the runtime folder: what is learnt outlives a reboot.
    let store = config.profiles.folder.clone().or_else(places::profiles_folder).map(Store::new);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(io_error("start"))?;
    let (mps, errands) = control.map(Mps::new).unzip();
    let parts = Parts {
        folder,
        board: Daemon::create()?,
        config,
        config_file,
        isolation: found.isolation,
        mps: mps.clone(),
        store,
        log: settings.log,
    };
    let service = Arc::new(Service::new(parts));
    let mps = mps.zip(errands);
    let (idle_exit, save_every) = (settings.idle_exit, settings.save_every);
    let beat = |service| beat(service, idle_exit, save_every);
    let result = runtime.block_on(live(service, listening, mps, beat, settings.waiting));
    // A save that hangs on a broken disk must not keep us.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Every tenant has a few files, and files on their way between processes count too.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

async fn live<B: Future<Output = ()> + Send + 'static>(
    service: Arc<Service>,
    [daemon, tenants]: [Listening; 2],
    mps: Option<(Arc<Mps>, mps::Errands)>,
    beat: impl FnOnce(Arc<Service>) -> B,
    waiting: Waiting,
) -> Result<(), StartError> {
    let mut signals = Signals::new().map_err(io_error("watch for signals"))?;
    let mps = match mps {
        Some((mps, errands)) => Some(Supervised::start(mps, errands, &service).await),
        None => None,
    };
    let listener =
        |listening: std::os::unix::net::UnixListener| UnixListener::from_std(listening).map_err(io_error("listen"));
    let accepting = [
        tokio::spawn(http::serve(Arc::clone(&service), listener(daemon.listener)?)),
        tokio::spawn(attend::accept(Arc::clone(&service), listener(tenants.listener)?)),
    ];
    let beat = tokio::spawn(beat(Arc::clone(&service)));
    tracing::info!(pid = std::process::id(), isolation = %service.status().isolation, "ready");
    waiting.ready(&service.summary());

    signals.until_stopped(&service).await;

    service.stop();
    ready::stopping();
    // Nobody new from here on: their sockets are gone before the rest is.
    accepting.iter().for_each(JoinHandle::abort);
    beat.abort();
    drop((daemon.file, tenants.file));
    let stop = if *service.tenant_count().borrow() == 0 { mps::Stop::Now } else { mps::Stop::WhenUnused };
    let saved = {
        let service = Arc::clone(&service);
        tokio::task::spawn_blocking(move || service.save_profiles())
    };
    _ = timeout(Duration::from_secs(5), saved).await;
    service.send_all_away();
    if let Some(mps) = mps {
        mps.stop(stop).await;
    }
    // Answers that are on their way, such as that to whoever asked us to end.
    sleep(ANSWERS_LIMIT).await;
    tracing::info!("ended");
    Ok(())
}

/// MPS and the task that looks after it.
struct Supervised {
    task: JoinHandle<()>,
    stop: oneshot::Sender<mps::Stop>,
}

impl Supervised {
    /// Starts it and waits until it answers, within reason: programs that are started next need it.
    async fn start(mps: Arc<Mps>, errands: mps::Errands, service: &Service) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(mps::supervise(Arc::clone(&mps), errands, service.tenant_count(), stopped));
        if timeout(MPS_LIMIT, mps.settled()).await.is_err() {
            tracing::warn!("MPS is not there yet");
        }
        Self { task, stop }
    }

    async fn stop(self, how: mps::Stop) {
        // It may have ended by itself.
        _ = self.stop.send(how);
        if timeout(MPS_STOP_LIMIT, self.task).await.is_err() {
            tracing::warn!("MPS has not ended in time");
        }
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> Result<Self, io::Error> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Returns when we are to end; reads the configuration when asked to.
    async fn until_stopped(&mut self, service: &Service) {
        let mut stopping = service.stopping();
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return tracing::info!("ended by SIGTERM"),
                _ = self.interrupt.recv() => return tracing::info!("ended by SIGINT"),
                _ = stopping.wait_for(|stopping| *stopping) => return,
                _ = self.hang_up.recv() => {
                    // A broken one has been logged.
                    _ = service.reload();
                }
            }
        }
    }
}

/// The slow beat: everything that is not an answer to somebody.
async fn beat(service: Arc<Service>, idle_exit: Option<Duration>, save_every: Duration) {
    let mut tenants = service.tenant_count();
    let watchdog = ready::watchdog().map(|limit| limit / 2);
    let mut last_alive = Instant::now();
    let mut last_save = Instant::now();
    loop {
        let pause = if *tenants.borrow_and_update() > 0 { BEAT } else { IDLE_BEAT };
        tokio::select! {
            () = sleep(pause.min(watchdog.unwrap_or(pause))) => {}
            // The first one wants a beat sooner than an idle daemon has one.
            _ = tenants.changed() => {}
        }
        service.beat();
        if watchdog.is_some_and(|watchdog| last_alive.elapsed() + BEAT >= watchdog) {
            ready::alive(&service.summary());
            last_alive = Instant::now();
        }
        if last_save.elapsed() >= save_every {
            let service = Arc::clone(&service);
            tokio::task::spawn_blocking(move || service.save_profiles());
            last_save = Instant::now();
        }
        if idle_exit.is_some_and(|limit| service.idle_for() >= limit) {
            tracing::info!("nobody was here for {idle_exit:?}");
            return service.stop();
        }
    }
}
