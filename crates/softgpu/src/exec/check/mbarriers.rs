//! Barriers in shared memory (`mbarrier`): who waits for a phase comes after those who arrived in it, and after the bytes
//! that it counted.

use super::Place;
use super::clocks::{Clocks, Known};
use crate::exec::mbarrier::State;
use std::collections::HashMap;

/// A barrier as the checker has it.
#[derive(Debug)]
pub(super) struct Mbarrier {
    /// As it is in memory, if nothing but its instructions writes there.
    pub(super) state: State,
    /// Counts its phases.
    agent: u32,
    /// Phases that are over, of all barriers that there were at this place.
    over: u32,
    /// What those know who have arrived in this phase,
    arrived: Known,
    /// and in those that are over. An arrival takes part in a chain of them, so later phases have what earlier ones had.
    done: Known,
}

impl Mbarrier {
    /// Who finishes what comes in this phase, and its count then.
    pub(super) fn phase(&self) -> (u32, u32) {
        (self.agent, self.over + 1)
    }

    /// What those know who wait for the last phase that is over.
    pub(super) fn done(&self) -> &Known {
        &self.done
    }

    /// A new barrier in this place.
    pub(super) fn start(&mut self, count: u32) {
        self.state = State::new(count);
        self.arrived = Known::default();
        self.done = Known::default();
    }

    /// A warp hands on what it knows to who waits for this phase.
    pub(super) fn release(&mut self, clocks: &mut Clocks, warp: u32) {
        clocks.release(warp, &mut self.arrived);
    }

    /// Somebody else finishes so much before this phase is over.
    pub(super) fn finished(&mut self, agent: u32, count: u32) {
        self.arrived.finished(agent, count);
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut State)) {
        let odd = self.state.odd;
        change(&mut self.state);
        if self.state.odd != odd {
            self.over += 1;
            self.done.join(&core::mem::take(&mut self.arrived));
            self.done.finished(self.agent, self.over);
        }
    }
}

/// The barriers of a cluster.
#[derive(Debug, Default)]
pub(super) struct Mbarriers(HashMap<Place, Mbarrier>);

impl Mbarriers {
    /// The barrier in that place, be it that nobody has made one there.
    pub(super) fn at(&mut self, place: Place, clocks: &mut Clocks) -> &mut Mbarrier {
        self.0.entry(place).or_insert_with(|| Mbarrier {
            state: State::new(0),
            agent: clocks.new_agent(),
            over: 0,
            arrived: Known::default(),
            done: Known::default(),
        })
    }
}
