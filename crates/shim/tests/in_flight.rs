//! The tests of a module of the shim, whose library cannot be tested by itself: what streams have in flight together.

#![allow(dead_code, reason = "the shim calls what the tests do not")]

#[path = "../src/in_flight.rs"]
mod in_flight;
