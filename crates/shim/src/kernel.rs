//! What is known of a kernel, by its handle: which lanes can hold it, and how long it takes there in each shape.

use crate::call::is_ok;
use crate::coroutine::Coroutine;
use crate::handed;
use crate::handles::Handles;
use crate::hot::HOT;
use crate::lane::{FULL, LANES};
use crate::module::{self, mixed};
use crate::tenant::membership;
use core::ffi::{CStr, c_char, c_int, c_uint};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use detshare_board::Noted;
use detshare_cuda::types::{
    CUdevice_v1, CUfunction, CUfunction_attribute, CUgraphExec, CUkernel, CUlaunchAttributeID, CUlaunchConfig,
};
use detshare_policy::{Bound, Launch};
use std::sync::{Mutex, PoisonError};

/// Clusters of this many blocks fit into any lane: SMs come in groups of as many that can hold one.
const EVERYWHERE: u32 = 8;

static KERNELS: Handles<Kernel> = Handles::new();
static PROFILES: Handles<Profile> = Handles::new();

/// One kernel.
#[derive(Default)]
pub(crate) struct Kernel {
    /// Blocks of a cluster, where the kernel was compiled for clusters; 1 otherwise.
    cluster: AtomicU32,
    /// It took far too long on a lane: it runs on all SMs from then on.
    pinned: AtomicBool,
    /// Tells it from others, in every process: its module, its name, and what the driver says of it.
    identity: AtomicU64,
    name: Mutex<String>,
}

/// What is known of a kernel in one shape, or of an executable graph: what it takes on each lane.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Profile {
    /// NULL for a graph.
    kernel: AtomicPtr<Kernel>,
    launches: AtomicU32,
    /// The lanes on which enough is known of it, as bits.
    known: AtomicU16,
    /// The same, as handed down: it is measured and judged as if nothing were known.
    remembered: AtomicU16,
    /// Launches since the last one on all SMs.
    elsewhere: AtomicU32,
    identity: AtomicU64,
    /// What it takes on each lane; 0 is unknown.
    nanoseconds: [AtomicU64; LANES],
    /// How often that was measured.
    measured: [AtomicU32; LANES],
    /// How many kernels it is, where that is wanted: 1, or a graph's nodes.
    nodes: AtomicU32,
    /// The lanes on which it was measured in this process, as bits.
    here: AtomicU16,
    /// What was handed down of it cannot be.
    not_believed: AtomicBool,
    /// How often it was put on few SMs to see what they mean to it.
    explored: AtomicU8,
    /// The shortest time in which the host made a launch that was timed; 0 is unknown.
    made_ns: AtomicU64,
}

/// Kernels that were launched, and those of them whose module is not known.
pub(crate) static SEEN: AtomicU64 = AtomicU64::new(0);
pub(crate) static WITHOUT_MODULE: AtomicU64 = AtomicU64::new(0);

/// Kernels and shapes that have a profile of their own.
const MOST_SHAPES: usize = 8_192;
pub(crate) static SHAPES: AtomicUsize = AtomicUsize::new(0);

/// Measurements until they count as known.
const ENOUGH: u32 = 10;
/// Of these the first may be slow in many ways.
const SLOW: u32 = 4;
/// What is shorter on all SMs takes too little of anybody's time to be explored.
const LONG_ENOUGH_NS: u64 = 20_000;
/// As many launches as are enough to know, and some that nobody could measure.
const MOST_EXPLORED: u8 = 16;
/// After so many launches on other lanes what it takes on all SMs may have changed.
const LONG_AGO: u32 = 1_024;

impl Profile {
    fn begin(&self, kernel: *mut Kernel, identity: u64) {
        self.kernel.store(kernel, Ordering::Relaxed);
        self.identity.store(identity, Ordering::Relaxed);
        self.launches.store(0, Ordering::Relaxed);
        self.known.store(0, Ordering::Relaxed);
        self.nodes.store(1, Ordering::Relaxed);
        self.here.store(0, Ordering::Relaxed);
        self.elsewhere.store(0, Ordering::Relaxed);
        self.not_believed.store(false, Ordering::Relaxed);
        self.explored.store(0, Ordering::Relaxed);
        self.made_ns.store(0, Ordering::Relaxed);
        self.remembered.store(0, Ordering::Relaxed);
        for lane in 0..LANES {
            self.nanoseconds[lane].store(0, Ordering::Relaxed);
            self.measured[lane].store(0, Ordering::Relaxed);
        }
    }

