//! How much LLM servers are sent at each load: the part of the time in which they would be busy alone.
//!
//! At first a server gets many requests at once, alone. From what its steps take then its scheduler is run again on paper, with the same
//! requests further apart, until it is busy for as long as it should be.

use super::answers::Answers;
use super::arm::{self, Arm};
use super::bound::{Logged, Server};
use super::figures::Figures;
use super::llm_flags::Offered;
use super::measured::MeasuredError;
use super::output::{Output, OutputError};
use super::replay::Replay;
use super::runner::{Ground, Runner, Scene};
use super::scenario::{Program, Trace};
use super::schedule::Schedule;
use super::service;
use super::session::SessionError;
use crate::quantity;
use std::borrow::Cow;

impl Runner<'_> {
    /// Finds out what each server is sent at each load; nothing to do where there are no servers.
    pub(crate) fn plan(&mut self) -> Result<(), SessionError> {
        let Some(llm) = &self.settings.llm else { return Ok(()) };
        let servers: Vec<(&'static Program, Trace)> = self.settings.scenario.servers().collect();
        let at_once = |server: &(&'static Program, Trace)| Replay::at_once(server.0, server.1, llm.source());
        let seconds = self.settings.seconds;
        self.replays = match &llm.offered {
            Offered::Rates(rates, load) => {
                let pairs = servers.iter().zip(rates);
                let replay =
                    |(server, rate): (&(_, Trace), &f64)| at_once(server).at_rate(*rate, seconds).of_load(*load);
                pairs.map(replay).collect()
            }
            Offered::Loads(loads) => {
                let mut replays = Vec::new();
                for server in &servers {
                    let mut replay = at_once(server);
                    let answers = self.all_at_once(server.0, &replay)?;
                    replay.saturated = answers.per_second();
                    for load in loads {
                        let at_load = at_load(&replay, &answers, (*load, servers.len()), seconds);
                        replays.push(at_load.ok_or_else(|| nothing(server.0))?);
                    }
                }
                replays
            }
        };
        for replay in &self.replays {
            if let Some(load) = replay.load {
                let rate = quantity::number(replay.per_second);
                super::rounds::say(&format!("load {load} of {} is {rate} requests a second", replay.program));
            }
            replay.warning().iter().for_each(|line| super::rounds::say(line));
        }
        Ok(())
    }

    /// What a server does alone with many requests at once.
    fn all_at_once(&self, program: &'static Program, replay: &Replay) -> Result<Answers, SessionError> {
        super::rounds::say(&format!("how long the steps of {} take alone …", program.name));
        let folder = self.scratch.join("at-once");
        let schedule = Schedule::of_servers(self.settings.seconds);
        let scene = Scene {
            arm: arm::BARE_ALONE,
            ground: &Ground::Bare,
            programs: &[program],
            schedule: &schedule,
            replays: &[replay],
            folder: &folder,
            is_recorded: false,
        };
        let done = self.session(&scene, &mut Vec::new());
        let _ = std::fs::remove_dir_all(&folder);
        match done?.outputs.into_iter().next() {
            Some(Output::Answers(answers)) => Ok(answers),
            _ => Err(nothing(program)),
        }
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

fn nothing(program: &Program) -> SessionError {
    SessionError::Program(MeasuredError::Output { program: program.name, source: OutputError::Nothing })
}

/// The server at its part of a load that several share; nothing where its log does not say enough.
fn at_load(replay: &Replay, answers: &Answers, (load, servers): (f64, usize), seconds: u32) -> Option<Replay> {
    let server = Server::of(&Logged { program: replay.program, answers, warm_up: 0 })?;
    let part = load / quantity::approximate(servers.max(1) as u64);
    let per_second = per_second(part, |rate| server.busy(rate));
    Some(replay.at_rate(per_second, seconds).of_load(Some(load)))
}

/// The requests a second at which something that grows with them comes to a part.
fn per_second(part: f64, busy: impl Fn(f64) -> f64) -> f64 {
    const HALVINGS: u32 = 40;
    let (mut few, mut many) = (1e-3_f64, 1e4_f64);
    for _ in 0..HALVINGS {
        let middle = (few * many).sqrt();
        (few, many) = if busy(middle) < part { (middle, many) } else { (few, middle) };
    }
    many
}

#[cfg(test)]
mod tests {
    use super::super::answers::{Answer, Ended, ServerStep, StepKind};
    use super::super::replay::tests::replay;
    use super::*;

    /// 64 requests at once, each with a prompt of one step of 20 ms and `tokens` tokens, of which a step gives all one in 10 ms.
    fn at_once(tokens: u32) -> Answers {
        let request = |index: u64| Answer {
            index,
            // One after the other, as near to each other as a replay at once has them.
            arrival: quantity::approximate(index) * 1e-6,
            prompt_length: 9,
            token_times: vec![0.02; tokens as usize],
            tokens: vec![1; tokens as usize],
            ended: Ended::Complete,
        };
        let prompts = (0..64).map(|_| ServerStep(StepKind::Prefill, 0.0, 0.02, 1, 9));
        let steps = prompts.chain((1..=32).map(|rows| ServerStep(StepKind::Decode, 0.0, 0.01, rows, 1)));
        Answers {
            requests: (0..64).map(request).collect(),
            steps: steps.collect(),
            fixed_batch: 32,
            interleave: true,
            ..Answers::default()
        }
    }

    #[test]
    fn at_half_load_a_server_is_busy_half_of_the_time() {
        // A request alone takes 20 ms and 18 steps of 10 ms: a fifth of a second. They never meet.
        let half = at_load(&replay(None), &at_once(19), (0.5, 1), 20).unwrap();
        assert!((half.per_second - 2.5).abs() < 0.05 && half.load == Some(0.5), "{half:?}");
        // Two servers have a half of it each.
        let of_two = at_load(&replay(None), &at_once(19), (0.5, 2), 20).unwrap();
        assert!((of_two.per_second - 1.25).abs() < 0.05, "{of_two:?}");
        assert_eq!((half.requests, half.warm_up), (55, 5));
    }

    /// However few requests there is time for: a server cannot be told from one that is never busy by one request.
    #[test]
    fn a_low_load_is_found_from_all_that_was_logged() {
        let low = at_load(&replay(None), &at_once(199), (0.05, 1), 30).unwrap();
        assert!((low.per_second - 0.025).abs() < 0.001, "{low:?}");
        let said = low.warning().unwrap();
        assert!(said.starts_with("chat: only 1 request counts: raise --seconds to 4"), "{said}");
        let longer = at_load(&replay(None), &at_once(199), (0.05, 1), 600).unwrap();
        assert_eq!((longer.per_second.to_bits(), longer.warning()), (low.per_second.to_bits(), None));
    }

    #[test]
    fn who_answers_several_at_once_is_sent_more_for_the_same_load() {
        // A request takes two seconds alone, and those that run at once share their steps.
        let (half, more) = [0.5, 0.9].map(|load| at_load(&replay(None), &at_once(199), (load, 1), 60).unwrap()).into();
        assert!((half.per_second - 0.25).abs() < 0.02, "{half:?}");
        assert!(more.per_second > half.per_second * 1.8, "{more:?}");
        assert_eq!(at_load(&replay(None), &Answers::default(), (0.5, 1), 60), None);
    }
}
