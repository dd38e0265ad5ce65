//! Memory pools. Memory comes from where it lies as it is asked for, and goes back when it is freed: a pool keeps the
//! numbers of what it would keep, and what a program sets.

use crate::handle::{self, Table};
use crate::memory::access::bit;
use crate::memory::shared::FileOf;
use crate::memory::{self, ALL, Kind};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use detshare_cuda::types::CUmemPool_attribute as Attribute;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

pub(crate) static POOLS: Table<Pool> = Table::new();

/// Where a pool's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Behind {
    Device(usize),
    Host,
    Managed,
}

/// A pool.
pub(crate) struct Pool {
    pub(crate) behind: Behind,
    /// A bit for each `CUmemAllocationHandleType`.
    pub(crate) handle_types: u32,
    /// The most bytes that may be in use at once.
    pub(crate) most: u64,
    /// The process and the handle there, for a pool of another process.
    pub(crate) imported: Option<(FileOf, u64)>,
    attributes: Mutex<HashMap<u32, u64>>,
    used: Mutex<Use>,
    /// The devices that may touch its memory.
    access: AtomicU8,
}

/// How much of a pool is in use.
#[derive(Default)]
pub(crate) struct Use {
    pub(crate) now: u64,
    pub(crate) most: u64,
    /// What the pool says that it keeps for later.
    pub(crate) reserved: u64,
    pub(crate) most_reserved: u64,
}

impl Use {
    /// Takes bytes into account; None beyond the limit.
    pub(crate) fn take(&mut self, bytes: u64, most: u64) -> Option<()> {
        self.now = self.now.checked_add(bytes).filter(|now| *now <= most)?;
        self.most = self.most.max(self.now);
        self.reserved = self.reserved.max(self.now);
        self.most_reserved = self.most_reserved.max(self.reserved);
        Some(())
    }

    /// Keeps no more for later than that.
    pub(crate) fn trim(&mut self, keep: u64) {
        self.reserved = self.reserved.min(keep).max(self.now);
    }
}

impl Pool {
    pub(crate) fn new(behind: Behind) -> Self {
        let access = match behind {
            Behind::Device(device) => bit(device),
            Behind::Host | Behind::Managed => ALL,
        };
        Self {
            behind,
            handle_types: 0,
            most: u64::MAX,
            imported: None,
            attributes: Mutex::default(),
            used: Mutex::default(),
            access: AtomicU8::new(access),
        }
    }

    pub(crate) fn used(&self) -> MutexGuard<'_, Use> {
        self.used.lock().expect("no panic while it is held")
    }

    pub(crate) fn set(&self, attribute: u32, value: u64) {
        self.attributes.lock().expect("no panic while it is held").insert(attribute, value);
    }

    pub(crate) fn get(&self, attribute: u32) -> Option<u64> {
        self.attributes.lock().expect("no panic while it is held").get(&attribute).copied()
    }

    pub(crate) fn access(&self) -> u8 {
        self.access.load(Ordering::Relaxed)
    }

    /// Lets these devices touch what there is of the pool and what will be.
    pub(crate) fn set_access(&self, handle: usize, access: u8) {
        self.access.store(access, Ordering::Relaxed);
        if let Behind::Device(device) = self.behind {
            memory::set_access(device, |range| range.kind == Kind::Pool(handle), access);
        }
    }
}

/// Adds a pool; returns its handle.
pub(crate) fn insert(pool: Pool) -> usize {
    let handle = handle::new();
    POOLS.insert(handle, Arc::new(pool));
    handle
}

/// The pool that is there from the beginning, and the one that allocations come from, for each place.
#[derive(Default)]
struct Chosen {
    default: HashMap<Behind, usize>,
    current: HashMap<Behind, usize>,
}

static CHOSEN: LazyLock<Mutex<Chosen>> = LazyLock::new(Mutex::default);

fn chosen() -> MutexGuard<'static, Chosen> {
    CHOSEN.lock().expect("no panic while it is held")
}

pub(crate) fn default_of(behind: Behind) -> usize {
    *chosen().default.entry(behind).or_insert_with(|| insert(Pool::new(behind)))
}

pub(crate) fn current_of(behind: Behind) -> usize {
    let current = chosen().current.get(&behind).copied();
    current.unwrap_or_else(|| default_of(behind))
}

pub(crate) fn set_current(behind: Behind, pool: usize) {
    chosen().current.insert(behind, pool);
}

/// The pool is no more; what is allocated from it stays until it is freed.
pub(crate) fn remove(pool: usize, behind: Behind) {
    let mut chosen = chosen();
    if chosen.current.get(&behind) == Some(&pool) {
        chosen.current.remove(&behind);
    }
    POOLS.remove(pool);
}

/// The pool that an address came from, and the bytes.
static ORIGINS: LazyLock<Mutex<HashMap<u64, (usize, u64)>>> = LazyLock::new(Mutex::default);

pub(crate) fn note(address: u64, pool: usize, bytes: u64) {
    ORIGINS.lock().expect("no panic while it is held").insert(address, (pool, bytes));
}

/// The pool that an address came from.
pub(crate) fn of(address: u64) -> Option<usize> {
    ORIGINS.lock().expect("no panic while it is held").get(&address).map(|(pool, _)| *pool)
}

/// What came from there is freed; returns its pool and the bytes.
pub(crate) fn forget(address: u64) -> Option<(usize, u64)> {
    let (pool, bytes) = ORIGINS.lock().expect("no panic while it is held").remove(&address)?;
    count_freed(pool, bytes);
    Some((pool, bytes))
}

/// So much of a pool is in use no more.
pub(crate) fn count_freed(pool: usize, bytes: u64) {
    let Some(pool) = POOLS.get(pool) else { return };
    let keep = pool.get(Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD.0).unwrap_or(0);
    let mut used = pool.used();
    used.now = used.now.saturating_sub(bytes);
    used.trim(keep);
}

/// What somebody wants of a pool, in a stream's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Wish {
    pub(crate) stream: u64,
    pub(crate) pool: usize,
    pub(crate) bytes: u64,
}

/// Memory whose freeing waits for its turn in a stream. Until then it can be had again in that stream, whose order sees to it that
/// whoever had it is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    wish: Wish,
    /// No two offers have the same, because an address can be offered again.
    number: u64,
}

/// The offers that stand, the newest last: number and address.
type Standing = HashMap<Wish, Vec<(u64, u64)>>;

static OFFERS: LazyLock<Mutex<Standing>> = LazyLock::new(Mutex::default);

fn offers() -> MutexGuard<'static, Standing> {
    OFFERS.lock().expect("no panic while it is held")
}

impl Offer {
    /// Who wishes for the like of it can have this address, from now on.
    pub(crate) fn make(wish: Wish, address: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        offers().entry(wish).or_default().push((number, address));
        Self { wish, number }
    }

    /// Its turn has come; false if the memory has a new owner.
    pub(crate) fn end(self) -> bool {
        let mut offers = offers();
        let Some(standing) = offers.get_mut(&self.wish) else { return false };
        let position = standing.iter().position(|(number, _)| *number == self.number);
        if let Some(position) = position {
            standing.remove(position);
        }
        if standing.is_empty() {
            offers.remove(&self.wish);
        }
        position.is_some()
    }
}

/// Memory that is offered and is just what is wanted: it has a new owner.
pub(crate) fn again(wish: Wish) -> Option<u64> {
    let mut offers = offers();
    let standing = offers.get_mut(&wish)?;
    let (_, address) = standing.pop()?;
    if standing.is_empty() {
        offers.remove(&wish);
    }
    Some(address)
}
