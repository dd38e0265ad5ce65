//! Allocates and frees device memory as the command line says, and prints what the driver says to each step.
//!
//! `quota_probe init alloc:1048576 info free:0 info`: steps are done in order, with one line of output each: the step,
//! the driver's code, and figures where there are any. Allocations are numbered from 0, failed ones included.
//!
//! | step | what it does |
//! | --- | --- |
//! | `init` | initialises the driver and makes the first device's primary context current |
//! | `fork` | goes on in a child; the parent waits for it |
//! | `alloc:BYTES`, `managed:BYTES`, `pitch:WIDTH:HEIGHT` | the plain allocations |
//! | `async:BYTES`, `thread:BYTES`, `pool:BYTES` | in the legacy stream's order, in the thread's own, from a pool of the program's |
//! | `create:BYTES`, `map:N`, `unmap:N`, `retain:N` | physical memory, mapped and unmapped, and one more handle for it |
//! | `array:W:H`, `cube:W:H:D`, `mipmap:W:H:LEVELS` | arrays of floats |
//! | `node:BYTES`, `any-node:BYTES`, `capture:BYTES` | memory of a graph |
//! | `graph-free:N` | destroys that allocation's graph |
//! | `null`, `wrong-free` | what a driver refuses |
//! | `free:N`, `async-free:N` | frees it, with the function that belongs to it or in the legacy stream's order |
//! | `info`, `total`, `reserved` | free and total memory; the device's; what the default pool reserves, now and at most |
//! | `keep:BYTES` | has the default pool keep that much of what is freed |
//! | `context`, `leave` | makes a context and goes into it; destroys it |
//! | `reset`, `release` | of the primary context, which is then taken again |
//! | `race:THREADS:BYTES` | threads allocate until they fail; how many got some, then all is freed |

use anyhow::{Context, Result, bail};
use core::ptr::null_mut;
use detshare_cuda::result_name;
use detshare_cuda::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEM_ALLOC_NODE_PARAMS, CUarray, CUarray_format, CUcontext,
    CUdevice_v1, CUdeviceptr_v2, CUgraph, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUmemAllocationProp,
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
    CUmipmappedArray, CUresult, CUstream, CUstreamCaptureMode,
};
use detshare_workloads::Library;
use std::sync::{Barrier, Mutex};

/// Calls a function of the driver and gives its code.
macro_rules! code {
    ($library:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let function = $library.function(detshare_cuda::entry::$function)?;
        #[allow(clippy::macro_metavars_in_unsafe, reason = "the arguments are the program's own, a few lines away")]
        // SAFETY: arguments as the driver API's manual asks for, with everything they point to alive.
        unsafe { function($($argument),*) }
    }};
}

const DEVICE: CUdevice_v1 = CUdevice_v1(0);
const LEGACY: CUstream = CUstream(null_mut());

/// What a step made.
#[derive(Clone, Copy)]
enum Made {
    Nothing,
    Address(u64),
    Physical { handle: u64, bytes: usize, mapped: u64 },
    Array(CUarray),
    Mipmap(CUmipmappedArray),
    Node { address: u64, graph: CUgraph },
}

struct Probe {
    library: Library,
    made: Vec<Made>,
    primary: CUcontext,
    own: CUcontext,
    pool: CUmemoryPool,
}

fn main() -> Result<()> {
    let mut probe = Probe {
        library: Library::open()?,
        made: Vec::new(),
        primary: CUcontext(null_mut()),
        own: CUcontext(null_mut()),
        pool: CUmemoryPool(null_mut()),
    };
    for step in std::env::args().skip(1) {
        if step == "fork" {
            fork()?;
            continue;
        }
        let mut words = step.split(':');
        let verb = words.next().unwrap_or_default();
        let numbers: Vec<usize> = words.map(str::parse).collect::<Result<_, _>>().with_context(|| step.clone())?;
        let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
        let (code, figures) = probe
            .step(verb, [number(0), number(1), number(2)])
            .with_context(|| format!("the step {step}: see the head of quota_probe.rs"))?;
        let name = result_name(code).unwrap_or(c"an unknown code").to_string_lossy().into_owned();
        let figures: String = figures.iter().map(|figure| format!(" {figure}")).collect();
        println!("{step} {name}{figures}");
    }
    Ok(())
}

