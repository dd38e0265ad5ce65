//! This process as a tenant: its page on the board, the daemon that it joined, and the pages of the others.
//!
//! A thread of our own holds the connection: it joins, maps the pages of those who come, and tries again when the daemon
//! is gone. Nobody waits for it for long: without a daemon everything runs as if this process were alone. All pages are
//! mapped at places that stay for as long as the process lives, so threads that launch read them without asking anybody.

use crate::block_level::{self, BlockLevel};
use crate::boundary::guarded;
use crate::call::is_ok;
use crate::hot::HOT;
use crate::{background, log, record, resolve, settings, steps};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use core::time::Duration;
use detshare_board::join::{Arrived, Hello, JoinError, Welcome};
use detshare_board::{
    Class, DaemonView, Entry, MapError, SLOTS, SlotState, StepPage, Tenant, TenantView, number_of, user_of_peer,
};
use detshare_cuda::types::{CUdevice, CUdevice_attribute, CUuuid};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

/// The daemon's socket for tenants, in its folder.
const SOCKET: &str = "tenants.sock";
/// How long the first launches wait for the daemon's answer.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long an answer may take before the connection is given up.
const ANSWER: Duration = Duration::from_secs(1);
/// How long the first launches wait where they are to be recorded: a record is to have all of them. That is until the answer is there or is
/// given up, of which they are told. Whoever reads it begins later than they do, and has said who it is before, for which it has as long.
const RECORDED: Duration = ANSWER.saturating_mul(2);
/// How often a daemon that is gone is looked for.
const AGAIN: Duration = Duration::from_millis(10);
/// The same for one that is there and does not take this process in: there may be room later.
const REFUSED: Duration = Duration::from_millis(500);
/// No slot.
const NONE: u32 = u32::MAX;

/// What this process has on the board.
pub(crate) struct Membership {
    pub(crate) page: Tenant,
    pub(crate) daemon: DaemonView,
    /// One place for each slot.
    pub(crate) others: Vec<TenantView>,
    /// Whose page is in it; 0 if nobody's.
    generations: [AtomicU32; SLOTS],
    /// Held by whoever puts a page in its place or takes one away.
    changing: Mutex<()>,
    /// Counts changes of these.
    roster: AtomicU32,
    slot: AtomicU32,
    connected: AtomicBool,
    /// Tells this process's GPU from others.
    pub(crate) gpu: u64,
    /// How many SMs that has.
    pub(crate) width: u32,
    hello: Hello,
    /// The connection, for a forked child to close.
    socket: AtomicI32,
    /// Whether the first answer is there, or will not come.
    answered: Mutex<bool>,
    answer: Condvar,
}

/// What this process has on the board, if it is to have anything.
#[inline]
pub(crate) fn membership() -> Option<&'static Membership> {
    // SAFETY: NULL, or made from a box in `join` and never freed. Acquire: pairs with the release there.
    unsafe { HOT.membership.load(Ordering::Acquire).as_ref() }
}

/// What the daemon gives this process, if one looks after it.
pub(crate) fn entry() -> Option<Entry> {
    let membership = membership().filter(|membership| membership.is_connected())?;
    match membership.daemon.slot(membership.slot()?) {
        SlotState::Taken(occupant) => Some(occupant.entry),
        SlotState::Free | SlotState::Torn => None,
    }
}

/// What the daemon knows this process's page by, in whatever container we are.
pub(crate) fn page_number() -> Option<u64> {
    number_of(membership()?.page.file())
}

/// Run in a forked child: the page is its parent's.
pub(crate) fn forked() {
    let membership = HOT.membership.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: as above.
    if let Some(membership) = unsafe { membership.as_ref() } {
        let socket = membership.socket.swap(-1, Ordering::Relaxed);
        if socket >= 0 {
            // SAFETY: the child's own copy, of which nothing else in the child knows.
            unsafe { libc::close(socket) };
        }
    }
}

/// The process has a context on this device: it joins the daemon, if it was told of one and has not done so.
pub(crate) fn join(device: CUdevice) {
    let settings = settings::get();
    let (Some(folder), None) = (&settings.folder, membership()) else { return };
    let made = match Membership::new(device) {
        Ok(made) => Box::into_raw(Box::new(made)),
        Err(error) => return log::line(format_args!("cannot be a tenant: {error}; it runs as if alone")),
    };
    if HOT.membership.compare_exchange(core::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: just made from a box, and nobody else has seen it.
        drop(unsafe { Box::from_raw(made) });
        return;
    }
    let Some(membership) = membership() else { return };
    let socket = folder.join(SOCKET);
    steps::watch(membership);
    if background::thread("detshare-tenant", move || guarded((), || membership.attend(&socket))) {
        membership.wait_for_the_answer();
    } else {
        membership.is_answered();
    }
}

