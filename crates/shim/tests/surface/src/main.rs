//! Walks over every function of the driver through the shim.
//!
//! `surface arguments` runs against the stub driver: each function, by each way that leads to it, is called
//! with a pattern in every register and stack word that can carry an argument, and the stub must have been
//! entered at the right function with the same pattern. `surface answers` and `surface exports` run against
//! any driver, a real one too: the shim must answer `cuGetProcAddress` as the driver does, with its own entry
//! for the same function, and export what the driver exports.

mod answers;
mod arguments;
mod exports;
mod library;
mod pattern;

use anyhow::Result;
use clap::{Parser, Subcommand};
use library::Library;
use std::path::PathBuf;

#[derive(Parser)]
#[command(about = "Walks over every function of the driver through the shim")]
struct Arguments {
    #[command(subcommand)]
    check: Check,
    /// The shim's library
    #[arg(long)]
    shim: PathBuf,
    /// The driver that the shim forwards to
    #[arg(long)]
    driver: PathBuf,
    /// Where to write the figures as JSON
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Check {
    /// Every function is reached with all arguments, by every way (needs the stub driver)
    Arguments,
    /// cuGetProcAddress answers as the driver does, with the shim's entries
    Answers,
    /// The shim exports what the driver exports
    Exports,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // SAFETY: there is no other thread yet.
    unsafe { std::env::set_var("DETSHARE_DRIVER", &arguments.driver) };
    let shim = Library::open(&arguments.shim)?;
    let driver = Library::open(&arguments.driver)?;
    let summary = match arguments.check {
        Check::Arguments => arguments::check(&shim, &driver)?,
        Check::Answers => answers::check(&shim, &driver)?,
        Check::Exports => exports::check(&shim, &driver)?,
    };
    println!("{summary}");
    if let Some(out) = arguments.out {
        std::fs::write(out, serde_json::json!({ "summary": summary }).to_string())?;
    }
    Ok(())
}
