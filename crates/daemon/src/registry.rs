//! Who is here: slots, names, what each was given, and telling them of each other.
//!
//! Nothing here waits. Messages to tenants are put into their sockets if there is room; a tenant that has left its own
//! unread for so long that there is none is sent away, and can come again.

use crate::config::Config;
use crate::entry::{self, from_board};
use crate::history::History;
use crate::learning::{Seen, Taught};
use crate::name;
use crate::profiles::Gpu;
use crate::standing::Standing;
use detshare_api::{DecisionMade, Isolation, Missed, Objective, StepLength, Tenant, TenantPatch};
use detshare_board::join::{Arrived, Hello, JoinError, Refusal, Welcome};
use detshare_board::{Claim, Daemon, Entry, Noted, OBJECTIVES, Owner, SocketError, TenantState, TenantView, clock};
use detshare_policy::objective::NAMES;
use detshare_policy::phase::Phase;
use detshare_policy::rhythm::Lengths;
use detshare_policy::{Launch, Reason};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

/// Longer command lines are cut.
const LONGEST_COMMAND: u64 = 4096;
/// How often a page is read before it is said to be nonsense: its owner may just be writing.
const LOOKS: usize = 8;
/// The software GPU's models begin with it.
const SOFTWARE_GPU: &str = "DetShare";

/// A tenant's connection.
pub(crate) type Connection = Arc<AsyncFd<UnixStream>>;

/// Tells one stay of a tenant from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stay(u64);

/// Why somebody was not taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinRefused {
    #[error("all slots are taken: end a tenant first")]
    Full,
    #[error("its page cannot be used: {0}")]
    Page(String),
    #[error("it could not be answered: {0}")]
    Unanswered(#[from] JoinError),
}

impl JoinRefused {
    /// What it is told; nothing where it may have heard a part of something else.
    pub(crate) const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Full => Some(Refusal::Full),
            Self::Page(_) => Some(Refusal::Page),
            Self::Unanswered(_) => None,
        }
    }
}

/// One who asks to be taken in.
#[derive(Debug)]
pub(crate) struct Applicant {
    pub(crate) hello: Hello,
    pub(crate) page: OwnedFd,
    pub(crate) owner: Owner,
    pub(crate) connection: Connection,
}

/// One who was.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) stay: Stay,
    pub(crate) name: String,
    /// Resolves when it was sent away.
    pub(crate) sent_away: oneshot::Receiver<()>,
}

/// A tenant that is here.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) name: String,
    /// The name that it would have if it were the only one of it.
    wanted_name: String,
    hello: Hello,
    claim: Claim,
    entry: Entry,
    patch: TenantPatch,
    page: OwnedFd,
    view: TenantView,
    connection: Connection,
    history: History,
    joined: SystemTime,
    command: String,
    pub(crate) mps_client: Option<bool>,
    /// Whether its page has ever held what cannot be.
    doubts: bool,
    taught: Taught,
    /// Whether it missed its objectives at the last look.
    strained: bool,
    standing: Standing,
    /// Whether it was quarantined at the last look.
    quarantined: bool,
    /// Dropped with the rest, which wakes the task that attends to the tenant.
    _sent_away: oneshot::Sender<()>,
}

/// What was decided last for a tenant.
#[derive(Debug)]
pub(crate) struct Decided {
    /// Oldest first.
    pub(crate) decisions: Vec<Noted>,
    /// Whether its launches are held until somebody lets it go on.
    pub(crate) is_paused: bool,
}

/// All that are here.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    present: BTreeMap<Stay, Present>,
    next_stay: u64,
}

