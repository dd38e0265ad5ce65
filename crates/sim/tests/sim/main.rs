//! What the simulator promises: the order in which ways of sharing come out as on a GPU, the same result each time, nothing
//! lost, and an error for every trace that cannot be.

mod invariants;
mod order;
mod recorded;
mod recorded_llm;
mod servers;
mod traces;
