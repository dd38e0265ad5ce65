//! What is known of a kernel, by its handle: which lanes can hold it.

use crate::call::is_ok;
use crate::coroutine::Coroutine;
use crate::handles::Handles;
use crate::lane::FULL;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use detshare_cuda::types::{CUfunction, CUfunction_attribute, CUlaunchAttributeID, CUlaunchConfig};

/// Clusters of this many blocks fit into any lane: SMs come in groups of as many that can hold one.
const EVERYWHERE: u32 = 8;

static KERNELS: Handles<Kernel> = Handles::new();

/// One kernel.
#[derive(Default)]
pub(crate) struct Kernel {
    /// Blocks of a cluster, where the kernel was compiled for clusters; 1 otherwise.
    cluster: AtomicU32,
    /// It took far too long on a lane: it runs on all SMs from then on.
    pinned: AtomicBool,
    launches: AtomicU32,
}

/// What one kernel took in one shape on the whole GPU.
#[derive(Default)]
pub(crate) struct Timed {
    nanoseconds: AtomicU64,
}

static TIMED: Handles<Timed> = Handles::new();

impl Timed {
    /// The shortest that was seen.
    pub(crate) fn on_full(&self) -> Option<Duration> {
        let nanoseconds = self.nanoseconds.load(Ordering::Relaxed);
        (nanoseconds != 0).then(|| Duration::from_nanos(nanoseconds))
    }

    pub(crate) fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let before = self.nanoseconds.load(Ordering::Relaxed);
        if before == 0 || took < before {
            self.nanoseconds.store(took, Ordering::Relaxed);
        }
    }
}

/// Counts a launch; gives the times of its kernel in its shape if it is to be timed. That are the first few, then
/// fewer and fewer, down to one in a thousand.
pub(crate) fn to_be_timed(function: CUfunction, shape: &Shape) -> Option<&'static Timed> {
    const OFTEN: u32 = 4;
    const RARELY: u32 = 1024;
    let launches = &find(function).launches;
    let count = launches.load(Ordering::Relaxed);
    // Two threads may count as one: which launches are timed does not matter.
    launches.store(count.wrapping_add(1), Ordering::Relaxed);
    if count >= OFTEN && !count.is_power_of_two() && !count.is_multiple_of(RARELY) {
        return None;
    }
    const ODD: usize = 0x9e37_79b9_7f4a_7c15;
    let blocks = usize::try_from(shape.blocks).unwrap_or(usize::MAX);
    let handle = function.0.addr() ^ blocks.wrapping_add(shape.threads as usize).wrapping_mul(ODD);
    Some(
        TIMED
            .find(handle)
            .unwrap_or_else(|| TIMED.insert(handle, |timed| timed.nanoseconds.store(0, Ordering::Relaxed))),
    )
}

/// How a kernel is launched, as far as it matters where.
pub(crate) struct Shape {
    pub(crate) blocks: u64,
    pub(crate) threads: u32,
    pub(crate) shared: c_uint,
    pub(crate) cooperative: bool,
    /// Blocks of a cluster; 0 if the launch does not say.
    pub(crate) cluster: u32,
}

impl Shape {
    pub(crate) fn new(grid: [c_uint; 3], block: [c_uint; 3], shared: c_uint) -> Self {
        let product = |sizes: [c_uint; 3]| sizes.into_iter().map(u64::from).fold(1, u64::saturating_mul);
        let threads = u32::try_from(product(block)).unwrap_or(u32::MAX);
        Self { blocks: product(grid), threads, shared, cooperative: false, cluster: 0 }
    }

    /// As a launch configuration has it.
    ///
    /// # Safety
    /// The configuration's attributes are there.
    pub(crate) unsafe fn of(config: &CUlaunchConfig) -> Self {
        let mut shape = Self::new(
            [config.gridDimX, config.gridDimY, config.gridDimZ],
            [config.blockDimX, config.blockDimY, config.blockDimZ],
            config.sharedMemBytes,
        );
        if config.attrs.is_null() {
            return shape;
        }
        // SAFETY: the caller's promise.
        for attribute in unsafe { core::slice::from_raw_parts(config.attrs, config.numAttrs as usize) } {
            match attribute.id {
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => {
                    // SAFETY: the identity says which one it is.
                    shape.cooperative = unsafe { attribute.value.cooperative } != 0;
                }
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                    // SAFETY: as above.
                    let size = unsafe { attribute.value.clusterDim };
                    shape.cluster = size.x.saturating_mul(size.y).saturating_mul(size.z);
                }
                _ => {}
            }
        }
        shape
    }
}

/// Whether a lane can hold the launch.
pub(crate) fn fits(function: CUfunction, shape: &Shape, coroutine: &Coroutine, lane: usize) -> bool {
    if lane == FULL {
        return true;
    }
    let kernel = find(function);
    if kernel.pinned.load(Ordering::Relaxed) {
        return false;
    }
    let cluster = if shape.cluster == 0 { kernel.cluster.load(Ordering::Relaxed) } else { shape.cluster };
    cluster <= EVERYWHERE && (!shape.cooperative || is_resident(function, shape, coroutine.lanes[lane].width()))
}

/// Whether all blocks can be there at once.
fn is_resident(function: CUfunction, shape: &Shape, width: u32) -> bool {
    let mut blocks: c_int = 0;
    let threads = c_int::try_from(shape.threads).unwrap_or(c_int::MAX);
    let asked =
        cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function, threads, shape.shared as usize));
    is_ok(asked) && u64::try_from(blocks).unwrap_or(0) * u64::from(width) >= shape.blocks
}

fn find(function: CUfunction) -> &'static Kernel {
    let handle = function.0.addr();
    KERNELS.find(handle).unwrap_or_else(|| {
        KERNELS.insert(handle, |kernel| {
            kernel.cluster.store(compiled_cluster(function), Ordering::Relaxed);
            kernel.pinned.store(false, Ordering::Relaxed);
            kernel.launches.store(0, Ordering::Relaxed);
        })
    })
}

fn compiled_cluster(function: CUfunction) -> u32 {
    use CUfunction_attribute as Attribute;
    let size = |attribute| {
        let mut value = 0;
        let asked = cu!(cuFuncGetAttribute(&raw mut value, attribute, function));
        if is_ok(asked) { u32::try_from(value).unwrap_or(0).max(1) } else { 1 }
    };
    size(Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH)
        * size(Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT)
        * size(Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)
}

/// Keeps a kernel off the lanes from now on.
pub(crate) fn pin(function: CUfunction) {
    find(function).pinned.store(true, Ordering::Relaxed);
}

/// Modules are unloaded: their handles may come back for other kernels.
pub(crate) fn forget() {
    KERNELS.remove_if(|_| true);
    TIMED.remove_if(|_| true);
}