    fn kernel(&self) -> Option<&'static Kernel> {
        // SAFETY: NULL, or from `KERNELS`, whose values are never freed.
        unsafe { self.kernel.load(Ordering::Relaxed).as_ref() }
    }

    /// Tells it from others, in every process.
    pub(crate) fn identity(&self) -> u64 {
        self.identity.load(Ordering::Relaxed)
    }

    /// What it takes on a lane, if it was ever measured there.
    pub(crate) fn on(&self, lane: usize) -> Option<Duration> {
        let nanoseconds = self.nanoseconds[lane].load(Ordering::Relaxed);
        (nanoseconds != 0).then(|| Duration::from_nanos(nanoseconds))
    }

    /// What it will take on a lane: as measured there, or as on all SMs with the share of them that the lane lacks.
    pub(crate) fn expected_ns(&self, lane: usize, coroutine: &Coroutine) -> Option<u64> {
        let there = self.nanoseconds[lane].load(Ordering::Relaxed);
        if lane != FULL && there != 0 {
            return Some(there);
        }
        let on_all =
            if self.is_here(FULL) { self.nanoseconds[FULL].load(Ordering::Relaxed) } else { self.at_most_ns()? };
        let (all, width) = (coroutine.lanes[FULL].width().max(1), coroutine.lanes[lane].width().max(1));
        // What was measured here is believed, however long it is.
        Some((on_all.saturating_mul(u64::from(all)) / u64::from(width)).min(Launch::LONGEST_NS))
    }

    /// What it takes on all SMs, as far as others have said, and no more than it took here on a part of them.
    fn at_most_ns(&self) -> Option<u64> {
        let here = (1..LANES).filter(|lane| self.is_here(*lane)).map(|lane| &self.nanoseconds[lane]);
        let known = here.chain([&self.nanoseconds[FULL]]).map(|ns| ns.load(Ordering::Relaxed));
        known.filter(|ns| *ns != 0).min()
    }

    /// Whether it was ever measured on a lane in this process.
    fn is_here(&self, lane: usize) -> bool {
        self.here.load(Ordering::Relaxed) >> lane & 1 != 0
    }

    /// Whether it has not run on all SMs for long, or never in this process.
    pub(crate) fn is_untried(&self) -> bool {
        self.elsewhere.load(Ordering::Relaxed) >= LONG_AGO || !self.is_here(FULL)
    }

    /// Why nothing can be said of how long it takes, as a decision has it.
    pub(crate) fn doubts(&self) -> u8 {
        if self.not_believed.load(Ordering::Relaxed) { Noted::NOT_BELIEVED } else { Noted::UNKNOWN }
    }

    /// What it needs most, where it was measured on few SMs too.
    pub(crate) fn bound(&self, coroutine: &Coroutine) -> Option<Bound> {
        let known = self.known.load(Ordering::Relaxed) | self.remembered.load(Ordering::Relaxed);
        let is_known = |lane: &usize| known >> *lane & 1 != 0;
        let lane = (1..LANES).filter(is_known).min_by_key(|lane| coroutine.lanes[*lane].width())?;
        let on = |lane: usize| (self.nanoseconds[lane].load(Ordering::Relaxed), coroutine.lanes[lane].width());
        Bound::told_by(on(FULL), on(lane))
    }

    /// Whether it is to be seen what few SMs mean to it: it takes long enough on all of them, as measured here, and that was
    /// not tried too often already.
    pub(crate) fn is_unexplored(&self) -> bool {
        let long = self.nanoseconds[FULL].load(Ordering::Relaxed) >= LONG_ENOUGH_NS;
        long && self.is_here(FULL) && self.explored.load(Ordering::Relaxed) < MOST_EXPLORED
    }

    /// It runs on few SMs to see that.
    pub(crate) fn explore(&self) {
        // Two threads may count as one.
        let explored = self.explored.load(Ordering::Relaxed);
        self.explored.store(explored.saturating_add(1), Ordering::Relaxed);
    }

    /// Counts a launch on a lane; says whether it is to be timed. That are the first few on each lane, then one in many, as long
    /// as anybody has use for it.
    pub(crate) fn is_to_be_timed(&self, lane: usize) -> bool {
        const RARELY: u32 = 256;
        let count = self.launches.load(Ordering::Relaxed);
        // Two threads may count as one: which launches are timed does not matter.
        self.launches.store(count.wrapping_add(1), Ordering::Relaxed);
        let is_back = self.is_back(lane);
        (count.is_multiple_of(RARELY) && !HOT.freedom.holds()) || !self.is_known_on(lane) || is_back
    }

    /// Whether a launch is the first on all SMs for long.
    fn is_back(&self, lane: usize) -> bool {
        let elsewhere = self.elsewhere.load(Ordering::Relaxed);
        if lane != FULL {
            self.elsewhere.store(elsewhere.saturating_add(1), Ordering::Relaxed);
        } else if elsewhere != 0 {
            self.elsewhere.store(0, Ordering::Relaxed);
        }
        lane == FULL && elsewhere >= LONG_AGO
    }

    /// It took so long on a lane. At first the shortest counts: the first launches are slow in many ways. Later it is a mean
    /// that follows what changes; what took far longer, which others may have caused, counts as a little longer. What others
    /// have said is forgotten if it takes less than half of that here: nothing makes a kernel faster than it is. What is not
    /// sure is too long, if anything: it counts where nothing is known, or only what others have said and it shows that to be wrong.
    pub(crate) fn note(&self, lane: usize, took: Duration, is_sure: bool) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let measured = self.measured[lane].load(Ordering::Relaxed);
        let before = self.nanoseconds[lane].load(Ordering::Relaxed);
        let now = match before {
            0 => took,
            before if !self.is_here(lane) && took < before / 2 => took,
            before if !is_sure => before,
            before if measured < SLOW => before.min(took),
            before => {
                let took = took.min(before.saturating_add(before / 2));
                let part = if measured < ENOUGH { 4 } else { 8 };
                if took > before { before + (took - before) / part } else { before - (before - took) / part }
            }
        };
        self.nanoseconds[lane].store(now.max(1), Ordering::Relaxed);
        self.here.fetch_or(1 << lane, Ordering::Relaxed);
        self.measured[lane].store(measured.saturating_add(1), Ordering::Relaxed);
        if measured >= ENOUGH - 1 {
            self.known.fetch_or(1 << lane, Ordering::Relaxed);
        }
    }

    /// The host made a launch in so long; what it took at least before is returned, 0 if that is unknown. For the background
    /// thread.
    pub(crate) fn made_in(&self, ns: u64) -> u64 {
        let before = self.made_ns.load(Ordering::Relaxed);
        if before == 0 || ns < before {
            self.made_ns.store(ns.max(1), Ordering::Relaxed);
        }
        before
    }

    /// Says on the board what it takes on a lane. For the background thread. Graphs are known to this process alone.
    pub(crate) fn publish(&self, lane: usize) {
        if let Some(kernel) = self.kernel() {
            let ns = self.nanoseconds[lane].load(Ordering::Relaxed);
            publish(self.identity(), &kernel.name(), lane, ns, self.measured_on(lane));
        }
    }

    pub(crate) fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// How many kernels it is; 1 where nobody has counted.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// What people call it.
    pub(crate) fn name(&self) -> String {
        self.kernel().map_or_else(|| "graph".to_string(), Kernel::name)
    }

    /// Takes over what is known from before, as far as the lanes have the same widths.
    fn remember(&self, coroutine: &Coroutine) {
        let known = membership().and_then(|membership| membership.daemon.kernel(self.identity()));
        // Nothing known is no widths: going through an option, the compiler looks at widths first that may not be there.
        let widths = known.map_or_else(Vec::new, |kernel| kernel.widths);
        let (believed, absurd): (Vec<_>, Vec<_>) = widths.into_iter().partition(|(_, ns, _)| *ns <= Launch::LONGEST_NS);
        self.not_believed.store(!absurd.is_empty(), Ordering::Relaxed);
        for (width, ns, measured) in believed {
            for (lane, place) in self.nanoseconds.iter().enumerate() {
                if coroutine.lanes[lane].width() == width {
                    place.store(ns, Ordering::Relaxed);
                    let bit = u16::from(measured >= ENOUGH) << lane;
                    self.remembered.fetch_or(bit, Ordering::Relaxed);
                    // It is measured some more all the same: things may have changed.
                    self.measured[lane].store(measured.min(ENOUGH / 2), Ordering::Relaxed);
                }
            }
        }
    }

    /// How often it was measured on a lane.
    pub(crate) fn measured_on(&self, lane: usize) -> u32 {
        self.measured[lane].load(Ordering::Relaxed)
    }

    /// Whether enough is known of it on a lane to say that something took too long.
    pub(crate) fn is_known_on(&self, lane: usize) -> bool {
        self.known.load(Ordering::Relaxed) >> lane & 1 != 0
    }

    /// Whether a lane can hold the launch.
    pub(crate) fn fits(&self, function: CUfunction, shape: &Shape, coroutine: &Coroutine, lane: usize) -> bool {
        lane == FULL || self.kernel().is_none_or(|kernel| kernel.fits(function, shape, coroutine, lane))
    }
}

