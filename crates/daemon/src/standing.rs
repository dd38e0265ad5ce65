//! Latency tenants whose step stands still, as policies see it.

use detshare_board::{Outlook, TenantState};
use detshare_policy::stall::{self, Launches};

/// What was seen of one tenant so far.
#[derive(Debug)]
pub(crate) struct Standing {
    launches: Launches,
    stalled: bool,
}

impl Standing {
    pub(crate) const NEW: Self = Self { launches: Launches::UNSEEN, stalled: false };

    /// Looks once more. Says whether it stands still, if that has changed.
    pub(crate) fn look(&mut self, is_urgent: bool, state: &TenantState, outlook: &Outlook, now: u64) -> Option<bool> {
        let launched = self.launches.seen(state.launched, now);
        let is_stalled = stall::is_stalled((outlook.begun, launched), outlook.lasts_ns, now);
        let stalled = is_urgent && state.step.is_busy() && is_stalled;
        (std::mem::replace(&mut self.stalled, stalled) != stalled).then_some(stalled)
    }

    pub(crate) const fn is_stalled(&self) -> bool {
        self.stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use detshare_board::{Class, Tenant, TenantView};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn who_stops_in_the_middle_of_a_step_stands_still_until_it_goes_on() {
        let tenant = Tenant::create(Class::Latency).unwrap();
        let view = TenantView::map(tenant.file()).unwrap();
        let mut standing = Standing::NEW;
        let mut look = |now| standing.look(true, &view.read(now), &view.outlook(now), now);
        assert_eq!((look(SECOND), look(60 * SECOND)), (None, None), "idle for long");
        tenant.launch();
        tenant.set_begun(60 * SECOND);
        assert_eq!([61, 65, 66, 67].map(|second| look(second * SECOND)), [None, None, None, Some(true)]);
        assert_eq!(look(100 * SECOND), None, "said once");
        tenant.launch();
        assert_eq!(look(101 * SECOND), Some(false), "it goes on");
        assert_eq!(look(107 * SECOND), Some(true));
        assert!(tenant.finish(2, 0));
        assert_eq!(look(108 * SECOND), Some(false), "its step is over");
    }

    #[test]
    fn who_answers_nobody_may_take_its_time() {
        let tenant = Tenant::create(Class::BestEffort).unwrap();
        let view = TenantView::map(tenant.file()).unwrap();
        tenant.launch();
        tenant.set_begun(SECOND);
        let mut standing = Standing::NEW;
        for now in [SECOND, 100 * SECOND] {
            assert_eq!(standing.look(false, &view.read(now), &view.outlook(now), now), None);
        }
        assert!(!standing.is_stalled());
    }
}
