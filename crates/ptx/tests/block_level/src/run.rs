//! Many requests, by several workers at once.

use crate::worker::{Outcome, Overseer, Request};
use anyhow::{Result, anyhow};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// All answers, in the order of the requests. Requests of one group go to one worker, one after the other.
pub(crate) fn run(driver: &Path, groups: Vec<Vec<Request>>, jobs: Option<usize>) -> Result<Vec<Vec<Outcome>>> {
    run_until(driver, groups, jobs, |_| false)
}

/// The same, but a group ends with the first answer that is enough.
pub(crate) fn run_until(
    driver: &Path,
    groups: Vec<Vec<Request>>,
    jobs: Option<usize>,
    enough: impl Fn(&Outcome) -> bool + Sync,
) -> Result<Vec<Vec<Outcome>>> {
    let driver = absolute(driver);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut collected = vec![Vec::new(); groups.len()];
    let left = Mutex::new(groups.into_iter().zip(&mut collected));
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            let mut overseer = Overseer::new(&driver);
            loop {
                let Some((requests, answers)) = left.lock().map_err(|_| anyhow!("a thread is lost"))?.next() else {
                    return Ok(());
                };
                for request in &requests {
                    let answer = overseer.ask(request)?;
                    let last = enough(&answer);
                    answers.push(answer);
                    if last {
                        break;
                    }
                }
            }
        };
        let threads: Vec<_> = (0..jobs.unwrap_or(cores)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread is lost"))?)
    })?;
    drop(left);
    Ok(collected)
}

/// A file of that name in this folder is meant before one that the system finds.
fn absolute(driver: &Path) -> PathBuf {
    if driver.exists() { driver.canonicalize().unwrap_or_else(|_| driver.into()) } else { driver.into() }
}