/// Says on the board what something takes on a lane. For threads of ours.
pub(crate) fn publish(identity: u64, name: &str, lane: usize, ns: u64, measured: u32) {
    /// The table is written by one thread at a time.
    static PUBLISHING: Mutex<()> = Mutex::new(());
    let _publishing = PUBLISHING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(membership) = membership() {
        membership.page.note_kernel(identity, name, lane, ns, measured);
    }
}

/// The profile of a kernel in a shape.
pub(crate) fn profile(function: CUfunction, shape: &Shape, coroutine: &Coroutine) -> &'static Profile {
    const ODD: usize = 0x9e37_79b9_7f4a_7c15;
    let handle = function.0.addr() ^ usize::try_from(shape.number()).unwrap_or(0).wrapping_mul(ODD);
    PROFILES.find(handle).unwrap_or_else(|| begin_profile(handle, function, shape.number(), coroutine))
}

#[cold]
fn begin_profile(handle: usize, function: CUfunction, shape: u64, coroutine: &Coroutine) -> &'static Profile {
    // A program whose shapes never come again is not to fill the memory with them: the later ones count as one.
    let is_full = SHAPES.load(Ordering::Relaxed) >= MOST_SHAPES;
    let (handle, shape) = if is_full { (function.0.addr(), 0) } else { (handle, shape) };
    if let Some(known) = PROFILES.find(handle).filter(|_| is_full) {
        return known;
    }
    SHAPES.fetch_add(1, Ordering::Relaxed);
    let kernel = find(function);
    let identity = mixed(kernel.identity.load(Ordering::Relaxed), shape);
    let kernel = (&raw const *kernel).cast_mut();
    PROFILES.insert(handle, |profile| {
        profile.begin(kernel, identity);
        profile.remember(coroutine);
    })
}

