//! `DETSHARE_MEM`: how much device memory this process can have on each device.
//!
//! What a program asks for counts, whichever call it asks by; beyond the quota the call fails as on a smaller GPU. Bytes
//! are reserved before the driver is called and given back if it refuses, so threads that race for the last
//! ones never get more than there is. What the driver takes for itself (contexts, modules, the rounding of sizes,
//! what a pool keeps after it was freed) does not count.
//!
//! * An allocation belongs to the context that was current and goes with it.
//! * Physical memory of its own (`cuMemCreate`) goes with the last of its handles and mappings.
//! * Memory of a graph counts from the moment its node is added or captured, until its address is freed by a call or
//!   the graph is destroyed, whichever comes first.
//! * Memory freed in a stream's order is free for the next call, as it is for the driver's pool.
//!
//! A tenant's memory is counted in any case, for those who want to see it, and the daemon can limit it at any time.
//! Otherwise, without the setting, nothing is counted, and nothing that a program points to is looked at.

mod ledger;
mod size;

use crate::call::is_ok;
use crate::{log, settings, tenant};
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use detshare_cuda::types::{CUcontext, CUdevice, CUdevice_v1, CUresult};
use ledger::Ledger;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use ledger::{Allocation, Key};
pub(crate) use size::{of_array, parse};

/// Devices that are looked after; on further ones there is no quota.
const DEVICES: usize = 64;

/// The quota, if there is one: what the daemon says, which was told of the environment's, or else that.
#[inline]
pub(crate) fn limit() -> Option<u64> {
    tenant::entry().map_or(settings::get().memory, |entry| entry.limits.memory)
}

/// Whether anything is counted: there is a quota, or somebody who wants to know.
#[inline]
pub(crate) fn active() -> bool {
    let settings = settings::get();
    settings.memory.is_some() || settings.folder.is_some()
}

/// Bytes that this process has, on all devices together.
pub(crate) fn used() -> u64 {
    books().used.iter().map(|used| used.load(Ordering::Relaxed)).sum()
}

/// Says what was not understood, once the log can be written.
pub(crate) fn check_setting() {
    if let Some(text) =
        std::env::var_os("DETSHARE_MEM").filter(|text| !text.is_empty() && settings::get().memory.is_none())
    {
        log::line(format_args!("DETSHARE_MEM={} is no size, such as 40GiB: there is no quota", text.display()));
    }
}

/// One process's accounts.
struct Books {
    used: [AtomicU64; DEVICES],
    /// The most that was in use at once.
    most: [AtomicU64; DEVICES],
    ledger: Mutex<Ledger>,
}

/// Made at the first use and never freed, so that they outlast every thread and every exit handler.
static BOOKS: AtomicPtr<Books> = AtomicPtr::new(null_mut());

fn books() -> &'static Books {
    // Pairs with the release below.
    let there = BOOKS.load(Ordering::Acquire);
    if !there.is_null() {
        // SAFETY: made from a box below and never freed.
        return unsafe { &*there };
    }
    let none = || [const { AtomicU64::new(0) }; DEVICES];
    let new = Box::into_raw(Box::new(Books { used: none(), most: none(), ledger: Mutex::default() }));
    match BOOKS.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just made from a box, and never freed from now on.
        Ok(_) => unsafe { &*new },
        Err(theirs) => {
            // SAFETY: just made from a box, and nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: not NULL, or the exchange had succeeded; never freed.
            unsafe { &*theirs }
        }
    }
}

/// Run in a forked child, which has none of its parent's memory; another thread may have held the lock.
pub(crate) fn renew_in_child() {
    BOOKS.store(null_mut(), Ordering::Release);
}

impl Books {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes out of the quota, all or none.
    fn reserve(&self, device: usize, bytes: u64) -> bool {
        let (Some(used), Some(most)) = (self.used.get(device), self.most.get(device)) else {
            return true;
        };
        let limit = limit().unwrap_or(u64::MAX);
        let more = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= limit);
        let reserved = used.try_update(Ordering::AcqRel, Ordering::Relaxed, more);
        if let Ok(before) = reserved {
            most.fetch_max(before + bytes, Ordering::Relaxed);
        }
        reserved.is_ok()
    }

    fn give_back(&self, device: usize, bytes: u64) {
        if let Some(used) = self.used.get(device) {
            used.fetch_sub(bytes, Ordering::AcqRel);
        }
    }
}

/// Where an allocation is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    device: usize,
    context: usize,
}

impl Place {
    /// On the device of the calling thread's context. None without one, which the driver has a code for.
    pub(crate) fn here() -> Option<Self> {
        let mut device = CUdevice_v1(0);
        is_ok(cu!(cuCtxGetDevice(&raw mut device))).then_some(())?;
        Self::on(device.0)
    }

    /// On that device.
    pub(crate) fn on(device: c_int) -> Option<Self> {
        let mut context = CUcontext(null_mut());
        cu!(cuCtxGetCurrent(&raw mut context));
        let device = usize::try_from(device).ok().filter(|device| *device < DEVICES)?;
        Some(Self { device, context: context.0.addr() })
    }

    /// Where that pool takes memory from; None where that is not a device.
    pub(crate) fn of_pool(pool: usize) -> Option<Self> {
        let known = books().ledger().pool(pool);
        match known {
            Some(device) => Self::on(c_int::try_from(device?).ok()?),
            None => Self::here(),
        }
    }
}

