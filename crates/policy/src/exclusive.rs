//! One tenant at a time.
//!
//! Latency tenants go first; among equals turns decide. Whoever has the turn begins when the others have finished what
//! they had launched; they see that it waits and launch nothing more. SMs are not partitioned, so it also works where
//! tenants are time-sliced.

use crate::{Class, Lane, Launch, Member, Reason, Verdict, View, turn};

pub(crate) fn decide(_: &Launch, view: &View<'_>) -> Verdict {
    if !view.others.iter().any(Member::wants) {
        return Verdict::run(Lane::Full, Reason::Free);
    }
    let someone_is_urgent = view.wanting().any(|member| member.class == Class::Latency);
    let first = if someone_is_urgent { Class::Latency } else { Class::BestEffort };
    let among = view.wanting().filter(|member| member.class == first);
    let others = view.others.iter().filter(|other| other.wants());
    turn::hold(view, among, others).unwrap_or(Verdict::run(Lane::Full, Reason::Turn))
}
