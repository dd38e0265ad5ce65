//! What versions a function has, by the handle that it is launched by, found without a lock.
//!
//! What was found counts until anything has changed: modules that came or went, attributes that were set. Then it is looked
//! up again, and the versions get the attributes that the original has.

use super::cache::Layout;
use super::loaded::{self, Launchable};
use super::{CARRIED, prepared};
use crate::call::is_ok;
use crate::coroutine::Coroutine;
use crate::handles::Handles;
use crate::kernel::{self, Shape};
use crate::module;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use detshare_cuda::types::{CUfunc_cache, CUfunc_st, CUfunction, CUfunction_attribute as Attribute};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

static VERSIONS: Handles<Versions> = Handles::new();
/// Changes with everything that may change what is found.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// One function's.
#[derive(Default)]
pub(crate) struct Versions {
    /// When it was looked up.
    seen: AtomicU64,
    owner: AtomicUsize,
    coroutine: AtomicPtr<Coroutine>,
    layout: AtomicPtr<Layout>,
    sliced: One,
    preemptible: One,
    /// What a block of the original may have.
    most_threads: AtomicU32,
    most_shared: AtomicU32,
    /// A launch of it did not end while it was waited for.
    avoided: AtomicBool,
}

/// One version.
#[derive(Default)]
struct One {
    function: AtomicPtr<CUfunc_st>,
    work_offset: AtomicU32,
    whole_rows: AtomicBool,
}

impl One {
    fn set(&self, version: Option<Launchable>) {
        self.work_offset.store(version.map_or(0, |it| it.work_offset), Ordering::Relaxed);
        self.whole_rows.store(version.is_some_and(|it| it.whole_rows), Ordering::Relaxed);
        self.function.store(version.map_or(null_mut(), |it| it.function.0), Ordering::Relaxed);
    }

    /// None if there is no such version, or not for such blocks.
    fn get(&self, shape: &Shape) -> Option<Launchable> {
        const WARP: u32 = 32;
        let function = self.function.load(Ordering::Relaxed);
        let whole_rows = self.whole_rows.load(Ordering::Relaxed);
        let can_be = !function.is_null() && (!whole_rows || shape.block[0].is_multiple_of(WARP));
        let work_offset = self.work_offset.load(Ordering::Relaxed);
        can_be.then_some(Launchable { function: CUfunction(function), work_offset, whole_rows })
    }
}

impl Versions {
    pub(super) fn sliced(&self, shape: &Shape) -> Option<Launchable> {
        self.sliced.get(shape)
    }

    pub(super) fn preemptible(&self, shape: &Shape) -> Option<Launchable> {
        self.preemptible.get(shape)
    }

    pub(super) fn layout(&self) -> Option<&'static Layout> {
        // SAFETY: NULL, or from `interned`, which never frees any.
        unsafe { self.layout.load(Ordering::Relaxed).as_ref() }
    }

    /// Whether the original takes such blocks: a version might take more.
    pub(super) fn takes(&self, shape: &Shape) -> bool {
        shape.threads <= self.most_threads.load(Ordering::Relaxed)
            && shape.shared <= self.most_shared.load(Ordering::Relaxed)
    }

    /// From now on the original is launched.
    pub(super) fn avoid(&self) {
        self.avoided.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_of(&self, owner: usize) -> bool {
        self.owner.load(Ordering::Relaxed) == owner
    }

    pub(super) fn belongs_to(&self, coroutine: &Coroutine) -> bool {
        core::ptr::eq(self.coroutine.load(Ordering::Relaxed), coroutine)
    }

    fn can_be_used(&self, coroutine: &Coroutine) -> bool {
        !self.layout.load(Ordering::Relaxed).is_null()
            && !self.avoided.load(Ordering::Relaxed)
            && self.belongs_to(coroutine)
    }
}

