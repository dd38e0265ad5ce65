//! What is known of every byte of a block's shared memory.

use super::Accessor;

/// Bytes that are allocated together, when the first of them is touched.
const PAGE: usize = 256;
/// Accesses since the last write that are remembered.
const READS: usize = 2;

/// What an access does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Touch {
    Read {
        strong: bool,
    },
    Write {
        strong: bool,
        value: [u8; 16],
    },
    /// An atomic; `reads` is set where the program gets to know the old value, `counts_on_old` where what is there
    /// afterwards depends on it.
    Update {
        reads: bool,
        counts_on_old: bool,
    },
    /// A write of what is not known here.
    Replace,
}

impl Touch {
    /// Atomic or volatile.
    pub(super) fn is_strong(self) -> bool {
        match self {
            Self::Read { strong } | Self::Write { strong, .. } => strong,
            Self::Update { .. } => true,
            Self::Replace => false,
        }
    }

    pub(super) fn writes(self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

/// How an access is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Manner {
    #[default]
    Weak,
    /// Atomic or volatile.
    Strong,
    /// By a copy that its thread has not waited for: whatever comes, it may come before.
    UnderWay,
    /// By an agent: it has happened for those who know that the agent has finished it.
    Agent,
    /// The same, element by element atomic.
    StrongAgent,
}

/// An access that was.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Access {
    /// That of the thread's warp, or of the agent. 0 where there was none.
    clock: u32,
    /// The agent where there is one.
    step: u32,
    site: u32,
    warp: u16,
    lane: u8,
    manner: Manner,
}

impl Access {
    pub(super) fn new(accessor: Accessor, lane: usize, clock: u32, strong: bool) -> Self {
        let Accessor { warp, site, step, .. } = accessor;
        let (warp, lane) = (u16::try_from(warp).unwrap_or_default(), u8::try_from(lane).unwrap_or_default());
        Self { clock, step, site, warp, lane, manner: if strong { Manner::Strong } else { Manner::Weak } }
    }

    /// The same, of a copy that runs on its own.
    pub(super) fn copied(self) -> Self {
        Self { manner: Manner::UnderWay, ..self }
    }

    /// The same, which an agent will have finished with that count.
    pub(super) fn by(self, (agent, clock): (u32, u32)) -> Self {
        let manner = if self.is_strong() { Manner::StrongAgent } else { Manner::Agent };
        Self { clock, step: agent, manner, ..self }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.manner == Manner::UnderWay
    }

    /// The agent that finishes it.
    pub(super) fn agent(&self) -> Option<u32> {
        matches!(self.manner, Manner::Agent | Manner::StrongAgent).then_some(self.step)
    }

    fn is_strong(&self) -> bool {
        matches!(self.manner, Manner::Strong | Manner::StrongAgent)
    }

    fn is_some(&self) -> bool {
        self.clock != 0
    }

    /// A copy of that thread which nobody waited for.
    fn is_under_way_of(&self, thread: &Self) -> bool {
        self.is_under_way() && (self.warp, self.lane) == (thread.warp, thread.lane)
    }

    pub(super) fn clock(&self) -> u32 {
        self.clock
    }

    pub(super) fn step(&self) -> u32 {
        self.step
    }

    pub(super) fn site(&self) -> u32 {
        self.site
    }

    pub(super) fn warp(&self) -> u32 {
        self.warp.into()
    }

    pub(super) fn lane(&self) -> usize {
        self.lane.into()
    }
}

/// Whether an access has happened before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Yes,
    No,
    /// It has, but `fence.proxy.async` is missing between a thread's write and who reads without a thread.
    Unfenced,
}

/// What is wrong with an access.
#[derive(Debug, Clone, Copy)]
pub(super) enum Problem {
    Uninitialised(u64),
    Race { earlier: Access, earlier_wrote: bool, at: u64 },
    Unfenced { earlier: Access, at: u64 },
}

#[derive(Debug, Clone, Copy, Default)]
struct Byte {
    written: bool,
    /// What the last write left, where that is known.
    value: Option<u8>,
    write: Access,
    reads: [Access; READS],
}

