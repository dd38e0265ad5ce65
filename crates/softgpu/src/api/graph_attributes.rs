//! Attributes of kernel nodes: those of launches.

use super::graph_nodes::kernel_of;
use super::launch::{priority, rebind};
use super::require;
use crate::boundary::{Outcome, give};
use crate::graph::{self, Content};
use crate::operation::Operation;
use detshare_cuda::types::{CUgraphNode, CUkernelNodeAttrID as Attribute, CUkernelNodeAttrValue};

/// Those that a node has.
const KNOWN: [Attribute; 8] = [
    Attribute::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY,
    Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    Attribute::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
];

/// What an attribute is that nobody has set: nothing, with a map of domains that leaves them as they are.
fn unset(attribute: Attribute) -> [u8; 64] {
    let mut value = [0; 64];
    if attribute == Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP {
        value[1] = 1;
    }
    value
}

pub(crate) unsafe fn cuGraphKernelNodeGetAttribute(
    node: CUgraphNode,
    attribute: Attribute,
    value: *mut CUkernelNodeAttrValue,
) -> Outcome {
    require(KNOWN.contains(&attribute))?;
    let launch = kernel_of(&*graph::find_node(node)?)?;
    let set = launch.attributes.get(&attribute.0).copied().unwrap_or_else(|| unset(attribute));
    give(value.cast::<[u8; 64]>(), set)
}

pub(crate) unsafe fn cuGraphKernelNodeSetAttribute(
    node: CUgraphNode,
    attribute: Attribute,
    value: *const CUkernelNodeAttrValue,
) -> Outcome {
    require(KNOWN.contains(&attribute) && !value.is_null())?;
    let node = graph::find_node(node)?;
    let mut launch = kernel_of(&node)?;
    launch.attributes.insert(attribute.0, value.cast::<[u8; 64]>().read());
    launch.priority = priority(&launch.attributes);
    rebind(&mut launch)?;
    node.set(Content::Operation(Operation::Kernel(launch)));
    Ok(())
}

pub(crate) unsafe fn cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) -> Outcome {
    let (to, from) = (graph::find_node(to)?, graph::find_node(from)?);
    let (mut launch, source) = (kernel_of(&to)?, kernel_of(&from)?);
    launch.attributes = source.attributes;
    launch.priority = source.priority;
    rebind(&mut launch)?;
    to.set(Content::Operation(Operation::Kernel(launch)));
    Ok(())
}