/// The profile of an executable graph. Its address may have been another one's before: see [`forget_graph`].
pub(crate) fn graph_profile(executable: CUgraphExec) -> &'static Profile {
    let handle = executable.0.addr();
    PROFILES.find(handle).unwrap_or_else(|| {
        PROFILES.insert(handle, |profile| profile.begin(core::ptr::null_mut(), mixed(0, handle as u64)))
    })
}

/// The graph is gone.
pub(crate) fn forget_graph(executable: CUgraphExec) {
    PROFILES.remove(executable.0.addr());
}

/// How a kernel is launched, as far as it matters where.
pub(crate) struct Shape {
    pub(crate) blocks: u64,
    pub(crate) threads: u32,
    pub(crate) shared: c_uint,
    pub(crate) cooperative: bool,
    /// Blocks of a cluster; 0 if the launch does not say.
    pub(crate) cluster: u32,
    /// Whether it has attributes that a launch of our own would not have.
    pub(crate) attributed: bool,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
}

impl Shape {
    pub(crate) fn new(grid: [c_uint; 3], block: [c_uint; 3], shared: c_uint) -> Self {
        let product = |sizes: [c_uint; 3]| sizes.into_iter().map(u64::from).fold(1, u64::saturating_mul);
        let threads = u32::try_from(product(block)).unwrap_or(u32::MAX);
        Self { blocks: product(grid), threads, shared, cooperative: false, cluster: 0, attributed: false, grid, block }
    }

