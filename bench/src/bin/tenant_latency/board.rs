//! The daemon's side of joining, as far as a benchmark needs it.

use crate::START_OR_END;
use anyhow::{Context, Result, bail, ensure};
use detshare_board::join::{Arrived, Hello, Welcome};
use detshare_board::{Class, Daemon, Entry, Owner, TenantView};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

const POLICY: &str = "exclusive";
/// Between two looks for somebody who connects.
const PAUSE: Duration = Duration::from_millis(1);
/// What a tenant has to say is there when it has connected.
const HELLO_LIMIT: Duration = Duration::from_secs(2);

/// A board with a socket for tenants. Everybody stays until it goes.
pub(crate) struct Board {
    daemon: Daemon,
    listener: UnixListener,
    present: Vec<Present>,
}

struct Present {
    connection: UnixStream,
    arrived: Arrived,
    page: OwnedFd,
}

impl Board {
    /// In a folder of its own, which is made.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        const OWNER_ONLY: u32 = 0o700;
        DirBuilder::new()
            .mode(OWNER_ONLY)
            .create(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let listener = UnixListener::bind(folder.join("tenants.sock")).context("cannot listen for tenants")?;
        listener.set_nonblocking(true)?;
        let daemon = Daemon::create()?;
        daemon.set_policy(detshare_policy::number(POLICY).context("no such policy")?);
        daemon.beat();
        Ok(Self { daemon, listener, present: Vec::new() })
    }

    /// Takes in the tenant that was started; returns its page.
    pub(crate) fn admit(&mut self, class: Class, tenant: &mut Child) -> Result<TenantView> {
        let connection = self.connection_of(tenant)?;
        connection.set_nonblocking(false)?;
        connection.set_read_timeout(Some(HELLO_LIMIT))?;
        let (hello, page) = Hello::receive(&connection)?;
        ensure!(hello.class == Some(class), "the shim says that it is {:?}", hello.class);
        ensure!(hello.gpu_id != 0, "the driver does not tell one GPU from another");
        let claim = self.daemon.claim(Owner::of_peer(&connection)?, &Entry::new(class))?;
        let arrived = Arrived { slot: claim.slot(), generation: claim.generation() };
        let accepted = Welcome::Accepted { slot: arrived.slot, generation: arrived.generation };
        accepted.send(&connection, self.daemon.file())?;
        for other in &self.present {
            arrived.send(&other.connection, page.as_fd())?;
            other.arrived.send(&connection, other.page.as_fd())?;
        }
        let view = TenantView::map(&page)?;
        self.present.push(Present { connection, arrived, page });
        Ok(view)
    }

    fn connection_of(&self, tenant: &mut Child) -> Result<UnixStream> {
        let until = Instant::now() + START_OR_END;
        loop {
            match self.listener.accept() {
                Ok((connection, _)) => return Ok(connection),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(status) = tenant.try_wait()? {
                bail!("a tenant has ended before it joined: {status}");
            }
            ensure!(Instant::now() < until, "no tenant has joined within {START_OR_END:?}");
            std::thread::sleep(PAUSE);
        }
    }
}
