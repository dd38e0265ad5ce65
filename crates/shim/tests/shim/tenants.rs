//! A tenant as others see it: busy and idle, held, paused, moved, and on its own when the daemon is gone. The test plays
//! the daemon and the other tenants; the program is on the software GPU and does what it is told.

mod beside;
mod foresight;

use crate::stage::{built, shim};
use detshare_board::join::{Arrived, Hello, Refusal, Welcome};
use detshare_board::{Claim, Class, Daemon, Entry, Owner, SplitLadder, Tenant, TenantView, clock};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks at something that another process does; it may need this core.
const LOOK: Duration = Duration::from_millis(1);
/// A time in which something that should not happen would have happened mostly.
pub(crate) const A_WHILE: Duration = Duration::from_millis(60);
const EXCLUSIVE: u32 = 0;
const FAIR: u32 = 1;
pub(crate) const SLO_AWARE: u32 = 2;
const TPOT_FIRST: u32 = 4;
/// As the policy numbers its reasons.
const BESIDE: u8 = 4;
const BUSY: u8 = 9;
const DUE: u8 = 10;

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(LOOK);
    }
}

fn until_some<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain");
        std::thread::sleep(LOOK);
    }
}

/// The daemon's part.
pub(crate) struct Office {
    pub(crate) daemon: Daemon,
    listener: UnixListener,
    pub(crate) folder: tempfile::TempDir,
}

impl Office {
    pub(crate) fn open() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { daemon: Daemon::create().expect("a group"), listener: listen(folder.path()), folder }
    }

    /// Another daemon in its place; whoever was connected is not any more.
    fn succeed(self) -> Self {
        std::fs::remove_file(self.folder.path().join("tenants.sock")).expect("the socket");
        drop(self.listener);
        Self { daemon: Daemon::create().expect("a group"), listener: listen(self.folder.path()), folder: self.folder }
    }

    /// Takes in whoever comes next. A program that waited for too long has closed its connection and comes again.
    pub(crate) fn admit(&self, change: impl FnOnce(&mut Entry)) -> Admitted {
        let (mut stream, hello, mut page) = self.arrival();
        let mut entry = Entry::new(hello.class.unwrap_or(Class::BestEffort));
        entry.limits.longest_hold_ns = 5_000_000_000;
        entry.ladder = SplitLadder::new(&[16, 32, 48, 64, 96]).expect("it rises");
        change(&mut entry);
        let owner = Owner::of_peer(&stream).expect("its process");
        let claim = self.daemon.claim(owner, &entry).expect("a free slot");
        let (slot, generation) = (claim.slot(), claim.generation());
        while (Welcome::Accepted { slot, generation }).send(&stream, self.daemon.file()).is_err() {
            (stream, _, page) = self.arrival();
        }
        let view = TenantView::map(&page).expect("its page");
        Admitted { stream, hello, view, claim, entry, page }
    }

    /// Whoever comes next is not taken in.
    pub(crate) fn refuse(&self) {
        let (stream, ..) = self.arrival();
        Welcome::Refused(Refusal::Full).send(&stream, self.daemon.file()).expect("said");
    }

    fn arrival(&self) -> (UnixStream, Hello, OwnedFd) {
        let (stream, _) = self.listener.accept().expect("somebody comes");
        let (hello, page) = Hello::receive(&stream).expect("a hello");
        (stream, hello, page)
    }

    /// Somebody else, played by the test, as `to` sees them.
    pub(crate) fn introduce(&self, to: &Admitted, class: Class) -> Tenant {
        self.introduce_one_who_leaves(to, class).0
    }

    /// The same, with its place in the table, to give back.
    pub(crate) fn introduce_one_who_leaves(&self, to: &Admitted, class: Class) -> (Tenant, Claim) {
        self.introduce_one_who_has(to, class, |_| ())
    }

    /// One who has done something before anybody knew of them.
    pub(crate) fn introduce_one_who_has(
        &self,
        to: &Admitted,
        class: Class,
        done: impl FnOnce(&Tenant),
    ) -> (Tenant, Claim) {
        let other = Tenant::create(class).expect("a group");
        other.set_gpu(to.hello.gpu_id);
        done(&other);
        let owner = Owner::of_process(std::process::id()).expect("myself");
        let claim = self.daemon.claim(owner, &Entry::new(class)).expect("a free slot");
        let arrived = Arrived { slot: claim.slot(), generation: claim.generation() };
        arrived.send(&to.stream, other.file()).expect("said");
        (other, claim)
    }
}

