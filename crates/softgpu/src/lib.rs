//! `libcuda.so.1` without a GPU: a driver whose device runs PTX kernels on the CPU.
//!
//! It is a real driver for programs that bring PTX: contexts and green contexts, streams, events, memory,
//! modules, launches, graphs. Kernels run for real; results are those that the PTX ISA defines. It is what the
//! demo and the tests run on where there is no GPU, and it makes no attempt to be fast as a GPU is.
//!
//! * `api`: the driver's functions by theme, under their own names. What is not there returns
//!   `CUDA_ERROR_NOT_SUPPORTED` ([`SUPPORTED`] says which). The build script makes the exported symbols: all
//!   variants of a function share its one implementation, with the stream made explicit.
//! * `context`, `stream`, `event`, `module`, `graph`: what the handles stand for. A handle is a number that is
//!   looked up ([`handle`](crate)), so one that was destroyed is an error and never a crash.
//! * `engine`: work in order. Everything that a stream runs is a job with the completions that it waits for;
//!   streams, events and the legacy stream's implicit order are nothing but such dependencies.
//! * `children`: kernels that kernels launch, in the order of a grid's own streams.
//! * `check`: what kernels were found to do wrong, told once.
//! * `exec`: kernels, decoded once from PTX and run a warp at a time.
//! * `system`: what kernels ask for while they run: printing, memory, values for graphs.
//! * `memory`: device memory. Device addresses are host addresses of one large reserved range.
//! * `sm`: the device's SMs, in memory that all processes of the user share, each busy for the modelled time of
//!   the blocks that run on it.
//!
//! Environment: `DETSHARE_SOFTGPU_DEVICES` (1, at most 8), each with `DETSHARE_SOFTGPU_SMS` (132) and
//! `DETSHARE_SOFTGPU_MEMORY` (bytes, or with `MiB`/`GiB`; 139 GiB),
//! `DETSHARE_SOFTGPU_SPEED` (1: as fast as the model of an H200; 0.001 makes a microsecond a millisecond),
//! `DETSHARE_LOG`, and for the checker `DETSHARE_SOFTGPU_CHECK`, `DETSHARE_SOFTGPU_CHECK_LIMIT` and
//! `DETSHARE_SOFTGPU_CHECK_EXIT` (`check`).

mod api;
mod array;
mod boundary;
mod check;
mod children;
mod context;
mod device;
pub mod device_runtime;
mod engine;
mod event;
mod exec;
mod exports;
mod fatbin;
mod graph;
mod handle;
mod memory;
mod module;
mod operation;
mod pool;
mod sm;
mod stream;
mod system;
pub mod unsupported;

pub use exports::SUPPORTED;
