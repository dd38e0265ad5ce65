//! Modules of the program on their way to having versions beside them.
//!
//! Rewriting and compiling takes a thread of its own as long as it takes. Loading is another matter: the driver waits for the
//! device then, and keeps other threads from launching meanwhile; a program that holds a stream until its next call would
//! wait for ever. So a compiled module is loaded when this process has nothing left to do on the device: by the thread that
//! has just found that out, or by ours. In such a moment the originals are asked for their registers, too, before the versions are
//! compiled: that loads them where nobody has launched them yet.

use super::cache::{self, KernelParts, Layout, Parts, VersionParts};
use super::loaded::{Compiled, Loaded, compile, limits};
use super::source::{self, Found, Origin};
use super::{Controls, decided, versions};
use crate::background;
use crate::boundary::guarded;
use crate::coroutine::{self, Coroutine};
use crate::relaxed::Relaxed;
use crate::{bind, log, settings, steps, tenant};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use detshare_board::clock;
use detshare_cuda::types::CUcontext;
use detshare_ptx::ast::{FunctionKind, Item, Module, Variable};
use detshare_ptx::block_level::{Limit, Refusal, Version, rewrite};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How often our thread looks whether a compiled module can be loaded.
const AGAIN: Duration = Duration::from_millis(2);

/// One module or library of the program.
struct Record {
    /// Where it is launched; nothing as long as nobody knows.
    coroutine: Option<&'static Coroutine>,
    is_library: bool,
    state: State,
    /// What went wrong without harm.
    notes: Vec<String>,
}

enum State {
    /// No daemon has said yet whether it is to have versions.
    Undecided(Found),
    Found(Found),
    /// Somebody works on it.
    Taken,
    /// Nobody has asked for the originals' registers.
    Rewritten(Box<Parts>),
    /// It can be compiled with as many registers as they have.
    Counted(Box<Parts>, Vec<Limit>),
    Compiled(Arc<Compiled>),
    Loaded(Arc<Loaded>),
    /// Its originals run, for this reason.
    Nothing(String),
}

impl State {
    /// Whether it waits for a moment in which the GPU has nothing to do.
    const fn waits(&self) -> bool {
        matches!(self, Self::Rewritten(_) | Self::Compiled(_))
    }
}

