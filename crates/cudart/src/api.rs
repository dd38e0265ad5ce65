//! The runtime's functions, under their own names. Where a function has a variant for per-thread streams, its stream is
//! made explicit: NULL never arrives here. Functions that work on the default stream without taking one get it as their
//! first argument.
//!
//! Each function has the contract of the runtime API for its arguments, which the program promises to keep: pointers are NULL
//! or good for what the manual says. Handles are the driver's, which looks them up.

#![allow(
    non_snake_case,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    clippy::missing_errors_doc,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    clippy::too_many_arguments,
    clippy::similar_names,
    reason = "names and arguments are the C API's; every body runs under the one contract above"
)]

mod array;
mod copy;
mod copy_batch;
mod device;
mod entry_point;
mod event;
mod external;
mod graph;
mod graph_any;
mod graph_nodes;
mod ipc;
mod kernel;
mod launch;
mod library;
mod managed;
mod memory;
mod memset;
mod pool;
mod properties;
pub mod release_12;
mod stream;
mod symbol;

pub use self::{
    array::*, copy::*, copy_batch::*, device::*, entry_point::*, event::*, external::*, graph::*, graph_any::*,
    graph_nodes::*, ipc::*, kernel::*, launch::*, library::*, managed::*, memory::*, memset::*, pool::*, properties::*,
    stream::*, symbol::*,
};

/// Functions that are one function of the driver, called in this thread's context. The runtime's types have the driver's
/// layout there, by other names.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) => $driver:ident($($given:expr),* $(,)?);)*) => {
        $(
            pub unsafe fn $name($($argument: $type),*) -> $crate::boundary::Outcome {
                $crate::context::ready()?;
                $crate::driver::driver!($driver($($given),*))
            }
        )*
    };
}
use forward;
