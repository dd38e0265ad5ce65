//! The watching thread: waits for memory to change, and for modelled time to pass.

use super::{Done, Fate, finish, now};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::Duration;

/// How long a write of the program to watched memory may go unnoticed.
const GLANCE: Duration = Duration::from_micros(20);

struct Condition {
    holds: Box<dyn FnMut() -> bool + Send>,
    done: Arc<Done>,
    fate: Arc<Fate>,
}

#[derive(Default)]
struct Watched {
    conditions: Vec<Condition>,
    times: BinaryHeap<Reverse<(u64, usize)>>,
    /// What completes at those times, by number.
    timed: std::collections::HashMap<usize, Arc<Done>>,
    next: usize,
}

struct Watcher {
    watched: Mutex<Watched>,
    changed: Condvar,
}

static WATCHER: LazyLock<&'static Watcher> = LazyLock::new(|| {
    let watcher: &'static Watcher = Box::leak(Box::new(Watcher { watched: Mutex::default(), changed: Condvar::new() }));
    std::thread::Builder::new()
        .name("softgpu-watch".into())
        .spawn(move || watch(watcher))
        .expect("the system has room for a thread");
    watcher
});

/// Completes it once the condition holds.
pub(super) fn until(holds: Box<dyn FnMut() -> bool + Send>, done: Arc<Done>, fate: Arc<Fate>) {
    let mut watched = WATCHER.watched.lock().expect("no panic while it is held");
    watched.conditions.push(Condition { holds, done, fate });
    WATCHER.changed.notify_one();
}

/// Completes it at that time, by [`now`]; at once if that has passed.
pub(crate) fn complete_at(time: u64, done: &Arc<Done>) {
    if time <= now() {
        return finish(done);
    }
    let mut watched = WATCHER.watched.lock().expect("no panic while it is held");
    let number = watched.next;
    watched.next += 1;
    watched.times.push(Reverse((time, number)));
    watched.timed.insert(number, Arc::clone(done));
    WATCHER.changed.notify_one();
}

fn watch(watcher: &'static Watcher) {
    let mut watched = watcher.watched.lock().expect("no panic while it is held");
    loop {
        let over = take_over(&mut watched);
        if !over.is_empty() {
            drop(watched);
            over.iter().for_each(|done| finish(done));
            watched = watcher.watched.lock().expect("no panic while it is held");
            continue;
        }
        let pause = match (watched.conditions.is_empty(), watched.times.peek()) {
            (true, None) => None,
            (true, Some(Reverse((time, _)))) => Some(Duration::from_nanos(time.saturating_sub(now()))),
            (false, None) => Some(GLANCE),
            (false, Some(Reverse((time, _)))) => Some(GLANCE.min(Duration::from_nanos(time.saturating_sub(now())))),
        };
        watched = match pause {
            None => watcher.changed.wait(watched).expect("no panic while it is held"),
            Some(pause) => watcher.changed.wait_timeout(watched, pause).expect("no panic while it is held").0,
        };
    }
}

/// Removes what is over.
fn take_over(watched: &mut Watched) -> Vec<Arc<Done>> {
    let mut over = Vec::new();
    let mut index = 0;
    while index < watched.conditions.len() {
        let condition = &mut watched.conditions[index];
        if condition.fate.check().is_err() || (condition.holds)() {
            over.push(watched.conditions.swap_remove(index).done);
        } else {
            index += 1;
        }
    }
    let time = now();
    while let Some(Reverse((due, number))) = watched.times.peek().copied()
        && due <= time
    {
        watched.times.pop();
        over.extend(watched.timed.remove(&number));
    }
    over
}
