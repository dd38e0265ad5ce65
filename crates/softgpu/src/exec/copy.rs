//! Asynchronous copies and the barriers that count them.
//!
//! A copy is done when it is issued: nobody may look at its bytes before they are waited for, so nobody can tell.

use super::access::{BadAccess, Memory, address_of, resolve};
use super::atomic;
use super::cluster::map_address;
use super::interface::FaultKind;
use super::lanes::{Registers, lanes_of};
use super::mbarrier::State;
use super::op::{Address, AtomicOp, AtomicType, Copy, Mbarrier, MbarrierAction, Phase, Slot, Space, StoreAsync};
use super::program::SHARED_WINDOW;

const BARRIER_BYTES: u64 = 8;

/// Where one lane's access goes, within its space.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub(super) lane: usize,
    pub(super) space: Space,
    pub(super) at: u64,
}

impl Spot {
    /// The place of an operand in a lane.
    pub(super) fn of(r: &Registers, address: &Address, lane: usize) -> Self {
        let at = address_of(r, address, lane);
        let (space, at) = if address.space == Space::Generic { resolve(at) } else { (address.space, at) };
        Self { lane, space, at }
    }

    pub(super) fn bad(self, kind: FaultKind) -> BadAccess {
        let window = if self.space == Space::Shared { SHARED_WINDOW } else { 0 };
        BadAccess { lane: self.lane, address: self.at | window, kind }
    }

    /// What crosses from block to block without a thread needs a launch with clusters, be it to the own block.
    fn in_cluster(self, memory: &Memory<'_>) -> Result<Self, BadAccess> {
        if memory.is_clustered() { Ok(self) } else { Err(self.bad(FaultKind::IllegalInstruction)) }
    }

    pub(super) fn aligned(self, align: u64) -> Result<Self, BadAccess> {
        if self.at.is_multiple_of(align.max(1)) { Ok(self) } else { Err(self.bad(FaultKind::MisalignedAddress)) }
    }

    /// The same place in the block with that rank.
    fn in_block(self, rank: u32, own_rank: u32) -> Self {
        Self { at: map_address(self.at, rank, own_rank), ..self }
    }

    /// So many bytes further.
    pub(super) fn plus(self, bytes: u64) -> Self {
        Self { at: self.at.wrapping_add(bytes), ..self }
    }

    pub(super) fn read(self, memory: &mut Memory<'_>, to: &mut [u8]) -> Result<(), BadAccess> {
        memory.read(self.space, self.at, to).ok_or(self.bad(FaultKind::IllegalAddress))
    }

    pub(super) fn write(self, memory: &mut Memory<'_>, from: &[u8]) -> Result<(), BadAccess> {
        memory.write(self.space, self.at, from).ok_or(self.bad(FaultKind::IllegalAddress))
    }

    /// Combines elements with those that are there.
    pub(super) fn reduce(
        self,
        memory: &mut Memory<'_>,
        (op, ty): (AtomicOp, AtomicType),
        from: &[u8],
    ) -> Result<(), BadAccess> {
        let size = usize::from(ty.size());
        for (number, element) in (0_u64..).zip(from.chunks_exact(size)) {
            let spot = self.plus(number * u64::from(ty.size()));
            let value = super::access::from_bytes(element);
            atomic::apply(memory, spot.space, spot.at, op, ty, value).ok_or(spot.bad(FaultKind::IllegalAddress))?;
        }
        Ok(())
    }

    fn barrier(self, memory: &mut Memory<'_>) -> Result<State, BadAccess> {
        let mut bits = [0; 8];
        self.in_shared()?.aligned(BARRIER_BYTES)?.read(memory, &mut bits)?;
        Ok(State::from_bits(u64::from_le_bytes(bits)))
    }

    fn in_shared(self) -> Result<Self, BadAccess> {
        if self.space == Space::Shared { Ok(self) } else { Err(self.bad(FaultKind::IllegalAddress)) }
    }

    /// Bytes have come that the barrier counts.
    pub(super) fn complete(self, memory: &mut Memory<'_>, bytes: u32) -> Result<(), BadAccess> {
        let mut state = self.barrier(memory)?;
        state.complete(bytes);
        self.write(memory, &state.to_bits().to_le_bytes())
    }
}

/// The blocks that get a copy, as places in each of them.
pub(super) fn targets(
    r: &Registers,
    memory: &Memory<'_>,
    multicast: Option<Slot>,
    lane: usize,
    spots: [Spot; 2],
) -> Vec<[Spot; 2]> {
    match multicast {
        None => vec![spots],
        Some(slot) => {
            let blocks = r.narrow[slot as usize][lane] & 0xffff;
            let rank = |rank: usize| u32::try_from(rank).unwrap_or_default();
            lanes_of(blocks).map(|number| spots.map(|spot| spot.in_block(rank(number), memory.rank()))).collect()
        }
    }
}

