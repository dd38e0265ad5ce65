//! What is on the board, as policies see it.

use detshare_board::{Class, Entry, Objective, Outlook, Step};
use detshare_policy::phase::Phase;
use detshare_policy::{Member, Rhythm};

fn rhythm(outlook: &Outlook) -> Rhythm {
    let Outlook { due: due_ns, spread_ns, gap_ns, lasts_ns, needs, phase, pace_ns, wider, .. } = *outlook;
    let Outlook { begun: begun_ns, prompt: prompt_since_ns, ended: ended_ns, soon_ns, long_ns, .. } = *outlook;
    let phase = Phase::from_number(phase);
    let pauses = Rhythm { ended_ns, soon_ns, long_ns, wider, ..Rhythm::UNKNOWN };
    Rhythm { due_ns, spread_ns, gap_ns, lasts_ns, needs, phase, pace_ns, begun_ns, prompt_since_ns, ..pauses }
}

pub(super) fn policy_class(class: Class) -> detshare_policy::Class {
    match class {
        Class::Latency => detshare_policy::Class::Latency,
        Class::BestEffort => detshare_policy::Class::BestEffort,
    }
}

/// A tenant as the policy sees it. Without an outlook nothing is known of what it will do.
pub(super) fn member(slot: u8, entry: &Entry, step: Step, waiting: bool, outlook: Option<Outlook>) -> Member {
    let Objective { ttft_ns, tpot_ns, .. } = entry.objective;
    Member {
        slot,
        class: policy_class(entry.class),
        weight: entry.weight,
        busy: step.is_busy(),
        waiting,
        rhythm: outlook.as_ref().map_or(Rhythm::UNKNOWN, rhythm),
        ttft_ns,
        tpot_ns,
        strained: outlook.is_some_and(|outlook| outlook.strained),
    }
}
