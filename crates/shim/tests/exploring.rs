//! The tests of a module of the shim, whose library cannot be tested by itself: how much of its time a tenant explores.

#![allow(dead_code, reason = "the shim calls what the tests do not")]

#[path = "../src/gate/exploring.rs"]
mod exploring;
