//! Every decision can be explained: `detshare explain` over programs whose launches and waits are put in order from here.

use crate::daemon::{DaemonStage, built, until};
use crate::fake::FakeDaemon;
use crate::sharing::soft;
use crate::stage::{Stage, outcome};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// A program that does as it is told, and ends with the test.
struct Probe {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Probe {
    fn start(house: &DaemonStage, name: &str, class: &str) -> Self {
        let mut command = house.command(&["run", "--class", class, "--name", name, "--"]);
        command.arg(built("step_probe"));
        soft(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
        let (to, from) = (child.stdin.take().expect("piped"), BufReader::new(child.stdout.take().expect("piped")));
        let mut probe = Self { child, to, from };
        probe.hear("ready");
        // On a busy machine its first call was not kept waiting until it was one.
        until("it is a tenant", || house.detshare(&["explain", name]).code == Some(0));
        probe
    }

    fn say(&mut self, word: &str) {
        writeln!(self.to, "{word}").expect("it listens");
    }

    fn hear(&mut self, expected: &str) {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        assert_eq!(line.trim_end(), expected);
    }

    fn does(&mut self, words: &[&str]) {
        for word in words {
            self.say(word);
            self.hear("ok");
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it runs");
    }
}

/// A daemon with this configuration, and with the lanes that the software GPU has.
fn house(configuration: &str) -> DaemonStage {
    let house = DaemonStage::new();
    std::fs::write(house.stage.path(".config/detshare/detshare.toml"), configuration).unwrap();
    assert_eq!(house.detshare(&["up"]).code, Some(0));
    house
}

/// A server and a training that know of each other.
fn both(house: &DaemonStage) -> (Probe, Probe) {
    (Probe::start(house, "serve", "latency"), Probe::start(house, "train", "best-effort"))
}

fn table(house: &DaemonStage, name: &str) -> String {
    house.detshare(&["explain", name]).stdout
}

fn json(house: &DaemonStage, name: &str) -> Vec<Value> {
    let ended = house.detshare(&["explain", name, "--last", "100", "--format", "json"]);
    let said: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    said["decisions"].as_array().expect("a list").clone()
}

#[test]
fn a_launch_that_was_held_for_as_long_as_can_be_says_so() {
    let house = house("policy = \"exclusive\"\nlongest_hold = \"2ms\"\n");
    let (mut serve, mut train) = both(&house);
    assert!(table(&house, "train").contains("nothing had to be decided yet"), "{}", table(&house, "train"));
    serve.does(&["begin"]);
    // The step under way does not end, and the first launches may not know of the server yet.
    until("a hold was as long as can be", || {
        train.does(&["begin", "open", "stream"]);
        table(&house, "train").contains("held for as long as a launch may be")
    });
    assert!(table(&house, "train").contains("another one's turn (serve); then held for"), "{}", table(&house, "train"));
    let decisions = json(&house, "train");
    let decision = decisions.iter().find(|it| it["reason"] == "held for as long as a launch may be").expect("one");
    assert_eq!((&decision["held_for"], &decision["because_of"]), (&"another one's turn".into(), &"serve".into()));
    assert!(decision["held_ns"].as_u64().is_some_and(|ns| ns >= 2_000_000), "{decision}");
    serve.does(&["open", "stream"]);
}

/// A server that says that it is busy, and never that it is not: nobody waits for it for ever, and that is said.
#[test]
fn who_waits_for_one_that_is_always_busy_gets_its_least_share() {
    let house = house("policy = \"slo-aware\"\nleast_share = 0.2\nlongest_hold = \"10s\"\n");
    let (mut serve, mut train) = both(&house);
    serve.does(&["begin"]);
    until("it runs all the same", || {
        train.does(&["begin", "open", "stream"]);
        table(&house, "train").contains("it would get less than its least share")
    });
    let said = json(&house, "train");
    let held = |it: &&Value| it["held_for"] == "a latency tenant has a step under way" && it["because_of"] == "serve";
    assert!(said.iter().any(|it| held(&it)), "{said:#?}");
    serve.does(&["open", "stream"]);
}

#[test]
fn what_is_decided_for_a_server_is_said() {
    let house = house("policy = \"slo-aware\"\n");
    let (mut serve, mut train) = both(&house);
    train.does(&["begin"]);
    until("it is not held", || {
        serve.does(&["begin", "open", "stream"]);
        table(&house, "serve").contains("of a latency tenant, which is not held")
    });
    assert!(!table(&house, "serve").contains("nothing had to be decided"), "{}", table(&house, "serve"));
    // Some milliseconds of the host's time before each launch: most of the GPU is idle in its steps. They grow until they are long beside
    // what a busy machine adds to each kernel.
    const LONGEST_MS: u32 = 64;
    let mut ms = 1;
    until("it has SMs of its own", || {
        ms = LONGEST_MS.min(2 * ms);
        serve.does(&[&format!("slowly:20:{ms}"), "stream"]);
        json(&house, "serve").iter().any(|it| it["lane_width"] == 32)
    });
    let apart = "on SMs of its own: its steps leave most of the GPU idle";
    assert!(table(&house, "serve").contains(apart), "{}", table(&house, "serve"));
    assert!(json(&house, "serve").iter().any(|it| it["reason"] == apart && it["held_ns"] == 0));
    // What does not change is said once: the list is no longer than there were changes.
    until("it stays there", || {
        serve.does(&[&format!("slowly:20:{ms}"), "stream"]);
        json(&house, "serve").last().is_some_and(|last| last["reason"] == apart)
    });
    let before = json(&house, "serve").len();
    serve.does(&[&format!("slowly:4:{ms}")]);
    assert!(json(&house, "serve").len() <= before + 2, "{}", table(&house, "serve"));
    serve.does(&["stream"]);
    train.does(&["open", "stream"]);
}

#[test]
fn who_shares_equally_is_told_so() {
    let house = house("policy = \"fair\"\n");
    let (mut one, mut other) = both(&house);
    other.does(&["begin"]);
    until("it has its side", || {
        one.does(&["begin", "open", "stream"]);
        table(&house, "serve").contains("its turn, or its side of a split")
    });
    assert!(json(&house, "serve").iter().any(|it| it["reason"] == "its turn, or its side of a split"));
    other.does(&["open", "stream"]);
}

#[test]
fn a_pause_is_a_reason() {
    let house = house("policy = \"slo-aware\"\n");
    let (_serve, mut train) = both(&house);
    until("they know of each other", || {
        train.does(&["begin", "open", "stream"]);
        !json(&house, "train").is_empty()
    });
    until("it was held by a pause", || {
        assert_eq!(house.detshare(&["pause", "train"]).code, Some(0));
        train.say("begin");
        assert_eq!(house.detshare(&["resume", "train"]).code, Some(0));
        train.hear("ok");
        train.does(&["open", "stream"]);
        table(&house, "train").contains("its tenant was paused; then ")
    });
    let is_told = |it: &Value| it["held_for"] == "its tenant was paused" && it["held_ns"].as_u64() > Some(0);
    assert!(json(&house, "train").iter().any(is_told));
}

/// What cannot be is replaced, and it is said that it was: a tenant's page, a stored time, a due time.
#[test]
fn what_is_not_believed_is_said() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let said = outcome(stage.detshare().args(["explain", "train"])).stdout;
    for expected in [
        "doubted: it has published what cannot be; something sensible was taken instead\n",
        "; taken for 100 us: what is stored of it cannot be; when a step is due was not believed\n",
        "310 us",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// How long a step will last at each width is known, and shown.
#[test]
fn lengths_of_steps_are_told_by_width() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let said = outcome(stage.detshare().args(["explain", "serve"])).stdout;
    assert!(said.contains("a step is expected to last 1.23 ms on 132 SMs, 1.50 ms on 64 SMs\n"), "{said}");
}

#[test]
fn csv_has_plain_fields() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let said = outcome(stage.detshare().args(["explain", "train", "--format", "csv"]));
    let expected = "\
ago_ns,kernel,lane_width,reason,held_ns,held_for,because_of,predicted_ns,assumed_ns,assumed_because,due_not_believed,measured_ns
5000000,matmul,132,over before the next step is due,0,,,,100000,what is stored of it cannot be,true,310000
";
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), expected), "{}", said.stderr);
}