impl Membership {
    fn new(device: CUdevice) -> Result<Self, MapError> {
        let settings = settings::get();
        let hello = Hello {
            class: settings.class,
            name: settings.name.clone().unwrap_or_default(),
            objective: settings.objective,
            memory: settings.memory,
            block_level: settings.block_level == Some(BlockLevel::On),
            gpu: model(device),
            gpu_id: identity(device),
            width: width(device),
            driver: driver_release(),
        };
        let page = Tenant::create(settings.class.unwrap_or(Class::BestEffort))?;
        page.set_gpu(hello.gpu_id);
        page.set_lane(0, hello.width);
        Ok(Self {
            page,
            daemon: DaemonView::none()?,
            others: (0..SLOTS).map(|_| TenantView::none()).collect::<Result<_, _>>()?,
            generations: [const { AtomicU32::new(0) }; SLOTS],
            changing: Mutex::new(()),
            roster: AtomicU32::new(0),
            slot: AtomicU32::new(NONE),
            connected: AtomicBool::new(false),
            gpu: hello.gpu_id,
            width: hello.width,
            hello,
            socket: AtomicI32::new(-1),
            answered: Mutex::new(false),
            answer: Condvar::new(),
        })
    }

    /// Whether a daemon looks after this process.
    pub(crate) fn is_connected(&self) -> bool {
        // Pairs with the release in `serve`: the daemon's page is there then.
        self.connected.load(Ordering::Acquire)
    }

    /// The model of this process's GPU.
    pub(crate) fn model(&self) -> &str {
        &self.hello.gpu
    }

    /// The slot that the daemon gave it.
    pub(crate) fn slot(&self) -> Option<usize> {
        usize::try_from(self.slot.load(Ordering::Relaxed)).ok().filter(|slot| *slot < SLOTS)
    }

    /// Whether somebody asks now what its launches take.
    pub(crate) fn is_asked(&self, now: u64) -> bool {
        self.slot().is_some_and(|slot| self.daemon.is_asked(slot, now))
    }

    /// Changes with every page that comes or goes.
    pub(crate) fn roster(&self) -> u32 {
        self.roster.load(Ordering::Acquire)
    }

    /// Whether the page in this place is the one of that owner of the slot.
    pub(crate) fn has_page(&self, slot: usize, generation: u32) -> bool {
        self.generations.get(slot).is_some_and(|place| place.load(Ordering::Acquire) == generation)
    }

    /// Whose page is in this place; 0 if nobody's.
    pub(crate) fn page_of(&self, slot: usize) -> u32 {
        self.generations.get(slot).map_or(0, |place| place.load(Ordering::Acquire))
    }

    /// Lets go of that owner's page, which has left. If another's is there by now, or is just being put there, that one
    /// stays: the roster changes then, and whoever found the slot free looks again.
    pub(crate) fn let_go(&self, slot: usize, generation: u32) {
        let Ok(_changing) = self.changing.try_lock() else { return };
        if let (Some(place), Some(view)) = (self.generations.get(slot), self.others.get(slot))
            && generation != 0
            && place.compare_exchange(generation, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            // It stays as it is then, and is only not looked at.
            _ = view.clear();
        }
    }

