//! What the driver around the execution core sees of it.
//!
//! The driver parses PTX, has it decoded to an [`Image`], and runs a launch block by block: it makes a
//! [`Cluster`](super::Cluster) for each block or cluster of the grid and lets it run for a slice of instructions at a time,
//! so that blocks that wait for each other make progress whatever the number of cores.

use crate::system::{System, SystemUse};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A variable of a module that needs memory on the device.
#[derive(Debug)]
pub(crate) struct Placement<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// In bytes.
    pub(crate) size: u64,
    /// In bytes.
    pub(crate) align: u64,
    /// Whether it is a constant.
    pub(crate) constant: bool,
    /// Whether the host uses it, too.
    pub(crate) managed: bool,
}

/// A placed variable.
#[derive(Debug, Clone)]
pub(crate) struct Global {
    /// Where it lies: a device address, which is a host address too.
    pub(crate) address: u64,
    /// In bytes.
    pub(crate) size: u64,
}

/// One parameter of a kernel in its parameter buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// In bytes from the buffer's start.
    pub(crate) offset: usize,
    /// In bytes.
    pub(crate) size: usize,
}

/// What a kernel declares, which the driver answers queries and checks launches by.
#[derive(Debug, Clone, Default)]
pub(crate) struct KernelProperties {
    /// Its name.
    pub(crate) name: String,
    /// Its parameters in order.
    pub(crate) parameters: Vec<Parameter>,
    /// The size of the parameter buffer.
    pub(crate) parameter_bytes: usize,
    /// Statically declared shared memory.
    pub(crate) shared_bytes: u32,
    /// Local memory of one thread.
    pub(crate) local_bytes: u32,
    /// Constant memory of the module.
    pub(crate) constant_bytes: u32,
    /// How many 32-bit registers a thread would need, as far as the text tells; at least 1.
    pub(crate) registers: u32,
    /// `.maxntid` and `.reqntid`: the largest number of threads in a block, where declared.
    pub(crate) most_threads: Option<u32>,
    /// `.reqntid` where declared.
    pub(crate) required_block: Option<[u32; 3]>,
    /// The first instruction that cannot be executed, or an unknown directive, and its line: a launch then says "not supported".
    pub(crate) unsupported: Option<(String, u32)>,
    /// What it may use of the system, through all its calls.
    pub(crate) system: SystemUse,
    /// The module's target: `sm_90` is 90.
    pub(crate) target: u32,
    /// `.reqnctapercluster` where declared.
    pub(crate) required_cluster: Option<[u32; 3]>,
    /// `.explicitcluster`: a launch has to have clusters.
    pub(crate) needs_cluster: bool,
    /// `.maxclusterrank`: the largest number of blocks in a cluster, where declared.
    pub(crate) most_blocks_in_cluster: Option<u32>,
    /// `.blocksareclusters`: launches count clusters.
    pub(crate) blocks_are_clusters: bool,
}

impl KernelProperties {
    /// The blocks of a launch that says this grid and this block, and their threads; None where no number is so large.
    ///
    /// Where blocks are clusters, the grid counts these, and the block is the kernel's own: a launch says one thread, as
    /// `<<<clusters>>>` does, or the same again.
    pub(crate) fn launched(&self, grid: [u32; 3], block: [u32; 3]) -> Option<([u32; 3], [u32; 3])> {
        let Some(cluster) = self.required_cluster.filter(|_| self.blocks_are_clusters) else {
            return Some((grid, block));
        };
        let mut blocks = grid;
        for (count, size) in blocks.iter_mut().zip(cluster) {
            *count = count.checked_mul(size)?;
        }
        Some((blocks, self.required_block.filter(|_| block == [1; 3]).unwrap_or(block)))
    }

    /// The grid and the block that a launch says for this shape.
    pub(crate) fn said(&self, shape: &Shape) -> [[u32; 3]; 2] {
        if self.blocks_are_clusters { [shape.clusters(), [1; 3]] } else { [shape.grid, shape.block] }
    }
}

/// A launch, the same for all its blocks.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// Blocks in the grid.
    pub(crate) grid: [u32; 3],
    /// Threads in a block.
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub(crate) dynamic_shared: u32,
    /// The parameter buffer, laid out as the kernel's parameters say.
    pub(crate) parameters: Arc<[u8]>,
    /// A number that no other launch has (`%gridid`).
    pub(crate) grid_id: u64,
    /// How many SMs the device has (`%nsmid`).
    pub(crate) sm_count: u32,
    /// What its kernel prints to and allocates from.
    pub(crate) system: Arc<System>,
    /// Blocks in a cluster; None where the launch has none, which is one block.
    pub(crate) cluster: Option<[u32; 3]>,
    /// Memory through which the blocks of a cooperative launch meet.
    pub(crate) workspace: Option<Arc<Workspace>>,
}

impl Shape {
    /// Blocks in a cluster.
    pub(crate) fn cluster_size(&self) -> [u32; 3] {
        self.cluster.unwrap_or([1; 3])
    }

    /// Clusters in the grid.
    pub(crate) fn clusters(&self) -> [u32; 3] {
        let size = self.cluster_size();
        [0, 1, 2].map(|axis| self.grid[axis] / size[axis].max(1))
    }
}

/// A number that no other launch has.
pub(crate) fn new_grid_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What compilers find in `%envreg1` and `%envreg2`: a size, and behind it the word that the blocks of a cooperative
/// launch count themselves with.
#[derive(Debug)]
pub(crate) struct Workspace {
    address: u64,
}

impl Workspace {
    const BYTES: u32 = 128;

    /// None where there is no memory.
    pub(crate) fn new() -> Option<Self> {
        let address = crate::memory::allocate(Self::BYTES.into())?;
        let words = core::ptr::with_exposed_provenance_mut::<u32>(usize::try_from(address).ok()?);
        // SAFETY: memory of that size that nobody else knows of.
        unsafe { words.write_bytes(0, Self::BYTES as usize / size_of::<u32>()) };
        // SAFETY: as above.
        unsafe { words.write(Self::BYTES) };
        Some(Self { address })
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        crate::memory::free(self.address);
    }
}

/// How far a block came in its slice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Progress {
    /// All threads have ended.
    Finished,
    /// The slice is used up; the block can go on.
    Yielded,
    /// All threads that could run sleep (`nanosleep`), wait for memory to change, or the like: it is better to
    /// run something else first.
    Idle,
    /// A thread did what ends a kernel on a GPU.
    Fault(Fault),
}

/// What went wrong in a kernel, for the code and for the log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    /// Which code the context gets.
    pub(crate) kind: FaultKind,
    /// Where: kernel, block, thread, instruction and line, as one readable sentence.
    pub(crate) place: String,
}

/// What ends a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// An access where there is no memory.
    IllegalAddress,
    /// An access that is not aligned to its size.
    MisalignedAddress,
    /// What no instruction can do: a copy of a tensor from a place that it cannot begin at, or a store to another
    /// block in a launch without clusters.
    IllegalInstruction,
    /// `trap`.
    Trap,
    /// `__assertfail`.
    Assert,
    /// A call of something that is no function.
    InvalidProgramCounter,
    /// Calls nested too deeply.
    StackOverflow,
    /// All threads wait for each other for ever.
    Deadlock,
    /// The checker found something, and the user wants that to end the kernel.
    Finding,
}
