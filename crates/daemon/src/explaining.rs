//! Why a tenant's launches went as they did, with what they took.
//!
//! Few launches are timed while nobody asks. Asking has the tenant time those that follow (`Daemon::ask`), and the answer waits a
//! little for them: only where launches are being made, and never for long, whatever the tenant does. Others are answered meanwhile.

use crate::registry::Decided;
use crate::service::{Refused, Service};
use detshare_api::Explanation;
use detshare_board::clock;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The longest wait: an answer that comes later seems to be none.
const LONGEST: Duration = Duration::from_millis(300);
/// Between two looks.
const AGAIN: Duration = Duration::from_millis(10);
/// Who has launched nothing for so long is not about to.
const STILL: Duration = Duration::from_millis(100);

/// The answer, once there is something in it or nothing more to wait for.
pub(crate) async fn explain(service: &Service, name_or_pid: &str) -> Result<Explanation, Refused> {
    let begun = Instant::now();
    service.ask(name_or_pid)?;
    let first = service.explain(name_or_pid)?;
    while begun.elapsed() < LONGEST
        && service.decided(name_or_pid).is_ok_and(|decided| is_to_come(&decided, clock::now()))
    {
        sleep(AGAIN).await;
    }
    // One who has left meanwhile was there when it was asked about.
    Ok(service.explain(name_or_pid).unwrap_or(first))
}

/// Whether more will be known soon: its launches go on, and of most of the last ones it is not known what they took.
fn is_to_come(decided: &Decided, now: u64) -> bool {
    let Some(last) = decided.decisions.last().filter(|_| !decided.is_paused) else { return false };
    let is_still = Duration::from_nanos(now.saturating_sub(last.at_ns)) >= STILL;
    let measured = decided.decisions.iter().filter(|noted| noted.measured_ns != 0).count();
    // The last of them are under way.
    let has_most = 4 * measured >= 3 * decided.decisions.len();
    !is_still && !has_most
}

#[cfg(test)]
mod tests {
    use super::*;
    use detshare_board::Noted;

    const NOW: u64 = 10_000_000_000;

    /// As many decisions, the last of them so long ago, so many of them measured.
    fn decided(count: u64, measured: u64, ago: Duration) -> Decided {
        let at_ns = NOW - u64::try_from(ago.as_nanos()).unwrap();
        let noted = |number| Noted { at_ns, measured_ns: u64::from(number < measured), ..Noted::default() };
        Decided { decisions: (0..count).map(noted).collect(), is_paused: false }
    }

    #[test]
    fn launches_that_go_on_are_waited_for() {
        let just_now = Duration::from_millis(1);
        assert!(is_to_come(&decided(62, 1, just_now), NOW));
        assert!(is_to_come(&decided(62, 46, just_now), NOW));
        assert!(is_to_come(&decided(1, 0, just_now), NOW));
        assert!(is_to_come(&decided(62, 1, just_now), 5), "a clock that has gone back is no reason not to");
    }

    #[test]
    fn nobody_waits_for_what_does_not_come() {
        let just_now = Duration::from_millis(1);
        assert!(!is_to_come(&decided(0, 0, just_now), NOW), "nothing was decided");
        assert!(!is_to_come(&decided(62, 47, just_now), NOW), "most is there");
        assert!(!is_to_come(&decided(62, 0, STILL), NOW), "it hangs, is held, or has nothing to do");
        assert!(!is_to_come(&Decided { is_paused: true, ..decided(62, 0, just_now) }, NOW));
    }
}