    /// The step word of that owner of the slot, if its page is there, at a place that stays.
    pub(crate) fn step_page(&self, slot: usize, generation: u32) -> Option<StepPage> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.others.get(slot).filter(|_| self.has_page(slot, generation))?.step_page().ok()
    }

    /// The latency tenants on this process's GPU: for each slot its owner, or 0.
    pub(crate) fn latency_tenants(&self) -> [u32; SLOTS] {
        let own = self.slot();
        let mut tenants = [0; SLOTS];
        for (slot, tenant) in tenants.iter_mut().enumerate() {
            if let SlotState::Taken(occupant) = self.daemon.slot(slot)
                && occupant.entry.class == Class::Latency
                && Some(slot) != own
                && self.is_connected()
                && self.has_page(slot, occupant.generation.number())
                && self.others[slot].gpu() == self.gpu
            {
                *tenant = occupant.generation.number();
            }
        }
        tenants
    }

    fn wait_for_the_answer(&self) {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = if record::is_on() { RECORDED } else { PATIENCE };
        drop(self.answer.wait_timeout_while(answered, patience, |answered| !*answered));
    }

    /// Whether the first answer may still come.
    pub(crate) fn is_awaited(&self) -> bool {
        !*self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_answered(&self) {
        let before = core::mem::replace(&mut *self.answered.lock().unwrap_or_else(PoisonError::into_inner), true);
        self.answer.notify_all();
        // Who asks for block level waits for any daemon with it, if the first was none.
        if !before || self.is_connected() {
            block_level::daemon_answered();
        }
    }

    /// For the thread that holds the connection. Never returns.
    fn attend(&self, path: &Path) {
        let mut said = false;
        loop {
            let ended = UnixStream::connect(path).map_err(ServeError::from).and_then(|stream| {
                self.socket.store(stream.as_raw_fd(), Ordering::Relaxed);
                let served = self.serve(&stream);
                self.socket.store(-1, Ordering::Relaxed);
                served
            });
            let was_connected = self.connected.swap(false, Ordering::AcqRel);
            HOT.in_parts.store(settings::get().forced().is_some(), Ordering::Relaxed);
            self.forget_others();
            self.is_answered();
            let pause = if matches!(ended, Err(ServeError::Refused(_))) { REFUSED } else { AGAIN };
            if let Err(reason) = ended
                && (was_connected || !said)
            {
                said = true;
                log::line(format_args!("no daemon at {}: {reason}; it runs as if alone", path.display()));
            }
            std::thread::sleep(pause);
        }
    }

    /// Joins and takes in what comes, until the connection ends.
    fn serve(&self, stream: &UnixStream) -> Result<(), ServeError> {
        // SAFETY: always works.
        let user = unsafe { libc::geteuid() };
        if user_of_peer(stream).unwrap_or(u32::MAX) != user {
            return Err(ServeError::Foreign);
        }
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        self.hello.send(stream, self.page.file())?;
        let (slot, group) = match Welcome::receive(stream)? {
            (Welcome::Accepted { slot, .. }, Some(group)) => (slot, group),
            (refused, _) => return Err(ServeError::Refused(refused)),
        };
        self.daemon.replace(group)?;
        self.slot.store(u32::try_from(slot).unwrap_or(NONE), Ordering::Relaxed);
        self.connected.store(true, Ordering::Release);
        self.changed();
        self.is_answered();
        stream.set_read_timeout(None)?;
        loop {
            let (Arrived { slot, generation }, page) = Arrived::receive(stream)?;
            let (Some(view), Some(place)) = (self.others.get(slot), self.generations.get(slot)) else { continue };
            let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            // Not looked at while it changes hands.
            place.store(0, Ordering::Release);
            if view.replace(page).is_ok() {
                place.store(generation.number(), Ordering::Release);
            }
            drop(changing);
            self.changed();
        }
    }

    fn forget_others(&self) {
        self.slot.store(NONE, Ordering::Relaxed);
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, view) in self.generations.iter().zip(&self.others) {
            if place.swap(0, Ordering::AcqRel) != 0 {
                // As in `let_go`.
                _ = view.clear();
            }
        }
        drop(changing);
        self.changed();
    }

    fn changed(&self) {
        self.roster.fetch_add(1, Ordering::AcqRel);
        HOT.freedom.end();
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Page(#[from] MapError),
    #[error(transparent)]
    Socket(#[from] std::io::Error),
    #[error("the socket is another user's")]
    Foreign,
    #[error("it did not take this process in: {0:?}")]
    Refused(Welcome),
}

fn model(device: CUdevice) -> String {
    let mut name = [0_u8; 64];
    let length = c_int::try_from(name.len()).unwrap_or(c_int::MAX);
    let code = cu!(cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), length, device));
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    if is_ok(code) { String::from_utf8_lossy(&name[..end]).into_owned() } else { String::new() }
}

/// A number made of the device's UUID (FNV-1a), the same in every process; not 0, which is unknown.
fn identity(device: CUdevice) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut uuid = CUuuid { bytes: [0; 16] };
    if !is_ok(cu!(cuDeviceGetUuid_v2(&raw mut uuid, device))) {
        return 0;
    }
    let byte = |byte: c_char| u64::from(byte.cast_unsigned());
    uuid.bytes.into_iter().map(byte).fold(BASIS, |hash, byte| (hash ^ byte).wrapping_mul(PRIME)).max(1)
}

fn width(device: CUdevice) -> u32 {
    let mut sms = 0;
    let which = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    cu!(cuDeviceGetAttribute(&raw mut sms, which, device));
    u32::try_from(sms).unwrap_or(0).min(detshare_board::MOST_SMS)
}

/// Which driver it is: its release, or else the version of CUDA that it is for.
fn driver_release() -> String {
    let opened = resolve::opened().and_then(|opened| opened.as_ref().ok());
    opened.map_or_else(String::new, |driver| driver.release().unwrap_or_else(|| format!("CUDA {}", driver.version())))
}