impl Registry {
    pub(crate) fn len(&self) -> usize {
        self.present.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Present> {
        self.present.values()
    }

    pub(crate) fn get(&self, stay: Stay) -> Option<&Present> {
        self.present.get(&stay)
    }

    pub(crate) fn get_mut(&mut self, stay: Stay) -> Option<&mut Present> {
        self.present.get_mut(&stay)
    }

    /// By name, or else by pid.
    pub(crate) fn find(&self, name_or_pid: &str) -> Option<Stay> {
        let by_name = self.present.iter().find(|(_, present)| present.name == name_or_pid);
        let pid = name_or_pid.parse::<u32>().ok();
        let by_pid = || self.present.iter().find(|(_, present)| Some(present.claim.owner().pid()) == pid);
        by_name.or_else(by_pid).map(|(stay, _)| *stay)
    }

    /// The earlier stay of this process: it connects again because its connection broke.
    pub(crate) fn of_process(&self, owner: &Owner) -> Option<Stay> {
        let is_same =
            |claim: &Claim| (claim.owner().pid(), claim.owner().start_time()) == (owner.pid(), owner.start_time());
        self.present.iter().find(|(_, present)| is_same(&present.claim)).map(|(stay, _)| *stay)
    }

    /// Takes somebody in: a slot and a name, the daemon's pages and everybody's; and tells the others. Also returns those
    /// who could not be told, who are to be sent away.
    pub(crate) fn join(
        &mut self,
        board: &Daemon,
        config: &Config,
        isolation: Isolation,
        applicant: Applicant,
        patch: TenantPatch,
    ) -> Result<(Joined, Vec<Stay>), JoinRefused> {
        let Applicant { hello, page, owner, connection } = applicant;
        let (view, state) = map(&page)?;
        // Before it is told anything: what it does from then on counts.
        let history = History::new(clock::now(), &state, &view);
        let pid = owner.pid();
        let arguments = arguments(pid);
        let wanted_name = if hello.name.is_empty() { name::from_arguments(&arguments) } else { hello.name.clone() };
        let name = name::unique(&wanted_name, |name| self.iter().any(|present| present.name == name));
        let settings = entry::settings_for(config, [&name, &wanted_name]);
        let entry = entry::entry(config, &settings, isolation, &hello, &patch);
        let claim = board.claim(owner, &entry).map_err(|_| JoinRefused::Full)?;
        let arrived = Arrived { slot: claim.slot(), generation: claim.generation() };
        let welcome = Welcome::Accepted { slot: arrived.slot, generation: arrived.generation };
        if let Err(error) = welcome.send(connection.get_ref(), board.file()) {
            board.release(&claim);
            return Err(error.into());
        }
        let stay = Stay(self.next_stay);
        self.next_stay += 1;
        let mut deaf = self.announce(arrived, &page);
        if !self.introduce(&connection, arrived, &page) {
            deaf.push(stay);
        }
        let (sender, sent_away) = oneshot::channel();
        let joined = Joined { stay, name: name.clone(), sent_away };
        let present = Present {
            name,
            wanted_name,
            hello,
            claim,
            entry,
            patch,
            page,
            view,
            connection,
            history,
            joined: SystemTime::now(),
            command: printable(&arguments.join(" ")),
            mps_client: None,
            doubts: false,
            taught: Taught::default(),
            strained: false,
            standing: Standing::NEW,
            quarantined: false,
            _sent_away: sender,
        };
        self.present.insert(stay, present);
        Ok((joined, deaf))
    }

    /// Tells a new one of all who are here, itself among them; says whether it can hear.
    fn introduce(&self, connection: &Connection, new: Arrived, page: &OwnedFd) -> bool {
        let stream = connection.get_ref();
        let mut all = self.iter().map(|present| {
            let arrived = Arrived { slot: present.claim.slot(), generation: present.claim.generation() };
            arrived.send(stream, present.page.as_fd())
        });
        all.all(can_hear) && can_hear(new.send(stream, page.as_fd()))
    }

    /// Tells all who are here of a new one; returns those who cannot hear.
    fn announce(&self, new: Arrived, page: &OwnedFd) -> Vec<Stay> {
        let tell = |present: &Present| can_hear(new.send(present.connection.get_ref(), page.as_fd()));
        self.present.iter().filter(|(_, present)| !tell(present)).map(|(stay, _)| *stay).collect()
    }

    /// Frees its slot and forgets it.
    pub(crate) fn remove(&mut self, board: &Daemon, stay: Stay) -> Option<Present> {
        let present = self.present.remove(&stay)?;
        board.release(&present.claim);
        Some(present)
    }

    /// Gives everybody what the settings have for them now.
    pub(crate) fn configure(&mut self, board: &Daemon, config: &Config, isolation: Isolation) {
        for present in self.present.values_mut() {
            present.configure(board, config, isolation);
        }
    }

    /// Looks at everybody's page.
    pub(crate) fn look(&mut self, now: u64) {
        self.present.values_mut().for_each(|present| present.look(now));
    }

    /// Takes what was learnt of everybody.
    pub(crate) fn learn(&mut self) -> Vec<Seen> {
        self.present.values_mut().filter_map(Present::learn).collect()
    }
}

impl Present {
    pub(crate) fn pid(&self) -> u32 {
        self.claim.owner().pid()
    }

