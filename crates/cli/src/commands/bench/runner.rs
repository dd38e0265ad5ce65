//! One arm after the other: what is to lie under the programs is put up, they run, and all is taken down again.

use super::arm::{Arm, Way};
use super::bound::{Ideal, Logged};
use super::figures::{Figures, Window, figures};
use super::flags::Settings;
use super::identity::{Identity, compare};
use super::kept::Kept;
use super::measured::Measured;
use super::mps::Mps;
use super::output::Output;
use super::own_daemon::{Configuration, ExpectedTenants, OwnDaemon, OwnDaemonError};
use super::records::{self, Of, Record};
use super::replay::Replay;
use super::sampler::{self, Sample, TenantSeen};
use super::scenario::{Device, Program};
use super::schedule::{RECORDED_SECONDS, Schedule};
use super::session::{self, Done, Session, SessionError};
use super::timeline::{Recorded, Timeline};
use super::told_apart::{Taken, ToldApart};
use super::unrest::Unrest;
use super::workloads;
use crate::commands::record;
use crate::program::Signals;
use crate::{part, shim};
use detshare_api::Class;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// An arm in one round.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ArmRun {
    pub(crate) arm: &'static str,
    /// From 1.
    pub(crate) round: usize,
    /// Of LLM servers.
    pub(crate) load: Option<f64>,
    /// How long each of its stretches was to be measured.
    pub(crate) measured_s: u32,
    /// How long all of it took, with setting up.
    pub(crate) seconds: f64,
    /// One for each stretch; usually there is one.
    pub(crate) stretches: Vec<Stretch>,
    /// Why there are no figures, and what to do.
    pub(crate) failure: Option<String>,
    /// What was seen of its tenants, if they were any.
    pub(crate) tenants: Vec<TenantSeen>,
    /// Of the runs in place of which this one counts, because the machine was less at rest then.
    pub(crate) discarded: Vec<Unrest>,
    #[serde(skip)]
    pub(crate) samples: Vec<Sample>,
    /// What its programs did, if that is to be kept.
    #[serde(skip)]
    pub(crate) kept: Vec<Kept>,
}

impl ArmRun {
    /// The machine when it was least at rest, of all programs and stretches.
    pub(crate) fn unrest(&self) -> Option<Unrest> {
        let programs = self.stretches.iter().flat_map(|stretch| &stretch.programs);
        Unrest::greatest(programs.filter_map(|program| program.unrest))
    }
}

/// What the programs of an arm did in a stretch of time.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Stretch {
    pub(crate) aggressiveness: Option<f64>,
    pub(crate) programs: Vec<ProgramRun>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProgramRun {
    pub(crate) program: &'static str,
    pub(crate) class: Class,
    /// Nothing if it did too little in that time.
    pub(crate) figures: Option<Figures>,
    /// Whether it computed what it computes alone, over the whole run.
    pub(crate) bits: Identity,
    /// The machine meanwhile.
    pub(crate) unrest: Option<Unrest>,
    /// Whether the steps of an LLM server were told apart, if that was written down.
    pub(crate) told_apart: Option<ToldApart>,
}

/// What all arms have in common.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) settings: &'a Settings,
    /// Where the programs are.
    pub(crate) workloads: PathBuf,
    pub(crate) scratch: &'a Path,
    pub(crate) signals: &'a Signals,
    /// When everything is to be over.
    pub(crate) deadline: Instant,
    /// What each LLM server is sent at each load.
    pub(crate) replays: Vec<Replay>,
    alone: Vec<Reference>,
}

/// What a program did alone, at first.
#[derive(Debug)]
struct Reference {
    program: &'static str,
    load: Option<f64>,
    output: Output,
}

/// An arm that is to be run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Turn {
    pub(crate) arm: Arm,
    /// From 1.
    pub(crate) round: usize,
    /// Of LLM servers.
    pub(crate) load: Option<f64>,
    /// For how long it is measured.
    pub(crate) seconds: u32,
}

/// Programs that run at the same time.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) arm: Arm,
    pub(crate) ground: &'a Ground,
    pub(crate) programs: &'a [&'static Program],
    pub(crate) schedule: &'a Schedule,
    pub(crate) replays: &'a [&'a Replay],
    pub(crate) folder: &'a Path,
    /// Whether tenants write down what they launch.
    pub(crate) is_recorded: bool,
}