/// The child goes on; the parent ends as the child does.
fn fork() -> Result<()> {
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    if child > 0 {
        let mut status = 0;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        std::process::exit(i32::from(status != 0));
    }
    anyhow::ensure!(child == 0, "cannot fork: {}", std::io::Error::last_os_error());
    Ok(())
}

impl Probe {
    fn step(&mut self, verb: &str, [first, second, third]: [usize; 3]) -> Result<(CUresult, Vec<usize>)> {
        let code = match verb {
            "init" => {
                let code = code!(self.library, cuInit(0));
                if code == CUresult::CUDA_SUCCESS { self.take_primary()? } else { code }
            }
            "alloc" | "managed" | "pitch" | "async" | "thread" | "pool" | "capture" => {
                self.allocate(verb, first, second)?
            }
            "null" => code!(self.library, cuMemAlloc_v2(null_mut(), 1 << 40)),
            "create" => self.create(first)?,
            "map" | "unmap" | "retain" => self.mapping(verb, first)?,
            "array" | "cube" | "mipmap" => self.array(verb, [first, second, third])?,
            "node" | "any-node" => self.node(verb == "node", first)?,
            "graph-free" => match self.made[first] {
                Made::Node { graph, .. } => code!(self.library, cuGraphDestroy(graph)),
                _ => bail!("no graph"),
            },
            "free" => self.free(first)?,
            "async-free" => match self.made[first] {
                Made::Address(address) => code!(self.library, cuMemFreeAsync(CUdeviceptr_v2(address), LEGACY)),
                _ => bail!("no address"),
            },
            "wrong-free" => code!(self.library, cuMemFree_v2(CUdeviceptr_v2(0x1234))),
            "info" => {
                let (mut free, mut total) = (0, 0);
                let code = code!(self.library, cuMemGetInfo_v2(&raw mut free, &raw mut total));
                return Ok((code, vec![free, total]));
            }
            "total" => {
                let mut total = 0;
                let code = code!(self.library, cuDeviceTotalMem_v2(&raw mut total, DEVICE));
                return Ok((code, vec![total]));
            }
            "reserved" | "keep" => return self.pool_attribute(verb, first),
            "context" => code!(self.library, cuCtxCreate_v2(&raw mut self.own, 0, DEVICE)),
            "leave" => {
                let code = code!(self.library, cuCtxDestroy_v2(self.own));
                code!(self.library, cuCtxSetCurrent(self.primary));
                code
            }
            "reset" => code!(self.library, cuDevicePrimaryCtxReset_v2(DEVICE)),
            "release" => {
                let code = code!(self.library, cuDevicePrimaryCtxRelease_v2(DEVICE));
                self.take_primary()?;
                code
            }
            "race" => return Ok((CUresult::CUDA_SUCCESS, vec![self.race(first, second)?])),
            _ => bail!("no such step"),
        };
        Ok((code, Vec::new()))
    }

    fn take_primary(&mut self) -> Result<CUresult> {
        let code = code!(self.library, cuDevicePrimaryCtxRetain(&raw mut self.primary, DEVICE));
        if code != CUresult::CUDA_SUCCESS {
            return Ok(code);
        }
        Ok(code!(self.library, cuCtxSetCurrent(self.primary)))
    }

    fn allocate(&mut self, verb: &str, bytes: usize, height: usize) -> Result<CUresult> {
        let (mut there, mut pitch) = (CUdeviceptr_v2(0), 0);
        let address = &raw mut there;
        let library = &self.library;
        let code = match verb {
            "alloc" => code!(library, cuMemAlloc_v2(address, bytes)),
            "managed" => code!(library, cuMemAllocManaged(address, bytes, 1)),
            "pitch" => code!(library, cuMemAllocPitch_v2(address, &raw mut pitch, bytes, height, 4)),
            "async" => code!(library, cuMemAllocAsync(address, bytes, LEGACY)),
            "thread" => code!(library, cuMemAllocAsync_ptsz(address, bytes, LEGACY)),
            "pool" => {
                if self.pool.0.is_null() {
                    let properties = POOL;
                    code!(library, cuMemPoolCreate(&raw mut self.pool, &raw const properties));
                }
                code!(library, cuMemAllocFromPoolAsync(address, bytes, self.pool, LEGACY))
            }
            _ => return self.capture(bytes),
        };
        self.remember(code, Made::Address(there.0))
    }

