//! Memory that the host reads without a copy: a kernel writes to managed and to pinned memory, the program waits for
//! the context and looks. Then the context goes with all of it still allocated, and another one comes.
//!
//! Where there is no managed memory it says so and ends with 77; `managed_probe pinned` takes pinned memory in its place.

use anyhow::{Result, bail, ensure};
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_cuda::types::{
    CUcontext, CUdevice, CUdevice_attribute, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUfunction, CUmodule, CUstream,
};
use detshare_workloads::{Library, cu};
use std::process::ExitCode;

/// What a check ends with that does not apply.
const SKIPPED: u8 = 77;
/// More than one page of any size that is migrated as one.
const WORDS: u32 = 1 << 20;
const BLOCK: u32 = 256;
/// `CU_MEM_ATTACH_GLOBAL`: every stream may touch it.
const ATTACH_GLOBAL: u32 = 1;
/// `CU_MEMHOSTALLOC_DEVICEMAP`.
const DEVICE_MAP: u32 = 2;
const DEVICE: CUdevice = CUdevice_v1(0);

const KERNEL: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry scramble(.param .u64 words, .param .u32 add)
{
    .reg .b32 %block, %size, %thread, %i, %add, %value;
    .reg .b64 %words, %offset;
    ld.param.u64 %words, [words];
    ld.param.u32 %add, [add];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %words, %words, %offset;
    ld.global.u32 %value, [%words];
    mad.lo.u32 %value, %value, 1664525, %add;
    add.u32 %value, %value, %i;
    st.global.u32 [%words], %value;
    ret;
}
";

/// What the kernel makes of a word.
fn scrambled(value: u32, add: u32, i: u32) -> u32 {
    value.wrapping_mul(1_664_525).wrapping_add(add).wrapping_add(i)
}

/// Memory that both sides reach.
struct Words {
    host: *mut u32,
    device: CUdeviceptr,
}

impl Words {
    fn managed(library: &Library) -> Result<Self> {
        let mut device = CUdeviceptr_v2(0);
        cu!(library, cuMemAllocManaged(&raw mut device, bytes(), ATTACH_GLOBAL))?;
        Ok(Self { host: core::ptr::with_exposed_provenance_mut(usize::try_from(device.0)?), device })
    }

    fn pinned(library: &Library) -> Result<Self> {
        let (mut host, mut device) = (null_mut(), CUdeviceptr_v2(0));
        cu!(library, cuMemHostAlloc(&raw mut host, bytes(), DEVICE_MAP))?;
        cu!(library, cuMemHostGetDevicePointer_v2(&raw mut device, host, 0))?;
        Ok(Self { host: host.cast(), device })
    }

    /// By atomic operations: the GPU writes there too, though not now.
    fn at(&self, i: u32) -> &AtomicU32 {
        // SAFETY: within the allocation, which has so many words.
        let word = unsafe { self.host.add(i as usize) };
        // SAFETY: aligned as the driver's pages are, there as long as its context is, and the host goes through here.
        unsafe { AtomicU32::from_ptr(word) }
    }

    fn set_all(&self) {
        (0..WORDS).for_each(|i| self.at(i).store(i ^ 0x5555, Ordering::Relaxed));
    }

    fn check(&self, steps: &[u32]) -> Result<()> {
        let expected = |i| steps.iter().fold(i ^ 0x5555, |value, add| scrambled(value, *add, i));
        let wrong = (0..WORDS).filter(|i| self.at(*i).load(Ordering::Relaxed) != expected(*i)).count();
        ensure!(wrong == 0, "{wrong} of {WORDS} words are wrong after {} kernels", steps.len());
        Ok(())
    }
}

const fn bytes() -> usize {
    WORDS as usize * size_of::<u32>()
}

/// Lets kernels write, and looks each time. Frees nothing.
fn use_context(library: &Library, managed: bool, seed: u32) -> Result<()> {
    let (mut module, mut kernel) = (CUmodule(null_mut()), CUfunction(null_mut()));
    cu!(library, cuModuleLoadData(&raw mut module, KERNEL.as_ptr().cast()))?;
    cu!(library, cuModuleGetFunction(&raw mut kernel, module, c"scramble".as_ptr()))?;
    let first = if managed { Words::managed(library)? } else { Words::pinned(library)? };
    let memory = [first, Words::pinned(library)?];
    memory.iter().for_each(Words::set_all);
    let mut steps = Vec::new();
    for step in 1..=3 {
        steps.push(seed + step);
        for words in &memory {
            let (mut address, mut add) = (words.device, seed + step);
            let mut parameters: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut add).cast()];
            let (stream, arguments, extra) = (CUstream(null_mut()), parameters.as_mut_ptr(), null_mut());
            cu!(library, cuLaunchKernel(kernel, WORDS / BLOCK, 1, 1, BLOCK, 1, 1, 0, stream, arguments, extra))?;
        }
        cu!(library, cuCtxSynchronize())?;
        memory.iter().try_for_each(|words| words.check(&steps))?;
    }
    Ok(())
}

fn has_managed_memory(library: &Library) -> Result<bool> {
    let (mut value, attribute) = (0, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    cu!(library, cuDeviceGetAttribute(&raw mut value, attribute, DEVICE))?;
    Ok(value != 0)
}

fn main() -> Result<ExitCode> {
    let managed = match std::env::args().nth(1).as_deref() {
        None => true,
        Some("pinned") => false,
        Some(other) => bail!("{other}: give nothing, or pinned"),
    };
    let library = Library::open()?;
    cu!(library, cuInit(0))?;
    if managed && !has_managed_memory(&library)? {
        println!("managed_probe: skipped, this device has no managed memory");
        return Ok(ExitCode::from(SKIPPED));
    }
    let mut context = CUcontext(null_mut());
    for seed in [100, 200] {
        cu!(library, cuDevicePrimaryCtxRetain(&raw mut context, DEVICE))?;
        cu!(library, cuCtxSetCurrent(context))?;
        use_context(&library, managed, seed)?;
        cu!(library, cuCtxSetCurrent(CUcontext(null_mut())))?;
        cu!(library, cuDevicePrimaryCtxRelease_v2(DEVICE))?;
    }
    for seed in [300, 400] {
        cu!(library, cuCtxCreate_v2(&raw mut context, 0, DEVICE))?;
        use_context(&library, managed, seed)?;
        cu!(library, cuCtxDestroy_v2(context))?;
    }
    println!("managed_probe: {WORDS} words in each of four contexts, all as expected");
    Ok(ExitCode::SUCCESS)
}
