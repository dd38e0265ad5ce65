//! Modules and libraries: PTX, decoded, with its variables in memory.

use crate::boundary::{Outcome, log};
use crate::context::Context;
use crate::device;
use crate::device_runtime;
use crate::exec::interface::{Global, KernelProperties};
use crate::exec::{self, DecodeError, Image, Kernel};
use crate::handle::{self, Table};
use crate::{fatbin, memory};
use core::ffi::c_void;
use core::fmt::Write;
use detshare_cuda::types::{CUfunction, CUfunction_attribute as Attribute, CUkernel, CUresult};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) static MODULES: Table<Module> = Table::new();
pub(crate) static FUNCTIONS: Table<Function> = Table::new();
/// Those of libraries, by the handles that they have as kernels.
static KERNELS: Table<Function> = Table::new();

/// What CUDA 13.0 brought.
const NEWEST_PTX: (u32, u32) = (9, 0);

/// Registers are handed out to warps in such portions.
const REGISTER_UNIT: u32 = 256;

/// What the device can run, as in `sm_90`.
pub(crate) const ARCHITECTURE: u32 = 90;

/// The number in `sm_90a`; None for words such as `debug`.
fn architecture(target: &str) -> Option<u32> {
    target.strip_prefix("sm_")?.trim_end_matches(['a', 'f']).parse().ok()
}

/// A loaded module or library.
pub(crate) struct Module {
    pub(crate) handle: usize,
    /// None for a library, which belongs to no context.
    pub(crate) context: Option<Arc<Context>>,
    image: Image,
    /// Handles that were given out, by name.
    functions: Mutex<HashMap<String, Arc<Function>>>,
    allocations: Vec<u64>,
}

/// A kernel as a program holds it: `CUfunction`, and `CUkernel` where it came out of a library.
pub(crate) struct Function {
    pub(crate) handle: usize,
    /// As a kernel; 0 where it came out of a module.
    pub(crate) as_kernel: usize,
    pub(crate) module: usize,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) attributes: Mutex<Attributes>,
    prepared: Mutex<Prepared>,
}

/// What a program sets of a function before it launches it, where it does not say all of it at once.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// One thread where nothing is set: such a launch is none that a driver refuses.
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) parameters: Vec<u8>,
}

impl Default for Prepared {
    fn default() -> Self {
        Self { block: [1; 3], dynamic_shared: 0, parameters: Vec::new() }
    }
}

impl Function {
    pub(crate) fn prepared(&self) -> MutexGuard<'_, Prepared> {
        self.prepared.lock().expect("no panic while it is held")
    }
}

/// What a program can set of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) most_dynamic_shared: i32,
    pub(crate) carveout: i32,
    /// Clusters may have more blocks than every device can run.
    pub(crate) large_clusters: bool,
    /// Blocks in a cluster; zeros where nothing is set.
    pub(crate) cluster: [i32; 3],
}

impl Attributes {
    /// As they are before a program sets any.
    pub(crate) fn of(properties: &KernelProperties) -> Self {
        let most_dynamic_shared = device::SHARED_PER_BLOCK.saturating_sub(properties.shared_bytes);
        Self {
            most_dynamic_shared: i32::try_from(most_dynamic_shared).unwrap_or(0),
            carveout: -1,
            large_clusters: false,
            cluster: [0; 3],
        }
    }

    /// What is known of a function with these; None for a number that is no attribute.
    pub(crate) fn value(&self, properties: &KernelProperties, attribute: Attribute) -> Option<i32> {
        let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let cluster = |axis: usize| properties.required_cluster.map_or(self.cluster, |sizes| sizes.map(signed))[axis];
        Some(match attribute {
            Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => signed(
                properties.most_threads.unwrap_or(device::MOST_THREADS_PER_BLOCK).min(device::MOST_THREADS_PER_BLOCK),
            ),
            Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => signed(properties.shared_bytes),
            Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => signed(properties.constant_bytes),
            Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => signed(properties.local_bytes),
            Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS => signed(properties.registers.clamp(1, 255)),
            Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION => signed(properties.target),
            Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION => signed(ARCHITECTURE),
            Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => self.most_dynamic_shared,
            Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => self.carveout,
            Attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET => i32::from(properties.needs_cluster),
            Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH => cluster(0),
            Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT => cluster(1),
            Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => cluster(2),
            Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => i32::from(self.large_clusters),
            Attribute(other) if other < Attribute::CU_FUNC_ATTRIBUTE_MAX.0 => 0,
            _ => return None,
        })
    }