    #[allow(clippy::unnecessary_wraps, reason = "the last line of functions that can fail")]
    fn remember(&mut self, code: CUresult, made: Made) -> Result<CUresult> {
        self.made.push(if code == CUresult::CUDA_SUCCESS { made } else { Made::Nothing });
        Ok(code)
    }

    fn capture(&mut self, bytes: usize) -> Result<CUresult> {
        let (mut stream, mut there, mut graph) = (CUstream(null_mut()), CUdeviceptr_v2(0), CUgraph(null_mut()));
        let relaxed = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        code!(self.library, cuStreamCreate(&raw mut stream, 1));
        code!(self.library, cuStreamBeginCapture_v2(stream, relaxed));
        let code = code!(self.library, cuMemAllocAsync(&raw mut there, bytes, stream));
        code!(self.library, cuStreamEndCapture(stream, &raw mut graph));
        code!(self.library, cuStreamDestroy_v2(stream));
        self.remember(code, Made::Node { address: there.0, graph })
    }

    fn create(&mut self, bytes: usize) -> Result<CUresult> {
        // SAFETY: numbers and a pointer, which may be zero.
        let mut properties: CUmemAllocationProp = unsafe { core::mem::zeroed() };
        properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = POOL.location;
        let mut handle = 0;
        let code = code!(self.library, cuMemCreate(&raw mut handle, bytes, &raw const properties, 0));
        self.remember(code, Made::Physical { handle, bytes, mapped: 0 })
    }

    fn mapping(&mut self, verb: &str, number: usize) -> Result<CUresult> {
        let Made::Physical { handle, bytes, mapped } = self.made[number] else { bail!("no physical memory") };
        let mut address = CUdeviceptr_v2(mapped);
        match verb {
            "map" => {
                code!(self.library, cuMemAddressReserve(&raw mut address, bytes, 0, CUdeviceptr_v2(0), 0));
                self.made[number] = Made::Physical { handle, bytes, mapped: address.0 };
                Ok(code!(self.library, cuMemMap(address, bytes, 0, handle, 0)))
            }
            "unmap" => Ok(code!(self.library, cuMemUnmap(address, bytes))),
            _ => {
                let mut again = 0;
                let there = core::ptr::with_exposed_provenance_mut(usize::try_from(mapped)?);
                let code = code!(self.library, cuMemRetainAllocationHandle(&raw mut again, there));
                self.remember(code, Made::Physical { handle: again, bytes, mapped })
            }
        }
    }

