//! The shim, from outside: programs that load it, against the stub driver.
//!
//! `cargo xtask test` builds the libraries that these tests load and says where they are.

mod bad_input;
mod block_level;
mod exit;
mod lanes;
mod library;
mod memory;
mod quota;
mod stage;
mod stats;
mod surface;
mod tenants;
mod unknown_functions;
mod ways;
