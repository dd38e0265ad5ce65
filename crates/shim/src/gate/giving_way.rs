//! Whether a part of a kernel that is running is to give way, and to whose steps it will.

use super::{Answer, Asked, Part, SAID, Said, ask};
use crate::coroutine::Coroutine;
use crate::hot::HOT;
use crate::kernel::Profile;
use crate::stream::Logical;
use crate::tenant::{Membership, membership};
use core::sync::atomic::Ordering;
use detshare_board::clock;
use detshare_policy::{Class, Decision, Lane, Member, Reason, Rhythm, Verdict};

/// Whoever decides, if the policy does.
fn deciding() -> Option<&'static Membership> {
    membership().filter(|membership| !HOT.scheduled.load(Ordering::Relaxed) && membership.is_connected())
}

/// Whether a part that is running would be held if it were to begin now, or would not have all SMs any more because somebody
/// else is to have some of them.
pub(crate) fn must_give_way(
    coroutine: &'static Coroutine,
    logical: &'static Logical,
    profile: &'static Profile,
    part: Part,
) -> bool {
    let Some(membership) = deciding() else { return false };
    match ask(membership, Some(&Asked { coroutine, logical, profile, part: Some(part) })) {
        Answer::Hold(..) | Answer::Paused => true,
        Answer::Run(lane, reason) => leaves(part, lane, reason),
    }
}

fn leaves(part: Part, lane: Lane, reason: Reason) -> bool {
    part.has_all && lane != Lane::Full && reason == Reason::Beside
}

/// The latency tenants, by the bits of their slots, to whose step a part would have to give way if one began while it runs.
/// Those that want the GPU already are not among them: it was let pass with them.
pub(crate) fn gives_way_to(
    coroutine: &'static Coroutine,
    logical: &'static Logical,
    profile: &'static Profile,
    part: Part,
) -> u64 {
    let Some(membership) = deciding() else { return 0 };
    let asked = Asked { coroutine, logical, profile, part: Some(part) };
    let slots = SAID.try_with(|said| {
        let mut said = said.try_borrow_mut().ok()?;
        said.read_again(membership);
        Some(said.gives_way_to(membership, &asked, part))
    });
    slots.ok().flatten().unwrap_or(0)
}

impl Said {
    fn gives_way_to(&mut self, membership: &Membership, asked: &Asked, part: Part) -> u64 {
        let now_ns = clock::now();
        self.look_at_members(membership, now_ns);
        let (launch, in_flight_ns) = (asked.launch(now_ns), asked.in_flight_ns(now_ns));
        let mut slots = 0;
        for index in 0..self.members.len() {
            let before = self.members[index];
            if before.class != Class::Latency || before.busy || before.waiting {
                continue;
            }
            let rhythm = Rhythm { begun_ns: now_ns, ..before.rhythm };
            self.members[index] = Member { busy: true, rhythm, ..before };
            let Verdict { decision, reason, .. } = self.verdict(membership, &launch, in_flight_ns, None, now_ns);
            self.members[index] = before;
            let must = match decision {
                Decision::Hold(_) => true,
                Decision::Run(lane) => leaves(part, lane, reason),
            };
            slots |= u64::from(must) << before.slot;
        }
        slots
    }
}

/// When the first of these tenants' steps began that has begun since then, as they say.
pub(crate) fn begun_since(slots: u64, then: u64) -> Option<u64> {
    let (membership, now) = (membership()?, clock::now());
    let views = membership.others.iter().enumerate().filter(|(slot, _)| slots >> slot & 1 != 0);
    views.map(|(_, view)| view.outlook(now).begun).filter(|begun| *begun >= then).min()
}
