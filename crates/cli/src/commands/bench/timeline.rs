//! What the tenants of an arm did in a few hundredths of a second: each step, and each launch as it was decided.
//!
//! It comes from what the shim writes down (`records.rs`) in a session of its own, after all that is measured: writing down costs
//! tenants a little at each launch.

use super::figures::Window;
use super::identity::Identity;
use super::records::{Record, seconds};
use super::scenario::Program;
use detshare_api::Class;
use detshare_policy::Reason;
use detshare_sim::record;
use serde::Serialize;
use std::collections::BTreeMap;

/// How much is shown, in seconds: some periods of a server, and its steps are still wide enough to be seen.
const LENGTH: f64 = 0.06;
/// What is shown before the first step.
const LEAD: f64 = 0.001;

/// What the tenants of an arm did, in milliseconds since it begins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Timeline {
    pub(crate) arm: &'static str,
    pub(crate) milliseconds: f64,
    /// What the numbers of a launch are.
    launch_columns: [&'static str; 7],
    pub(crate) tenants: Vec<TenantLine>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TenantLine {
    pub(crate) tenant: &'static str,
    pub(crate) class: Class,
    /// Whether it computed what it computes alone.
    pub(crate) bits: Identity,
    /// From when to when it had something to do on the GPU.
    pub(crate) steps: Vec<(f64, f64)>,
    pub(crate) launches: Vec<Launch>,
}

/// A launch, as it was decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(into = "LaunchRow")]
pub(crate) struct Launch {
    /// When it was let through.
    pub(crate) at: f64,
    pub(crate) lane: String,
    /// Why it was.
    pub(crate) reason: &'static str,
    /// For how long it had been held, and why.
    pub(crate) held: f64,
    pub(crate) held_for: Option<&'static str>,
    /// What it was to take; 0 if nobody knew.
    pub(crate) expected: f64,
    /// What its process had on the GPU before it, as far as anybody knew.
    pub(crate) in_flight: f64,
}

/// Short, as there are many.
type LaunchRow = (f64, String, &'static str, f64, Option<&'static str>, f64, f64);
const LAUNCH_COLUMNS: [&str; 7] = ["at", "lane", "reason", "held", "held_for", "expected", "in_flight"];

impl From<Launch> for LaunchRow {
    fn from(it: Launch) -> Self {
        (it.at, it.lane, it.reason, it.held, it.held_for, it.expected, it.in_flight)
    }
}

/// What is known of a tenant.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) program: &'static Program,
    pub(crate) record: Record,
    pub(crate) bits: Identity,
}

impl Timeline {
    /// From the last step before the middle of the window, of the tenant that goes before the others; earlier where not all records
    /// reach so far. Nothing where they do not even reach into the window.
    pub(crate) fn of(arm: &'static str, window: Window, tenants: &[Recorded]) -> Option<Self> {
        let known_until = tenants.iter().map(|one| one.record.known_until()).fold(f64::INFINITY, f64::min);
        let middle = f64::midpoint(window.from, window.to).min(known_until - LENGTH);
        (middle >= window.from).then(|| Self::from_a_step_before(arm, middle, tenants))
    }

    fn from_a_step_before(arm: &'static str, middle: f64, tenants: &[Recorded]) -> Self {
        let first = tenants.iter().find(|one| one.program.class == Class::Latency).or(tenants.first());
        let begins = first.iter().flat_map(|one| &one.record.steps).filter_map(|step| step.begun);
        let from = begins.filter(|begun| *begun <= middle).fold(f64::NEG_INFINITY, f64::max);
        let from = if from.is_finite() { from - LEAD } else { middle };
        let tenants = tenants.iter().map(|one| TenantLine::of(one, from)).collect();
        Self { arm, milliseconds: LENGTH * 1e3, launch_columns: LAUNCH_COLUMNS, tenants }
    }
}

