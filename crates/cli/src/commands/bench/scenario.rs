//! What can be measured: programs that share a GPU, as data.

use super::replay::Replay;
use super::schedule::Schedule;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use detshare_api::Class;

/// Programs that run together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What it is, in a line.
    pub(crate) about: &'static str,
    pub(crate) device: Device,
    pub(crate) programs: &'static [Program],
    /// How long an arm is measured if nobody says otherwise.
    pub(crate) seconds: u32,
}

/// What the programs run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// The machine's own.
    Gpu,
    /// The software GPU.
    Soft,
}

/// A program of a scenario.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// What it is called in the results, and as a tenant.
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// Its file in the folder of workloads.
    pub(crate) file: &'static str,
    /// What is the same in every run.
    pub(crate) arguments: &'static [&'static str],
    pub(crate) protocol: Protocol,
}

/// How a program is told what to do, and how it says what it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Requests arrive, one in `period_us` on average. It begins when a file is there, and writes JSON.
    Serve { period_us: u32 },
    /// Steps of training, until a file is there. It begins when another one is there, and writes JSON.
    Train,
    /// A fixed number of steps, each with a pause after it; it begins at once, and prints a line after each step. About
    /// `per_second` of them are done in a second alone.
    Lines { per_second: u32, pause_us: u32 },
    /// The requests of a trace, each with all its tokens. It begins when a file is there, and writes JSON.
    Llm { trace: Trace },
}

/// Where an LLM server's requests come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trace {
    /// In the folder of traces.
    pub(crate) file: &'static str,
    /// What the server makes up where there is none.
    pub(crate) synthetic: &'static str,
    /// How many requests come before those that are replayed: from there on, they come more evenly.
    pub(crate) skip: u32,
    /// How many come from there on without a pause that is many times as long as the others, if there is such a pause.
    pub(crate) even: Option<u32>,
}