    /// The file of its page.
    pub(crate) fn page(&self) -> BorrowedFd<'_> {
        self.page.as_fd()
    }

    pub(crate) fn slot(&self) -> usize {
        self.claim.slot()
    }

    /// Whether it is on a GPU that MPS has anything to do with.
    pub(crate) fn is_on_real_gpu(&self) -> bool {
        !self.hello.gpu.starts_with(SOFTWARE_GPU)
    }

    pub(crate) fn patch(&self) -> TenantPatch {
        self.patch
    }

    /// Changes it; what was changed before and is not now stays.
    pub(crate) fn change(&mut self, board: &Daemon, config: &Config, isolation: Isolation, patch: &TenantPatch) {
        self.patch.extend(patch);
        self.configure(board, config, isolation);
    }

    fn configure(&mut self, board: &Daemon, config: &Config, isolation: Isolation) {
        let settings = entry::settings_for(config, [&self.name, &self.wanted_name]);
        let entry = entry::entry(config, &settings, isolation, &self.hello, &self.patch);
        // What stays the same need not wake anybody.
        if entry != self.entry {
            self.entry = entry;
            board.configure(&self.claim, &entry);
        }
    }

    fn look(&mut self, now: u64) {
        let state = self.view.read(now);
        self.doubt(&state);
        self.history.look(now, &state, &self.view);
        // A page that holds anything would fill the log with it.
        if !self.doubts {
            self.tell_of_objectives(now, &state);
            self.tell_of_standing(now, &state);
            self.tell_of_quarantine();
        }
    }

    /// Says once that its page makes no sense.
    fn doubt(&mut self, state: &TenantState) {
        if state.doubts.any() && !self.doubts {
            self.doubts = true;
            tracing::warn!(
                name = self.name,
                pid = self.pid(),
                doubts = ?state.doubts,
                "its page holds what cannot be; what can be is put in its place: is it of this version?"
            );
        }
    }

    /// Says when it begins to miss its objectives, and when it keeps to them again.
    fn tell_of_objectives(&mut self, now: u64, state: &TenantState) {
        if state.strained == self.strained {
            return;
        }
        self.strained = state.strained;
        let (name, pid) = (&self.name, self.pid());
        if state.strained {
            let missed = missed_in_words(&self.history.rates(now, state, &self.view).missed);
            let advice =
                "others make way for it, by class and weight; if that is not enough, it needs a GPU with less on it";
            tracing::warn!(name, pid, missed, "misses its objectives: {advice}");
        } else {
            tracing::info!(name, pid, "keeps to its objectives again");
        }
    }

    /// Says when its step begins to stand still, and when it goes on.
    fn tell_of_standing(&mut self, now: u64, state: &TenantState) {
        let is_urgent = self.entry.class == detshare_board::Class::Latency;
        let Some(stalled) = self.standing.look(is_urgent, state, &self.view.outlook(now), now) else { return };
        let (name, pid) = (&self.name, self.pid());
        if stalled {
            tracing::warn!(
                name,
                pid,
                "stands still in the middle of a step: it launches nothing and waits for the GPU, for far longer than its steps \
                 last; under slo-aware and tpot-first nobody makes way for it until it goes on"
            );
        } else {
            tracing::info!(name, pid, "no longer stands still");
        }
    }

    /// Says when its kernels begin to run far longer than they should, and when they run as they should again.
    fn tell_of_quarantine(&mut self) {
        let quarantined = self.view.is_quarantined();
        if quarantined == self.quarantined {
            return;
        }
        self.quarantined = quarantined;
        let (name, pid) = (&self.name, self.pid());
        if quarantined {
            tracing::warn!(
                name,
                pid,
                "quarantined: its kernels keep running over three times as long as predicted; it is kept on few SMs until they \
                 do not: see `detshare explain {name}`"
            );
        } else {
            tracing::info!(name, pid, "no longer quarantined: its kernels run as predicted again");
        }
    }