/// What lies under the programs.
#[derive(Debug)]
pub(crate) enum Ground {
    Bare,
    Mps(Mps),
    Daemon(OwnDaemon),
}

impl<'a> Runner<'a> {
    pub(crate) fn new(
        settings: &'a Settings,
        workloads: PathBuf,
        scratch: &'a Path,
        signals: &'a Signals,
        deadline: Instant,
    ) -> Self {
        Self { settings, workloads, scratch, signals, deadline, replays: Vec::new(), alone: Vec::new() }
    }

    /// Runs an arm; an error only if we are to end.
    pub(crate) fn measured(&mut self, turn: Turn) -> Result<ArmRun, SessionError> {
        let begun = Instant::now();
        let Turn { arm, round, load, seconds: measured_s } = turn;
        let folder = self.scratch.join(arm.name);
        let (mut samples, mut kept) = (Vec::new(), Vec::new());
        let ran = self.measure(turn, &folder, &mut samples, &mut kept);
        let _ = std::fs::remove_dir_all(&folder);
        let (stretches, failure) = match ran {
            Ok(stretches) => (stretches, None),
            Err(error @ SessionError::Interrupted { .. }) => return Err(error),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let seconds = begun.elapsed().as_secs_f64();
        Ok(ArmRun {
            arm: arm.name,
            round,
            load,
            measured_s,
            seconds,
            stretches,
            failure,
            tenants: sampler::seen(&samples),
            discarded: Vec::new(),
            samples,
            kept,
        })
    }

    fn measure(
        &mut self,
        Turn { arm, round, load, seconds }: Turn,
        folder: &Path,
        samples: &mut Vec<Sample>,
        kept: &mut Vec<Kept>,
    ) -> Result<Vec<Stretch>, SessionError> {
        std::fs::create_dir_all(folder)?;
        let schedule = Schedule::of(self.settings, &arm, round, seconds);
        let ground = self.put_up(arm, folder)?;
        let all: Vec<&'static Program> = self.settings.scenario.programs.iter().collect();
        let alone: Vec<&'static Program> = self.settings.alone().collect();
        let groups: Vec<&[&'static Program]> =
            if arm.is_alone { alone.iter().map(std::slice::from_ref).collect() } else { vec![&all] };
        let mut stretches: Vec<Stretch> =
            schedule.levels.iter().map(|level| Stretch { aggressiveness: *level, programs: Vec::new() }).collect();
        for programs in groups {
            let schedule = Schedule::of_session(self.settings, &arm, (round, seconds), programs);
            let scene = Scene {
                arm,
                ground: &ground,
                programs,
                schedule: &schedule,
                replays: &self.replays_at(load),
                folder,
                is_recorded: false,
            };
            let done = self.session(&scene, samples)?;
            let taken: Vec<Option<Taken>> =
                programs.iter().map(|program| taken(&folder.join(program.name), program)).collect();
            self.note(arm, load, programs, &done, &taken, &mut stretches)?;
            if self.settings.keep.is_some() {
                let one = |((program, output), taken): ((&&'static Program, &Output), &Option<Taken>)| {
                    Kept::of((arm.name, load, round), program.name, output, taken.as_ref())
                };
                kept.extend(programs.iter().zip(&done.outputs).zip(&taken).map(one));
            }
        }
        Ok(stretches)
    }

    /// Runs the tenants of an arm once more, and shows what they did; where that fails, why.
    pub(crate) fn timeline(&mut self, arm: Arm, load: Option<f64>) -> Result<Timeline, SessionError> {
        let folder = self.scratch.join("timeline");
        let recorded = self.recorded(arm, load, &folder);
        let _ = std::fs::remove_dir_all(&folder);
        recorded
    }

    fn recorded(&mut self, arm: Arm, load: Option<f64>, folder: &Path) -> Result<Timeline, SessionError> {
        std::fs::create_dir_all(folder)?;
        let ground = self.put_up(arm, folder)?;
        let programs: Vec<&'static Program> = self.settings.scenario.programs.iter().collect();
        let shortened = |replay: &&Replay| replay.at_rate(replay.per_second, RECORDED_SECONDS);
        let replays: Vec<Replay> = self.replays_at(load).iter().map(shortened).collect();
        let scene = Scene {
            arm,
            ground: &ground,
            programs: &programs,
            schedule: &Schedule::recorded(self.settings, &arm),
            replays: &replays.iter().collect::<Vec<_>>(),
            folder,
            is_recorded: true,
        };
        let done = self.session(&scene, &mut Vec::new())?;
        let common = Window::of(&done.outputs.iter().collect::<Vec<_>>()).ok_or(SessionError::NoWindow)?;
        let window = done.windows.first().and_then(|window| window.within(common)).unwrap_or(common);
        let mut tenants = Vec::new();
        for (program, output) in programs.into_iter().zip(&done.outputs) {
            let record = Record::read(&folder.join(program.name), Of::All)?;
            let record = record.ok_or(SessionError::NoRecord { program: program.name })?;
            tenants.push(Recorded { program, record, bits: self.identity(arm, load, program, output) });
        }
        Timeline::of(arm.name, window, &tenants).ok_or(SessionError::ShortRecord)
    }

    fn put_up(&self, arm: Arm, folder: &Path) -> Result<Ground, SessionError> {
        Ok(match arm.way {
            Way::Bare => Ground::Bare,
            Way::Mps { .. } | Way::Fixed { .. } => Ground::Mps(Mps::start(folder)?),
            Way::DetShare { policy } => {
                // While nothing is measured, the dial is where it usually is.
                Ground::Daemon(OwnDaemon::start(folder, &self.configuration(policy, None))?)
            }
        })
    }

    fn configuration(&self, policy: &'static str, aggressiveness: Option<f64>) -> Configuration {
        Configuration { policy, isolation: self.settings.isolation(), aggressiveness }
    }

    /// Runs programs at the same time.
    pub(crate) fn session(&self, scene: &Scene<'_>, samples: &mut Vec<Sample>) -> Result<Done, SessionError> {
        let Scene { arm, ground, programs, schedule, replays, folder, .. } = *scene;
        let sampler = match ground {
            Ground::Daemon(daemon) => Some(daemon.sampler()?),
            Ground::Bare | Ground::Mps(_) => None,
        };
        let mut started = Vec::new();
        for program in programs {
            let folder = folder.join(program.name);
            let files = Measured::files(program, &folder)?;
            let replay = replays.iter().find(|replay| replay.program == program.name).copied();
            let mut command = self.command(scene, program, replay, &folder)?;
            command.args(program.arguments(schedule, replay, &files));
            started.push(Measured::start(program, files, &folder, &mut command)?);
        }
        let mut expected: Option<ExpectedTenants> = None;
        let missing = |started: &[Measured]| match ground {
            Ground::Mps(mps) => {
                let clients: Vec<_> = started.iter().map(|one| (one.program.name, one.pid())).collect();
                mps.expect_clients(&clients)?;
                Ok(Vec::new())
            }
            Ground::Daemon(daemon) => {
                let expected = match &mut expected {
                    Some(expected) => expected,
                    None => expected.insert(daemon.expect_tenants(started.iter().map(|one| one.program.name))?),
                };
                Ok(expected.look()?.to_vec())
            }
            Ground::Bare => Ok(Vec::new()),
        };
        let turn = |level: f64| match (ground, arm.way) {
            (Ground::Daemon(daemon), Way::DetShare { policy }) => {
                Ok(daemon.change(&self.configuration(policy, Some(level)))?)
            }
            _ => Ok(()),
        };
        let session = Session {
            signals: self.signals,
            deadline: self.deadline,
            schedule,
            patience: if replays.is_empty() { session::PATIENCE } else { session::PATIENCE_FOR_ALL },
        };
        let done = session.run(started, missing, turn)?;
        if let Way::Fixed { width } = arm.way {
            for program in programs {
                expect_lane(program, self.fixed_lane(program, width), &folder.join(program.name))?;
            }
        }
        if let Some(sampler) = sampler {
            let seen = sampler.stop();
            expect_clients(programs, &seen, ground)?;
            samples.extend(seen);
        }
        Ok(done)
    }

    /// All but the program's own arguments.
    fn command(
        &self,
        &Scene { arm, ground, is_recorded, .. }: &Scene<'_>,
        program: &Program,
        replay: Option<&Replay>,
        folder: &Path,
    ) -> Result<Command, SessionError> {
        let words = workloads::words(&self.workloads, program);
        let is_soft = self.settings.scenario.device == Device::Soft;
        let mut command = match arm.way {
            Way::Bare | Way::Mps { .. } | Way::Fixed { .. } => Command::new(&words[0]),
            Way::DetShare { .. } => Command::new(std::env::current_exe()?),
        };
        workloads::clean(&mut command);
        if is_soft {
            command.envs(workloads::SOFT_GPU).env_remove("DETSHARE_DRIVER");
        }
        match ground {
            Ground::Bare if is_soft => drop(command.env("LD_LIBRARY_PATH", self.software_gpu()?)),
            Ground::Bare => {}
            Ground::Mps(mps) => drop(command.envs(mps.environment())),
            Ground::Daemon(daemon) => drop(command.envs(daemon.environment())),
        }
        match arm.way {
            Way::Bare | Way::Mps { priority: false } => drop(command.args(&words[1..])),
            Way::Mps { priority: true } => {
                command.args(&words[1..]).env("CUDA_MPS_CLIENT_PRIORITY", client_priority(program.class));
            }
            Way::Fixed { width } => {
                command.args(&words[1..]).env("LD_PRELOAD", shim::preload(&[shim::find()?], None));
                command.env("DETSHARE_SCHEDULE", self.fixed_lane(program, width));
                command.env("DETSHARE_STATS", folder.join(STATS));
            }
            Way::DetShare { .. } => {
                command.args(["run", "--class", program.class.name(), "--name", program.name]);
                command.args(replay.map(Replay::run_arguments).unwrap_or_default());
                if is_recorded || (self.settings.keep.is_some() && replay.is_some()) {
                    command.env(record::VARIABLE, folder.join(records::FILE));
                }
                command.args(if is_soft { &["--device", "soft"][..] } else { &[] }).arg("--").args(&words);
            }
        }
        Ok(command)
    }

    /// The lane that it has for good.
    fn fixed_lane(&self, program: &Program, width: u32) -> String {
        let side = if self.settings.scenario.is_in_front(program) { "front" } else { "rest" };
        format!("{side}{width}")
    }

    /// A folder in which the software GPU has the driver's name.
    fn software_gpu(&self) -> Result<PathBuf, SessionError> {
        let folder = self.scratch.join("driver");
        let link = folder.join("libcuda.so.1");
        if !link.exists() {
            std::fs::create_dir_all(&folder)?;
            std::os::unix::fs::symlink(part::SOFTGPU.find()?, &link)?;
        }
        Ok(folder)
    }

    /// Takes what the programs did into the stretches.
    fn note(
        &mut self,
        arm: Arm,
        load: Option<f64>,
        programs: &[&'static Program],
        done: &Done,
        taken: &[Option<Taken>],
        stretches: &mut [Stretch],
    ) -> Result<(), SessionError> {
        let outputs: Vec<&Output> = done.outputs.iter().collect();
        let common = Window::of(&outputs).ok_or(SessionError::NoWindow)?;
        for ((program, output), taken) in programs.iter().zip(&done.outputs).zip(taken) {
            let bits = self.identity(arm, load, program, output);
            let (busy, told_apart) = match output {
                Output::Answers(answers) => {
                    (answers.busy(), taken.as_ref().and_then(|taken| taken.against(&answers.steps)))
                }
                Output::Requests(_) | Output::Steps(_) => (None, None),
            };
            let output = self.counted(load, program, output);
            for (number, stretch) in stretches.iter_mut().enumerate() {
                let window = done.windows.get(number).and_then(|window| window.within(common));
                let mut figures = window.and_then(|window| figures(&output, window));
                self.hold_to_objectives(arm, load, program, &output, busy, &mut figures);
                let unrest = window.and_then(|window| done.seen.within(window));
                let bits = bits.clone();
                stretch.programs.push(ProgramRun {
                    program: program.name,
                    class: program.class,
                    figures,
                    bits,
                    unrest,
                    told_apart: told_apart.clone(),
                });
            }
        }
        Ok(())
    }

    /// At each load, how near to alone servers could come that share the GPU; nothing where they share it with others too.
    pub(crate) fn ideals(&self) -> Vec<Ideal> {
        let programs = self.settings.scenario.programs;
        let servers: Vec<_> = self.settings.scenario.servers().collect();
        if servers.len() < 2 || servers.len() < programs.len() {
            return Vec::new();
        }
        let logged = |load: Option<f64>| -> Option<Vec<Logged<'_>>> {
            let of = |program: &'static Program| {
                let alone = self.alone.iter().find(|one| one.program == program.name && one.load == load)?;
                let replay = self.replays.iter().find(|one| one.program == program.name && one.load == load)?;
                match &alone.output {
                    Output::Answers(answers) => {
                        Some(Logged { program: program.name, answers, warm_up: replay.warm_up as usize })
                    }
                    Output::Requests(_) | Output::Steps(_) => None,
                }
            };
            servers.iter().map(|&(program, _)| of(program)).collect()
        };
        self.settings.loads().into_iter().filter_map(|load| Ideal::of(load, &logged(load)?)).collect()
    }

    fn identity(&mut self, arm: Arm, load: Option<f64>, program: &Program, output: &Output) -> Identity {
        match self.alone.iter().find(|alone| alone.program == program.name && alone.load == load) {
            Some(alone) => compare(&alone.output, output),
            None if arm.name == super::arm::ALONE => {
                self.alone.push(Reference { program: program.name, load, output: output.clone() });
                Identity::Reference
            }
            None => Identity::unknown("there is no run alone to compare it with"),
        }
    }
}

/// What its steps were taken for, if that was written down.
fn taken(folder: &Path, program: &Program) -> Option<Taken> {
    Taken::read(folder).unwrap_or_else(|error| {
        super::rounds::say(&format!("  nobody knows what the steps of {} were taken for: {error}", program.name));
        None
    })
}

/// A hint to MPS: 0 is normal, 1 is below.
fn client_priority(class: Class) -> &'static str {
    match class {
        Class::Latency => "0",
        Class::BestEffort => "1",
    }
}

/// Where the shim writes what it did; `%p` becomes the process.
const STATS: &str = "%p.stats";

/// That the shim could put it on its lane: where there is none, a program runs all the same, on all SMs.
fn expect_lane(program: &Program, lane: String, folder: &Path) -> Result<(), SessionError> {
    let files = folder.read_dir()?.filter_map(Result::ok).map(|entry| entry.path());
    let stats = files.filter(|path| path.extension().is_some_and(|extension| extension == "stats"));
    let texts = stats.filter_map(|path| std::fs::read_to_string(path).ok());
    if texts.into_iter().any(|text| has_launches(&text, &lane)) {
        return Ok(());
    }
    Err(SessionError::NoLane { program: program.name, lane })
}

/// Whether the shim counts launches on that lane.
fn has_launches(stats: &str, lane: &str) -> bool {
    let stats: serde_json::Value = serde_json::from_str(stats).unwrap_or_default();
    let lanes = stats["lanes"]["each"].as_array();
    let is_used = |one: &serde_json::Value| one["name"] == lane && one["launches"].as_u64().is_some_and(|all| all > 0);
    lanes.is_some_and(|lanes| lanes.iter().any(is_used))
}

/// That all tenants were clients of MPS where there is one: one that is none runs all the same.
fn expect_clients(programs: &[&Program], seen: &[Sample], ground: &Ground) -> Result<(), OwnDaemonError> {
    let has_mps = matches!(ground, Ground::Daemon(daemon) if daemon.has_mps());
    for program in programs.iter().filter(|_| has_mps) {
        let mine = seen.iter().filter(|sample| sample.tenant == program.name);
        if mine.filter_map(|sample| sample.mps_client).next_back() == Some(false) {
            return Err(OwnDaemonError::NoClient { program: program.name.to_string() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_was_used_is_in_the_stats() {
        let stats = r#"{"lanes":{"moves":0,"each":[{"name":"full","launches":9},{"name":"front64","launches":7},
            {"name":"rest64","launches":0}]}}"#;
        assert!(has_launches(stats, "front64"));
        assert!(!has_launches(stats, "rest64") && !has_launches(stats, "front96"));
        assert!(!has_launches("{}", "front64") && !has_launches("nonsense", "front64"));
    }
}
