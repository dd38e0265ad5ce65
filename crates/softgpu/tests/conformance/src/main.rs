//! What a CUDA driver must do, asked of any driver library: a real one, one that stands in for it, or one
//! without a GPU behind it.
//!
//! Each test runs in a process of its own, which opens the library anew: a fault, a leak or a hang of one does
//! not reach the next. The process that starts them never touches the driver.
//!
//! A real driver is right by definition. So a test asserts what the manual or a driver's well-known behaviour
//! promises; where neither settles the exact code, it writes a note of what it saw.
//!
//! `conformance --driver /usr/lib/x86_64-linux-gnu/libcuda.so.1 stream:: event::elapsed`

#[macro_use]
mod call;
mod codes;
mod gpu;
mod graph_parts;
mod kernels;
mod processes;
mod runner;

mod array;
mod blocks_are_clusters;
mod capture;
mod cluster;
mod context;
mod copy_batch;
mod core_dump;
mod device;
mod dynamic_parallelism;
mod errors;
mod event;
mod external_semaphore;
mod graph;
mod graph_conditional;
mod graph_edges;
mod graph_exec;
mod graph_memory;
mod graph_update;
mod green_context;
mod host_functions;
mod ipc;
mod kernel_calls;
mod launch;
mod launch_parts;
mod library;
mod lifetimes;
mod logs;
mod managed;
mod memory;
mod memory_copy;
mod module;
mod module_images;
mod occupancy;
mod peer;
mod pool;
mod proc_address;
mod stream;
mod stream_memory;
mod stream_order;
mod tensor_copies;
mod tensor_map;
mod tensor_map_replace;
mod user_object;
mod virtual_memory;

use anyhow::{Context, Result};
use clap::Parser;
use detshare_cuda::Driver;
use detshare_test_child::patience;
use serde_json::json;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a test gives: nothing, or why it stopped. [`call::Skipped`] among the errors is no failure.
type Outcome = Result<()>;
/// A name and what to run.
type Test = (&'static str, fn(&Driver) -> Outcome);

/// One table for each file, the most ordinary behaviour first.
const TABLES: [&[Test]; 44] = [
    device::TESTS,
    dynamic_parallelism::TESTS,
    context::TESTS,
    memory::TESTS,
    memory_copy::TESTS,
    lifetimes::TESTS,
    managed::TESTS,
    array::TESTS,
    copy_batch::TESTS,
    virtual_memory::TESTS,
    ipc::TESTS,
    peer::TESTS,
    module::TESTS,
    module_images::TESTS,
    launch::TESTS,
    launch_parts::TESTS,
    cluster::TESTS,
    blocks_are_clusters::TESTS,
    tensor_map::TESTS,
    tensor_map_replace::TESTS,
    tensor_copies::TESTS,
    stream::TESTS,
    stream_order::TESTS,
    event::TESTS,
    host_functions::TESTS,
    kernel_calls::TESTS,
    library::TESTS,
    occupancy::TESTS,
    graph::TESTS,
    graph_exec::TESTS,
    graph_update::TESTS,
    graph_edges::TESTS,
    graph_memory::TESTS,
    graph_conditional::TESTS,
    user_object::TESTS,
    capture::TESTS,
    pool::TESTS,
    stream_memory::TESTS,
    external_semaphore::TESTS,
    green_context::TESTS,
    proc_address::TESTS,
    errors::TESTS,
    core_dump::TESTS,
    logs::TESTS,
];

#[derive(Parser)]
#[command(about = "What a CUDA driver must do, asked of any driver library")]
struct Arguments {
    /// The driver library to ask
    #[arg(long, required_unless_present = "list")]
    driver: Option<PathBuf>,
    /// Where to write the verdicts as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Fail where a test noted other codes than in these verdicts of another driver
    #[arg(long)]
    same_codes_as: Option<PathBuf>,
    /// How many seconds one test may take
    #[arg(long, default_value_t = runner::TIME_LIMIT_S)]
    limit: u32,
    /// How many tests run at once, each in its own process
    #[arg(long, default_value_t = NonZeroUsize::MIN)]
    jobs: NonZeroUsize,
    /// Only print the tests' names
    #[arg(long)]
    list: bool,
    /// Run the tests whose name contains one of these
    filters: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let wanted = |name: &str| arguments.filters.is_empty() || arguments.filters.iter().any(|part| name.contains(part));
    let tests = TABLES.iter().flat_map(|table| table.iter()).filter(|(name, _)| wanted(name));
    match arguments.driver.as_ref().filter(|_| !arguments.list) {
        Some(driver) => run(driver, tests, &arguments),
        None => {
            tests.for_each(|(name, _)| println!("{name}"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run<'a>(driver: &Path, mut tests: impl Iterator<Item = &'a Test>, arguments: &Arguments) -> Result<ExitCode> {
    let others = arguments.same_codes_as.as_deref().map(codes::read).transpose()?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut verdicts = Vec::new();
    let mut running = VecDeque::new();
    loop {
        while running.len() < arguments.jobs.get()
            && let Some(test) = tests.next()
        {
            running.push_back(runner::start(driver, test, patience(arguments.limit))?);
        }
        let Some(oldest) = running.pop_front() else { break };
        let mut report = oldest.finish()?;
        if let Some(difference) = others.as_ref().and_then(|others| codes::difference(others, &report)) {
            report.fail(difference);
        }
        match report.verdict {
            runner::Verdict::Ok => passed += 1,
            runner::Verdict::Failed => failed += 1,
            runner::Verdict::Skipped => skipped += 1,
        }
        println!("{report}");
        verdicts.push(report.as_json());
    }
    let summary = format!("{passed} passed, {failed} failed, {skipped} skipped");
    println!("{summary}");
    if let Some(out) = &arguments.out {
        let text = format!("{:#}\n", json!({ "summary": summary, "tests": verdicts }));
        std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