const fn serve(name: &'static str, period_us: u32, arguments: &'static [&'static str]) -> Program {
    Program { name, class: Class::Latency, file: "bench_serve.py", arguments, protocol: Protocol::Serve { period_us } }
}

const fn train(name: &'static str, arguments: &'static [&'static str]) -> Program {
    Program { name, class: Class::BestEffort, file: "bench_train.py", arguments, protocol: Protocol::Train }
}

const fn llm(name: &'static str, trace: Trace, arguments: &'static [&'static str]) -> Program {
    Program { name, class: Class::Latency, file: "llm_server.py", arguments, protocol: Protocol::Llm { trace } }
}

const CONVERSATION: Trace = Trace { file: "azure-llm-2023-conv.csv", synthetic: "conversation", skip: 500, even: None };
/// Elsewhere in this trace nothing comes for many seconds, and then all at once. Pauses of 3 s and 8.4 s, where 25 come in a
/// second otherwise, follow the 540th and the 548th.
const CODE: Trace = Trace { file: "azure-llm-2023-code.csv", synthetic: "code", skip: 2000, even: Some(480) };

/// The context is long enough for every request of both traces. Prompts go through the model in parts with decode steps
/// between them, so that one does not keep all others from their tokens.
const LLM_1B: &[&str] = &["--shape", "1b", "--longest-context", "16384", "--prefill-chunk", "512", "--seed", "1"];
const LLM_8B: &[&str] = &["--shape", "8b", "--longest-context", "16384", "--prefill-chunk", "512", "--seed", "1"];
/// Enough requests for a tail.
const LLM_SECONDS: u32 = 30;

/// So that two rounds of all arms fit into eight minutes, most of which go into setting programs up.
const SHORT_SECONDS: u32 = 4;

const SMALL_PERIOD_US: u32 = 6_000;
const LARGE_PERIOD_US: u32 = 10_000;
/// Launching each kernel from Python takes 13 to 18 ms a step; with less time between two the queue would be what is measured.
const EAGER_PERIOD_US: u32 = 30_000;
/// Beside another server there is less room.
const LARGE_PERIOD_OF_TWO_US: u32 = 20_000;

const TRANSFORMER: Program = train("train", &["--model", "transformer", "--seed", "1"]);

const SMALL: &[&str] = &["--shape", "small", "--arrivals", "periodic", "--seed", "1"];
const LARGE: &[&str] = &["--shape", "7b", "--arrivals", "periodic", "--seed", "1"];

/// All of them.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "small",
        about: "a small inference server, a request each 6 ms, beside the training of a transformer",
        device: Device::Gpu,
        programs: &[serve("serve", SMALL_PERIOD_US, SMALL), TRANSFORMER],
        seconds: SHORT_SECONDS,
    },
    Scenario {
        name: "7b",
        about: "decoding with a 7B-like model, a request each 10 ms, beside the training of a transformer",
        device: Device::Gpu,
        programs: &[serve("serve", LARGE_PERIOD_US, LARGE), TRANSFORMER],
        seconds: SHORT_SECONDS,
    },
    Scenario {
        name: "small-poisson",
        about: "as small, with requests at random times, 6 ms apart on average",
        device: Device::Gpu,
        programs: &[
            serve("serve", SMALL_PERIOD_US, &["--shape", "small", "--arrivals", "poisson", "--seed", "1"]),
            TRANSFORMER,
        ],
        seconds: 10,
    },
    Scenario {
        name: "7b-poisson",
        about: "as 7b, with requests at random times, 10 ms apart on average",
        device: Device::Gpu,
        programs: &[
            serve("serve", LARGE_PERIOD_US, &["--shape", "7b", "--arrivals", "poisson", "--seed", "1"]),
            TRANSFORMER,
        ],
        seconds: 10,
    },
    Scenario {
        name: "small-eager",
        about: "as small, with a launch for each kernel in place of a CUDA graph, and a request each 30 ms",
        device: Device::Gpu,
        programs: &[
            serve("serve", EAGER_PERIOD_US, &["--shape", "small", "--eager", "--arrivals", "periodic", "--seed", "1"]),
            TRANSFORMER,
        ],
        seconds: 10,
    },
    Scenario {
        name: "two-latency",
        about: "a small server (each 6 ms) and a 7B-like one (each 20 ms), beside the training of a transformer",
        device: Device::Gpu,
        programs: &[
            serve("serve-small", SMALL_PERIOD_US, SMALL),
            serve("serve-7b", LARGE_PERIOD_OF_TWO_US, LARGE),
            TRANSFORMER,
        ],
        seconds: 10,
    },
    Scenario {
        name: "two-half",
        about: "two trainings whose kernels are too small to fill the GPU",
        device: Device::Gpu,
        programs: &[
            train("train-1", &["--model", "narrow", "--seed", "1"]),
            train("train-2", &["--model", "narrow", "--seed", "2"]),
        ],
        seconds: 10,
    },
    Scenario {
        name: "two-full",
        about: "two trainings of a transformer, each of which fills the GPU",
        device: Device::Gpu,
        programs: &[
            train("train-1", &["--model", "transformer", "--seed", "1"]),
            train("train-2", &["--model", "transformer", "--seed", "2"]),
        ],
        seconds: 10,
    },
    Scenario {
        name: "llm-train",
        about: "an LLM server (8B) that answers conversations, beside the training of a transformer",
        device: Device::Gpu,
        programs: &[llm("chat", CONVERSATION, LLM_8B), TRANSFORMER],
        seconds: LLM_SECONDS,
    },
    Scenario {
        name: "llm-llm",
        about: "two LLM servers (1B): one answers conversations, the other completes code",
        device: Device::Gpu,
        programs: &[llm("chat", CONVERSATION, LLM_1B), llm("code", CODE, LLM_1B)],
        seconds: LLM_SECONDS,
    },
    Scenario {
        name: "llm-llm-train",
        about: "two LLM servers (1B), for conversations and for code, beside the training of a transformer",
        device: Device::Gpu,
        programs: &[llm("chat", CONVERSATION, LLM_1B), llm("code", CODE, LLM_1B), TRANSFORMER],
        seconds: LLM_SECONDS,
    },
    Scenario {
        name: "soft",
        about: "two small programs of the driver API on the software GPU, where there is no other",
        device: Device::Soft,
        programs: &[
            Program {
                name: "serve",
                class: Class::Latency,
                file: "steps",
                arguments: &["--kernels", "4", "--graph", "--seed", "1"],
                protocol: Protocol::Lines { per_second: 180, pause_us: 4_000 },
            },
            Program {
                name: "train",
                class: Class::BestEffort,
                file: "steps",
                arguments: &["--kernels", "6", "--streams", "8", "--work", "200", "--seed", "2"],
                protocol: Protocol::Lines { per_second: 60, pause_us: 0 },
            },
        ],
        seconds: 5,
    },
];

/// A scenario by its name; the names are offered by completions and in the help.
pub(crate) fn parser() -> impl TypedValueParser<Value = &'static Scenario> {
    let names = SCENARIOS.iter().map(|scenario| PossibleValue::new(scenario.name).help(scenario.about));
    PossibleValuesParser::new(names).try_map(|name| by_name(&name).ok_or("there is no such scenario"))
}

