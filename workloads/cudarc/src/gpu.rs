//! What the programs share: the device, kernels from CUDA C++, shapes of launches, inputs and comparisons.

use anyhow::{Context, Result, bail, ensure};
use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, DriverError, LaunchConfig};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use std::fmt::Debug;
use std::sync::Arc;

/// What the kernels are compiled for: every newer device runs it too.
pub(crate) const ARCHITECTURE: &str = "compute_80";

/// The first device with a stream of our own on it.
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
}

impl Gpu {
    pub(crate) fn open() -> Result<Self> {
        let context = CudaContext::new(0).context("no device")?;
        let stream = context.new_stream()?;
        Ok(Self { context, stream })
    }

    /// A device on which cudarc adds no events of its own: what is ordered is what the program orders.
    pub(crate) fn open_untracked() -> Result<Self> {
        let context = CudaContext::new(0).context("no device")?;
        // SAFETY: the programs that ask for it order their streams themselves.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        Ok(Self { context, stream })
    }

    /// Compiles CUDA C++ and loads what comes out.
    pub(crate) fn module(&self, source: &str) -> Result<Arc<CudaModule>> {
        let options = CompileOptions { arch: Some(ARCHITECTURE), ..CompileOptions::default() };
        let ptx = match compile_ptx_with_opts(source, options) {
            Ok(ptx) => ptx,
            Err(CompileError::CompileError { log, .. }) => bail!("NVRTC: {}", log.to_string_lossy()),
            Err(other) => return Err(other.into()),
        };
        self.context.load_module(ptx).context("loading the PTX")
    }

    /// The one kernel of a source.
    pub(crate) fn kernel(&self, source: &str, name: &str) -> Result<CudaFunction> {
        self.module(source)?.load_function(name).with_context(|| format!("looking up {name}"))
    }
}

/// Launches a kernel on a stream. The arguments are references, in the kernel's order.
macro_rules! launch {
    ($stream:expr, $kernel:expr, $shape:expr, $($argument:expr),+ $(,)?) => {{
        use cudarc::driver::PushKernelArg as _;
        let shape = $shape;
        // A match, so that arguments made on the spot live until the launch.
        match $stream.launch_builder(&$kernel)$(.arg($argument))+ {
            // SAFETY: the arguments have the types of the kernel's parameters, and it stays inside their lengths.
            arguments => unsafe { arguments.launch(shape) },
        }
    }};
}

/// Blocks and threads in one dimension.
pub(crate) fn line(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

/// Square blocks, as many as cover the plane.
pub(crate) fn plane(width: u32, height: u32, side: u32) -> LaunchConfig {
    let grid_dim = (width.div_ceil(side), height.div_ceil(side), 1);
    LaunchConfig { grid_dim, block_dim: (side, side, 1), shared_mem_bytes: 0 }
}

/// Numbers that look random and are the same in every run (SplitMix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    pub(crate) fn u16(&mut self) -> u16 {
        (self.u64() >> 48) as u16
    }

    pub(crate) fn u8(&mut self) -> u8 {
        (self.u64() >> 56) as u8
    }

    /// Between -1 and 1, a multiple of 2⁻¹⁵.
    pub(crate) fn f32(&mut self) -> f32 {
        f32::from(self.u16()) / 32_768.0 - 1.0
    }

    /// Between -1 and 1, a multiple of 2⁻³¹.
    pub(crate) fn f64(&mut self) -> f64 {
        f64::from(self.u32()) / 2_147_483_648.0 - 1.0
    }

    pub(crate) fn take<T>(&mut self, count: usize, next: fn(&mut Self) -> T) -> Vec<T> {
        (0..count).map(|_| next(self)).collect()
    }
}

/// The bits of a number: 0.0 and -0.0 are not the same.
pub(crate) trait Bits: Copy + Debug {
    fn bits(self) -> u64;
}

macro_rules! bits {
    ($($number:ty => $into:expr),+ $(,)?) => {
        $(impl Bits for $number {
            fn bits(self) -> u64 {
                $into(self)
            }
        })+
    };
}

bits! {
    u32 => u64::from,
    u64 => u64::from,
    i32 => |number: i32| u64::from(number.cast_unsigned()),
    f32 => |number: f32| u64::from(number.to_bits()),
    f64 => f64::to_bits,
}

/// Every number bit for bit.
pub(crate) fn same<T: Bits>(got: &[T], expected: &[T]) -> Result<()> {
    ensure!(got.len() == expected.len(), "{} numbers instead of {}", got.len(), expected.len());
    let wrong: Vec<usize> = (0..got.len()).filter(|i| got[*i].bits() != expected[*i].bits()).collect();
    if let Some(first) = wrong.first() {
        let (got, expected) = (got[*first], expected[*first]);
        bail!("{} numbers are wrong, first [{first}]: {got:?} instead of {expected:?}", wrong.len());
    }
    Ok(())
}

/// Every number within a relative error of what is expected.
pub(crate) fn close(what: &str, got: &[f64], expected: &[f64], tolerance: f64) -> Result<()> {
    ensure!(got.len() == expected.len(), "{} numbers instead of {}", got.len(), expected.len());
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let far = (got - expected).abs() / expected.abs().max(f64::MIN_POSITIVE);
        ensure!(far <= tolerance, "{what} [{i}]: {got:e} instead of {expected:e}");
    }
    Ok(())
}

/// An error of the driver that must come, and no other.
pub(crate) fn refused<T>(what: &str, result: Result<T, DriverError>, expected: CUresult) -> Result<()> {
    match result {
        Ok(_) => bail!("{what}: no error instead of {expected:?}"),
        Err(DriverError(code)) => {
            ensure!(code == expected, "{what}: {code:?} instead of {expected:?}");
            Ok(())
        }
    }
}
