//! What LLM servers can do alone, and from that how much they are sent at each load.

use super::arm::{self, Arm};
use super::figures::Figures;
use super::llm_flags::Offered;
use super::measured::MeasuredError;
use super::output::{Output, OutputError};
use super::replay::Replay;
use super::runner::{Ground, Runner};
use super::scenario::{Program, Trace};
use super::schedule::Schedule;
use super::service;
use super::session::SessionError;
use crate::quantity;
use std::borrow::Cow;

/// What a server was seen to do with all requests at once, in requests a second.
struct Seen {
    /// With decode steps that are always full.
    capacity: f64,
    /// With the steps as they were.
    saturated: Option<f64>,
}

impl Runner<'_> {
    /// Finds out what each server is sent at each load; nothing to do where there are no servers.
    pub(crate) fn plan(&mut self) -> Result<(), SessionError> {
        let Some(llm) = &self.settings.llm else { return Ok(()) };
        let servers: Vec<(&'static Program, Trace)> = self.settings.scenario.servers().collect();
        let at_once = |server: &(&'static Program, Trace)| Replay::at_once(server.0, server.1, llm.source());
        let seconds = self.settings.seconds;
        self.replays = match &llm.offered {
            Offered::Rates(rates) => {
                let pairs = servers.iter().zip(rates);
                pairs.map(|(server, rate)| at_once(server).at_rate(*rate, seconds)).collect()
            }
            Offered::Loads(loads) => {
                let mut replays = Vec::new();
                for server in &servers {
                    let mut replay = at_once(server);
                    let known = llm.capacities.iter().find(|(name, _)| name == replay.program);
                    let capacity = match known {
                        Some((_, capacity)) => *capacity,
                        None => {
                            let seen = self.capacity(server.0, &replay)?;
                            replay.saturated = seen.saturated;
                            seen.capacity
                        }
                    };
                    super::rounds::say(&format!(
                        "{} can do {} requests a second alone",
                        replay.program,
                        quantity::number(capacity)
                    ));
                    let at = |load: &f64| replay.at_load(*load, capacity, servers.len(), seconds);
                    replays.extend(loads.iter().map(at));
                }
                replays
            }
        };
        self.replays.iter().filter_map(Replay::warning).for_each(|line| super::rounds::say(&line));
        Ok(())
    }

    fn capacity(&self, program: &'static Program, replay: &Replay) -> Result<Seen, SessionError> {
        super::rounds::say(&format!("what {} can do alone …", program.name));
        let folder = self.scratch.join("capacity");
        let schedule = Schedule::of_servers(self.settings.seconds);
        let done =
            self.session(arm::BARE_ALONE, &Ground::Bare, &[program], &schedule, &[replay], &folder, &mut Vec::new());
        let _ = std::fs::remove_dir_all(&folder);
        let seen = match done?.outputs.first() {
            Some(Output::Answers(answers)) => {
                answers.capacity().map(|capacity| Seen { capacity, saturated: answers.per_second() })
            }
            _ => None,
        };
        let nothing = MeasuredError::Output { program: program.name, source: OutputError::Nothing };
        seen.ok_or(SessionError::Program(nothing))
    }

    /// What servers are sent at a load.
    pub(crate) fn replays_at(&self, load: Option<f64>) -> Vec<&Replay> {
        self.replays.iter().filter(|replay| replay.load == load).collect()
    }

    /// What of a program's output has figures: all, but for the first requests of a server.
    pub(crate) fn counted<'a>(&self, load: Option<f64>, program: &Program, output: &'a Output) -> Cow<'a, Output> {
        let mine = self.replays.iter().find(|replay| replay.load == load && replay.program == program.name);
        match (mine, output) {
            (Some(replay), Output::Answers(answers)) => Cow::Owned(Output::Answers(replay.counted(answers))),
            _ => Cow::Borrowed(output),
        }
    }

    /// How a server kept to its objectives; those that nobody gave come from the first run alone, and so does how busy it is.
    pub(crate) fn hold_to_objectives(
        &mut self,
        arm: Arm,
        load: Option<f64>,
        program: &Program,
        output: &Output,
        busy: Option<f64>,
        figures: &mut Option<Figures>,
    ) {
        let mine = self.replays.iter_mut().find(|replay| replay.load == load && replay.program == program.name);
        let (Some(replay), Output::Answers(answers), Some(Figures::Tokens(found))) = (mine, output, figures) else {
            return;
        };
        if arm.name == arm::ALONE {
            replay.busy_alone = replay.busy_alone.or(busy);
            replay.objectives = replay.objectives.or_from_alone(found);
        }
        found.kept = service::kept(answers, replay.objectives);
    }
}
