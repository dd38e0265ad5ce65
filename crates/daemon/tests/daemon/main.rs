//! The daemon as a process, with tenants that are made of the board alone.

mod child;
mod churn;
mod config;
mod garbage;
mod house;
mod http;
mod mps;
mod profiles;
mod start;
mod tenant;
mod tenants;

use std::time::{Duration, Instant};

/// Long enough for a machine that has much else to do; nothing waits that long unless it fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at something that another process does.
const LOOK: Duration = Duration::from_millis(5);

/// Looks until it is so.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never came: {what}");
        std::thread::sleep(LOOK);
    }
}
