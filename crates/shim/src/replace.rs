//! Functions with code of our own in front of the real one, by theme.

mod array;
mod context;
mod graph;
mod host_memory;
mod launch;
mod link;
mod memory;
mod module;
mod proc_address;
mod stream;

pub(crate) use array::*;
pub(crate) use context::*;
pub(crate) use graph::*;
pub(crate) use host_memory::*;
pub(crate) use launch::*;
pub(crate) use link::*;
pub(crate) use memory::*;
pub(crate) use module::*;
pub(crate) use proc_address::*;
pub(crate) use stream::*;

/// Defines exported functions with bodies of our own. A panic of ours becomes a call of the real function.
macro_rules! replace {
    ($($(#[$doc:meta])* fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) $body:block)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($parameter: $ty),*) -> detshare_cuda::types::CUresult { $body }
    )+};
}
use replace;