fn listen(folder: &Path) -> UnixListener {
    UnixListener::bind(folder.join("tenants.sock")).expect("a socket")
}

/// A tenant that was taken in.
pub(crate) struct Admitted {
    stream: UnixStream,
    pub(crate) hello: Hello,
    pub(crate) view: TenantView,
    claim: Claim,
    entry: Entry,
    page: OwnedFd,
}

impl Admitted {
    pub(crate) fn give(&mut self, office: &Office, change: impl FnOnce(&mut Entry)) {
        change(&mut self.entry);
        assert!(office.daemon.configure(&self.claim, &self.entry));
    }

    fn is_busy(&self) -> bool {
        self.view.step().is_busy()
    }
}

/// The program.
struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Program {
    fn start(folder: &Path, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(built("step_probe"));
        command.env_clear().env("LD_PRELOAD", shim()).env("DETSHARE_DIR", folder).env("DETSHARE_CLASS", "latency");
        command.env("DETSHARE_DRIVER", built("libdetshare_softgpu.so")).envs(settings.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
        let (to, from) = (child.stdin.take().expect("piped"), BufReader::new(child.stdout.take().expect("piped")));
        Self { child, to, from }
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

    /// How often a thread of that name has gone to sleep.
    fn sleeps_of(&self, thread: &str) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let read = |task: &Path, name| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        let tasks = tasks.map(|task| task.expect("it can be listed").path());
        let named: Vec<_> = tasks.filter(|task| read(task, "comm").trim_end() == thread).collect();
        let [task] = named.as_slice() else { panic!("there is not one thread {thread}, but {named:?}") };
        let status = read(task, "status");
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps.expect("the system counts them").trim().parse().expect("a number")
    }

    fn ends(mut self) {
        drop(self.to);
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// A program that has joined.
fn joined(settings: &[(&str, &str)], change: impl FnOnce(&mut Entry)) -> (Office, Program, Admitted) {
    let office = Office::open();
    let mut program = Program::start(office.folder.path(), settings);
    let admitted = office.admit(change);
    program.hear("ready");
    (office, program, admitted)
}

#[test]
fn what_a_tenant_says_of_itself() {
    let settings = [("DETSHARE_NAME", "probe"), ("DETSHARE_P99", "5000000"), ("DETSHARE_MEM", "1GiB")];
    let (_office, mut program, admitted) = joined(&settings, |_| ());
    let hello = &admitted.hello;
    assert_eq!((hello.class, hello.name.as_str(), hello.width), (Some(Class::Latency), "probe", 132));
    assert_eq!((hello.objective.p99_ns, hello.memory), (Some(5_000_000), Some(1 << 30)));
    assert!(hello.gpu.starts_with("DetShare") && hello.gpu_id != 0, "{hello:?}");
    assert_eq!(hello.driver, env!("CARGO_PKG_VERSION"), "the software GPU's own release");
    program.does(&["begin", "open", "stream"]);
    program.ends();
}

/// However the program notices the end, and however it was begun.
#[test]
fn busy_from_the_first_launch_until_the_end() {
    let (_office, mut program, admitted) = joined(&[], |_| ());
    let ways: [(&str, &[&str]); 4] = [
        ("begin", &["stream", "event", "context", "query", "event-query"]),
        ("begin-null", &["stream", "event", "context", "query", "event-query", "copy"]),
        ("begin-thread", &["stream", "event", "context", "query", "event-query"]),
        ("begin-graph", &["stream", "event", "context", "query", "event-query"]),
    ];
    let mut steps = 0;
    for (begin, ends) in ways {
        for end in ends {
            assert!(!admitted.is_busy(), "before {begin}, {end}");
            program.does(&[begin]);
            assert!(admitted.is_busy(), "after {begin}");
            program.does(&["open", end]);
            // The answer came after the program had noticed.
            assert!(!admitted.is_busy(), "after {begin}, {end}");
            steps += 1;
            let state = admitted.view.read(clock::now());
            assert_eq!((state.step.number(), state.launched, state.finished), (steps, state.launched, state.launched));
        }
    }
    assert_eq!(admitted.view.step_times().count(), u64::from(steps));
    program.ends();
}

/// A copy that goes on when the kernels are done belongs to the step, wherever it is.
#[test]
fn busy_until_what_is_no_launch_is_done_as_well() {
    let (_office, mut program, admitted) = joined(&[], |_| ());
    for beside in ["beside", "beside-thread"] {
        for begin in ["begin", "begin-graph"] {
            program.does(&[begin, beside, "open", "stream"]);
            assert!(admitted.is_busy(), "after {begin} with {beside}: the other stream waits");
            program.does(&["release", "other"]);
            assert!(!admitted.is_busy(), "after {begin} with {beside}");
            program.does(&[begin, beside, "open", "stream", "release"]);
            until("it is idle without a wait for the other stream", || !admitted.is_busy());
        }
    }
    program.does(&["beside"]);
    assert!(!admitted.is_busy(), "what is put in before a launch begins no step");
    program.does(&["release", "other"]);
    program.ends();
}

#[test]
fn a_program_that_never_waits_is_idle_at_last() {
    let (_office, mut program, admitted) = joined(&[], |_| ());
    for begin in ["begin", "begin-null", "begin-thread", "begin-graph"] {
        program.does(&[begin]);
        assert!(admitted.is_busy(), "after {begin}");
        program.does(&["open"]);
        until("it is idle", || !admitted.is_busy());
        program.does(&[begin, "open", "host"]);
        until("it is idle after a host function", || !admitted.is_busy());
    }
    program.ends();
}

/// A best-effort program under `slo-aware` that has seen a latency tenant.
fn beside_a_server() -> (Office, Program, Admitted, Tenant) {
    let (office, mut program, admitted) = joined(&[("DETSHARE_CLASS", "best-effort")], |_| ());
    office.daemon.set_policy(SLO_AWARE);
    let other = office.introduce(&admitted, Class::Latency);
    until_it_sees_the_other(&mut program, &admitted);
    (office, program, admitted, other)
}

/// A best-effort tenant launches until it sees the latency tenant: beside one every launch is written down, and otherwise only
/// those that are decided differently from the one before.
fn until_it_sees_the_other(program: &mut Program, admitted: &Admitted) {
    until("it sees the other", || {
        let before = admitted.view.decisions().len();
        program.does(&["begin", "open", "stream", "begin", "open", "stream"]);
        admitted.view.decisions().len() == before + 2
    });
}

/// A worker that was forked after joining holds on to nothing: the death of its parent is seen while it lives.
#[test]
fn a_forked_child_is_no_tenant() {
    let (_office, mut program, admitted) = joined(&[], |_| ());
    program.does(&["begin", "open", "stream", "fork"]);
    program.child.kill().expect("the parent");
    program.child.wait().expect("it is gone");
    let mut stream = admitted.stream;
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(stream.read(&mut [0]).expect("the connection ends"), 0, "it said something");
    // Only now does the child end, and with it the other end of the pipe.
    drop(program.to);
    assert_eq!(program.from.read(&mut [0]).expect("the child ends"), 0);
}

/// What its parent launched is its parent's, and neither spoils the other's record.
#[test]
fn a_forked_child_has_a_record_of_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let record = folder.path().join("record");
    let (_office, mut program, _admitted) = joined(&[("DETSHARE_RECORD", record.to_str().expect("plain"))], |_| ());
    program.does(&["begin", "open", "stream", "fork-exit", "begin-graph", "open", "stream"]);
    program.ends();
    let text = std::fs::read_to_string(&record).expect("a record");
    assert!(text.contains("\"name\":\"graph\",\"nodes\":1,"), "{text}");
    assert_eq!(recorded_launches(&record), 2);
    let of_others = std::fs::read_dir(&folder).expect("it is there").map(|entry| entry.expect("a file").path());
    let of_child: Vec<_> = of_others.filter(|file| *file != record).collect();
    assert_eq!(of_child.iter().map(|file| recorded_launches(file)).collect::<Vec<_>>(), [0], "{of_child:?}");
}

fn recorded_launches(record: &Path) -> usize {
    let text = std::fs::read_to_string(record).expect("a record");
    text.lines().filter(|line| line.contains("\"launch\"")).count()
}

/// A daemon that takes its time: a program that is recorded launches nothing before it is let in.
#[test]
fn a_record_has_the_first_launches() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let record = folder.path().join("record");
    let office = Office::open();
    let mut program = Program::start(office.folder.path(), &[("DETSHARE_RECORD", record.to_str().expect("plain"))]);
    for word in ["begin", "open", "stream"] {
        program.say(word);
    }
    // Others would have gone on without it by then.
    std::thread::sleep(5 * A_WHILE);
    let _admitted = office.admit(|_| ());
    for expected in ["ready", "ok", "ok", "ok"] {
        program.hear(expected);
    }
    program.ends();
    assert_eq!(recorded_launches(&record), 1);
}

#[test]
fn several_launches_are_one_step() {
    let (_office, mut program, admitted) = joined(&[], |_| ());
    program.does(&["begin", "begin-null", "begin"]);
    let step = admitted.view.step();
    program.does(&["open"]);
    program.does(&["context"]);
    assert_eq!((step.number(), admitted.view.step().number()), (1, 1));
    assert!(!admitted.is_busy());
    program.ends();
}

#[test]
fn a_launch_is_held_while_another_has_its_turn() {
    let (office, mut program, admitted) = joined(&[("DETSHARE_CLASS", "best-effort")], |_| ());
    office.daemon.set_policy(EXCLUSIVE);
    let other = office.introduce(&admitted, Class::Latency);
    other.launch();
    hold_a_launch(&mut program, &admitted);
    let before = admitted.view.read(clock::now());
    assert!(other.finish(other.launched(), 0));
    program.hear("ok");
    program.does(&["open", "stream"]);
    let after = admitted.view.read(clock::now());
    assert_eq!((after.launched, after.holds), (before.launched + 1, before.holds));
    assert!(!admitted.view.is_holding() && after.held_ns > 0);
    program.ends();
}

#[test]
fn a_hold_ends_when_the_daemon_does() {
    let (office, mut program, admitted) = joined(&[("DETSHARE_CLASS", "best-effort")], |_| ());
    office.daemon.set_policy(EXCLUSIVE);
    let other = office.introduce(&admitted, Class::Latency);
    other.launch();
    hold_a_launch(&mut program, &admitted);
    drop((office, admitted));
    program.hear("ok");
    program.does(&["open", "stream", "begin", "open", "stream"]);
    program.ends();
}

/// The page of another may come after a launch was decided; from then on it is seen.
fn hold_a_launch(program: &mut Program, admitted: &Admitted) {
    until("a launch is held", || {
        // Before it is told: it may have launched by the time that we look.
        let launched = admitted.view.read(clock::now()).launched;
        program.say("begin");
        let answered = |program: &mut Program| {
            program.hear("ok");
            program.does(&["open", "stream"]);
            false
        };
        loop {
            if admitted.view.is_holding() {
                return true;
            }
            if admitted.view.read(clock::now()).launched != launched {
                return answered(program);
            }
            std::thread::yield_now();
        }
    });
}

#[test]
fn no_hold_is_longer_than_the_longest() {
    let short = |entry: &mut Entry| entry.limits.longest_hold_ns = 1_000_000;
    let (office, mut program, admitted) = joined(&[("DETSHARE_CLASS", "best-effort")], short);
    office.daemon.set_policy(EXCLUSIVE);
    let other = office.introduce(&admitted, Class::Latency);
    other.launch();
    // It never ends, and all goes on.
    for _ in 0..20 {
        program.does(&["begin", "open", "stream"]);
    }
    until("some were held", || {
        program.does(&["begin", "open", "stream"]);
        admitted.view.read(clock::now()).holds > 0
    });
    program.ends();
}

#[test]
fn a_paused_tenant_waits_until_it_is_resumed() {
    let (office, mut program, mut admitted) = joined(&[], |_| ());
    program.does(&["begin", "open", "stream"]);
    let launched = admitted.view.read(clock::now()).launched;
    admitted.give(&office, |entry| entry.paused = true);
    program.say("begin");
    let seen = Instant::now() + A_WHILE;
    while Instant::now() < seen {
        assert_eq!(admitted.view.read(clock::now()).launched, launched, "it is paused");
        std::thread::yield_now();
    }
    assert!(!admitted.view.is_holding(), "it wants nothing");
    admitted.give(&office, |entry| entry.paused = false);
    program.hear("ok");
    program.does(&["open", "stream"]);
    program.ends();
}

#[test]
fn lanes_change_with_who_is_there() {
    let (office, mut program, admitted) = joined(&[], |_| ());
    office.daemon.set_policy(FAIR);
    let lane = |program: &mut Program| {
        program.does(&["begin", "open", "stream"]);
        let state = admitted.view.read(clock::now());
        (state.lane, state.lane_width)
    };
    assert_eq!(lane(&mut program), (0, 132));
    let other = office.introduce(&admitted, Class::BestEffort);
    other.launch();
    // Slot 0 is in front; 64 of 132 is the nearest to a half.
    until("it moves to its half", || lane(&mut program) == (7, 64));
    assert!(other.finish(other.launched(), 0));
    assert_eq!(lane(&mut program), (0, 132), "all is its own again");
    program.ends();
}

#[test]
fn a_daemons_successor_knows_the_tenant() {
    let (office, mut program, admitted) = joined(&[], |_| ());
    program.does(&["begin", "open", "stream"]);
    drop(admitted);
    let office = office.succeed();
    program.does(&["begin", "open", "stream"]);
    let again = office.admit(|_| ());
    let state = again.view.read(clock::now());
    assert_eq!((state.launched, state.step.number()), (2, 2), "its page is the same");
    program.does(&["begin"]);
    assert!(again.is_busy());
    program.does(&["open", "stream"]);
    program.ends();
    drop(again.page);
}

#[test]
fn a_tenant_that_is_not_taken_in_runs_alone() {
    let office = Office::open();
    let mut program = Program::start(office.folder.path(), &[]);
    office.refuse();
    program.hear("ready");
    program.does(&["begin", "open", "stream"]);
    program.ends();
}

/// Closes the connection after anything, sends nonsense, or says nothing at all.
#[test]
fn a_daemon_that_talks_nonsense_harms_nobody() {
    for answer in [&b""[..], b"x", &[0xff; 4096], b"detshare\x01\x00\x00\x00"] {
        let office = Office::open();
        let mut program = Program::start(office.folder.path(), &[]);
        let (mut stream, _) = office.listener.accept().expect("it comes");
        _ = stream.write_all(answer);
        program.hear("ready");
        drop(stream);
        program.does(&["begin", "open", "stream"]);
        program.ends();
    }
}

#[test]
fn without_a_daemon_all_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut program = Program::start(folder.path(), &[]);
    program.hear("ready");
    program.does(&["begin", "open", "stream", "begin-graph", "open", "context"]);
    program.ends();
}

