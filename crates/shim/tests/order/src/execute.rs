//! Running a program on a driver, and comparing what it left with what it must leave.

mod graph;
mod value;
mod work;

use crate::machine::{Break, Handle, Machine};
use crate::program::{Cell, DEFAULT_STREAMS, LEGACY, On, Op, PINNED_CELLS, Program, Step, StreamId, Work};
use crate::reference::{Expected, Memory};
use anyhow::{Context, Result, anyhow, bail};
use core::ffi::{c_int, c_uint};
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_cuda::types::{
    CUdeviceptr, CUdeviceptr_v2, CUevent, CUevent_flags, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream,
    CUstream_flags,
};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// A value that is not what it must be.
pub(crate) struct Difference {
    place: String,
    expected: u32,
    found: u32,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} instead of {}", self.place, self.found, self.expected)
    }
}

/// What a function of the host changes, and how.
struct HostCall {
    cell: &'static AtomicU32,
    add: u32,
}

/// Words between the host's threads.
struct Signals {
    state: Mutex<SignalState>,
    changed: Condvar,
}

struct SignalState {
    given: Vec<bool>,
    /// How many threads have steps left.
    running: usize,
    /// A thread has failed: nobody waits any more.
    stopped: bool,
}

impl Signals {
    fn new(program: &Program) -> Self {
        let state = SignalState { given: vec![false; program.signals], running: program.threads, stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut SignalState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until it is so, or something has failed.
    fn wait(&self, until: impl Fn(&SignalState) -> bool) -> Result<()> {
        let waiting = |state: &mut SignalState| !state.stopped && !until(state);
        let state = self.changed.wait_while(self.lock(), waiting).unwrap_or_else(PoisonError::into_inner);
        if state.stopped {
            bail!(Stopped);
        }
        Ok(())
    }
}

/// Another thread has failed.
#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("another thread has failed")
    }
}

/// A program that runs.
struct Run<'r> {
    machine: &'r Machine<'r>,
    program: &'r Program,
    expected: &'r Expected,
    streams: Vec<OnceLock<Handle<CUstream>>>,
    events: Vec<OnceLock<Handle<CUevent>>>,
    pool: Vec<OnceLock<Handle<CUdeviceptr>>>,
    graphs: Vec<OnceLock<Handle<CUgraph>>>,
    nodes: Vec<OnceLock<Handle<Vec<CUgraphNode>>>>,
    execs: Vec<OnceLock<Handle<CUgraphExec>>>,
    /// For each step, and for each node of each graph. The driver has their addresses until the end.
    host_calls: Vec<Option<HostCall>>,
    graph_host_calls: Vec<Vec<Option<HostCall>>>,
    signals: Signals,
    differences: Mutex<Vec<Difference>>,
}

fn empty<T>(count: usize) -> Vec<OnceLock<T>> {
    (0..count).map(|_| OnceLock::new()).collect()
}

fn get<T: Copy>(table: &[OnceLock<Handle<T>>], index: usize) -> Result<T> {
    table[index].get().map(|handle| handle.0).context("used before it was made: the generator is wrong")
}

fn put<T>(table: &[OnceLock<Handle<T>>], index: usize, handle: T) -> Result<()> {
    table[index].set(Handle(handle)).map_err(|_| anyhow!("made twice: the generator is wrong"))
}