impl TenantLine {
    fn of(Recorded { program, record, bits }: &Recorded, from: f64) -> Self {
        let within = |at: f64| milliseconds(at.clamp(from, from + LENGTH) - from);
        let is_seen = |begin: f64, end: f64| begin < from + LENGTH && end > from;
        let steps = record.steps.iter().filter_map(|step| Some((step.begun?, step.ended)));
        let steps = steps.filter(|(begun, ended)| is_seen(*begun, *ended));
        // What is still on the GPU or held when it begins is seen too.
        let launches = record.launches.iter().filter(|one| {
            let at = seconds(one.at);
            is_seen(at - seconds(one.held), at + seconds(one.in_flight + one.expected))
        });
        Self {
            tenant: program.name,
            class: program.class,
            bits: bits.clone(),
            steps: steps.map(|(begun, ended)| (within(begun), within(ended))).collect(),
            launches: launches.map(|one| Launch::of(one, &record.lanes, from)).collect(),
        }
    }
}

impl Launch {
    fn of(launched: &record::Launched, lanes: &BTreeMap<usize, String>, from: f64) -> Self {
        let about = |number: u8| Reason::from_number(number).map(Reason::about);
        let lane = lanes.get(&launched.lane).cloned();
        Self {
            at: milliseconds(seconds(launched.at) - from),
            lane: lane.unwrap_or_else(|| format!("lane {}", launched.lane)),
            reason: about(launched.reason).unwrap_or("nobody knows"),
            held: milliseconds(seconds(launched.held)),
            held_for: about(launched.held_for),
            expected: milliseconds(seconds(launched.expected)),
            in_flight: milliseconds(seconds(launched.in_flight)),
        }
    }

    /// From when to when it was to be on the GPU.
    pub(crate) fn on_gpu(&self) -> (f64, f64) {
        let begin = self.at + self.in_flight;
        (rounded(begin), rounded(begin + self.expected))
    }
}

fn milliseconds(seconds: f64) -> f64 {
    rounded(seconds * 1e3)
}