/// Which lanes' phases are over.
pub(super) fn test(
    r: &Registers,
    memory: &mut Memory<'_>,
    address: &Address,
    phase: Phase,
    mask: u32,
) -> Result<u32, BadAccess> {
    let mut over = 0;
    for lane in lanes_of(mask) {
        let state = Spot::of(r, address, lane).barrier(memory)?;
        over |= u32::from(state.odd != phase.is_odd(r, lane)) << lane;
    }
    Ok(over)
}

impl MbarrierAction {
    /// What it makes of a barrier, and what the barrier was when the thread arrived.
    pub(super) fn apply(&self, state: &mut State, narrow: impl Fn(Slot) -> u32) -> State {
        let mut before = *state;
        match self {
            Self::Init { count } => *state = State::new(narrow(*count)),
            Self::Invalidate => *state = State::new(0),
            Self::Expect { bytes } => state.expect(narrow(*bytes)),
            Self::Complete { bytes } => state.complete(narrow(*bytes)),
            Self::Arrive { count, expect, drop, .. } => {
                let count = narrow(*count);
                if let Some(bytes) = expect {
                    state.expect(narrow(*bytes));
                }
                before = *state;
                if *drop {
                    state.drop(count);
                } else {
                    state.arrive(count);
                }
            }
            // One arrival more is counted on, and comes at once.
            Self::ArriveCopied { increments: true } => {}
            Self::ArriveCopied { increments: false } => state.arrive(1),
            Self::Test { .. } => {}
        }
        before
    }
}

impl Phase {
    pub(super) fn is_odd(self, r: &Registers, lane: usize) -> bool {
        match self {
            Self::State(slot) => State::from_bits(r.wide[slot as usize][lane]).odd,
            Self::Parity(slot) => r.narrow[slot as usize][lane] & 1 != 0,
        }
    }
}

/// What changes a barrier.
pub(super) fn change(
    r: &mut Registers,
    memory: &mut Memory<'_>,
    barrier: &Mbarrier,
    mask: u32,
) -> Result<(), BadAccess> {
    for lane in lanes_of(mask) {
        let spot = Spot::of(r, &barrier.address, lane);
        let mut state = spot.barrier(memory)?;
        let before = barrier.action.apply(&mut state, |slot| r.narrow[slot as usize][lane]);
        if let MbarrierAction::Arrive { state: Some(to), .. } = &barrier.action {
            r.wide[*to as usize][lane] = before.to_bits();
        }
        spot.write(memory, &state.to_bits().to_le_bytes())?;
    }
    Ok(())
}

pub(super) fn copy(r: &Registers, memory: &mut Memory<'_>, copy: &Copy, mask: u32) -> Result<(), BadAccess> {
    let ignored = copy.ignore.map_or(0, |ignore| r.condition(ignore));
    let mut buffer = Vec::new();
    for lane in lanes_of(mask) {
        let bytes = r.narrow[copy.bytes as usize][lane];
        let read = copy.read.map_or(bytes, |read| r.narrow[read as usize][lane].min(bytes));
        let read = if ignored >> lane & 1 != 0 { 0 } else { read };
        let from = Spot::of(r, &copy.from, lane).aligned(copy.align)?;
        let to = Spot::of(r, &copy.to, lane).aligned(copy.align)?;
        if (from.space, to.space) == (Space::Shared, Space::Shared) {
            to.in_cluster(memory)?;
        }
        if !u64::from(bytes).is_multiple_of(copy.align) {
            return Err(to.bad(FaultKind::MisalignedAddress));
        }
        buffer.clear();
        buffer.resize(bytes as usize, 0);
        from.read(memory, &mut buffer[..read as usize])?;
        let signal = copy.signal.as_ref().map(|signal| Spot::of(r, signal, lane));
        for [to, at] in targets(r, memory, copy.multicast, lane, [to, signal.unwrap_or(to)]) {
            match copy.reduction {
                Some(reduction) => to.reduce(memory, reduction, &buffer)?,
                None => to.write(memory, &buffer)?,
            }
            if signal.is_some() {
                at.complete(memory, bytes)?;
            }
        }
    }
    Ok(())
}

pub(super) fn store_async(
    r: &Registers,
    memory: &mut Memory<'_>,
    store: &StoreAsync,
    mask: u32,
) -> Result<(), BadAccess> {
    let size = usize::from(store.size);
    for lane in lanes_of(mask) {
        let bytes: Vec<u8> =
            store.from.iter().flat_map(|from| r.read_lane(*from, lane).to_le_bytes().into_iter().take(size)).collect();
        let to = Spot::of(r, &store.address, lane).in_shared()?.in_cluster(memory)?.aligned(bytes.len() as u64)?;
        match store.reduction {
            Some(reduction) => to.reduce(memory, reduction, &bytes)?,
            None => to.write(memory, &bytes)?,
        }
        let count = u32::try_from(bytes.len()).unwrap_or_default();
        Spot::of(r, &store.signal, lane).complete(memory, count)?;
    }
    Ok(())
}
