//! See the library of the same name.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    detshare_kernel_fuzz::main()
}
