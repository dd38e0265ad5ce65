//! What a child process measures: one case, under the schedule in its environment.

use crate::Arguments;
use crate::by_hand::{self, Mover};
use crate::case::Case;
use crate::sides::{Graphs, Kernel, Kernels, Wait};
use anyhow::{Result, ensure};
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_bench::figures::{Amount, Side, Times, alternate};
use detshare_bench::program::{Program, memory};
use detshare_bench::{cu, machine};
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUgraph, CUgraphExec, CUstream, CUstream_flags, CUstreamCaptureMode};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Kernels in a graph; the last one counts.
const NODES: u32 = 200;
/// The driver takes some thousand launches before it makes the caller wait; of these graphs it takes fewer.
const BURST: u32 = 100;
const GRAPH_BURST: u32 = 5;
/// A graph launch takes the GPU a hundred times as long as a kernel.
const LAUNCHES_PER_GRAPH: u32 = 20;

pub(crate) fn run(case: Case, arguments: &Arguments) -> Result<Value> {
    match case {
        Case::StartBare => start_up(&arguments.driver),
        Case::StartShim => start_up(&arguments.shim),
        Case::LanesMade | Case::LanesUsed => lanes(case, arguments),
        _ => launches(case, arguments),
    }
}

fn open(path: &Path) -> Result<Driver> {
    Ok(Driver::open(path, Visibility::Local)?)
}

/// From nothing to the end of the first kernel.
fn start_up(library: &Path) -> Result<Value> {
    let start = Instant::now();
    let driver = open(library)?;
    let opened = Instant::now();
    let program = Program::open(&driver)?;
    let mut kernel = Kernel::of(&driver, &program)?;
    kernel.launch(CUstream(null_mut()));
    Wait::of(&driver)?.wait();
    let end = Instant::now();
    let counted = program.counted(&driver)?;
    ensure!(counted == 1, "1 launch, but the GPU counted {counted}");
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(json!({ "from_init_ms": milliseconds(end - opened), "from_open_ms": milliseconds(end - start) }))
}

/// The device memory that goes when the shim makes its lanes in a context that is there already, and when they have
/// all been used.
fn lanes(case: Case, arguments: &Arguments) -> Result<Value> {
    let (bare, shim) = (open(&arguments.driver)?, open(&arguments.shim)?);
    let own = Program::open(&bare)?;
    let wait = Wait::of(&shim)?;
    Kernel::of(&bare, &own)?.launch(CUstream(null_mut()));
    wait.wait();
    let (before, _) = memory(&bare)?;
    let program = Program::open(&shim)?;
    let mut launched = 0;
    if case == Case::LanesUsed {
        let stream = new_stream(&shim)?;
        let mut kernels = Kernels { kernel: Kernel::of(&shim, &program)?, stream, wait };
        for _ in 0..arguments.amount().batches {
            kernels.launch(BURST);
            kernels.wait();
            launched += u64::from(BURST);
        }
    }
    let (after, _) = memory(&bare)?;
    let counted = program.counted(&shim)?;
    ensure!(counted == launched, "{launched} launches, but the GPU counted {counted}");
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let mib = before.saturating_sub(after) as f64 / f64::from(1 << 20);
    Ok(json!({ "mib": mib }))
}

fn new_stream(driver: &Driver) -> Result<CUstream> {
    let mut stream = CUstream(null_mut());
    cu!(driver, cuStreamCreate(&raw mut stream, CUstream_flags::CU_STREAM_NON_BLOCKING.0))?;
    Ok(stream)
}

/// Counts what it passes on.
struct Counting<'a> {
    side: Box<dyn Side + 'a>,
    name: &'static str,
    launched: u64,
}

impl Side for Counting<'_> {
    fn launch(&mut self, times: u32) {
        self.side.launch(times);
        self.launched += u64::from(times);
    }

    fn wait(&mut self) {
        self.side.wait();
    }
}

fn launches(case: Case, arguments: &Arguments) -> Result<Value> {
    let (bare, shim) = (open(&arguments.driver)?, open(&arguments.shim)?);
    let program = Program::open(&shim)?;
    let stream = if case.is_null_stream() { CUstream(null_mut()) } else { new_stream(&shim)? };
    let sides = if case.is_graph() {
        graph_sides(case, arguments, &bare, &shim, &program, stream)?
    } else {
        kernel_sides(case, arguments, &bare, &shim, &program, stream)?
    };
    let mut sides: Vec<Counting> = sides.into_iter().map(|(name, side)| Counting { side, name, launched: 0 }).collect();
    warm_up(&mut sides, arguments.warm_up());

    let mut in_a_row = arguments.amount();
    let mut burst = BURST;
    if case.is_graph() {
        in_a_row.launches = (in_a_row.launches / LAUNCHES_PER_GRAPH).max(1);
        burst = GRAPH_BURST;
    }
    // As many launches in all, in short turns: what drifts hits all sides alike.
    let batches = in_a_row.batches * (in_a_row.launches / burst).max(1);
    let in_bursts = measured(&mut sides, Amount { batches, launches: burst });
    let in_a_row = measured(&mut sides, in_a_row);

    let (launched, counted) = (sides.iter().map(|side| side.launched).sum::<u64>(), program.counted(&shim)?);
    ensure!(counted == launched, "{launched} launches one after the other, but the GPU counted {counted}");
    let through_shim = sides.iter().find(|side| side.name == "shim").map(|side| side.launched);
    Ok(json!({
        "in_bursts": in_bursts,
        "in_a_row": in_a_row,
        "counted": counted,
        "launched_through_shim": through_shim,
        "on": machine::facts(&bare, program.device)?,
    }))
}

