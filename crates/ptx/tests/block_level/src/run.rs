//! Many requests, by several workers at once.

use crate::overseer::{Means, Overseer};
use crate::worker::{Outcome, Request};
use anyhow::{Result, anyhow};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is left of a group, with its number and that of its first request.
type Left<'r> = (usize, usize, &'r [Request]);

/// All answers, in the order of the requests; groups are begun in their order. Requests of one group go to one worker, one after the
/// other, until an answer is enough. Each answer is told, with the numbers of its group and request, as it comes. Where the
/// time is over, answers are missing.
pub(crate) fn run<'r>(
    means: &Means,
    groups: &'r [Vec<Request>],
    tell: impl Fn(usize, usize, &Outcome) + Sync,
    enough: impl Fn(&Outcome) -> bool + Sync,
) -> Result<Vec<Vec<Outcome>>> {
    let answers = Mutex::new(vec![Vec::new(); groups.len()]);
    let left: VecDeque<Left<'r>> = groups.iter().enumerate().map(|(number, group)| (number, 0, &group[..])).collect();
    let left = Mutex::new(left);
    let judge = |overseer: &mut Overseer<'_>, (group, first, requests): Left<'r>| -> Result<()> {
        for (index, request) in requests.iter().enumerate() {
            if means.is_over() {
                return Ok(());
            }
            if let Err(error) = overseer.ready() {
                // Others may have more luck with it.
                locked(&left).push_back((group, first + index, &requests[index..]));
                return Err(error);
            }
            let Some(answer) = overseer.ask(request)? else { return Ok(()) };
            tell(group, first + index, &answer);
            let last = enough(&answer);
            locked(&answers)[group].push(answer);
            if last {
                break;
            }
        }
        Ok(())
    };
    let work = || -> Result<()> {
        let mut overseer = Overseer::new(means);
        loop {
            let next = locked(&left).pop_front();
            let Some(next) = next.filter(|_| !means.is_over()) else { return Ok(()) };
            judge(&mut overseer, next)?;
        }
    };
    let failures: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..means.jobs).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread is lost")).flatten());
        ended.filter_map(Result::err).collect()
    });
    let nobody_works = failures.len() == means.jobs;
    for failure in failures {
        if nobody_works && !means.is_over() {
            return Err(failure);
        }
        eprintln!("one worker fewer: {failure:#}");
    }
    Ok(answers.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
