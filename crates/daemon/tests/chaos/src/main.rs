//! Daemon and tenants, disturbed: all go on, with the same results, and nothing is left of those who have gone.
//!
//! Everything runs in a private folder on the software GPU: a daemon, and tenants that are an ordinary program, whose
//! results are known after each step, and judged then: also of those that never reach their end. A failure names the round and the seed; the same seed brings the same
//! disturbances, as far as the operating system's timing lets them be the same.
//!
//! | subcommand | what it asks |
//! | --- | --- |
//! | `chaos` | tenants and daemon are killed, stopped, paused and reconfigured: who survives goes on, and joins again |
//! | `crowd` | as many tenants as there are slots at once, and one more, which goes on alone; they leave in halves, together, and killed |
//! | `idle-cost` | the daemon's CPU time while tenants are busy, with its saves and somebody who asks who is there |
//! | `churn` | thousands come and go: the daemon does not grow |
//! | `hostile` | a tenant's page holds anything, changing all the time: to the others it is no worse than a busy one |
//!
//! Whatever takes 10 s is stuck. How soon survivors go on and what the daemon costs is judged where an option says so, and how long
//! tenants take beside a liar by how long they take beside an honest one who is busy.

mod chaos;
mod churn;
mod crew;
mod crowd;
mod figures;
mod hostile;
mod house;
mod idle_cost;
mod light;
mod process;
mod random;
mod tenant;
mod undisturbed;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "chaos", about = "Daemon and tenants, disturbed: all go on, with the same results")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Kill, stop, pause and reconfigure at random
    Chaos(chaos::Arguments),
    /// Fill all slots at once, and one more
    Crowd(crowd::Arguments),
    /// Measure the daemon's CPU time while tenants are busy
    IdleCost(idle_cost::Arguments),
    /// Have thousands come and go and look at the daemon's memory
    Churn(churn::Arguments),
    /// Run tenants beside one whose page lies
    Hostile(hostile::Arguments),
    /// Come and go, and die: what churn is made of
    #[command(hide = true)]
    Light { folder: PathBuf, first: u64, count: u64 },
    /// Join and lie
    #[command(hide = true)]
    Liar { folder: PathBuf, seed: u64, model: String, driver: String },
    /// Join and be busy
    #[command(hide = true)]
    Busy { folder: PathBuf, model: String, driver: String },
}

fn main() -> Result<()> {
    match Arguments::parse_from(words()).what {
        What::Chaos(arguments) => chaos::run(&arguments),
        What::Crowd(arguments) => crowd::run(&arguments),
        What::IdleCost(arguments) => idle_cost::run(&arguments),
        What::Churn(arguments) => churn::run(&arguments),
        What::Hostile(arguments) => hostile::run(&arguments),
        What::Light { folder, first, count } => light::come_and_go(&folder, first, count),
        What::Liar { folder, seed, model, driver } => {
            light::lie(&folder, seed, &light::Gpu { model: &model, driver: &driver })
        }
        What::Busy { folder, model, driver } => {
            light::keep_busy(&folder, &light::Gpu { model: &model, driver: &driver })
        }
    }
}

/// The command line; who names no subcommand means the first.
fn words() -> Vec<OsString> {
    let mut words: Vec<_> = std::env::args_os().collect();
    let is_option = |word: &OsString| word.to_string_lossy().starts_with("--") && word != "--help";
    if words.get(1).is_some_and(is_option) {
        words.insert(1, "chaos".into());
    }
    words
}
