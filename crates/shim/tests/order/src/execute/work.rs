//! Work in a stream, by whichever of the driver's functions.

use super::{HostCall, Run, WORD, update};
use crate::machine::Break;
use crate::program::{Cell, Manner, On, Work};
use anyhow::{Context, Result, bail};
use core::ffi::c_void;
use core::ptr::{dangling_mut, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};
use detshare_cuda::types::{CUdeviceptr, CUdeviceptr_v2, CUfunction, CUlaunchConfig, CUresult, CUstream};

/// Counts kernels, where some are to be left out.
static LAUNCHES: AtomicUsize = AtomicUsize::new(0);

/// A kernel and its arguments, to be pointed to.
pub(super) struct Kernel {
    pub(super) function: CUfunction,
    first: CUdeviceptr,
    second: CUdeviceptr,
    add: u32,
    spin: u32,
    two_cells: bool,
}

impl Kernel {
    /// The arguments as the driver wants them: a pointer to each. It only reads through them.
    pub(super) fn pointers(&mut self) -> [*mut c_void; 3] {
        let second = if self.two_cells { (&raw mut self.second).cast() } else { (&raw mut self.add).cast() };
        [(&raw mut self.first).cast(), second, (&raw mut self.spin).cast()]
    }
}

/// Called by the driver in the order of a stream.
pub(super) unsafe extern "C" fn host_function(data: *mut c_void) {
    // SAFETY: the address of a call that lives until everything that was issued is over.
    let call = unsafe { &*data.cast::<HostCall>() };
    update(call.cell, call.add);
}

unsafe extern "C" fn callback(_: CUstream, _: CUresult, data: *mut c_void) {
    // SAFETY: registered with the same data as the function.
    unsafe { host_function(data) };
}

/// The data of a host function.
pub(super) fn data(call: &HostCall) -> *mut c_void {
    core::ptr::from_ref(call).cast_mut().cast()
}

impl Run<'_> {
    pub(super) fn kernel(&self, work: Work) -> Result<Kernel> {
        let kernels = &self.machine.kernels;
        Ok(match work {
            Work::Step { cell, add, spin, reads_first } => Kernel {
                function: if reads_first { kernels.step_reads_first } else { kernels.step },
                first: self.address(cell)?,
                second: CUdeviceptr_v2(0),
                add,
                spin,
                two_cells: false,
            },
            Work::Mix { from, to, spin } => Kernel {
                function: kernels.mix,
                first: self.address(from)?,
                second: self.address(to)?,
                add: 0,
                spin,
                two_cells: true,
            },
            _ => bail!("not a kernel: {work}"),
        })
    }

    pub(super) fn work(&self, on: On, work: Work, manner: Manner, call: Option<&HostCall>) -> Result<()> {
        match work {
            Work::Step { .. } | Work::Mix { .. } => self.launch(on, work, manner),
            Work::Copy { from, to } => self.copy(on, from, to, manner),
            Work::Set { cell, value } => self.set(on, cell, value, manner),
            Work::Host { .. } => self.host(on, manner, call.context("a host function without data")?),
        }
    }

    fn launch(&self, on: On, work: Work, manner: Manner) -> Result<()> {
        let (machine, stream, mut kernel) = (self.machine, self.stream(on)?, self.kernel(work)?);
        if machine.is_broken(Break::Launch) && LAUNCHES.fetch_add(1, Ordering::Relaxed) % 8 == 7 {
            return Ok(());
        }
        let mut pointers = kernel.pointers();
        let (function, arguments, extra) = (kernel.function, pointers.as_mut_ptr(), null_mut());
        match manner {
            Manner::Extended => {
                let config = CUlaunchConfig {
                    gridDimX: 1,
                    gridDimY: 1,
                    gridDimZ: 1,
                    blockDimX: 1,
                    blockDimY: 1,
                    blockDimZ: 1,
                    sharedMemBytes: 0,
                    hStream: stream,
                    // Of none it may be anything, and NULL is what others have there.
                    attrs: dangling_mut(),
                    numAttrs: 0,
                };
                let config = &raw const config;
                ok_on!(machine, on, cuLaunchKernelEx | cuLaunchKernelEx_ptsz(config, function, arguments, extra));
            }
            Manner::Cooperative => ok_on!(
                machine,
                on,
                cuLaunchCooperativeKernel
                    | cuLaunchCooperativeKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments)
            ),
            _ => ok_on!(
                machine,
                on,
                cuLaunchKernel | cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, extra)
            ),
        }
        Ok(())
    }

    fn copy(&self, on: On, from: Cell, to: Cell, manner: Manner) -> Result<()> {
        let (machine, stream) = (self.machine, self.stream(on)?);
        let (source, target) = (self.address(from)?, self.address(to)?);
        let now = manner == Manner::Synchronous;
        match (from, to) {
            _ if manner == Manner::Untyped => {
                ok_on!(machine, on, cuMemcpyAsync | cuMemcpyAsync_ptsz(target, source, WORD, stream));
            }
            (Cell::Pinned(index), _) => {
                let source = machine.pinned.address(index).cast_const();
                if now {
                    ok_on!(machine, on, cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(target, source, WORD));
                } else {
                    ok_on!(machine, on, cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz(target, source, WORD, stream));
                }
            }
            (_, Cell::Pinned(index)) => {
                let target = machine.pinned.address(index);
                if now {
                    ok_on!(machine, on, cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(target, source, WORD));
                } else {
                    ok_on!(machine, on, cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz(target, source, WORD, stream));
                }
            }
            _ if now => ok_on!(machine, on, cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(target, source, WORD)),
            _ => ok_on!(machine, on, cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz(target, source, WORD, stream)),
        }
        Ok(())
    }

    fn set(&self, on: On, cell: Cell, value: u32, manner: Manner) -> Result<()> {
        let (machine, stream, address) = (self.machine, self.stream(on)?, self.address(cell)?);
        if manner == Manner::Synchronous {
            ok_on!(machine, on, cuMemsetD32_v2 | cuMemsetD32_v2_ptds(address, value, 1));
        } else {
            ok_on!(machine, on, cuMemsetD32Async | cuMemsetD32Async_ptsz(address, value, 1, stream));
        }
        Ok(())
    }

    fn host(&self, on: On, manner: Manner, call: &HostCall) -> Result<()> {
        let (machine, stream, data) = (self.machine, self.stream(on)?, data(call));
        if manner == Manner::Callback {
            ok_on!(machine, on, cuStreamAddCallback | cuStreamAddCallback_ptsz(stream, Some(callback), data, 0));
        } else {
            ok_on!(machine, on, cuLaunchHostFunc | cuLaunchHostFunc_ptsz(stream, Some(host_function), data));
        }
        Ok(())
    }
}
