//! Memory that graphs allocate.
//!
//! An allocation node's address is the same at every launch, so its memory is kept from the node's creation on, as
//! long as a graph or an executable has the node, or the program has not freed what a launch allocated. What a launch
//! allocates and frees is bookkeeping: an allocation is *live* from the launch to its free, and counts as used.

use super::executable::Step;
use super::{Content, capture};
use crate::boundary::Outcome;
use crate::memory;
use crate::stream::Stream;
use detshare_cuda::types::{CUgraphMem_attribute as Attribute, CUresult};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// The memory of one allocation node.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// What all graphs have together.
#[derive(Default)]
struct Account {
    /// Addresses of all nodes' memory.
    all: BTreeSet<u64>,
    live: BTreeMap<u64, Arc<GraphMemory>>,
    used: u64,
    most_used: u64,
    /// What was used and is kept for the next launch.
    reserved: u64,
    most_reserved: u64,
}

static ACCOUNT: Mutex<Account> = Mutex::new(Account {
    all: BTreeSet::new(),
    live: BTreeMap::new(),
    used: 0,
    most_used: 0,
    reserved: 0,
    most_reserved: 0,
});

fn account() -> MutexGuard<'static, Account> {
    ACCOUNT.lock().expect("no panic while it is held")
}

impl GraphMemory {
    pub(crate) fn new(bytes: usize) -> Outcome<Arc<Self>> {
        let address = memory::allocate(bytes as u64).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        account().all.insert(address);
        Ok(Arc::new(Self { address, bytes }))
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        account().all.remove(&self.address);
        memory::free(self.address);
    }
}

impl Account {
    fn take(&mut self, memory: &Arc<GraphMemory>) {
        self.live.insert(memory.address, Arc::clone(memory));
        self.used += memory.bytes as u64;
        self.most_used = self.most_used.max(self.used);
        self.reserved = self.reserved.max(self.used);
        self.most_reserved = self.most_reserved.max(self.reserved);
    }

    /// What is handed back must be dropped without the lock.
    fn give_back(&mut self, address: u64) -> Option<Arc<GraphMemory>> {
        let memory = self.live.remove(&address)?;
        self.used -= memory.bytes as u64;
        Some(memory)
    }
}

/// Whether a graph's node has the memory at that address.
pub(crate) fn holds(address: u64) -> bool {
    account().all.contains(&address)
}

/// Frees what a graph's launch has allocated; false for memory of another kind.
pub(crate) fn release(address: u64) -> Outcome<bool> {
    let mut account = account();
    if !account.all.contains(&address) {
        return Ok(false);
    }
    let freed = account.give_back(address);
    drop(account);
    freed.map(|_| true).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// An allocation in a stream that is captured: the address of the node's memory. None where it is not captured.
pub(crate) fn allocate_in_capture(stream: &Arc<Stream>, bytes: usize) -> Outcome<Option<u64>> {
    if stream.capturing().is_none() {
        return Ok(None);
    }
    let memory = GraphMemory::new(bytes)?;
    let address = memory.address;
    Ok(capture::add(stream, || Content::Allocate(memory))?.then_some(address))
}

/// What a launch of these steps allocates and frees. An allocation that is live from before is refused, or freed first.
pub(super) fn launch(steps: &[Step], free_first: bool) -> Outcome {
    let mut freed = Vec::new();
    let mut account = account();
    if !free_first {
        let is_live =
            |step: &Step| matches!(&step.content, Content::Allocate(it) if account.live.contains_key(&it.address));
        if steps.iter().any(is_live) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
    }
    for step in steps {
        match &step.content {
            Content::Allocate(memory) => {
                freed.extend(account.give_back(memory.address));
                account.take(memory);
            }
            Content::Free(address) => freed.extend(account.give_back(*address)),
            _ => {}
        }
    }
    drop(account);
    Ok(())
}

/// Gives back what is not used now.
pub(crate) fn trim() {
    let mut account = account();
    account.reserved = account.used;
}

pub(crate) fn attribute(attribute: Attribute) -> Outcome<u64> {
    let account = account();
    Ok(match attribute {
        Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => account.used,
        Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => account.most_used,
        Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => account.reserved,
        Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => account.most_reserved,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

/// Starts a high-water mark anew.
pub(crate) fn reset(attribute: Attribute) -> Outcome {
    let mut account = account();
    match attribute {
        Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => account.most_used = account.used,
        Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => account.most_reserved = account.reserved,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}
