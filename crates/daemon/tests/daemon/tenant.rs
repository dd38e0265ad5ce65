//! A tenant without a shim: it joins, publishes and sees what it was given.

use crate::PATIENCE;
use detshare_board::join::{Arrived, Hello, JoinError, Refusal, Welcome};
use detshare_board::{
    Class, DaemonView, Entry, Epoch, Generation, KernelNote, SlotState, SocketError, Tenant, TenantView, Waited, clock,
    wait,
};
use rustix::io::Errno;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What a tenant says that runs on the software GPU.
pub(crate) fn hello(name: &str) -> Hello {
    Hello {
        name: name.to_string(),
        width: 132,
        gpu: "DetShare software GPU".to_string(),
        driver: "580.82.07".to_string(),
        ..Hello::default()
    }
}

pub(crate) struct TestTenant {
    pub(crate) page: Tenant,
    pub(crate) slot: usize,
    generation: Generation,
    stream: UnixStream,
    table: DaemonView,
    others: Vec<(Arrived, TenantView)>,
}

impl TestTenant {
    pub(crate) fn join(folder: &Path, hello: &Hello) -> Result<Self, Refusal> {
        Self::join_with(folder, hello, Tenant::create(Class::BestEffort).expect("a group"))
    }

    /// With a page that it has had before.
    pub(crate) fn join_with(folder: &Path, hello: &Hello, page: Tenant) -> Result<Self, Refusal> {
        let stream = UnixStream::connect(folder.join("tenants.sock")).expect("a daemon listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        hello.send(&stream, page.file()).expect("sent");
        match Welcome::receive(&stream).expect("an answer") {
            (Welcome::Accepted { slot, generation }, Some(group)) => {
                let table = DaemonView::map(group).expect("mapped");
                Ok(Self { page, slot, generation, stream, table, others: Vec::new() })
            }
            (Welcome::Refused(refusal), _) => Err(refusal),
            (Welcome::Accepted { .. }, None) => panic!("no group came"),
        }
    }

    /// Gives up the connection and keeps the page.
    pub(crate) fn leave(self) -> Tenant {
        self.page
    }

    /// What it was given; nothing if its slot is another's by now.
    pub(crate) fn entry(&self) -> Option<Entry> {
        match self.table.slot(self.slot) {
            SlotState::Taken(occupant) if occupant.generation == self.generation => Some(occupant.entry),
            SlotState::Taken(_) | SlotState::Free | SlotState::Torn => None,
        }
    }

    /// Whether it is to time its launches.
    pub(crate) fn is_asked(&self) -> bool {
        self.table.is_asked(self.slot, clock::now())
    }

    pub(crate) fn policy(&self) -> u32 {
        self.table.policy()
    }

    /// What the daemon knows of a kernel.
    pub(crate) fn known_kernel(&self, identity: u64) -> Option<KernelNote> {
        self.table.kernel(identity)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.table.epoch()
    }

    /// How many slots are taken.
    pub(crate) fn occupants(&self) -> usize {
        self.table.occupants().count()
    }

    /// Sleeps until something has changed since.
    pub(crate) fn wait_for_news(&self, since: Epoch) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while wait(&[self.table.watch(since)], PATIENCE) == Waited::Over {
            assert!(std::time::Instant::now() < deadline, "nothing changed");
        }
    }

    /// All that it was told of so far: their slots, as long as they have them.
    pub(crate) fn known_slots(&mut self) -> Vec<usize> {
        self.stream.set_nonblocking(true).expect("set");
        loop {
            match Arrived::receive(&self.stream) {
                Ok((arrived, group)) => self.others.push((arrived, TenantView::map(group).expect("mapped"))),
                Err(JoinError::Socket(SocketError::Os { source: Errno::AGAIN, .. })) => break,
                Err(error) => panic!("the daemon has gone: {error}"),
            }
        }
        let is_there = |arrived: &Arrived| matches!(self.table.slot(arrived.slot), SlotState::Taken(occupant) if occupant.generation == arrived.generation);
        let mut slots: Vec<usize> = self
            .others
            .iter()
            .map(|(arrived, _)| arrived)
            .filter(|arrived| is_there(arrived))
            .map(|arrived| arrived.slot)
            .collect();
        slots.sort_unstable();
        slots
    }

    /// Waits for the end of the connection.
    pub(crate) fn until_alone(&mut self) {
        self.stream.set_nonblocking(false).expect("set");
        while Arrived::receive(&self.stream).is_ok() {}
    }

    /// A step that lasted so long.
    pub(crate) fn step(&self, ns: u64) {
        self.page.launch();
        self.page.note_step(ns);
        self.page.finish(self.page.launched(), 0);
    }
}