    /// How many blocks of that size are resident on one SM at once: none with more dynamic shared memory than the function may
    /// have.
    pub(crate) fn blocks_per_sm(&self, properties: &KernelProperties, threads: u32, dynamic_shared: u32) -> u32 {
        if u32::try_from(self.most_dynamic_shared).is_ok_and(|most| dynamic_shared > most) {
            return 0;
        }
        let warps = threads.max(1).div_ceil(device::WARP);
        let registers = (properties.registers.clamp(1, 255) * device::WARP).next_multiple_of(REGISTER_UNIT) * warps;
        let shared = properties.shared_bytes + dynamic_shared + device::RESERVED_SHARED_PER_BLOCK;
        (device::MOST_THREADS_PER_SM / (warps * device::WARP))
            .min(device::MOST_BLOCKS_PER_SM)
            .min(device::REGISTERS_PER_SM / registers)
            .min(device::SHARED_PER_SM / shared)
    }

    /// The cluster that every launch has, where the program has set one.
    pub(crate) fn required_cluster(&self) -> Option<[u32; 3]> {
        let cluster = self.cluster.map(|size| u32::try_from(size).unwrap_or(0));
        (cluster != [0; 3]).then_some(cluster)
    }
}

/// What a program finds in its log, in the manner of `ptxas`.
fn complaint(line: Option<u32>, reason: &str) -> String {
    match line {
        Some(line) => {
            let aborted = "ptxas fatal   : Ptx assembly aborted due to errors\n";
            format!("ptxas application ptx input, line {line}; error   : {reason}\n{aborted}")
        }
        None => format!("ptxas fatal   : {reason}\n"),
    }
}

/// Reads one PTX text. The error has words for the program's log buffer.
pub(crate) fn parse(source: &str) -> Result<detshare_ptx::ast::Module, (CUresult, String)> {
    if !source.contains(".version") {
        let words = complaint(None, "neither PTX nor a container of it");
        return Err((CUresult::CUDA_ERROR_INVALID_IMAGE, words));
    }
    let module = detshare_ptx::parse(source).map_err(|error| {
        log(format_args!("broken PTX: {error}"));
        (CUresult::CUDA_ERROR_INVALID_PTX, complaint(Some(error.line), &error.kind.to_string()))
    })?;
    if module.version > NEWEST_PTX {
        let ((major, minor), newest) = (module.version, NEWEST_PTX);
        let reason = format!("Unsupported .version {major}.{minor}; current version is '{}.{}'", newest.0, newest.1);
        return Err((CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, complaint(None, &reason)));
    }
    if module.targets.iter().any(|target| architecture(target) > Some(ARCHITECTURE)) {
        let reason = format!("{} is not for compute capability 9.0", module.targets.join(", "));
        return Err((CUresult::CUDA_ERROR_INVALID_PTX, complaint(None, &reason)));
    }
    Ok(module)
}

/// What texts are loaded for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Module,
    /// To see whether they fit together. The linker has a code of its own where they do not.
    Linked,
    /// To see whether one is right by itself: what it lacks may come with others.
    Part,
}

/// Refuses what cannot be a part of a module.
pub(crate) fn check_part(source: &String) -> Result<(), (CUresult, String)> {
    parse(source)?;
    match Module::load_for(Purpose::Part, core::slice::from_ref(source), None) {
        Ok(module) => module.unload(),
        Err(refusal) if refusal.0 == CUresult::CUDA_ERROR_INVALID_PTX => return Err(refusal),
        // Whatever else there is to say is said when all of it is linked.
        Err(_) => {}
    }
    Ok(())
}

impl AsRef<Module> for Module {
    fn as_ref(&self) -> &Module {
        self
    }
}

impl Module {
    /// What its kernels need, in the manner of `ptxas`.
    pub(crate) fn summary(&self) -> String {
        let global: u64 = self.image.globals.values().map(|global| global.size).sum();
        let mut text = format!("ptxas info    : {global} bytes gmem\n");
        for name in self.kernel_names() {
            let Some(kernel) = self.image.kernels.get(name) else { continue };
            let properties = &kernel.properties;
            let (registers, shared, constant) =
                (properties.registers, properties.shared_bytes, properties.parameter_bytes);
            // A string takes any text.
            let _ = write!(
                text,
                "ptxas info    : Compiling entry function '{name}' for 'sm_{ARCHITECTURE}'\n\
                 ptxas info    : Function properties for {name}\n    \
                 {} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                 ptxas info    : Used {registers} registers, {shared} bytes smem, {constant} bytes cmem[0]\n",
                properties.local_bytes
            );
        }
        text
    }

    /// Loads one or more PTX texts as one module. The error has words for the program's log buffer.
    pub(crate) fn load(sources: &[String], context: Option<Arc<Context>>) -> Result<Arc<Self>, (CUresult, String)> {
        Self::load_for(Purpose::Module, sources, context)
    }

    /// The same for the linker.
    pub(crate) fn link(sources: &[String]) -> Result<Arc<Self>, (CUresult, String)> {
        Self::load_for(Purpose::Linked, sources, None)
    }

