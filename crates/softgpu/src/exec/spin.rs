//! Warps that go round in circles to see whether something has changed.
//!
//! A loop that looks at the same place and finds the same again and again waits for someone else. It ends its turn then,
//! so that a block of such warps, and a grid of such blocks, costs next to nothing. This is a guess: a loop that is taken
//! for one that waits only runs later, never otherwise.

use super::access;
use super::lanes::Registers;
use super::op::{Op, Order, Reg};
use super::warp::{Group, Warp};

/// How often a look finds the same before it is taken for waiting.
const PATIENT_LOOKS: u32 = 6;
/// Loops that do more between two looks do something else than to wait.
const CLOSE: u64 = 64;

/// What a warp has last looked at.
#[derive(Debug, Default)]
pub(super) struct Spin {
    last: u64,
    at: u64,
    repeats: u32,
    /// Lanes that wait.
    waiting: u32,
    /// What was left of the turn when the warp gave it up.
    unused: Option<u64>,
}

/// A load or atomic that may be a look at what others change.
pub(super) struct Look {
    signature: u64,
    lanes: [usize; 2],
}

fn mix(signature: u64, value: u64) -> u64 {
    (signature ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

impl Look {
    /// None for what is no look. Of the lanes, the first and the last tell enough.
    #[inline]
    pub(super) fn before(r: &Registers, op: &Op, group: Group, active: u32) -> Option<Self> {
        let address = match op {
            Op::Load(load) if load.order != Order::Weak => &load.address,
            Op::Atomic(atomic) if atomic.to.is_some() => &atomic.address,
            _ => return None,
        };
        let lanes = [active.trailing_zeros() as usize % 32, 31 - active.leading_zeros() as usize % 32];
        let mut signature = mix(u64::from(group.pc) << 32 | u64::from(active), group.frame as u64);
        for lane in lanes {
            signature = mix(signature, access::address_of(r, address, lane));
        }
        Some(Self { signature, lanes })
    }

    /// What was looked at and seen, as one number.
    pub(super) fn after(self, r: &Registers, op: &Op) -> u64 {
        let see = |signature: u64, register: Reg| {
            self.lanes.iter().fold(signature, |signature, lane| mix(signature, r.read_lane(register, *lane)))
        };
        match op {
            Op::Load(load) => load.to.iter().flatten().fold(self.signature, |signature, to| see(signature, *to)),
            Op::Atomic(atomic) => atomic.to.map_or(self.signature, |to| see(self.signature, to)),
            _ => self.signature,
        }
    }
}

impl Spin {
    /// A warp that writes does not only wait.
    #[inline]
    pub(super) fn has_written(&mut self, op: &Op) {
        if !matches!(op, Op::Load(_)) {
            self.repeats = 0;
            self.waiting = 0;
        }
    }

    /// What was left of a turn that the warp gave up.
    #[inline]
    pub(super) fn take_unused(&mut self) -> Option<u64> {
        self.unused.take()
    }
}

impl Warp {
    /// Notes what lanes have seen, and gives up the turn if they only wait.
    pub(super) fn looked(&mut self, group: Group, look: u64, budget: &mut u64) {
        let spin = &mut self.spin;
        let again = spin.last == look && self.warp_instructions - spin.at <= CLOSE;
        spin.repeats = if again { spin.repeats.saturating_add(1) } else { 0 };
        spin.last = look;
        spin.at = self.warp_instructions;
        if spin.repeats >= PATIENT_LOOKS {
            self.wait_for_others(group, budget);
        }
    }

    /// Lanes wait for what someone else does: others of the warp go first, then other warps.
    pub(super) fn wait_for_others(&mut self, group: Group, budget: &mut u64) {
        self.spin.waiting |= group.mask;
        self.passed |= group.mask;
        if self.ready & !self.spin.waiting == 0 {
            self.spin.waiting = 0;
            self.spin.unused = Some(core::mem::take(budget));
        }
    }

    /// As [`looked`](Self::looked), with what a lane of a rare instruction has seen.
    pub(super) fn looked_at(&mut self, group: Group, active: u32, address: u64, seen: u64, budget: &mut u64) {
        let look = mix(mix(u64::from(group.pc) << 32 | u64::from(active), address), seen);
        self.looked(group, look, budget);
    }
}
