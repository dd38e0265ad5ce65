//! What may be rewritten: yes, or a reason why not.

pub(super) mod barriers;
pub(super) mod contraction;
pub(super) mod instructions;
pub(super) mod layout;
pub(super) mod leftovers;
mod movement;
pub(super) mod shared;
pub(super) mod sight;
pub(super) mod uniformity;
pub(super) mod waiting;