fn by_name(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

impl Scenario {
    pub(crate) fn has_latency(&self) -> bool {
        self.programs.iter().any(|program| program.class == Class::Latency)
    }

    pub(crate) fn has_both_classes(&self) -> bool {
        self.has_latency() && self.programs.iter().any(|program| program.class == Class::BestEffort)
    }

    /// Whether the dial is turned if nobody says otherwise: where it is between two classes, and not where all arms are to
    /// answer the same requests or do the same number of steps.
    pub(crate) fn has_usual_levels(&self) -> bool {
        self.has_both_classes() && !self.has_servers() && self.device == Device::Gpu
    }

    /// Its LLM servers, and where their requests come from.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (&'static Program, Trace)> {
        self.programs.iter().filter_map(|program| match program.protocol {
            Protocol::Llm { trace } => Some((program, trace)),
            Protocol::Serve { .. } | Protocol::Train | Protocol::Lines { .. } => None,
        })
    }

    pub(crate) fn has_servers(&self) -> bool {
        self.servers().next().is_some()
    }

    /// How long an arm is measured at least where time is short and nobody says for how long.
    pub(crate) fn least_seconds(&self) -> u32 {
        // Where all arms are to answer the same requests, or do the same steps, none is shorter than the others.
        let is_fixed = self.has_servers() || self.device == Device::Soft;
        if is_fixed { self.seconds } else { self.seconds.div_ceil(2) }
    }

    /// Whether the program goes before others: by its class or, where all have the same, as the first.
    pub(crate) fn is_in_front(&self, program: &Program) -> bool {
        if self.has_latency() { program.class == Class::Latency } else { self.programs[0] == *program }
    }
}

impl Program {
    /// Its command line after the name of its file: what is the same in every run, and how much there is to do in the time of
    /// a session, or which requests a server replays. `files` are where it writes and what it watches for.
    pub(crate) fn arguments(&self, schedule: &Schedule, replay: Option<&Replay>, files: &ProgramFiles) -> Vec<String> {
        let (unmeasured, counted) = (schedule.unmeasured, schedule.counted());
        let mut arguments: Vec<String> = self.arguments.iter().map(ToString::to_string).collect();
        let mut add = |name: &str, value: String| arguments.extend([name.to_string(), value]);
        match self.protocol {
            Protocol::Serve { period_us } => {
                add("--period-ms", (f64::from(period_us) / 1e3).to_string());
                add("--requests", self.amount(counted).to_string());
                add("--warm-up", self.amount(unmeasured).to_string());
            }
            Protocol::Train => {
                // It is told to stop; this is for one that does not see it.
                add("--seconds", (u64::from(unmeasured + counted) * LONGEST_TRAINING).to_string());
            }
            Protocol::Lines { pause_us, .. } => {
                add("--steps", self.amount(unmeasured + counted).to_string());
                add("--pause-us", pause_us.to_string());
                arguments.push("--progress".to_string());
                return arguments;
            }
            Protocol::Llm { .. } => arguments.extend(replay.iter().flat_map(|replay| replay.arguments())),
        }
        let files = [("--out", &files.out), ("--start-file", &files.start), ("--stop-file", &files.stop)];
        arguments.extend(files.into_iter().flat_map(|(name, file)| [name.to_string(), file.clone()]));
        arguments
    }

