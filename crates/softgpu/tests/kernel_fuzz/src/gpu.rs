//! A driver's first device, and kernels on it.

use crate::answer::Answer;
use crate::call::{self, Refused, code_name};
use crate::kernel::{Kernel, MODULE_HEADER};
use crate::standard_error::StandardError;
use anyhow::{Context, Result};
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUfunction, CUjit_option, CUlimit, CUmodule, CUresult,
    CUstream,
};
use std::ffi::CString;
use std::path::Path;

/// Room for what an assembler has to say.
const LOG_BYTES: usize = 4096;
/// For each thread.
const STACK_BYTES: usize = 16 << 10;
/// Every kernel's part of a buffer begins at such an address.
const PART_WORDS: usize = 64;

/// What became of a kernel: its output, or why there is none.
pub(crate) type Outcome = Result<Vec<u32>, Answer>;

/// The driver with the primary context of its first device current.
pub(crate) struct Gpu {
    driver: Driver,
    complaints: StandardError,
    input: Buffer,
    output: Buffer,
}

/// Device memory that grows.
struct Buffer {
    at: CUdeviceptr,
    words: usize,
}

impl Gpu {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let complaints = StandardError::catch()?;
        let driver = Driver::open(path, Visibility::Local)?;
        let (mut device, mut context) = (CUdevice_v1(0), CUcontext(null_mut()));
        ok!(&driver, cuInit(0));
        ok!(&driver, cuDeviceGet(&raw mut device, 0));
        ok!(&driver, cuDevicePrimaryCtxRetain(&raw mut context, device));
        ok!(&driver, cuCtxSetCurrent(context));
        // How deep a recursion goes is not known to an assembler, and its usual guess is small.
        ok!(&driver, cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, STACK_BYTES));
        let none = || Buffer { at: CUdeviceptr_v2(0), words: 0 };
        Ok(Self { driver, complaints, input: none(), output: none() })
    }

    /// What the device is called.
    pub(crate) fn name(&self) -> Result<String> {
        let (mut device, mut name) = (CUdevice_v1(0), [0u8; 128]);
        ok!(&self.driver, cuDeviceGet(&raw mut device, 0));
        ok!(&self.driver, cuDeviceGetName(name.as_mut_ptr().cast(), 127, device));
        let mut version = 0;
        ok!(&self.driver, cuDriverGetVersion(&raw mut version));
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Ok(format!("{}, CUDA {}.{}", String::from_utf8_lossy(&name[..end]), version / 1000, version % 1000 / 10))
    }

    /// Runs kernels that stand in one module. An error is one after which this device is of no more use.
    pub(crate) fn run(&mut self, kernels: &[Kernel]) -> Result<Vec<Outcome>> {
        let text: String = kernels.iter().map(Kernel::ptx).collect();
        match self.load(&text)? {
            Ok(module) => self.run_module(module, kernels),
            // One that cannot be loaded takes the others with it.
            Err(_) if kernels.len() > 1 => {
                kernels.iter().map(|kernel| Ok(self.run(std::slice::from_ref(kernel))?.remove(0))).collect()
            }
            Err(answer) => Ok(vec![Err(answer)]),
        }
    }

    fn load(&mut self, text: &str) -> Result<Result<CUmodule, Answer>> {
        let image = CString::new(format!("{MODULE_HEADER}{text}")).context("a kernel has a NUL")?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), core::ptr::without_provenance_mut(LOG_BYTES)];
        let mut module = CUmodule(null_mut());
        let load = call::function(&self.driver, detshare_cuda::entry::cuModuleLoadDataEx)?;
        // SAFETY: text with a NUL behind it, two options with their values, and a buffer of that size.
        let code =
            unsafe { load(&raw mut module, image.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) };
        if code == CUresult::CUDA_SUCCESS {
            return Ok(Ok(module));
        }
        let words: Vec<u8> = log.into_iter().take_while(|byte| *byte != 0).collect();
        let words = String::from_utf8_lossy(&words).replace('\n', " ");
        Ok(Err(Answer::failed(format!("load: {}: {words}", code_name(code)))))
    }

    fn run_module(&mut self, module: CUmodule, kernels: &[Kernel]) -> Result<Vec<Outcome>> {
        let (mut input, mut output_words, mut parts) = (Vec::new(), 0, Vec::new());
        for kernel in kernels {
            parts.push((input.len(), output_words));
            input.extend(kernel.input());
            input.resize(input.len().next_multiple_of(PART_WORDS), 0);
            output_words += kernel.output_words().next_multiple_of(PART_WORDS);
        }
        let driver = &self.driver;
        self.input.grow(driver, input.len())?;
        self.output.grow(driver, output_words)?;
        ok!(driver, cuMemcpyHtoD_v2(self.input.at, input.as_ptr().cast(), input.len() * 4));
        ok!(driver, cuMemsetD32_v2(self.output.at, 0, output_words));
        let mut refusals = Vec::new();
        for (kernel, (input_at, output_at)) in kernels.iter().zip(&parts) {
            let places = [self.output.at.0 + *output_at as u64 * 4, self.input.at.0 + *input_at as u64 * 4];
            refusals.push(self.launch(module, kernel, places)?);
        }
        ok!(driver, cuCtxSynchronize());
        let mut output = vec![0u32; output_words];
        ok!(driver, cuMemcpyDtoH_v2(output.as_mut_ptr().cast(), self.output.at, output_words * 4));
        ok!(driver, cuModuleUnload(module));
        let take = |(kernel, (at, refusal)): (&Kernel, (usize, Option<Answer>))| match refusal {
            Some(answer) => Err(answer),
            None => Ok(output[at..at + kernel.output_words()].to_vec()),
        };
        let ends = parts.into_iter().map(|(_, at)| at).zip(refusals);
        Ok(kernels.iter().zip(ends).map(take).collect())
    }

    /// Launches a kernel on its part of the buffers; the answer, if the driver will not.
    fn launch(&self, module: CUmodule, kernel: &Kernel, mut places: [u64; 2]) -> Result<Option<Answer>> {
        let name = CString::new(kernel.name.as_str()).context("a name has a NUL")?;
        let mut function = CUfunction(null_mut());
        ok!(&self.driver, cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
        let [out, input] = &mut places;
        let mut arguments: [*mut c_void; 2] = [(out as *mut u64).cast(), (input as *mut u64).cast()];
        let ([gx, gy, gz], [bx, by, bz]) = (kernel.grid, kernel.block);
        let launch = call::function(&self.driver, detshare_cuda::entry::cuLaunchKernel)?;
        let stream = CUstream(null_mut());
        // SAFETY: a function of a loaded module, with its two parameters.
        let code = unsafe { launch(function, gx, gy, gz, bx, by, bz, 0, stream, arguments.as_mut_ptr(), null_mut()) };
        match code {
            CUresult::CUDA_SUCCESS => Ok(None),
            CUresult::CUDA_ERROR_NOT_SUPPORTED => Ok(Some(Answer::not_supported(&self.complaints.latest()))),
            code => {
                let refused = Refused { call: "cuLaunchKernel".into(), code };
                Ok(Some(Answer::failed(refused.to_string())))
            }
        }
    }
}

impl Buffer {
    fn grow(&mut self, driver: &Driver, words: usize) -> Result<()> {
        if words <= self.words {
            return Ok(());
        }
        if self.words > 0 {
            ok!(driver, cuMemFree_v2(self.at));
        }
        self.words = words.next_power_of_two();
        ok!(driver, cuMemAlloc_v2(&raw mut self.at, self.words * 4));
        Ok(())
    }
}
