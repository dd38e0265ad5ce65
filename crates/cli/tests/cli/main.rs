//! `detshare` from outside. The programs that it runs are shell scripts that write, in place of the shim, what the shim
//! would write; so nothing here needs CUDA.

mod stage;
mod usage;
mod verify;
mod verify_endings;
