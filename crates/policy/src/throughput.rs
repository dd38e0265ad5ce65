//! Everybody at once, on all SMs: what one leaves idle, the others use. Nobody is held and nobody is protected.

use crate::{Lane, Launch, Reason, Verdict, View};

pub(crate) fn decide(_: &Launch, _: &View<'_>) -> Verdict {
    Verdict::run(Lane::Full, Reason::Free)
}
