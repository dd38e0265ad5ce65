//! Who holds how much: plain bookkeeping, which asks no driver.

use std::collections::BTreeMap;

/// What an allocation is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Address(u64),
    Array(usize),
    Mipmap(usize),
}

/// Memory that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) bytes: u64,
    /// The device's number.
    pub(crate) device: usize,
    /// The context that was current, with which it goes.
    pub(crate) context: usize,
    /// The graph that it is part of, with which it goes; 0 for none.
    pub(crate) graph: usize,
}

/// Physical memory that is mapped apart from being made. It goes with the last of its handles and mappings.
#[derive(Debug)]
struct Physical {
    allocation: Allocation,
    references: u64,
    mappings: u64,
}

/// A number that is never used twice: the driver may use a handle again while the memory that it once meant is
/// still mapped.
pub(crate) type Identity = u64;

/// All of a process's device memory.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    held: BTreeMap<Key, Allocation>,
    physical: BTreeMap<Identity, Physical>,
    /// What a handle means, and how often it has to be released.
    handles: BTreeMap<u64, (Identity, u64)>,
    /// Mapped ranges: their size, and what is there.
    mapped: BTreeMap<u64, (u64, Identity)>,
    last_identity: Identity,
    /// Where the pools that the program has made take memory from; None for the host's memory.
    pools: BTreeMap<usize, Option<usize>>,
}

impl Ledger {
    pub(crate) fn enter(&mut self, key: Key, allocation: Allocation) {
        self.held.insert(key, allocation);
    }

    /// Takes an allocation out, to be given back or entered again as the driver decides. While it is out nobody else
    /// can find it: once the driver has freed it, the next allocation may have the same address.
    pub(crate) fn take(&mut self, key: Key) -> Option<Allocation> {
        self.held.remove(&key)
    }

    /// Takes everything out that goes with a context.
    pub(crate) fn take_context(&mut self, context: usize) -> Vec<Allocation> {
        let gone = |allocation: &Allocation| allocation.context == context;
        let held = self.held.extract_if(.., |_, allocation| gone(allocation)).map(|(_, allocation)| allocation);
        let physical = self.physical.extract_if(.., |_, physical| gone(&physical.allocation));
        held.chain(physical.map(|(_, physical)| physical.allocation)).collect()
    }

    /// Takes everything out that goes with a graph.
    pub(crate) fn take_graph(&mut self, graph: usize) -> Vec<(Key, Allocation)> {
        self.held.extract_if(.., |_, allocation| allocation.graph == graph).collect()
    }

    /// Physical memory was made.
    pub(crate) fn created(&mut self, handle: u64, allocation: Allocation) {
        self.last_identity += 1;
        self.physical.insert(self.last_identity, Physical { allocation, references: 1, mappings: 0 });
        self.handles.insert(handle, (self.last_identity, 1));
    }

    /// What a handle means.
    pub(crate) fn identity(&self, handle: u64) -> Option<Identity> {
        self.handles.get(&handle).map(|(identity, _)| *identity)
    }

    /// The program got a handle, perhaps another one, for what is mapped at an address.
    pub(crate) fn referenced(&mut self, handle: u64, address: u64) {
        let Some((start, (bytes, identity))) = self.mapped.range(..=address).next_back() else { return };
        let identity = *identity;
        if address - start < *bytes
            && let Some(physical) = self.physical.get_mut(&identity)
        {
            physical.references += 1;
            self.reference(handle, identity);
        }
    }

    fn reference(&mut self, handle: u64, identity: Identity) {
        let entry = self.handles.entry(handle).or_insert((identity, 0));
        *entry = if entry.0 == identity { (identity, entry.1 + 1) } else { (identity, 1) };
    }

    /// A handle is about to be released once; `released` or `kept` says how it went.
    pub(crate) fn releasing(&mut self, handle: u64) -> Option<Identity> {
        let entry = self.handles.get_mut(&handle)?;
        let identity = entry.0;
        entry.1 -= 1;
        if entry.1 == 0 {
            self.handles.remove(&handle);
        }
        Some(identity)
    }

    /// It was released: returns what is gone by that.
    pub(crate) fn released(&mut self, identity: Identity) -> Option<Allocation> {
        let physical = self.physical.get_mut(&identity)?;
        physical.references = physical.references.saturating_sub(1);
        self.gone(identity)
    }

    /// It was not released.
    pub(crate) fn kept(&mut self, handle: u64, identity: Identity) {
        self.reference(handle, identity);
    }

    pub(crate) fn mapped(&mut self, address: u64, bytes: u64, identity: Identity) {
        if let Some(physical) = self.physical.get_mut(&identity) {
            physical.mappings += 1;
            self.mapped.insert(address, (bytes, identity));
        }
    }

    /// A range was unmapped, which may be several mappings: returns what is gone by that.
    pub(crate) fn unmapped(&mut self, address: u64, bytes: u64) -> Vec<Allocation> {
        let range = address..address.saturating_add(bytes);
        let identities: Vec<Identity> =
            self.mapped.extract_if(range, |_, _| true).map(|(_, (_, identity))| identity).collect();
        let gone = identities.into_iter().filter_map(|identity| {
            let physical = self.physical.get_mut(&identity)?;
            physical.mappings = physical.mappings.saturating_sub(1);
            self.gone(identity)
        });
        gone.collect()
    }

    fn gone(&mut self, identity: Identity) -> Option<Allocation> {
        let physical = self.physical.get(&identity)?;
        let held = physical.references > 0 || physical.mappings > 0;
        if held { None } else { self.physical.remove(&identity).map(|physical| physical.allocation) }
    }

    pub(crate) fn pool_made(&mut self, pool: usize, device: Option<usize>) {
        self.pools.insert(pool, device);
    }

    /// Where a pool takes memory from, if it is one of the program's.
    pub(crate) fn pool(&self, pool: usize) -> Option<Option<usize>> {
        self.pools.get(&pool).copied()
    }
}