/// Bytes that are taken out of the quota for an allocation on its way. Dropped, they are given back.
pub(crate) struct Reserved {
    place: Place,
    bytes: u64,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        books().give_back(self.place.device, self.bytes);
    }
}

impl Reserved {
    /// None if there is not as much left.
    pub(crate) fn new(place: Place, bytes: u64) -> Option<Self> {
        // Made only if it is so: what is made gives back when it is dropped.
        books().reserve(place.device, bytes).then(|| Self { place, bytes })
    }

    /// The driver needs more than was asked for; false if there is not as much left.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let grown = books().reserve(self.place.device, more);
        if grown {
            self.bytes += more;
        }
        grown
    }

    fn counted(self, graph: usize) -> Allocation {
        let Place { device, context } = self.place;
        let allocation = Allocation { bytes: self.bytes, device, context, graph };
        core::mem::forget(self);
        allocation
    }

    /// The allocation is there, as part of a graph if that is not 0.
    pub(crate) fn enter(self, key: Key, graph: usize) {
        books().ledger().enter(key, self.counted(graph));
    }

    /// The physical memory is there.
    pub(crate) fn created(self, handle: u64) {
        books().ledger().created(handle, self.counted(0));
    }
}

fn give_back(gone: impl IntoIterator<Item = Allocation>) {
    for allocation in gone {
        books().give_back(allocation.device, allocation.bytes);
    }
}

/// A call that frees an allocation: if it succeeds, its bytes are given back.
pub(crate) fn free(key: Key, call: impl FnOnce() -> CUresult) -> CUresult {
    let taken = books().ledger().take(key);
    let code = call();
    match taken {
        Some(allocation) if is_ok(code) => give_back([allocation]),
        Some(allocation) => books().ledger().enter(key, allocation),
        None => {}
    }
    code
}

/// A call that releases a handle of physical memory once.
pub(crate) fn release(handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let identity = books().ledger().releasing(handle);
    let code = call();
    if let Some(identity) = identity {
        if is_ok(code) {
            let gone = books().ledger().released(identity);
            give_back(gone);
        } else {
            books().ledger().kept(handle, identity);
        }
    }
    code
}

/// The program got one more handle for what is mapped there.
pub(crate) fn referenced(handle: u64, address: u64) {
    books().ledger().referenced(handle, address);
}

/// A call that maps physical memory, which then outlives its handles.
pub(crate) fn map(address: u64, bytes: u64, handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let identity = books().ledger().identity(handle);
    let code = call();
    if is_ok(code)
        && let Some(identity) = identity
    {
        books().ledger().mapped(address, bytes, identity);
    }
    code
}

/// A range is no longer mapped.
pub(crate) fn unmapped(address: u64, bytes: u64) {
    let gone = books().ledger().unmapped(address, bytes);
    give_back(gone);
}

/// A call that destroys a graph, and with it the memory of its nodes.
pub(crate) fn destroy_graph(graph: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    let taken = if graph == 0 { Vec::new() } else { books().ledger().take_graph(graph) };
    let code = call();
    if is_ok(code) {
        give_back(taken.into_iter().map(|(_, allocation)| allocation));
    } else {
        let mut ledger = books().ledger();
        taken.into_iter().for_each(|(key, allocation)| ledger.enter(key, allocation));
    }
    code
}

/// A context is gone, and everything in it.
pub(crate) fn context_gone(context: CUcontext) {
    if !context.0.is_null() {
        let gone = books().ledger().take_context(context.0.addr());
        give_back(gone);
    }
}

/// A call that ends a device's primary context, or only lets go of it: that shows afterwards.
pub(crate) fn end_primary(device: CUdevice, resets: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    if !active() {
        return call();
    }
    let context = primary(device);
    let code = call();
    if is_ok(code) && (resets || !is_alive(device)) {
        context_gone(context);
    }
    code
}

/// A device's primary context; NULL if there is none.
fn primary(device: CUdevice) -> CUcontext {
    let mut context = CUcontext(null_mut());
    if is_alive(device) && is_ok(cu!(cuDevicePrimaryCtxRetain(&raw mut context, device))) {
        cu!(cuDevicePrimaryCtxRelease_v2(device));
    }
    context
}

fn is_alive(device: CUdevice) -> bool {
    let (mut flags, mut alive) = (0, 0);
    is_ok(cu!(cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut alive))) && alive != 0
}

/// The program has made a pool on that device, or in the host's memory.
pub(crate) fn pool_made(pool: usize, device: Option<c_int>) {
    books().ledger().pool_made(pool, device.and_then(|device| usize::try_from(device).ok()));
}

/// What is left of the quota on the calling thread's device.
pub(crate) fn left() -> Option<u64> {
    let used = books().used.get(Place::here()?.device)?.load(Ordering::Acquire);
    limit().map(|limit| limit.saturating_sub(used))
}

/// Quota, use and most use, for the stats: of the device that had the most.
pub(crate) fn report() -> Option<(u64, u64, u64)> {
    let limit = limit()?;
    let books = books();
    let devices = books.used.iter().zip(&books.most);
    let figures = devices.map(|(used, most)| (most.load(Ordering::Relaxed), used.load(Ordering::Relaxed)));
    let (most, used) = figures.max()?;
    Some((limit, used, most))
}
