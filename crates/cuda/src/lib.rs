//! The CUDA driver API as data, and how to load a driver.
//!
//! * [`types`]: every type of the driver API. C enums are newtypes, handles are transparent newtypes.
//! * [`functions`]: one [`Function`] for every function that a Linux driver exports: its name, its parameters,
//!   which of them is the stream and what NULL means there, and for which (name, version, flags)
//!   `cuGetProcAddress` hands it out ([`proc_address`]).
//! * [`entry`]: the position of each function in that table together with its type, so that a pointer can be
//!   fetched by name and comes back typed.
//! * [`driver`]: finding a real driver and opening it; [`release`]: which one it is.
//!
//! The table and the types are generated from CUDA 13's headers by `cargo xtask generate`; what is generated
//! is committed, the headers are not. This crate knows nothing of sharing: the shim that stands in for a
//! driver and the software GPU that is one are both built on it.
//!
//! ```
//! use detshare_cuda::{PER_THREAD_STREAM, ProcAddress, entry, functions, proc_address};
//!
//! // One name, another signature from CUDA 13 on.
//! let found = |version| match proc_address("cuCtxSynchronize", version, 0) {
//!     ProcAddress::Found(index) => functions()[index].name,
//!     other => panic!("{other:?}"),
//! };
//! assert_eq!(found(12_090), "cuCtxSynchronize");
//! assert_eq!(found(13_000), "cuCtxSynchronize_v2");
//!
//! // The per-thread variant is another function.
//! assert_eq!(
//!     proc_address("cuLaunchKernel", 13_000, PER_THREAD_STREAM),
//!     ProcAddress::Found(entry::cuLaunchKernel_ptsz.index())
//! );
//! ```

pub mod driver;
mod elf;
mod function;
mod library_cache;
pub mod release;
mod result;
mod runtime_error;

pub use driver::{Driver, DriverError};
pub use function::{
    DefaultStream, Function, LEGACY_STREAM, PER_THREAD_STREAM, Parameter, ProcAddress, StreamUse, functions,
    proc_address,
};
pub use result::{result_name, result_text};
pub use runtime_error::{runtime_error_name, runtime_error_text, runtime_errors};

/// Every type of the driver API, under its C name.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unpredictable_function_pointer_comparisons,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::ptr_as_ptr,
    clippy::pedantic,
    reason = "generated; the names and their meaning are the C API's"
)]
#[rustfmt::skip]
#[path = "generated/types.rs"]
pub mod types;

/// A typed [`entry::Entry`] for every function, under the function's name.
pub mod entry {
    use core::fmt;
    use core::marker::PhantomData;

    /// The position of a function in [`functions`](crate::functions), with the type of the function.
    pub struct Entry<F> {
        index: usize,
        function: PhantomData<F>,
    }

    impl<F> Entry<F> {
        pub(crate) const fn at(index: usize) -> Self {
            Self { index, function: PhantomData }
        }

        /// The position in the table.
        #[must_use]
        pub const fn index(self) -> usize {
            self.index
        }
    }

    impl<F> Clone for Entry<F> {
        fn clone(&self) -> Self {
            *self
        }
    }

    impl<F> Copy for Entry<F> {}

    impl<F> fmt::Debug for Entry<F> {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "Entry({})", crate::functions()[self.index].name)
        }
    }

    pub use crate::generated_entries::*;
}

#[allow(
    missing_docs,
    non_snake_case,
    non_upper_case_globals,
    clippy::type_complexity,
    reason = "generated; the names are the C API's"
)]
#[rustfmt::skip]
#[path = "generated/entries.rs"]
mod generated_entries;

#[allow(clippy::enum_glob_use, clippy::wildcard_imports, reason = "generated")]
#[rustfmt::skip]
#[path = "generated/functions.rs"]
mod generated_functions;

#[rustfmt::skip]
#[path = "generated/results.rs"]
mod generated_results;

#[rustfmt::skip]
#[path = "generated/runtime_errors.rs"]
mod generated_runtime_errors;
