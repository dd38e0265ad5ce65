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

/// An access that was.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Access {
    /// 0 where there was none.
    clock: u32,
    step: u32,
    site: u32,
    warp: u8,
    lane: u8,
    strong: bool,
    /// A copy that its thread has not waited for: whatever comes, it may come before.
    under_way: bool,
}

impl Access {
    pub(super) fn new(accessor: Accessor, lane: usize, clock: u32, strong: bool) -> Self {
        let small = |number: usize| u8::try_from(number).unwrap_or_default();
        let Accessor { warp, site, step } = accessor;
        Self { clock, step, site, warp: small(warp as usize), lane: small(lane), strong, under_way: false }
    }

    /// The same, of a copy that runs on its own.
    pub(super) fn copied(self) -> Self {
        Self { under_way: true, ..self }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }

    fn is_some(&self) -> bool {
        self.clock != 0
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

/// What is wrong with an access.
#[derive(Debug, Clone, Copy)]
pub(super) enum Problem {
    Uninitialised(u64),
    Race { earlier: Access, earlier_wrote: bool, at: u64 },
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
        is_ordered: impl Fn(&Access) -> bool,
    ) -> Option<Problem> {
        let mut problem = None;
        for (offset, at) in (address..address.saturating_add(bytes)).enumerate() {
            let Some(byte) = self.byte(at) else { break };
            let found = byte.touch(at, offset, access, touch, &is_ordered);
            problem = problem.or(found);
        }
        problem
    }

    /// A thread has waited for a copy of its own: the bytes are written now.
    pub(super) fn arrived(&mut self, (address, bytes): (u64, u64), now: Access) {
        for at in address..address.saturating_add(bytes) {
            let Some(byte) = self.byte(at) else { break };
            let write = &mut byte.write;
            if write.under_way && (write.warp, write.lane) == (now.warp, now.lane) {
                *write = Access { clock: now.clock, step: now.step, under_way: false, ..*write };
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
        is_ordered: &impl Fn(&Access) -> bool,
    ) -> Option<Problem> {
        let conflicts =
            |earlier: &Access| earlier.is_some() && !(earlier.strong && access.strong) && !is_ordered(earlier);
        let new_value = match touch {
            Touch::Write { value, .. } => value.get(offset).copied(),
            _ => None,
        };
        // Many may write the same: no order of theirs makes a difference.
        let same = new_value.is_some() && new_value == self.value;
        let mut problem = None;
        if conflicts(&self.write) && !same {
            problem = Some(Problem::Race { earlier: self.write, earlier_wrote: true, at });
        }
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
            let replaced = self.reads.iter_mut().find(|read| !read.is_some() || is_ordered(read));
            match replaced {
                Some(read) => *read = access,
                None => self.reads[READS - 1] = access,
            }
        }
        problem
    }
}
