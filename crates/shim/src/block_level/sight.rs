//! Other tenants' steps where the GPU can see them: a kernel gives way when one begins, whether or not any thread of this
//! process runs.
//!
//! The driver is told of the page with a latency tenant's step word, at a place of its own: on the board pages change hands in place, and
//! what the driver knows of must not. Telling it takes half a millisecond, and nobody waits. That it lets go of a page waits for the
//! device and keeps everybody from launching. So that is done when there is no launch in parts and the GPU has nothing of this
//! process to do, or with the context. Where the driver does not take a page, the launch call looks alone.

use crate::call::is_ok;
use crate::log;
use crate::tenant::Membership;
use core::ffi::{c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use detshare_board::StepPage;
use detshare_cuda::types::CUdeviceptr_v2;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pages that the driver can know of at once, with those of tenants that have left.
const PLACES: usize = 8;
/// `CU_MEMHOSTREGISTER_PORTABLE`, `CU_MEMHOSTREGISTER_DEVICEMAP` and `CU_MEMHOSTREGISTER_READ_ONLY`.
const PORTABLE_MAPPED_AND_READ_ONLY: c_uint = 1 | 2 | 8;

/// What the GPU sees of others.
#[derive(Default)]
pub(super) struct Sight {
    places: [Place; PLACES],
    /// The driver does not take such pages.
    refused: AtomicBool,
}

#[derive(Default)]
struct Place {
    /// Whose it is; 0 is nobody's, or that of one who has left.
    owner: AtomicU64,
    /// Where the GPU finds the word.
    word: AtomicU64,
    /// There while the driver knows of it. Only our thread, and whoever ends the context, change it.
    page: Mutex<Option<StepPage>>,
}

/// One owner of a slot.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) slot: usize,
    /// Never 0.
    pub(super) generation: u32,
}

impl Owner {
    fn bits(self) -> u64 {
        (self.slot as u64) << 32 | u64::from(self.generation)
    }

    fn from_bits(bits: u64) -> Self {
        let generation = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        Self { slot: usize::try_from(bits >> 32).unwrap_or(usize::MAX), generation }
    }
}

impl Place {
    fn page(&self) -> MutexGuard<'_, Option<StepPage>> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver lets go of it.
    fn let_go(&self) {
        let mut page = self.page();
        let start = page.as_ref().map(StepPage::start);
        if start.is_some_and(|start| is_ok(cu!(cuMemHostUnregister(start)))) {
            *page = None;
        }
    }
}

impl Sight {
    /// Where the GPU finds the step word of that owner of a slot. For as long as the caller has a control.
    pub(super) fn find(&self, of: Owner) -> Option<u64> {
        // Sequentially consistent, as is what took the control: see `let_go_of_those_who_left`.
        let is_it = |place: &&Place| place.owner.load(Ordering::SeqCst) == of.bits();
        self.places.iter().find(is_it).map(|place| place.word.load(Ordering::Relaxed))
    }

    /// Looks who is there. For our thread, with the context current.
    pub(super) fn look(&self, membership: &Membership) {
        let there = membership.latency_tenants();
        for place in &self.places {
            let Owner { slot, generation } = Owner::from_bits(place.owner.load(Ordering::Relaxed));
            if there.get(slot).is_none_or(|tenant| *tenant != generation) {
                place.owner.store(0, Ordering::SeqCst);
            }
        }
        for (slot, generation) in there.into_iter().enumerate().filter(|(_, tenant)| *tenant != 0) {
            if self.find(Owner { slot, generation }).is_none() && !self.refused.load(Ordering::Relaxed) {
                self.add(membership, Owner { slot, generation });
            }
        }
    }

    fn add(&self, membership: &Membership, tenant: Owner) {
        let Some((place, mut free)) =
            self.places.iter().map(|place| (place, place.page())).find(|(_, it)| it.is_none())
        else {
            return;
        };
        let Some(page) = membership.step_page(tenant.slot, tenant.generation) else { return };
        let start: *mut c_void = page.start();
        let mut code = cu!(cuMemHostRegister_v2(start, StepPage::BYTES, PORTABLE_MAPPED_AND_READ_ONLY));
        if is_ok(code) {
            *free = Some(page);
            let mut mapped = CUdeviceptr_v2(0);
            code = cu!(cuMemHostGetDevicePointer_v2(&raw mut mapped, start, 0));
            if is_ok(code) {
                place.word.store(mapped.0 + StepPage::WORD as u64, Ordering::Relaxed);
                // Release, for the word: pairs with the load in `find`.
                place.owner.store(tenant.bits(), Ordering::SeqCst);
                return;
            }
        }
        self.refused.store(true, Ordering::Relaxed);
        log::line(format_args!("the GPU cannot see other tenants' steps: error {}", code.0));
    }

    /// The driver lets go of the pages of those who have left, if nobody launches in parts and the GPU has nothing to do.
    pub(super) fn let_go_of_those_who_left(&self, is_unused: impl Fn() -> bool) {
        // Whoever takes a control from here on finds no owner in these places: both are sequentially consistent.
        for place in self.places.iter().filter(|place| place.owner.load(Ordering::SeqCst) == 0) {
            if place.page().is_some() && is_unused() {
                place.let_go();
            }
        }
    }

    /// The context, which is current, is going.
    pub(super) fn end(&self) {
        for place in &self.places {
            place.owner.store(0, Ordering::SeqCst);
            place.let_go();
        }
    }
}