/// Where nobody knows how long a kernel takes, or when a step is due, it is said what was done about it.
#[test]
fn what_is_assumed_is_said() {
    let house = house("policy = \"slo-aware\"\n");
    let (mut serve, mut train) = both(&house);
    let unknown = |it: &&Value| it["assumed_ns"] == 100_000 && it["assumed_because"] == "it was never measured";
    let mut shapes = 0;
    // Before they know of each other nothing is assumed; each time there are two shapes more that were never seen before.
    until("two are not known", || {
        shapes += 2;
        train.does(&[&format!("shapes:{shapes}"), "stream"]);
        json(&house, "train").iter().filter(unknown).count() >= 2
    });
    assert!(table(&house, "train").contains("; taken for 100 us: it was never measured"), "{}", table(&house, "train"));
    // A server that keeps time and then stops: nobody waits for the step that does not come. All pauses that count are of one burst,
    // and they grow until they are even beside what a busy machine adds to each.
    const LONGEST_PAUSE: Duration = Duration::from_millis(320);
    let mut pause = Duration::from_millis(10);
    until("it is late", || {
        pause = LONGEST_PAUSE.min(2 * pause);
        for _ in 0..20 {
            serve.does(&["begin", "open", "stream"]);
            std::thread::sleep(pause);
        }
        std::thread::sleep(2 * pause);
        train.does(&["begin", "open", "stream"]);
        table(&house, "train").contains("; when a step is due was not believed")
    });
    assert!(json(&house, "train").iter().any(|it| it["due_not_believed"] == true));
}