#[derive(Debug)]
pub(super) struct Shadow {
    size: usize,
    pages: Vec<Option<Box<[Byte; PAGE]>>>,
}

impl Shadow {
    pub(super) fn new(size: usize) -> Self {
        Self { size, pages: (0..size.div_ceil(PAGE)).map(|_| None).collect() }
    }

    /// Notes an access; the first thing that is wrong with it. Beyond the end it is a fault, and nothing here.
    pub(super) fn touch(
        &mut self,
        address: u64,
        bytes: u64,
        access: Access,
        touch: Touch,
        before: impl Fn(&Access) -> Before,
    ) -> Option<Problem> {
        let mut problem = None;
        for (offset, at) in (address..address.saturating_add(bytes)).enumerate() {
            let Some(byte) = self.byte(at) else { break };
            let found = byte.touch(at, offset, access, touch, &before);
            problem = problem.or(found);
        }
        problem
    }

    /// A thread has waited for a copy of its own: the bytes are written now.
    pub(super) fn arrived(&mut self, (address, bytes): (u64, u64), now: Access) {
        self.of_copy(address, bytes, now, |write| Access {
            clock: now.clock,
            step: now.step,
            manner: Manner::Weak,
            ..write
        });
    }

    /// An agent finishes a copy of a thread's.
    pub(super) fn counted(&mut self, (address, bytes): (u64, u64), thread: Access, phase: (u32, u32)) {
        self.of_copy(address, bytes, thread, |write| Access { manner: Manner::Weak, ..write }.by(phase));
    }

    /// Changes what a copy of that thread has written.
    fn of_copy(&mut self, address: u64, bytes: u64, thread: Access, change: impl Fn(Access) -> Access) {
        for at in address..address.saturating_add(bytes) {
            let Some(byte) = self.byte(at) else { break };
            if byte.write.is_under_way_of(&thread) {
                byte.write = change(byte.write);
            }
        }
    }

    fn byte(&mut self, at: u64) -> Option<&mut Byte> {
        let at = usize::try_from(at).ok().filter(|at| *at < self.size)?;
        let page = self.pages[at / PAGE].get_or_insert_with(|| Box::new([Byte::default(); PAGE]));
        Some(&mut page[at % PAGE])
    }
}

impl Byte {
    fn touch(
        &mut self,
        at: u64,
        offset: usize,
        access: Access,
        touch: Touch,
        before: &impl Fn(&Access) -> Before,
    ) -> Option<Problem> {
        let may_conflict = |earlier: &Access| earlier.is_some() && !(earlier.is_strong() && access.is_strong());
        let conflicts = |earlier: &Access| may_conflict(earlier) && before(earlier) == Before::No;
        let new_value = match touch {
            Touch::Write { value, .. } => value.get(offset).copied(),
            _ => None,
        };
        // Many may write the same: no order of theirs makes a difference.
        let same = new_value.is_some() && new_value == self.value;
        let of_write = if may_conflict(&self.write) { before(&self.write) } else { Before::Yes };
        let mut problem = match of_write {
            Before::No if !same => Some(Problem::Race { earlier: self.write, earlier_wrote: true, at }),
            Before::Unfenced => Some(Problem::Unfenced { earlier: self.write, at }),
            Before::Yes | Before::No => None,
        };
        if touch.writes() {
            let read = self.reads.iter().find(|read| conflicts(read));
            if let Some(read) = read {
                problem = problem.or(Some(Problem::Race { earlier: *read, earlier_wrote: false, at }));
            }
        }
        let counts_on_old = matches!(touch, Touch::Read { .. } | Touch::Update { counts_on_old: true, .. });
        if !self.written && counts_on_old {
            problem = problem.or(Some(Problem::Uninitialised(at)));
        }
        if touch.writes() {
            *self = Self { written: true, value: new_value, write: access, reads: [Access::default(); READS] };
        } else {
            // It takes the place of one that is before it, or else of the second: two of different threads stay.
            let replaced = self.reads.iter_mut().find(|read| !read.is_some() || before(read) != Before::No);
            match replaced {
                Some(read) => *read = access,
                None => self.reads[READS - 1] = access,
            }
        }
        problem
    }
}