    fn array(&mut self, verb: &str, [width, height, third]: [usize; 3]) -> Result<CUresult> {
        let (mut array, mut mipmap) = (CUarray(null_mut()), CUmipmappedArray(null_mut()));
        let format = CUarray_format::CU_AD_FORMAT_FLOAT;
        let flat = CUDA_ARRAY_DESCRIPTOR { Width: width, Height: height, Format: format, NumChannels: 1 };
        let depth = if verb == "cube" { third } else { 0 };
        let deep = CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: format,
            NumChannels: 1,
            Flags: 0,
        };
        let code = match verb {
            "array" => code!(self.library, cuArrayCreate_v2(&raw mut array, &raw const flat)),
            "cube" => code!(self.library, cuArray3DCreate_v2(&raw mut array, &raw const deep)),
            _ => {
                let levels = u32::try_from(third)?;
                code!(self.library, cuMipmappedArrayCreate(&raw mut mipmap, &raw const deep, levels))
            }
        };
        self.remember(code, if verb == "mipmap" { Made::Mipmap(mipmap) } else { Made::Array(array) })
    }

    fn node(&mut self, by_own_function: bool, bytes: usize) -> Result<CUresult> {
        let (mut graph, mut node) = (CUgraph(null_mut()), CUgraphNode(null_mut()));
        code!(self.library, cuGraphCreate(&raw mut graph, 0));
        // SAFETY: numbers and pointers, which may be zero.
        let mut wanted: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { core::mem::zeroed() };
        wanted.poolProps = POOL;
        wanted.bytesize = bytes;
        // SAFETY: numbers and pointers, which may be zero.
        let mut any: CUgraphNodeParams = unsafe { core::mem::zeroed() };
        any.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        let place = (&raw mut any.__bindgen_anon_1).cast::<CUDA_MEM_ALLOC_NODE_PARAMS>();
        // SAFETY: this kind of node has its parameters there.
        unsafe { place.write(wanted) };
        let (node, library) = (&raw mut node, &self.library);
        let code = if by_own_function {
            code!(library, cuGraphAddMemAllocNode(node, graph, core::ptr::null(), 0, &raw mut wanted))
        } else {
            let (none, edges) = (core::ptr::null(), core::ptr::null());
            code!(library, cuGraphAddNode_v2(node, graph, none, edges, 0, &raw mut any))
        };
        // SAFETY: written above, and by the driver.
        let address = if by_own_function { wanted.dptr.0 } else { unsafe { *place }.dptr.0 };
        self.remember(code, Made::Node { address, graph })
    }

    fn free(&self, number: usize) -> Result<CUresult> {
        let library = &self.library;
        Ok(match self.made[number] {
            Made::Nothing => bail!("there is nothing to free"),
            Made::Address(address) | Made::Node { address, .. } => {
                code!(library, cuMemFree_v2(CUdeviceptr_v2(address)))
            }
            Made::Physical { handle, .. } => code!(library, cuMemRelease(handle)),
            Made::Array(array) => code!(library, cuArrayDestroy(array)),
            Made::Mipmap(array) => code!(library, cuMipmappedArrayDestroy(array)),
        })
    }

    fn pool_attribute(&self, verb: &str, bytes: usize) -> Result<(CUresult, Vec<usize>)> {
        let mut pool = CUmemoryPool(null_mut());
        let code = code!(self.library, cuDeviceGetDefaultMemPool(&raw mut pool, DEVICE));
        if code != CUresult::CUDA_SUCCESS {
            return Ok((code, Vec::new()));
        }
        let (mut now, mut most, mut keep) = (0_usize, 0_usize, bytes);
        if verb == "keep" {
            let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            return Ok((
                code!(self.library, cuMemPoolSetAttribute(pool, threshold, (&raw mut keep).cast())),
                Vec::new(),
            ));
        }
        let current = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
        let high = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
        let code = code!(self.library, cuMemPoolGetAttribute(pool, current, (&raw mut now).cast()));
        code!(self.library, cuMemPoolGetAttribute(pool, high, (&raw mut most).cast()));
        Ok((code, vec![now, most]))
    }

    /// All threads hold what they got until the last one has failed.
    fn race(&self, threads: usize, bytes: usize) -> Result<usize> {
        let (start, allocated) = (Barrier::new(threads), Mutex::new(Vec::new()));
        let (set, allocate) = (
            self.library.function(detshare_cuda::entry::cuCtxSetCurrent)?,
            self.library.function(detshare_cuda::entry::cuMemAlloc_v2)?,
        );
        let primary = self.primary.0.expose_provenance();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    // SAFETY: the context that the main thread has.
                    unsafe { set(CUcontext(core::ptr::with_exposed_provenance_mut(primary))) };
                    start.wait();
                    let mut there = CUdeviceptr_v2(0);
                    // SAFETY: a place for the address.
                    while unsafe { allocate(&raw mut there, bytes) } == CUresult::CUDA_SUCCESS {
                        allocated.lock().expect("no thread panics").push(there);
                    }
                });
            }
        });
        let allocated = allocated.into_inner()?;
        for address in &allocated {
            code!(self.library, cuMemFree_v2(*address));
        }
        Ok(allocated.len())
    }
}

/// Memory of the first device.
const POOL: CUmemPoolProps = CUmemPoolProps {
    allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
    handleTypes: detshare_cuda::types::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
    location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
    win32SecurityAttributes: null_mut(),
    maxSize: 0,
    usage: 0,
    reserved: [0; 54],
};