#[test]
fn the_memory_that_a_tenant_has_is_seen_and_limited() {
    let office = Office::open();
    let mut command = Command::new(built("quota_probe"));
    command.args(["init", "alloc:1000000", "alloc:3000000"]).env_clear().env("LD_PRELOAD", shim());
    command.env("DETSHARE_DIR", office.folder.path()).env("DETSHARE_DRIVER", built("libdetshare_softgpu.so"));
    let child = command.args(["info"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let admitted = office.admit(|entry| entry.limits.memory = Some(2_000_000));
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(admitted.hello.memory, None);
    let expected = "init CUDA_SUCCESS\nalloc:1000000 CUDA_SUCCESS\nalloc:3000000 CUDA_ERROR_OUT_OF_MEMORY\n\
         info CUDA_SUCCESS 1000000 2000000\n";
    assert_eq!(said, expected);
}

#[test]
fn a_program_without_cuda_is_told_of_once() {
    let run = |script: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env("LD_PRELOAD", shim());
        String::from_utf8(command.output().expect("a shell").stderr).expect("text")
    };
    let line = "detshare: the program did not use CUDA, so there was nothing to share\n";
    assert_eq!(run("DETSHARE_RUN=$$ exec /bin/true"), line);
    assert_eq!(run("DETSHARE_RUN=$$ exec /bin/sh -c '/bin/true; /bin/true'"), "", "a child may have used it");
    assert_eq!(run("DETSHARE_RUN=1 exec /bin/true"), "", "it is another process's");
    assert_eq!(run("exec /bin/true"), "");
}