    /// Tells shapes apart.
    fn number(&self) -> u64 {
        let pair = |low: c_uint, high: c_uint| u64::from(low) | u64::from(high) << 32;
        let [grid, block] = [self.grid, self.block];
        let sizes = [pair(grid[0], grid[1]), pair(grid[2], block[2]), pair(block[0], block[1])];
        sizes.into_iter().fold(u64::from(self.shared), mixed)
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
        for attribute in unsafe { handed::list(config.attrs, config.numAttrs as usize) } {
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
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE => {}
                _ => shape.attributed = true,
            }
        }
        shape
    }
}

impl Kernel {
    fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fits(&self, function: CUfunction, shape: &Shape, coroutine: &Coroutine, lane: usize) -> bool {
        if self.pinned.load(Ordering::Relaxed) {
            return false;
        }
        let cluster = if shape.cluster == 0 { self.cluster.load(Ordering::Relaxed) } else { shape.cluster };
        if shape.cooperative {
            // How many clusters are there at once on a lane, nobody says; where they were compiled in, a grid may even count them.
            return cluster <= 1 && is_resident(function, shape, coroutine.lanes[lane].width());
        }
        cluster <= EVERYWHERE
    }
}

/// Whether a lane can hold such a launch.
pub(crate) fn fits(function: CUfunction, shape: &Shape, coroutine: &Coroutine, lane: usize) -> bool {
    lane == FULL || find(function).fits(function, shape, coroutine, lane)
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
            let (name, content) = (name(function), module::content(function.0.addr()));
            SEEN.fetch_add(1, Ordering::Relaxed);
            WITHOUT_MODULE.fetch_add(u64::from(content == 0), Ordering::Relaxed);
            kernel.identity.store(identity(function, &name, content), Ordering::Relaxed);
            *kernel.name.lock().unwrap_or_else(PoisonError::into_inner) = name;
        })
    })
}

/// From its module and its name, and what the driver says of it: where the module is not known, that tells apart most
/// kernels of the same name. On another model of GPU it is another kernel, which takes another time.
fn identity(function: CUfunction, name: &str, content: u64) -> u64 {
    use CUfunction_attribute as Attribute;
    let model = membership().map_or("", |membership| membership.model());
    let named = model.bytes().chain(name.bytes()).fold(content, |hash, byte| mixed(hash, u64::from(byte)));
    let attributes = [
        Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS,
        Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION,
    ];
    attributes.into_iter().fold(named, |hash, which| {
        let value = attribute(function, which).unwrap_or(0);
        mixed(hash, u64::from(value.cast_unsigned()))
    })
}

/// What the driver calls it. What is launched may be a function, or a library's kernel, and of each the driver is asked in
/// another way.
#[inline(never)]
pub(crate) fn name(function: CUfunction) -> String {
    let mut text: *const c_char = core::ptr::null();
    let is_known = is_ok(cu!(cuFuncGetName(&raw mut text, function)))
        || is_ok(cu!(cuKernelGetName(&raw mut text, as_kernel(function))));
    if is_known && !text.is_null() {
        // SAFETY: the driver's terminated text.
        return unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    }
    "a kernel".into()
}

/// What the driver says of it on the current device.
pub(crate) fn attribute(function: CUfunction, attribute: CUfunction_attribute) -> Option<c_int> {
    let (mut value, mut device) = (0, CUdevice_v1(0));
    let is_known = is_ok(cu!(cuFuncGetAttribute(&raw mut value, attribute, function)))
        || (is_ok(cu!(cuCtxGetDevice(&raw mut device)))
            && is_ok(cu!(cuKernelGetAttribute(&raw mut value, attribute, as_kernel(function), device))));
    is_known.then_some(value)
}

fn as_kernel(function: CUfunction) -> CUkernel {
    CUkernel(function.0.cast())
}

fn compiled_cluster(function: CUfunction) -> u32 {
    use CUfunction_attribute as Attribute;
    let size = |which| attribute(function, which).and_then(|value| u32::try_from(value).ok()).unwrap_or(1).max(1);
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
    PROFILES.remove_if(|_| true);
    SHAPES.store(0, Ordering::Relaxed);
}
