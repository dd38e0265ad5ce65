//! What lies near an address that a kernel must not touch, for people.

use super::access::resolve;
use super::block::Surroundings;
use super::op::{Op, Space};
use super::program::RESERVED_SHARED;
use crate::memory;

/// What is near the address of an instruction's access, as the rest of a sentence.
pub(super) fn describe(block: &Surroundings, address: u64, op: &Op) -> String {
    let space = match op {
        Op::Load(load) => load.address.space,
        Op::Store(store) => store.address.space,
        Op::Atomic(atomic) => atomic.address.space,
        Op::Tensor { tensor, .. } => tensor.space(),
        _ => return String::new(),
    };
    let space = if space == Space::Generic { resolve(address).0 } else { space };
    let properties = &block.kernel.properties;
    match space {
        Space::Global | Space::Generic => format!("; {}", memory::nearby(address)),
        Space::Shared => format!(
            "; the block's shared memory ends at {:#x}: {RESERVED_SHARED} bytes of the system's, {} declared, {} dynamic",
            block.shared.len(),
            properties.shared_bytes,
            block.shape.dynamic_shared,
        ),
        Space::Local => format!("; the kernel declares {} bytes of local memory", properties.local_bytes),
        Space::Parameters => format!("; the kernel has {} bytes of parameters", block.shape.parameters.len()),
    }
}