/// Launches for a while without timing it: by then the shim has its copies of graphs, and the GPU its clock.
fn warm_up(sides: &mut [Counting], time: Duration) {
    /// Where launches are slow, each lane still gets some.
    const ROUNDS: u32 = 10;
    let (start, mut rounds) = (Instant::now(), 0);
    while rounds < ROUNDS || start.elapsed() < time {
        rounds += 1;
        for side in &mut *sides {
            side.launch(GRAPH_BURST);
            side.wait();
        }
    }
}

fn measured(sides: &mut [Counting], amount: Amount) -> Value {
    let names: Vec<&str> = sides.iter().map(|side| side.name).collect();
    let mut each: Vec<&mut dyn Side> = sides.iter_mut().map(|side| side as &mut dyn Side).collect();
    let times = alternate(&mut each, amount);
    let of = |name| names.iter().position(|other| *other == name).map(|position| &times[position]);
    let median = |name| of(name).map(Times::median);
    let (bare, by_hand, shim) = (median("bare"), median("by_hand"), median("shim"));
    let difference = |from: Option<f64>, to: Option<f64>| Some(to? - from?);
    json!({
        "launches_in_a_row": amount.launches,
        "bare_ns": of("bare").map(Times::json),
        "by_hand_ns": of("by_hand").map(Times::json),
        "shim_ns": of("shim").map(Times::json),
        "added_ns": difference(bare, shim),
        "of_which_driver_ns": difference(bare, by_hand),
        "of_which_ours_ns": difference(by_hand.or(bare), shim),
    })
}

type Sides<'a> = Vec<(&'static str, Box<dyn Side + 'a>)>;

fn kernel_sides<'a>(
    case: Case,
    arguments: &Arguments,
    bare: &Driver,
    shim: &Driver,
    program: &Program,
    stream: CUstream,
) -> Result<Sides<'a>> {
    let wait = Wait::of(shim)?;
    let kernels = |driver, stream| -> Result<Box<dyn Side + 'a>> {
        Ok(Box::new(Kernels { kernel: Kernel::of(driver, program)?, stream, wait }))
    };
    let mut sides: Sides = vec![("bare", kernels(bare, stream)?), ("shim", kernels(shim, stream)?)];
    if case == Case::OtherLane {
        let [front, _] = by_hand::split(bare, program.device, arguments.split)?;
        let wait = Wait::for_stream(bare, front.stream)?;
        let kernel = Kernel::of(bare, program)?;
        sides.push(("by_hand", Box::new(Kernels { kernel, stream: front.stream, wait })));
    }
    if case.moves() {
        let greens = by_hand::others(bare, program.device, case, arguments.split)?;
        let streams = [new_stream(bare)?].into_iter().chain(greens.iter().map(|green| green.stream)).collect();
        sides.push(("by_hand", Box::new(Mover::new(bare, Kernel::of(bare, program)?, streams)?)));
    }
    Ok(sides)
}

fn graph_sides<'a>(
    case: Case,
    arguments: &Arguments,
    bare: &Driver,
    shim: &Driver,
    program: &Program,
    stream: CUstream,
) -> Result<Sides<'a>> {
    // A context that is waited for may leave out kernels of other contexts; the stream has them all.
    let wait = Wait::for_stream(shim, stream)?;
    let graph = capture(shim, program, stream)?;
    let mut executable = CUgraphExec(null_mut());
    cu!(shim, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0))?;
    let mut sides: Sides = vec![
        ("bare", Box::new(Graphs::new(bare, vec![executable], stream, wait)?)),
        ("shim", Box::new(Graphs::new(shim, vec![executable], stream, wait)?)),
    ];
    if case.moves() {
        let mut copies = vec![executable];
        for green in by_hand::others(bare, program.device, case, arguments.split)? {
            copies.push(by_hand::copy_into(bare, graph, green.context)?);
        }
        sides.push(("by_hand", Box::new(Graphs::new(bare, copies, stream, wait)?)));
    }
    Ok(sides)
}

/// Empty kernels one after the other, and one that counts.
fn capture(shim: &Driver, program: &Program, stream: CUstream) -> Result<CUgraph> {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    cu!(shim, cuStreamBeginCapture_v2(stream, mode))?;
    for _ in 1..NODES {
        let mut none: [*mut c_void; 0] = [];
        let (none, extra) = (none.as_mut_ptr(), null_mut());
        cu!(shim, cuLaunchKernel(program.empty, 1, 1, 1, 1, 1, 1, 0, stream, none, extra))?;
    }
    Kernel::of(shim, program)?.launch(stream);
    let mut graph = CUgraph(null_mut());
    cu!(shim, cuStreamEndCapture(stream, &raw mut graph))?;
    Ok(graph)
}
