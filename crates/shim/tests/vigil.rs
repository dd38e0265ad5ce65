//! The tests of a module of the shim, whose library cannot be tested by itself: when a hold sleeps and when it is awake.

#[path = "../src/gate/vigil.rs"]
mod vigil;