    /// Takes what was learnt of it since the last time; nothing of one whose page makes no sense.
    pub(crate) fn learn(&mut self) -> Option<Seen> {
        let kernels = self.view.kernels();
        let tenant = self.history.learn(&self.view);
        // Afterwards: what was read is from before.
        self.doubt(&self.view.read(clock::now()));
        let seen = || Seen {
            gpu: Gpu::of(&self.hello),
            name: self.wanted_name.clone(),
            tenant,
            kernels: self.taught.choose(kernels, self.hello.width),
        };
        (!self.doubts).then(seen)
    }

    /// Has it time its launches for a while.
    pub(crate) fn ask(&self, board: &Daemon) {
        board.ask(&self.claim);
    }

    pub(crate) fn decided(&self) -> Decided {
        Decided { decisions: self.view.decisions(), is_paused: self.entry.paused }
    }

    /// Why its launches went as they did; `name_of` knows the tenants by slot.
    pub(crate) fn explain(&self, name_of: impl Fn(usize) -> Option<String>) -> Vec<DecisionMade> {
        let (now, widths) = (clock::now(), self.view.widths());
        let about = |number: u8| Reason::from_number(number).map_or("unknown", Reason::about).to_string();
        let describe = |noted: Noted| DecisionMade {
            ago_ns: now.saturating_sub(noted.at_ns),
            kernel: self.view.kernel(noted.kernel).map(|kernel| kernel.name),
            lane_width: widths.get(usize::from(noted.lane)).copied().unwrap_or(0),
            reason: about(noted.reason),
            held_ns: noted.held_ns,
            held_for: (noted.held_for != 0).then(|| about(noted.held_for)),
            because_of: name_of(usize::from(noted.because_of)),
            predicted_ns: (noted.predicted_ns != 0).then_some(noted.predicted_ns),
            measured_ns: (noted.measured_ns != 0).then_some(noted.measured_ns),
            assumed_ns: assumed(noted.doubts).map(|_| Launch::USUAL_NS),
            assumed_because: assumed(noted.doubts).map(str::to_string),
            due_not_believed: noted.doubts & Noted::DUE_NOT_BELIEVED != 0,
        };
        self.view.decisions().into_iter().map(describe).collect()
    }

    /// How long a step is expected to last on all SMs, and on the front of each split, as far as that is known.
    fn step_lengths(&self) -> Vec<StepLength> {
        let detshare_board::StepLengths { on_all_ns, narrow, needs } = self.view.step_lengths();
        let lengths = Lengths { on_all_ns, narrow, needs };
        let widths = [self.hello.width].into_iter().chain(self.entry.ladder.widths().iter().rev().copied());
        let each = widths.map(|width| StepLength { width, ns: lengths.on(width, self.hello.width) });
        each.filter(|length| length.ns != 0).collect()
    }

    /// As the interface has it.
    pub(crate) fn describe(&self) -> Tenant {
        let now = clock::now();
        let state = self.view.read(now);
        let rates = self.history.rates(now, &state, &self.view);
        let phase = Phase::from_number(state.phase);
        // Nobody waits for the tokens of others.
        let is_served = self.entry.class == detshare_board::Class::Latency;
        let detshare_board::Objective { p99_ns, ttft_ns, tpot_ns } = self.entry.objective;
        Tenant {
            name: self.name.clone(),
            pid: self.pid(),
            slot: self.claim.slot(),
            class: from_board(self.entry.class),
            paused: self.entry.paused,
            busy: state.step.is_busy(),
            lane: lane_name(&state, self.hello.width),
            lane_width: state.lane_width,
            step: state.step.number().into(),
            steps_per_second: rates.steps,
            step_p50_ns: rates.p50_ns,
            step_p99_ns: rates.p99_ns,
            launches: state.launched,
            launches_per_second: rates.launches,
            finished: state.finished,
            holding: state.holding_since.is_some(),
            holds: state.holds,
            holds_per_second: rates.holds,
            held_ns: state.held_ns,
            memory: state.memory,
            memory_limit: self.entry.limits.memory,
            weight: self.entry.weight,
            objective: Objective { p99_ns, ttft_ns, tpot_ns },
            gpu: self.hello.gpu.clone(),
            width: self.hello.width,
            mps_client: self.mps_client,
            joined: humantime::format_rfc3339_millis(self.joined).to_string(),
            command: self.command.clone(),
            phase: (is_served && phase != Phase::Unknown).then(|| phase.name().to_string()),
            pace_ns: (is_served && state.pace_ns != 0).then_some(state.pace_ns),
            // Of steps of two kinds one length says nothing: mostly the ones ran on all SMs, and the others on a part of them.
            step_lengths: if is_served && phase == Phase::Unknown { self.step_lengths() } else { Vec::new() },
            quarantined: self.view.is_quarantined(),
            missed: Missed { p99: rates.missed[0], ttft: rates.missed[1], tpot: rates.missed[2] },
            strained: state.strained,
            stalled: self.standing.is_stalled(),
            doubts: self.doubts || state.doubts.any(),
        }
    }
}