/// The versions of a function, if it has any that can be launched in this context.
pub(super) fn of(function: CUfunction, coroutine: &'static Coroutine) -> Option<&'static Versions> {
    let generation = GENERATION.load(Ordering::Acquire);
    let known = VERSIONS.find(function.0.addr()).filter(|known| known.seen.load(Ordering::Acquire) == generation);
    known.unwrap_or_else(|| look_up(function, coroutine, generation)).as_used(coroutine)
}

impl Versions {
    fn as_used(&'static self, coroutine: &Coroutine) -> Option<&'static Self> {
        self.can_be_used(coroutine).then_some(self)
    }
}

#[cold]
fn look_up(function: CUfunction, coroutine: &'static Coroutine, generation: u64) -> &'static Versions {
    let handle = function.0.addr();
    let owner = module::owner(handle).unwrap_or(0);
    let name = kernel::name(function);
    let found = prepared::find(owner, coroutine, |loaded| {
        let kernel = loaded.kernels.iter().find(|kernel| kernel.name == name)?;
        let usable = |version: &loaded::Callable| version.as_ref().ok().copied();
        Some((kernel.layout, usable(&kernel.sliced), usable(&kernel.preemptible)))
    });
    let found = found.filter(|(_, sliced, preemptible)| sliced.is_some() || preemptible.is_some());
    if let Some((_, sliced, preemptible)) = found {
        let is_set = |(of, known, _): &&(usize, String, _)| *of == owner && *known == name;
        let cache = cache_configs().iter().find(is_set).map(|(.., config)| *config);
        for version in sliced.into_iter().chain(preemptible) {
            carry_attributes(function, version.function);
            if let Some(config) = cache {
                cu!(cuFuncSetCacheConfig(version.function, config));
            }
        }
    }
    let (layout, sliced, preemptible) = found.map_or((null_mut(), None, None), |(layout, sliced, preemptible)| {
        (core::ptr::from_ref(layout).cast_mut(), sliced, preemptible)
    });
    let is_known = VERSIONS.find(handle).is_some();
    VERSIONS.insert(handle, |versions| {
        versions.owner.store(owner, Ordering::Relaxed);
        versions.coroutine.store(core::ptr::from_ref(coroutine).cast_mut(), Ordering::Relaxed);
        versions.layout.store(layout, Ordering::Relaxed);
        let most = |attribute| kernel::attribute(function, attribute).map_or(0, super::natural);
        versions.most_threads.store(most(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), Ordering::Relaxed);
        let shared = most(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        versions.most_shared.store(shared, Ordering::Relaxed);
        versions.sliced.set(sliced);
        versions.preemptible.set(preemptible);
        if !is_known {
            versions.avoided.store(false, Ordering::Relaxed);
        }
        // Pairs with the acquire in `of`.
        versions.seen.store(generation, Ordering::Release);
    })
}

/// A version gets what the program has set of the original.
fn carry_attributes(original: CUfunction, version: CUfunction) {
    for attribute in CARRIED {
        if let (Some(wanted), now) = (kernel::attribute(original, attribute), kernel::attribute(version, attribute))
            && now != Some(wanted)
            && !is_ok(cu!(cuFuncSetAttribute(version, attribute, wanted)))
            && attribute == Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        {
            // All that there is, where the version has some of it for itself. A launch that needs it is refused, and the original runs.
            let own = |of| kernel::attribute(of, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES).unwrap_or(0);
            cu!(cuFuncSetAttribute(version, attribute, wanted - (own(version) - own(original))));
        }
    }
}

/// What programs have set that no driver can be asked for, with module or library and name. Few programs set any.
fn cache_configs() -> MutexGuard<'static, Vec<(usize, String, CUfunc_cache)>> {
    static CONFIGS: Mutex<Vec<(usize, String, CUfunc_cache)>> = Mutex::new(Vec::new());
    CONFIGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program prefers that for a kernel.
pub(super) fn set_cache_config(function: CUfunction, config: CUfunc_cache) {
    if let Some(owner) = module::owner(function.0.addr()) {
        let name = kernel::name(function);
        let mut configs = cache_configs();
        configs.retain(|(other, known, _)| *other != owner || *known != name);
        configs.push((owner, name, config));
        drop(configs);
        renew_all();
    }
}

/// A module or library is going, and what was set of its kernels.
pub(super) fn forget_cache_configs(owner: usize) {
    cache_configs().retain(|(other, ..)| *other != owner);
}

/// Something of this function was set. Programs set things before each launch, mostly of kernels that have no versions.
pub(super) fn renew(handle: usize) {
    if module::owner(handle).is_some_and(prepared::has_versions) {
        renew_all();
    }
}

/// All are looked up again.
pub(super) fn renew_all() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Those for which this holds are gone.
pub(super) fn forget(gone: impl FnMut(&'static Versions) -> bool) {
    VERSIONS.remove_if(gone);
    renew_all();
}

/// A layout that stays. There are few that differ.
pub(super) fn interned(layout: &Layout) -> &'static Layout {
    static LAYOUTS: Mutex<Option<HashSet<&'static Layout>>> = Mutex::new(None);
    let mut layouts = LAYOUTS.lock().unwrap_or_else(PoisonError::into_inner);
    let layouts = layouts.get_or_insert_default();
    if let Some(known) = layouts.get(layout) {
        return known;
    }
    let new: &'static Layout = Box::leak(Box::new(layout.clone()));
    layouts.insert(new);
    new
}