/// A program whose kernels all have names of their own, each launched once, beside a server at work: each of them is taken for a usual
/// one, which is said, and they compute what they should.
#[test]
fn a_thousand_kernels_that_nobody_knows_are_taken_for_usual_ones() {
    const KERNELS: usize = 1_000;
    /// So many decisions are kept of a tenant.
    const TOLD: usize = 62;
    let house = house("policy = \"slo-aware\"\n");
    let (mut serve, mut train) = both(&house);
    until("they know of each other", || {
        serve.does(&["begin", "open", "stream"]);
        train.does(&["begin", "open", "stream"]);
        !json(&house, "train").is_empty()
    });
    train.say(&format!("kernels:{KERNELS}"));
    (0..KERNELS / 10).for_each(|_| serve.does(&["begin", "open", "stream"]));
    // It says so only if they left what they should.
    train.hear("ok");
    serve.does(&["begin", "open", "stream"]);
    let decisions = json(&house, "train");
    assert_eq!(decisions.len(), TOLD);
    let is_usual = |it: &Value| it["assumed_ns"] == 100_000 && it["assumed_because"] == "it was never measured";
    assert!(decisions.iter().all(|it| is_usual(it) && it["predicted_ns"].is_null()), "{decisions:#?}");
    // Those that were measured meanwhile are shown by name.
    let named: Vec<&str> = decisions.iter().filter_map(|it| it["kernel"].as_str()).collect();
    let last: BTreeSet<String> = (KERNELS - TOLD..KERNELS).map(|number| format!("other_{number}")).collect();
    assert!(named.iter().all(|name| last.contains(*name)), "{named:?}");
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "each was launched once: {named:?}");
    let (table, shown) = (table(&house, "train"), 20);
    assert_eq!(table.matches("; taken for 100 us: it was never measured").count(), shown, "{table}");
    let of_server = json(&house, "serve");
    assert!(of_server.iter().all(|it| it["held_ns"] == 0), "a server waits for nobody: {of_server:#?}");
}

/// A training whose kernel has long been known, of which few launches are timed: who asks is told what they take.
#[test]
fn what_the_launches_of_a_steady_training_take_is_told() {
    let house = house("policy = \"slo-aware\"\n");
    let (mut serve, mut train) = both(&house);
    until("they know of each other", || {
        serve.does(&["begin", "open", "stream"]);
        train.does(&["begin", "open", "stream"]);
        !json(&house, "train").is_empty()
    });
    // In steps of ten, so that they are measured as they come.
    (0..30).for_each(|_| train.does(&["many:10", "stream"]));
    until("of most it is told what they took", || {
        assert!(!json(&house, "train").is_empty());
        train.does(&["many:70", "stream"]);
        let decisions = json(&house, "train");
        decisions.iter().filter(|it| it["measured_ns"].as_u64() > Some(0)).count() > decisions.len() / 2
    });
    serve.does(&["begin", "open", "stream"]);
}

/// The time that is told with a decision is that of the launch that was decided, not of an earlier one.
#[test]
fn the_time_that_is_told_is_that_of_the_launch() {
    const LONG: Duration = Duration::from_secs(1);
    let house = house("policy = \"slo-aware\"\n");
    let (_serve, mut train) = both(&house);
    until("they know of each other", || {
        train.does(&["begin", "open", "stream"]);
        !json(&house, "train").is_empty()
    });
    assert!(table(&house, "train").contains("measured"), "{}", table(&house, "train"));
    // Each in a shape of its own: the first launches of a shape are measured.
    let begun = Instant::now();
    train.does(&["begin:16"]);
    let unfinished = json(&house, "train").pop().expect("a decision");
    assert!(unfinished["measured_ns"].is_null(), "it is not over: {unfinished}");
    assert!(table(&house, "train").trim_end().lines().last().is_some_and(|line| line.contains("not measured")));
    std::thread::sleep(LONG);
    train.does(&["open", "stream"]);
    let first = begun.elapsed();
    let number = json(&house, "train").len() - 1;
    let begun = Instant::now();
    train.does(&["begin:32", "open", "stream"]);
    let second = begun.elapsed();
    let measured = |number: usize| json(&house, "train")[number]["measured_ns"].as_u64().map(Duration::from_nanos);
    until("both were measured", || measured(number).is_some() && measured(number + 1).is_some());
    let table = table(&house, "train");
    assert!(measured(number).is_some_and(|took| LONG / 2 < took && took <= first), "{first:?}: {table}");
    assert!(measured(number + 1).is_some_and(|took| took <= second), "{second:?}: {table}");
}