/// Whether one who was told something has room for it. One who has just gone is no matter: that is noticed where its
/// connection is attended to, and there it is known why.
fn can_hear(told: Result<(), JoinError>) -> bool {
    matches!(told, Ok(()) | Err(JoinError::Socket(SocketError::Closed)))
}

/// Why something usual was assumed of a kernel, if it was.
fn assumed(doubts: u8) -> Option<&'static str> {
    match doubts & (Noted::UNKNOWN | Noted::NOT_BELIEVED) {
        0 => None,
        Noted::UNKNOWN => Some("it was never measured"),
        _ => Some("what is stored of it cannot be"),
    }
}

/// Such as `tpot 3 %`.
fn missed_in_words(missed: &[Option<f64>; OBJECTIVES]) -> String {
    let each = NAMES.iter().zip(missed).filter_map(|(name, part)| Some((name, part.filter(|part| *part > 0.0)?)));
    let words: Vec<String> = each.map(|(name, part)| format!("{name} by {:.1} % of the steps", part * 100.0)).collect();
    words.join(", ")
}

/// Maps a page that makes sense.
fn map(page: &OwnedFd) -> Result<(TenantView, TenantState), JoinRefused> {
    let view = TenantView::map(page).map_err(|error| JoinRefused::Page(error.to_string()))?;
    let mut looks = (0..LOOKS).map(|_| view.read(clock::now()));
    match looks.find(|state| !state.doubts.any()) {
        Some(state) => Ok((view, state)),
        None => Err(JoinRefused::Page("it holds what cannot be".to_string())),
    }
}

/// Lanes are numbered: 0 is `full`, then come front and rest of one split after the other. A split is called by the width
/// of its front.
fn lane_name(state: &TenantState, gpu_width: u32) -> String {
    let width = state.lane_width;
    match (state.lane, width) {
        (0, _) => "full".to_string(),
        (lane, 0) => if lane % 2 == 1 { "front" } else { "rest" }.to_string(),
        (lane, _) if lane % 2 == 1 => format!("front{width}"),
        _ => format!("rest{}", gpu_width.saturating_sub(width)),
    }
}

/// A process's arguments, as far as they can be read.
fn arguments(pid: u32) -> Vec<String> {
    let mut bytes = Vec::new();
    let read =
        File::open(format!("/proc/{pid}/cmdline")).and_then(|file| file.take(LONGEST_COMMAND).read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    let arguments = bytes.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned());
    let mut arguments: Vec<String> = arguments.collect();
    // Every argument ends with a zero, the last one too.
    arguments.pop_if(|last| last.is_empty());
    arguments
}

/// Nothing that a terminal would obey.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_called_by_their_split() {
        let tenant = detshare_board::Tenant::create(detshare_board::Class::Latency).unwrap();
        let view = TenantView::map(tenant.file()).unwrap();
        let name = |lane, width| {
            tenant.set_lane(lane, width);
            lane_name(&view.read(0), 132)
        };
        assert_eq!([name(0, 132), name(1, 16), name(2, 116)], ["full", "front16", "rest16"]);
        assert_eq!([name(0, 0), name(3, 0), name(4, 0)], ["full", "front", "rest"]);
    }

    #[test]
    fn a_command_is_read_and_printable() {
        let arguments = arguments(std::process::id());
        assert_eq!(arguments, std::env::args().collect::<Vec<_>>());
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a [2Jb ");
    }
}