/// Runs the program. Gives what differs; fails where a call fails.
pub(crate) fn run(machine: &Machine, program: &Program, expected: &Expected) -> Result<Vec<Difference>> {
    machine.reset(&Memory::initial(program))?;
    let host_call = |work: &Work| match *work {
        Work::Host { cell: Cell::Pinned(index), add } => Some(HostCall { cell: machine.pinned.word(index), add }),
        _ => None,
    };
    let in_step = |step: &Step| match &step.op {
        Op::Run { work, .. } => host_call(work),
        _ => None,
    };
    let run = Run {
        machine,
        program,
        expected,
        streams: empty(program.streams),
        events: empty(program.events.len()),
        pool: empty(program.pool_cells),
        graphs: empty(program.graphs.len()),
        nodes: empty(program.graphs.len()),
        execs: empty(program.execs),
        host_calls: program.steps.iter().map(in_step).collect(),
        graph_host_calls: program
            .graphs
            .iter()
            .map(|graph| graph.iter().map(|node| host_call(&node.work)).collect())
            .collect(),
        signals: Signals::new(program),
        differences: Mutex::default(),
    };
    run.prepare()?;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let spawned = (1..program.threads).map(|thread| scope.spawn(move || run_thread(run, thread)));
        let others: Vec<_> = spawned.collect();
        let first = run_thread(run, 0);
        let others = others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked"))));
        core::iter::once(first).chain(others).collect()
    });
    let errors = outcomes.into_iter().filter_map(Result::err);
    if let Some(error) = errors.min_by_key(anyhow::Error::is::<Stopped>) {
        // The driver may still use what it was given.
        core::mem::forget(run);
        return Err(error);
    }
    ok!(machine, cuCtxSynchronize());
    run.compare()?;
    run.clean_up()?;
    Ok(run.differences.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn run_thread(run: &Run, thread: usize) -> Result<()> {
    let outcome = run.thread(thread);
    if outcome.is_err() {
        run.signals.change(|state| state.stopped = true);
        (0..crate::program::GATES).for_each(|gate| run.machine.gates.set(gate, 1));
    }
    outcome
}

impl Run<'_> {
    fn prepare(&self) -> Result<()> {
        for (event, kind) in self.program.events.iter().enumerate() {
            let mut flags = if kind.timing { 0 } else { CUevent_flags::CU_EVENT_DISABLE_TIMING.0 };
            if kind.blocking_sync {
                flags |= CUevent_flags::CU_EVENT_BLOCKING_SYNC.0;
            }
            put(&self.events, event, self.new_event(flags)?)?;
        }
        self.program.prepared.iter().try_for_each(|op| self.perform(0, op))
    }

    fn new_event(&self, flags: c_uint) -> Result<CUevent> {
        let mut event = CUevent(null_mut());
        ok!(self.machine, cuEventCreate(&raw mut event, flags));
        Ok(event)
    }

    /// The thread's steps. It stays until all threads are through, and with it its default stream.
    fn thread(&self, thread: usize) -> Result<()> {
        self.machine.enter()?;
        for (index, step) in self.program.steps.iter().enumerate().filter(|(_, step)| step.thread == thread) {
            self.perform(index, &step.op).map_err(|error| match error.is::<Stopped>() {
                true => error,
                false => error.context(format!("step {index}, {}", step.op)),
            })?;
        }
        self.signals.change(|state| state.running -= 1);
        self.signals.wait(|state| state.running == 0)
    }

    /// The stream as the call names it.
    fn stream(&self, on: On) -> Result<CUstream> {
        let default = on.stream < DEFAULT_STREAMS;
        let broken = if on.stream == LEGACY { Break::LegacyOrder } else { Break::PerThreadOrder };
        Ok(match on.stream {
            _ if default && self.machine.is_broken(broken) => self.machine.elsewhere,
            _ if on.null => CUstream(null_mut()),
            LEGACY => CUstream(without_provenance_mut(1)),
            _ if default => CUstream(without_provenance_mut(2)),
            stream => get(&self.streams, stream)?,
        })
    }

    fn address(&self, cell: Cell) -> Result<CUdeviceptr> {
        match (self.machine.fixed(cell), cell) {
            (None, Cell::Pool(index)) => get(&self.pool, index),
            (address, _) => address.context("a cell without an address"),
        }
    }

    fn differ(&self, place: impl FnOnce() -> String, expected: u32, found: u32) {
        if expected != found {
            let mut differences = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
            differences.push(Difference { place: place(), expected, found });
        }
    }

    /// Compares what a step has read.
    fn check(&self, step: usize, cell: Cell, found: u32) {
        let expected = self.expected.reads[step].unwrap_or_default();
        self.differ(|| format!("{cell} as read in step {step}"), expected, found);
    }

    fn perform(&self, index: usize, op: &Op) -> Result<()> {
        let machine = self.machine;
        match *op {
            Op::Run { on, work, manner } => self.work(on, work, manner, self.host_calls[index].as_ref())?,
            Op::ReadBack { on, cell } => {
                let (mut found, address) = (0_u32, self.address(cell)?);
                ok_on!(machine, on, cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds((&raw mut found).cast(), address, WORD));
                self.check(index, cell, found);
            }
            Op::WriteIn { on, cell, value } => {
                let address = self.address(cell)?;
                let from = (&raw const value).cast();
                ok_on!(machine, on, cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(address, from, WORD));
            }
            Op::HostCheck { cell } => self.check(index, cell, host_word(machine, cell)?.load(Ordering::SeqCst)),
            Op::HostStep { cell, add } => update(host_word(machine, cell)?, add),
            Op::StreamCreate { stream, blocking, priority } => self.create_stream(stream, blocking, priority)?,
            Op::StreamDestroy { stream } => ok!(machine, cuStreamDestroy_v2(get(&self.streams, stream)?)),
            Op::StreamSync { .. } if machine.is_broken(Break::StreamSync) => (),
            Op::StreamSync { on } => {
                ok_on!(machine, on, cuStreamSynchronize | cuStreamSynchronize_ptsz(self.stream(on)?));
            }
            Op::StreamQuery { on } if on.per_thread_variant => {
                until_done("cuStreamQuery_ptsz", || Ok(cu!(machine, cuStreamQuery_ptsz(self.stream(on)?))))?;
            }
            Op::StreamQuery { on } => {
                until_done("cuStreamQuery", || Ok(cu!(machine, cuStreamQuery(self.stream(on)?))))?;
            }
            Op::ContextSync if machine.is_broken(Break::ContextSync) => (),
            Op::ContextSync => ok!(machine, cuCtxSynchronize()),
            Op::EventRecord { event, on } => {
                let event = get(&self.events, event)?;
                ok_on!(machine, on, cuEventRecord | cuEventRecord_ptsz(event, self.stream(on)?));
            }
            Op::EventWait { .. } if machine.is_broken(Break::WaitEvent) => (),
            Op::EventWait { event, on } => {
                let event = get(&self.events, event)?;
                ok_on!(machine, on, cuStreamWaitEvent | cuStreamWaitEvent_ptsz(self.stream(on)?, event, 0));
            }
            Op::EventSync { .. } if machine.is_broken(Break::EventSync) => (),
            Op::EventSync { event } => ok!(machine, cuEventSynchronize(get(&self.events, event)?)),
            Op::EventQuery { event } => {
                let event = get(&self.events, event)?;
                until_done("cuEventQuery", || Ok(cu!(machine, cuEventQuery(event))))?;
            }
            Op::EventDestroy { event } => ok!(machine, cuEventDestroy_v2(get(&self.events, event)?)),
            Op::WriteValue { on, flag, value, batch } => self.write_value(on, machine.flag(flag), value, batch)?,
            Op::WaitValue { .. } if machine.is_broken(Break::WaitValue) => (),
            Op::WaitValue { on, flag, value, batch } => self.wait_value(on, machine.flag(flag), value, batch)?,
            Op::Hold { on, gate } => self.wait_value(on, machine.gates.at(gate), 1, false)?,
            Op::Open { gate } => machine.gates.set(gate, 1),
            Op::Allocate { on, cell } => self.allocate(on, cell)?,
            Op::Free { on, cell } => {
                let (address, stream) = (self.address(cell)?, self.stream(on)?);
                ok_on!(machine, on, cuMemFreeAsync | cuMemFreeAsync_ptsz(address, stream));
            }
            Op::Capture { graph, on, aside, ref parts } => self.capture(graph, on, aside, parts)?,
            Op::Build { graph } => self.build(graph)?,
            Op::Instantiate { graph, exec } => self.instantiate(graph, exec)?,
            Op::GraphLaunch { exec, on } => {
                let exec = get(&self.execs, exec)?;
                ok_on!(machine, on, cuGraphLaunch | cuGraphLaunch_ptsz(exec, self.stream(on)?));
            }
            Op::SetParameters { exec, node, work } => self.set_parameters(exec, node, work)?,
            Op::SetEnabled { exec, node, enabled } => self.set_enabled(exec, node, enabled)?,
            Op::Update { exec, graph } => self.update(exec, graph)?,
            Op::Upload { exec, on } => {
                let exec = get(&self.execs, exec)?;
                ok_on!(machine, on, cuGraphUpload | cuGraphUpload_ptsz(exec, self.stream(on)?));
            }
            Op::GraphDestroy { graph } => ok!(machine, cuGraphDestroy(get(&self.graphs, graph)?)),
            Op::ExecDestroy { exec } => ok!(machine, cuGraphExecDestroy(get(&self.execs, exec)?)),
            Op::Signal { number } => self.signals.change(|state| state.given[number] = true),
            Op::Await { number } => self.signals.wait(|state| state.given[number])?,
        }
        Ok(())
    }

    fn create_stream(&self, stream: StreamId, blocking: bool, priority: c_int) -> Result<()> {
        let blocking = blocking && !self.machine.is_broken(Break::BlockingFlag);
        let flags = if blocking { CUstream_flags::CU_STREAM_DEFAULT } else { CUstream_flags::CU_STREAM_NON_BLOCKING };
        let mut handle = CUstream(null_mut());
        if priority == 0 {
            ok!(self.machine, cuStreamCreate(&raw mut handle, flags.0));
        } else {
            ok!(self.machine, cuStreamCreateWithPriority(&raw mut handle, flags.0, priority));
        }
        put(&self.streams, stream, handle)
    }

    fn allocate(&self, on: On, cell: Cell) -> Result<()> {
        let Cell::Pool(index) = cell else { bail!("{cell} is not allocated in a stream") };
        let (mut address, stream) = (CUdeviceptr_v2(0), self.stream(on)?);
        ok_on!(self.machine, on, cuMemAllocAsync | cuMemAllocAsync_ptsz(&raw mut address, WORD, stream));
        put(&self.pool, index, address)
    }

    fn compare(&self) -> Result<()> {
        let expected = &self.expected.memory;
        let device = self.machine.device_cells(self.program.device_cells)?;
        for (index, (expected, found)) in expected.device.iter().zip(device).enumerate() {
            self.differ(|| format!("{} at the end", Cell::Device(index)), *expected, found);
        }
        for (index, expected) in expected.pinned.iter().enumerate().take(PINNED_CELLS) {
            let found = self.machine.pinned.get(index);
            self.differ(|| format!("{} at the end", Cell::Pinned(index)), *expected, found);
        }
        Ok(())
    }

    /// Destroys what the program has left. Everything is over.
    fn clean_up(&self) -> Result<()> {
        let machine = self.machine;
        let gone = |is_it: &dyn Fn(&Op) -> bool| self.program.steps.iter().any(|step| is_it(&step.op));
        for (index, handle) in handles(&self.streams) {
            if !gone(&|op| matches!(op, Op::StreamDestroy { stream } if *stream == index)) {
                ok!(machine, cuStreamDestroy_v2(handle));
            }
        }
        for (index, handle) in handles(&self.events) {
            if !gone(&|op| matches!(op, Op::EventDestroy { event } if *event == index)) {
                ok!(machine, cuEventDestroy_v2(handle));
            }
        }
        for (index, handle) in handles(&self.execs) {
            if !gone(&|op| matches!(op, Op::ExecDestroy { exec } if *exec == index)) {
                ok!(machine, cuGraphExecDestroy(handle));
            }
        }
        for (index, handle) in handles(&self.graphs) {
            if !gone(&|op| matches!(op, Op::GraphDestroy { graph } if *graph == index)) {
                ok!(machine, cuGraphDestroy(handle));
            }
        }
        for (index, address) in handles(&self.pool) {
            if !gone(&|op| matches!(op, Op::Free { cell, .. } if *cell == Cell::Pool(index))) {
                ok!(machine, cuMemFreeAsync(address, CUstream(null_mut())));
            }
        }
        Ok(())
    }
}

/// The bytes of a cell.
const WORD: usize = size_of::<u32>();

fn handles<T: Copy>(table: &[OnceLock<Handle<T>>]) -> impl Iterator<Item = (usize, T)> {
    table.iter().enumerate().filter_map(|(index, handle)| Some((index, handle.get()?.0)))
}

fn host_word(machine: &Machine, cell: Cell) -> Result<&'static AtomicU32> {
    match cell {
        Cell::Pinned(index) => Ok(machine.pinned.word(index)),
        _ => bail!("the host cannot reach {cell}"),
    }
}

/// Reads and writes apart, so that two of these at once show.
fn update(cell: &AtomicU32, add: u32) {
    cell.store(cell.load(Ordering::SeqCst).wrapping_mul(7).wrapping_add(add), Ordering::SeqCst);
}

fn until_done(call: &str, query: impl Fn() -> Result<CUresult>) -> Result<()> {
    loop {
        match query()? {
            CUresult::CUDA_ERROR_NOT_READY => std::thread::yield_now(),
            code => return crate::call::judge(call, code),
        }
    }
}