struct Modules {
    records: BTreeMap<usize, Record>,
    /// The context that our thread calls the driver in.
    working_for: Option<&'static Coroutine>,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Modules {}
static MODULES: Mutex<Modules> = Mutex::new(Modules { records: BTreeMap::new(), working_for: None });
static CHANGED: Condvar = Condvar::new();
static STARTED: AtomicBool = AtomicBool::new(false);
/// Whether anything waits for a moment in which the GPU has nothing to do.
static PENDING: AtomicBool = AtomicBool::new(false);
/// Held by whoever loads or unloads versions.
static LOADING: Mutex<()> = Mutex::new(());

fn modules() -> MutexGuard<'static, Modules> {
    MODULES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn loading() -> MutexGuard<'static, ()> {
    LOADING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program has loaded this.
pub(super) fn add(handle: usize, origin: Origin<'_>) {
    let coroutine = coroutine::current();
    if coroutine.is_none() && !origin.is_library {
        return;
    }
    // The answer may have come since the caller looked.
    let known = decided();
    let found = match known {
        Some(false) => return,
        Some(true) => State::Found,
        None => State::Undecided,
    };
    let state = source::find(&origin).map_or_else(State::Nothing, found);
    let record = Record { coroutine, is_library: origin.is_library, state, notes: Vec::new() };
    modules().records.insert(handle, record);
    if known.is_none() {
        decide();
    } else if coroutine.is_some() {
        order(handle);
    }
}

/// What was found before a daemon had answered is prepared or left as it is, as soon as that is known. Whoever adds such a
/// record looks after that, and so does whoever hears the answer: one of the two sees both.
pub(super) fn decide() {
    let Some(is_wanted) = decided() else { return };
    let mut held = modules();
    let undecided = held.records.iter_mut().filter(|(_, record)| matches!(record.state, State::Undecided(_)));
    let mut ordered = Vec::new();
    for (handle, record) in undecided {
        let left = State::Nothing("block level was off when it was loaded".to_string());
        record.state = match core::mem::replace(&mut record.state, left) {
            State::Undecided(found) if is_wanted => State::Found(found),
            _ => continue,
        };
        ordered.extend(record.coroutine.map(|_| *handle));
    }
    drop(held);
    ordered.into_iter().for_each(order);
}

/// Has it prepared, in its time; where a test wants it, at once.
#[inline(never)]
fn order(handle: usize) {
    if settings::get().forced().is_some() {
        let _relaxed = Relaxed::new();
        prepare(handle);
        count(handle);
        prepare(handle);
        load(handle);
        if tenant::membership().is_none() {
            return;
        }
    }
    if !STARTED.swap(true, Ordering::AcqRel) {
        background::thread("detshare-blocks", || guarded((), work));
    }
    CHANGED.notify_all();
}

/// It is about to be unloaded by the program.
pub(super) fn remove(handle: usize) {
    versions::forget_cache_configs(handle);
    let Some(record) = modules().records.remove(&handle) else { return };
    versions::forget(|versions| versions.is_of(handle));
    // Whoever is loading it finds it gone and unloads it again.
    let _loading = loading();
    if let (State::Loaded(loaded), Some(_)) = (&record.state, record.coroutine)
        && let Some(module) = loaded.module
    {
        cu!(cuModuleUnload(module));
    }
}

/// A context is going, and all modules in it.
pub(crate) fn forget(coroutine: &'static Coroutine) {
    let is_there = |record: &Record| record.coroutine.is_some_and(|other| core::ptr::eq(other, coroutine));
    let mut held = modules();
    held.records.retain(|_, record| !is_there(record));
    while held.working_for.is_some_and(|other| core::ptr::eq(other, coroutine)) {
        held = CHANGED.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
    drop(held);
    versions::forget(|versions| versions.belongs_to(coroutine));
    let _loading = loading();
    coroutine.drop_controls();
}

/// What the versions of a kernel are, if they are there. A library that nobody knew where to prepare is prepared now.
pub(super) fn find<T>(
    owner: usize,
    coroutine: &'static Coroutine,
    then: impl FnOnce(&Loaded) -> Option<T>,
) -> Option<T> {
    let mut held = modules();
    let record = held.records.get_mut(&owner)?;
    if record.coroutine.is_none() {
        record.coroutine = Some(coroutine);
        // One of which nothing is decided is ordered when it is.
        let is_ordered = matches!(record.state, State::Found(_));
        drop(held);
        if is_ordered {
            order(owner);
        }
        held = modules();
    }
    let record = held.records.get(&owner)?;
    let is_here = record.coroutine.is_some_and(|other| core::ptr::eq(other, coroutine));
    match &record.state {
        State::Loaded(loaded) if is_here => then(&Arc::clone(loaded)),
        _ => None,
    }
}

/// Whether this module or library has, or is about to have.
pub(super) fn has_versions(owner: usize) -> bool {
    modules().records.get(&owner).is_some_and(|record| !matches!(record.state, State::Nothing(_)))
}

/// What there is to tell of each module: its kernels, or why there are none; and what went wrong.
pub(super) fn for_each(mut tell: impl FnMut(Result<&Loaded, &str>, &[String])) {
    for record in modules().records.values() {
        match &record.state {
            State::Loaded(loaded) => tell(Ok(loaded), &record.notes),
            State::Nothing(reason) => tell(Err(reason), &record.notes),
            State::Undecided(_)
            | State::Found(_)
            | State::Taken
            | State::Rewritten(_)
            | State::Counted(..)
            | State::Compiled(_) => tell(Err("it is being prepared"), &record.notes),
        }
    }
}

pub(crate) fn is_pending() -> bool {
    PENDING.load(Ordering::Relaxed)
}

fn work() {
    Relaxed::for_good();
    let mut held = modules();
    loop {
        let next = held.records.iter().find(|(_, record)| {
            matches!(record.state, State::Found(_) | State::Counted(..))
                && record.coroutine.is_some_and(|coroutine| !coroutine.is_ending())
        });
        let next = next.map(|(handle, record)| (*handle, record.coroutine));
        if let Some((handle, coroutine)) = next {
            held = work_for(held, coroutine, &|| prepare(handle));
        } else {
            drop(look_around(held));
            if is_pending() {
                guarded((), idle);
            }
            super::report::write();
            let pause = if is_pending() { AGAIN } else { super::report::EVERY };
            held = CHANGED.wait_timeout(modules(), pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Does something in a context, whose end waits for it.
fn work_for(
    mut held: MutexGuard<'static, Modules>,
    coroutine: Option<&'static Coroutine>,
    body: &dyn Fn(),
) -> MutexGuard<'static, Modules> {
    held.working_for = coroutine;
    drop(held);
    guarded((), body);
    held = modules();
    held.working_for = None;
    CHANGED.notify_all();
    held
}

/// Lets the GPU see the steps of those who are there.
fn look_around(mut held: MutexGuard<'static, Modules>) -> MutexGuard<'static, Modules> {
    let Some(membership) = tenant::membership() else { return held };
    for coroutine in coroutine::all() {
        if let Some(controls) = coroutine.controls().filter(|_| !coroutine.is_ending()) {
            let is_idle = || !bind::capturing() && !steps::is_busy(membership) && coroutine.is_idle();
            held = work_for(held, Some(coroutine), &|| in_context(coroutine, || controls.look(membership, &is_idle)));
        }
    }
    held
}

/// Rewrites it, or compiles what came of that.
fn prepare(handle: usize) {
    let taken = {
        let mut held = modules();
        let Some(record) = held.records.get_mut(&handle) else { return };
        let Some(coroutine) = record.coroutine else { return };
        match core::mem::replace(&mut record.state, State::Taken) {
            State::Found(found) => Ok(found),
            State::Counted(parts, limits) => Err((parts, limits, coroutine)),
            other => {
                record.state = other;
                return;
            }
        }
    };
    let mut notes = Vec::new();
    let made = guarded(Err("an internal error".to_string()), || match taken {
        Ok(found) => {
            let parts = make_parts(found, &mut notes)?;
            let is_empty = parts.source.is_none();
            Ok(if is_empty { compiled(parts, None) } else { State::Rewritten(Box::new(parts)) })
        }
        Err((parts, limits, coroutine)) => {
            let source = parts.source.as_deref().unwrap_or_default();
            let image = in_context(coroutine, || compile(source, &limits))?;
            Ok(compiled(*parts, Some(image)))
        }
    });
    let mut held = modules();
    let Some(record) = held.records.get_mut(&handle) else { return };
    record.notes.append(&mut notes);
    record.state = made.unwrap_or_else(|reason| {
        log::line(format_args!("a module stays as it is: {reason}"));
        State::Nothing(reason)
    });
    super::report::changed();
    PENDING.store(true, Ordering::Relaxed);
}

fn compiled(parts: Parts, image: Option<Vec<u8>>) -> State {
    State::Compiled(Arc::new(Compiled { parts, image }))
}

/// The rewritten module: from the cache, or made now and kept there.
fn make_parts(found: Found, notes: &mut Vec<String>) -> Result<Parts, String> {
    let text = found.text()?;
    let folder = cache::folder();
    let key = folder.as_ref().map(|_| cache::key(&text));
    if let (Some(folder), Some(key)) = (&folder, key) {
        let (kept, wrong) = cache::read(folder, key);
        notes.extend(wrong);
        if let Some(parts) = kept {
            return Ok(parts);
        }
    }
    let module = detshare_ptx::parse(&text).map_err(|error| format!("its PTX is not understood: {error}"))?;
    let rewritten = rewrite(&module, &text);
    let version = |made: Result<Version, Refusal>| {
        let Version { name, work_offset, whole_rows } = made.map_err(|refusal| refusal.to_string())?;
        Ok(VersionParts { name, work_offset, whole_rows })
    };
    let kernels = rewritten.kernels.into_iter().map(|kernel| KernelParts {
        layout: layout(&module, &kernel.name, kernel.parameters_size),
        sliced: version(kernel.sliced),
        preemptible: version(kernel.preemptible),
        name: kernel.name,
    });
    let parts = Parts {
        kernels: kernels.collect(),
        source: rewritten.source,
        borrowed: rewritten.borrowed.into_iter().map(|it| (it.variable, it.slot)).collect(),
    };
    if let (Some(folder), Some(key)) = (folder, key) {
        notes.extend(cache::write(&folder, key, &parts).err());
    }
    Ok(parts)
}

/// Where the parameters of a kernel lie.
fn layout(module: &Module, name: &str, size: u32) -> Layout {
    let kernel = module.items.iter().find_map(|item| match item {
        Item::Function(function) if function.kind == FunctionKind::Kernel && function.name == name => Some(function),
        _ => None,
    });
    let mut end: u64 = 0;
    let place = |parameter: &Variable| {
        let element = parameter.ty.size() as u64 * u64::from(parameter.vector.unwrap_or(1));
        let dimensions = parameter.declarators.iter().flat_map(|it| it.dimensions.iter());
        let count = dimensions.fold(1, |count: u64, size| count.saturating_mul(size.unwrap_or(0)));
        let begin = end.next_multiple_of(parameter.align.map_or(element, u64::from).max(1));
        let bytes = element.saturating_mul(count);
        end = begin.saturating_add(bytes);
        (u32::try_from(begin).unwrap_or(u32::MAX), u32::try_from(bytes).unwrap_or(u32::MAX))
    };
    Layout { parameters: kernel.into_iter().flat_map(|kernel| kernel.parameters.iter()).map(place).collect(), size }
}

/// Something is compiled, and the program, which is about to launch, always has something to do: once in a while it waits a
/// little until all is over, with all its threads that launch, so that there is a moment to load.
pub(super) fn make_a_moment() {
    /// How long it waits at most, and how long it is left alone then; twice as long each time that it waited in vain.
    const LONGEST_NS: u64 = 100_000_000;
    const ALONE_NS: u64 = 500_000_000;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static IN_VAIN: AtomicU32 = AtomicU32::new(0);
    /// Until when other threads wait as well.
    static UNTIL: AtomicU64 = AtomicU64::new(0);
    let (started, next) = (clock::now(), NEXT.load(Ordering::Relaxed));
    while is_pending() && clock::now() < UNTIL.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    if started < next || NEXT.compare_exchange(next, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    // The first time only the clock is set: mostly there is a moment soon.
    UNTIL.store(if next == 0 { 0 } else { started.saturating_add(LONGEST_NS) }, Ordering::Relaxed);
    while next != 0 && is_pending() && clock::now().saturating_sub(started) < LONGEST_NS {
        steps::look();
        idle();
        std::thread::yield_now();
    }
    UNTIL.store(0, Ordering::Relaxed);
    let in_vain = if next != 0 && is_pending() { IN_VAIN.fetch_add(1, Ordering::Relaxed) } else { 0 };
    NEXT.store(clock::now().saturating_add(ALONE_NS << in_vain.min(8)), Ordering::Relaxed);
}

/// The GPU has nothing of this process to do, as far as is known: what is compiled is loaded.
pub(crate) fn idle() {
    // Asking a stream that is captured would end the capture, and so would what loading asks, of any thread.
    if bind::capturing() || tenant::membership().is_some_and(steps::is_busy) {
        return;
    }
    let _relaxed = Relaxed::new();
    let ready: Vec<_> = {
        let held = modules();
        let ready = held.records.iter().filter(|(_, record)| record.state.waits());
        ready.filter_map(|(handle, record)| Some((*handle, record.coroutine?))).collect()
    };
    for (handle, coroutine) in ready {
        in_context(coroutine, || {
            if coroutine.is_idle() {
                count(handle);
                load(handle);
            }
        });
    }
    // Whoever has made something ready meanwhile has said so with the same lock held.
    let held = modules();
    PENDING.store(held.records.values().any(|record| record.state.waits()), Ordering::Relaxed);
}

/// Does something with a context current, and puts the thread's own back.
fn in_context<T>(coroutine: &Coroutine, body: impl FnOnce() -> T) -> T {
    let mut before = CUcontext(null_mut());
    cu!(cuCtxGetCurrent(&raw mut before));
    cu!(cuCtxSetCurrent(coroutine.context()));
    let done = body();
    cu!(cuCtxSetCurrent(before));
    done
}

/// Asks for the originals' registers in their context, which is current, if the module waits for that.
fn count(handle: usize) {
    // Who is about to unload the originals has taken the record away, and waits for this.
    let Ok(_loading) = LOADING.try_lock() else { return };
    let (parts, is_library) = {
        let mut held = modules();
        let Some(record) = held.records.get_mut(&handle) else { return };
        match core::mem::replace(&mut record.state, State::Taken) {
            State::Rewritten(parts) => (parts, record.is_library),
            other => {
                record.state = other;
                return;
            }
        }
    };
    let found = limits(&parts, handle, is_library);
    if let Some(record) = modules().records.get_mut(&handle) {
        record.state = State::Counted(parts, found);
    }
    CHANGED.notify_all();
}

/// Loads it in its context, which is current, if it waits for that.
fn load(handle: usize) {
    let Ok(_loading) = LOADING.try_lock() else { return };
    let found = {
        let held = modules();
        held.records.get(&handle).and_then(|record| match &record.state {
            State::Compiled(compiled) => Some((Arc::clone(compiled), record.coroutine?, record.is_library)),
            _ => None,
        })
    };
    let Some((compiled, coroutine, is_library)) = found else { return };
    if coroutine.is_ending() || coroutine.context().0.is_null() {
        return;
    }
    let loaded = coroutine.make_controls().and_then(|_: &Controls| Loaded::new(&compiled, handle, is_library));
    let mut held = modules();
    match held.records.get_mut(&handle) {
        Some(record) => record.state = loaded.map_or_else(State::Nothing, |loaded| State::Loaded(Arc::new(loaded))),
        None => {
            if let Ok(Loaded { module: Some(module), .. }) = loaded {
                cu!(cuModuleUnload(module));
            }
        }
    }
    drop(held);
    versions::renew_all();
    super::report::changed();
}