/// To microseconds.
fn rounded(milliseconds: f64) -> f64 {
    (milliseconds * 1e3).round() / 1e3
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::scenario::SCENARIOS;
    use super::*;
    use std::fmt::Write;

    fn program(name: &str) -> &'static Program {
        let small = SCENARIOS.iter().find(|scenario| scenario.name == "small").unwrap();
        small.programs.iter().find(|program| program.name == name).unwrap()
    }

    fn recorded(name: &str, lines: &str) -> Recorded {
        let text = format!("{}\n{lines}", first_line(true));
        let record = super::super::records::tests::record(&text);
        Recorded { program: program(name), record, bits: Identity::Identical { compared: 1 } }
    }

    fn first_line(is_whole: bool) -> String {
        let lanes = r#"{"lane":0,"name":"full","width":132},{"lane":1,"name":"front32","width":32}"#;
        format!("{{\"record\":1,\"pid\":7,\"name\":\"x\",\"whole\":{is_whole},\"lanes\":[{lanes}]}}")
    }

    const WINDOW: Window = Window { from: 1.0, to: 2.0 };
    const MICROSECOND: u64 = 1_000;
    const SECOND: u64 = 1_000_000_000;

    fn launch(at: u64, lane: u8, held: u64, expected: u64, in_flight: u64) -> String {
        let held_for = if held > 0 { Reason::Due.number() } else { 0 };
        let (reason, held) = (Reason::Fits.number(), held * MICROSECOND);
        let (expected, in_flight) = (expected * MICROSECOND, in_flight * MICROSECOND);
        format!(
            "{{\"at\":{at},\"launch\":\"a\",\"stream\":\"1\",\"lane\":{lane},\"reason\":{reason},\"held_for\":{held_for},\
             \"held\":{held},\"expected\":{expected},\"in_flight\":{in_flight}}}\n"
        )
    }

    /// A step of 1.2 ms each 6 ms for a second, beside a training that is held for the last of each 6 ms and while the step lasts.
    pub(crate) fn example() -> Timeline {
        let (mut serve, mut train) = (String::new(), String::new());
        let _ = writeln!(train, "{{\"at\":{SECOND},\"step\":\"began\"}}");
        for step in 0..166 {
            let begin = SECOND + step * 6_000 * MICROSECOND;
            let _ = writeln!(serve, "{{\"at\":{begin},\"step\":\"began\"}}");
            serve.push_str(&launch(begin, 0, 0, 1_150, 0));
            let _ = writeln!(serve, "{{\"at\":{},\"step\":\"ended\",\"phase\":\"?\"}}", begin + 1_200 * MICROSECOND);
            train.push_str(&launch(begin + 1_250 * MICROSECOND, 0, 1_450, 900, 0));
            train.push_str(&launch(begin + 1_300 * MICROSECOND, 1, 0, 2_000, 1_500));
            train.push_str(&launch(begin + 1_350 * MICROSECOND, 1, 0, 500, 3_450));
        }
        let _ = writeln!(train, "{{\"at\":{},\"step\":\"ended\",\"phase\":\"?\"}}", 2 * SECOND);
        Timeline::of("slo-aware", WINDOW, &[recorded("serve", &serve), recorded("train", &train)]).unwrap()
    }

    #[test]
    fn steps_are_apart_and_each_launch_is_as_it_was_decided() {
        let Timeline { tenants, milliseconds, .. } = example();
        let [serve, train] = &tenants[..] else { panic!("{tenants:?}") };
        assert_eq!((serve.steps.len(), serve.steps[0], serve.steps[1]), (10, (1.0, 2.2), (7.0, 8.2)));
        assert_eq!(train.steps, [(0.0, milliseconds)], "what lasts longer is cut off at both ends");
        let held: Vec<_> = train.launches.iter().filter(|one| one.held > 0.0).collect();
        assert_eq!((held.len(), held[0].at, held[0].held), (10, 2.25, 1.45));
        assert_eq!(held[0].held_for, Some("a step is due before it would be over"));
        let beside = train.launches.iter().find(|one| one.lane == "front32" && one.at > 0.0).unwrap();
        assert_eq!((beside.reason, beside.on_gpu()), ("over before the next step is due", (3.8, 5.8)));
        let before = &train.launches[0];
        assert!(before.at < 0.0 && before.on_gpu().1 > 0.0, "it is on the GPU when this begins: {before:?}");
    }

    #[test]
    fn without_a_step_it_begins_in_the_middle() {
        let nothing = Timeline::of("fair", WINDOW, &[recorded("serve", ""), recorded("train", "")]).unwrap();
        assert!(nothing.tenants.iter().all(|tenant| tenant.steps.is_empty() && tenant.launches.is_empty()));
        let idle = recorded("serve", &launch(1_510_000_000, 9, 0, 10, 0));
        let launches = &Timeline::of("fair", WINDOW, &[idle]).unwrap().tenants[0].launches;
        assert_eq!((launches[0].at, launches[0].lane.as_str()), (10.0, "lane 9"));
    }

    /// There is room for so many lines in a record.
    #[test]
    fn where_a_record_was_full_before_the_middle_what_came_before_is_shown() {
        let until = |milliseconds: u64| {
            let all = (0..milliseconds).map(|at| launch(SECOND + at * 1_000 * MICROSECOND, 0, 0, 10, 0));
            let text = all.collect::<String>();
            let record = super::super::records::tests::record(&format!("{}\n{text}", first_line(false)));
            let cut = Recorded { program: program("train"), record, bits: Identity::Identical { compared: 1 } };
            Timeline::of("fair", WINDOW, &[recorded("serve", ""), cut])
        };
        let launches = |timeline: Timeline| timeline.tenants[1].launches.len();
        assert!((59..=61).contains(&launches(until(400).unwrap())));
        assert!((59..=61).contains(&launches(until(62).unwrap())));
        assert_eq!(until(50), None);
    }
}