    /// How many requests or steps it is told to do in so many seconds; nothing to tell if it is stopped.
    pub(crate) fn amount(&self, seconds: u32) -> u64 {
        match self.protocol {
            Protocol::Serve { period_us } => u64::from(seconds) * 1_000_000 / u64::from(period_us),
            Protocol::Train | Protocol::Llm { .. } => 0,
            Protocol::Lines { per_second, .. } => {
                let alone = u64::from(seconds) * u64::from(per_second);
                match self.class {
                    Class::Latency => alone,
                    Class::BestEffort => alone * OUTLASTING,
                }
            }
        }
    }
}

/// Times the measured seconds after which a training that is not stopped ends by itself.
const LONGEST_TRAINING: u64 = 10;
/// Times as many steps as are done in the measured seconds, for a program that nobody can stop and that the others are
/// not to outlast, even when they are slowed down.
const OUTLASTING: u64 = 2;

/// Files through which a program is spoken to, by their paths.
#[derive(Debug, Default)]
pub(crate) struct ProgramFiles {
    /// It writes what it did there.
    pub(crate) out: String,
    /// It begins when that is there.
    pub(crate) start: String,
    /// It stops when that is there.
    pub(crate) stop: String,
}

#[cfg(test)]
mod tests {
    use super::super::flags::tests::resolved;
    use super::*;
    use std::collections::BTreeSet;

    /// Of the first arm, in the first round.
    fn schedule(line: &str) -> Schedule {
        let settings = resolved(line).unwrap();
        Schedule::of(&settings, &settings.arms[0], 1, settings.seconds)
    }

    #[test]
    fn names_are_names() {
        let names: BTreeSet<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), SCENARIOS.len());
        for scenario in SCENARIOS {
            let programs: BTreeSet<_> = scenario.programs.iter().map(|program| program.name).collect();
            assert_eq!(programs.len(), scenario.programs.len(), "{}", scenario.name);
            assert!((2..=3).contains(&programs.len()), "{}", scenario.name);
        }
    }

    #[test]
    fn a_server_is_told_how_many_requests_there_are() {
        let files = ProgramFiles { out: "o".to_string(), start: "s".to_string(), stop: "t".to_string() };
        let line = by_name("small").unwrap().programs[0]
            .arguments(&schedule("small --arms alone --seconds 12"), None, &files)
            .join(" ");
        assert_eq!(
            line,
            "--shape small --arrivals periodic --seed 1 --period-ms 6 --requests 2000 --warm-up 166 --out o \
             --start-file s --stop-file t"
        );
    }

    #[test]
    fn steps_are_counted_and_what_is_left_outlasts_the_rest() {
        let soft = by_name("soft").unwrap();
        let schedule = schedule("soft --arms alone --seconds 2");
        let lines: Vec<_> =
            soft.programs.iter().map(|program| program.arguments(&schedule, None, &ProgramFiles::default())).collect();
        assert!(lines[0].join(" ").ends_with("--steps 360 --pause-us 4000 --progress"), "{:?}", lines[0]);
        assert!(lines[1].join(" ").ends_with("--steps 240 --pause-us 0 --progress"), "{:?}", lines[1]);
    }

    #[test]
    fn one_side_of_the_gpu_is_for_those_who_go_first() {
        let front = |name: &str| -> Vec<bool> {
            let scenario = by_name(name).unwrap();
            scenario.programs.iter().map(|program| scenario.is_in_front(program)).collect()
        };
        assert_eq!(front("two-latency"), [true, true, false]);
        assert_eq!(front("two-half"), [true, false]);
        assert_eq!(front("llm-llm-train"), [true, true, false]);
    }
}