    fn load_for(
        purpose: Purpose,
        sources: &[String],
        context: Option<Arc<Context>>,
    ) -> Result<Arc<Self>, (CUresult, String)> {
        let mut parsed = Vec::new();
        let runtime = device_runtime::is_needed(sources).then_some(device_runtime::TEXT);
        for source in sources.iter().map(String::as_str).chain(runtime) {
            parsed.push((parse(source)?, source));
        }
        let mut allocations = Vec::new();
        let mut out_of_memory = false;
        let decode = if device::settings().check.is_some() { exec::decode_checked } else { exec::decode };
        let decoded = decode(&parsed, &mut |placement| {
            let allocate = match context {
                _ if placement.managed => memory::allocate_managed,
                Some(_) => memory::allocate,
                // A library's variables are those of all devices.
                None => memory::allocate_for_all,
            };
            let address = allocate(placement.size.max(placement.align));
            if address.is_none() {
                log(format_args!("no device memory for {} ({} bytes)", placement.name, placement.size));
                out_of_memory = true;
            }
            allocations.extend(address);
            if let Some(address) = address.filter(|_| placement.constant) {
                memory::add_constant(address, placement.size);
            }
            address
        });
        let image = decoded.map_err(|error| {
            for address in &allocations {
                memory::remove_constant(*address);
                memory::free(*address);
            }
            let code = match error {
                _ if out_of_memory => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
                DecodeError::NotSupported { .. } => CUresult::CUDA_ERROR_NOT_SUPPORTED,
                DecodeError::Unresolved { .. } | DecodeError::Duplicate { .. } if purpose != Purpose::Module => {
                    CUresult::CUDA_ERROR_INVALID_SOURCE
                }
                _ => CUresult::CUDA_ERROR_INVALID_PTX,
            };
            if purpose != Purpose::Part || code == CUresult::CUDA_ERROR_INVALID_PTX {
                log(format_args!("PTX that cannot be loaded: {error}"));
            }
            (code, complaint(error.line(), &error.reason()))
        })?;
        let module = Arc::new(Self { handle: handle::new(), context, image, functions: Mutex::default(), allocations });
        MODULES.insert(module.handle, Arc::clone(&module));
        Ok(module)
    }

    /// The kernel with that name.
    pub(crate) fn function(&self, name: &str) -> Outcome<Arc<Function>> {
        let kernel = self.image.kernels.get(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        let mut functions = self.functions.lock().expect("no panic while it is held");
        let function = functions.entry(name.to_string()).or_insert_with(|| {
            let function = Arc::new(Function {
                handle: handle::new(),
                as_kernel: if self.context.is_none() { handle::new() } else { 0 },
                module: self.handle,
                kernel: Arc::clone(kernel),
                attributes: Mutex::new(Attributes::of(&kernel.properties)),
                prepared: Mutex::default(),
            });
            FUNCTIONS.insert(function.handle, Arc::clone(&function));
            if function.as_kernel != 0 {
                KERNELS.insert(function.as_kernel, Arc::clone(&function));
            }
            function
        });
        Ok(Arc::clone(function))
    }

    /// The names of its kernels, sorted.
    pub(crate) fn kernel_names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.image.kernels.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// The variable with that name.
    pub(crate) fn global(&self, name: &str) -> Outcome<&Global> {
        self.image.globals.get(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }

    /// Takes it out of the program's reach and gives its memory back.
    pub(crate) fn unload(&self) {
        MODULES.remove(self.handle);
        for function in self.functions.lock().expect("no panic while it is held").values() {
            FUNCTIONS.remove(function.handle);
            KERNELS.remove(function.as_kernel);
        }
        for address in &self.allocations {
            memory::remove_constant(*address);
            memory::free(*address);
        }
    }
}

pub(crate) fn find(module: usize) -> Outcome<Arc<Module>> {
    MODULES.get(module).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

pub(crate) fn find_function(function: CUfunction) -> Outcome<Arc<Function>> {
    FUNCTIONS.get(function.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

pub(crate) fn find_kernel(kernel: CUkernel) -> Outcome<Arc<Function>> {
    KERNELS.get(kernel.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// What can be launched, and how many of it fit, is said of functions and, in their place, of kernels; all else of functions alone.
pub(crate) fn find_launchable(handle: CUfunction) -> Outcome<Arc<Function>> {
    find_function(handle).or_else(|_| find_kernel(CUkernel(handle.0.cast())))
}

/// The PTX texts in an image: PTX itself, a fat binary, or what `cuLinkComplete` made.
///
/// # Safety
/// `image` points to one of these, whole.
pub(crate) unsafe fn sources(image: *const c_void) -> Outcome<Vec<String>> {
    if image.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { fatbin::texts(image.cast()) }
}
