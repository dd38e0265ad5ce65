//! What the lanes of a warp compute together.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "instructions see the bits of a register as the type that they name, and lanes are few"
)]

use super::lanes::{LANES, Registers, lanes_of, mask_of};
use super::op::{AtomicOp, Collective, IntType, Reg, ShuffleMode, Slot, Vote};

/// Runs a collective for the lanes that take part; `members` are those that it counts on.
pub(super) fn perform(r: &mut Registers, collective: &Collective, lanes: u32, members: u32) {
    match *collective {
        Collective::Shuffle { mode, to, valid, a, b, c } => shuffle(r, mode, to, valid, [a, b, c], lanes),
        Collective::Vote { kind, to, a } => {
            let held = r.condition(a) & lanes & members;
            let all = held == lanes & members;
            let result = match kind {
                Vote::All => all,
                Vote::Any => held != 0,
                Vote::Uniform => all || held == 0,
            };
            r.write_predicate(to, lanes, if result { u32::MAX } else { 0 });
        }
        Collective::Ballot { to, a } => {
            let held = r.condition(a) & lanes & members;
            r.write(Reg::Narrow(to), lanes, &[held.into(); LANES]);
        }
        Collective::MatchAny { to, a } => {
            let values = r.read(a);
            for lane in lanes_of(lanes) {
                let same = mask_of(lanes_of(lanes & members).filter(|other| values[*other] == values[lane]));
                r.narrow[to as usize][lane] = same;
            }
        }
        Collective::MatchAll { to, same, a } => {
            let values = r.read(a);
            let present = lanes & members;
            let first = values[(present.trailing_zeros() as usize).min(LANES - 1)];
            let all = lanes_of(present).all(|lane| values[lane] == first);
            if let Some(to) = to {
                r.write(Reg::Narrow(to), lanes, &[if all { present.into() } else { 0 }; LANES]);
            }
            if let Some(same) = same {
                r.write_predicate(same, lanes, if all { u32::MAX } else { 0 });
            }
        }
        Collective::Reduce { op, ty, to, a } => {
            let values = r.narrow[a as usize];
            let reduced = lanes_of(lanes & members).map(|lane| values[lane]).reduce(|a, b| reduce(op, ty, a, b));
            r.write(Reg::Narrow(to), lanes, &[reduced.unwrap_or_default().into(); LANES]);
        }
        Collective::Elect { to, elected } => {
            let leader = (lanes & members).trailing_zeros();
            if let Some(to) = to {
                r.write(Reg::Narrow(to), lanes, &[leader.into(); LANES]);
            }
            r.write_predicate(elected, lanes, 1u32.checked_shl(leader).unwrap_or_default());
        }
    }
}

fn reduce(op: AtomicOp, ty: IntType, a: u32, b: u32) -> u32 {
    let signed = ty == IntType::S32;
    match op {
        AtomicOp::Min if signed => (a as i32).min(b as i32).cast_unsigned(),
        AtomicOp::Max if signed => (a as i32).max(b as i32).cast_unsigned(),
        AtomicOp::Min => a.min(b),
        AtomicOp::Max => a.max(b),
        AtomicOp::And => a & b,
        AtomicOp::Or => a | b,
        AtomicOp::Xor => a ^ b,
        _ => a.wrapping_add(b),
    }
}

fn shuffle(
    r: &mut Registers,
    mode: ShuffleMode,
    to: Option<Slot>,
    valid: Option<Slot>,
    [a, b, c]: [Slot; 3],
    lanes: u32,
) {
    let (a, b, c) = (r.narrow[a as usize], r.narrow[b as usize], r.narrow[c as usize]);
    let mut inside = 0;
    let mut values = [0u64; LANES];
    for (lane, number) in lanes_of(lanes).map(|lane| (lane, lane as i32)) {
        let by = (b[lane] & 31) as i32;
        let clamp = (c[lane] & 31) as i32;
        // The lanes of a segment have these bits in common.
        let segment = (c[lane] >> 8 & 31) as i32;
        let first = number & segment;
        let last = first | clamp & !segment;
        let (source, is_inside) = match mode {
            ShuffleMode::Up => (number - by, number - by >= last),
            ShuffleMode::Down => (number + by, number + by <= last),
            ShuffleMode::Butterfly => (number ^ by, number ^ by <= last),
            ShuffleMode::Index => {
                let source = first | by & !segment;
                (source, source <= last)
            }
        };
        let source = if is_inside { usize::try_from(source).unwrap_or(lane) } else { lane };
        values[lane] = a[source & (LANES - 1)].into();
        inside |= u32::from(is_inside) << lane;
    }
    if let Some(to) = to {
        r.write(Reg::Narrow(to), lanes, &values);
    }
    if let Some(valid) = valid {
        r.write_predicate(valid, lanes, inside);
    }
}
