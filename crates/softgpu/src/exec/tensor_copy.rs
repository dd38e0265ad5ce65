//! Boxes of tensors between global and shared memory.

use super::access::{BadAccess, Memory};
use super::convert::nearest_tf32;
use super::copy::{Spot, targets};
use super::half;
use super::interface::FaultKind;
use super::lanes::{Registers, lanes_of};
use super::op::{AtomicOp, AtomicType, Space, TensorCopy, TensorDirection, TensorReplace};
use super::tensor_map::{MOST_DIMENSIONS, SIZE, TensorMap, can_be_rounded, element_size};

/// What the map and the shared memory are multiples of.
const MAP_ALIGN: u64 = 64;
const SHARED_ALIGN: u64 = 128;
/// Shared memory is swizzled in such units, boxes begin at them, and stores end with them.
const UNIT: usize = 16;

/// Bytes of a map.
pub(super) const MAP_BYTES: u64 = SIZE as u64;

/// What a copy moves: where the bytes lie in shared memory as the block has it, and in global memory, each place with its size.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) shared: Vec<(u64, u64)>,
    pub(super) global: Vec<(u64, u64)>,
}

/// What the copy of a lane moves; nothing where it is a fault.
pub(super) fn moved(r: &Registers, memory: &mut Memory<'_>, copy: &TensorCopy, lane: usize) -> Option<Moved> {
    let Operands { map, start, shared, .. } = operands(r, memory, copy, lane).ok()?;
    let size = u64::from(element_size(map.element).unwrap_or(1));
    let width = u64::from(map.taken()[0]) * size;
    let is_load = matches!(copy.direction, TensorDirection::Load { .. });
    let mut moved = Moved::default();
    for (number, row) in (0_u64..).zip(rows(&map, start)) {
        moved.global.extend(row.inside.map(|at| (at, row.count as u64 * size)));
        if !is_load && row.inside.is_none() {
            continue;
        }
        let first = number * width;
        for offset in (first..first + width).step_by(UNIT) {
            let at = map.swizzle.apply(shared.at.wrapping_add(offset));
            moved.shared.push((at, (first + width - offset).min(UNIT as u64)));
        }
    }
    Some(moved)
}

/// What an instruction has for one lane.
struct Operands {
    map: TensorMap,
    map_spot: Spot,
    start: [i64; MOST_DIMENSIONS],
    shared: Spot,
}

fn operands(r: &Registers, memory: &mut Memory<'_>, copy: &TensorCopy, lane: usize) -> Result<Operands, BadAccess> {
    let map_spot = Spot::of(r, &copy.map, lane).aligned(MAP_ALIGN)?;
    let map = read_map(memory, map_spot)?;
    let shared = Spot::of(r, &copy.shared, lane).aligned(SHARED_ALIGN)?;
    if copy.coordinates.len() != usize::from(map.dimensions) {
        return Err(map_spot.bad(FaultKind::IllegalAddress));
    }
    let mut start = [0; MOST_DIMENSIONS];
    for (start, slot) in start.iter_mut().zip(&copy.coordinates) {
        *start = r.narrow[*slot as usize][lane].cast_signed().into();
    }
    check_start(&map, start, &copy.direction).ok_or(map_spot.bad(FaultKind::IllegalInstruction))?;
    Ok(Operands { map, map_spot, start, shared })
}

fn read_map(memory: &mut Memory<'_>, spot: Spot) -> Result<TensorMap, BadAccess> {
    let mut bytes = [0; SIZE];
    spot.read(memory, &mut bytes)?;
    TensorMap::from_bytes(&bytes).ok_or(spot.bad(FaultKind::IllegalAddress))
}

/// One row of the box: elements that follow each other in both memories.
struct Row {
    /// In global memory, where the row's other coordinates are within the tensor: its first element that is, too,
    inside: Option<u64>,
    /// how many elements of the row come before that one,
    before: usize,
    /// and how many elements are within the tensor.
    count: usize,
}

/// The rows of the box at those coordinates, in the order of shared memory.
fn rows(map: &TensorMap, start: [i64; MOST_DIMENSIONS]) -> impl Iterator<Item = Row> {
    let taken = map.taken();
    let size = u64::from(element_size(map.element).unwrap_or(1));
    let number: u64 = taken[1..].iter().map(|count| u64::from(*count)).product();
    let width = i64::from(taken[0]);
    let limit = i64::try_from(map.sizes[0]).unwrap_or(i64::MAX);
    let before = (-start[0]).clamp(0, width);
    let count = (limit - start[0]).clamp(0, width) - before;
    let map = map.clone();
    (0..number).map(move |row| {
        let mut left = row;
        let mut address = Some(map.address.wrapping_add_signed((start[0] + before).wrapping_mul(size.cast_signed())));
        for at in 1..MOST_DIMENSIONS {
            let within = left % u64::from(taken[at]);
            left /= u64::from(taken[at]);
            if at >= usize::from(map.dimensions) {
                break;
            }
            let step = u64::from(map.steps[at].max(1));
            let place = start[at].wrapping_add_unsigned(within * step);
            let place = u64::try_from(place).ok().filter(|place| *place < map.sizes[at]);
            let stride = map.strides[at - 1];
            address = address.zip(place).map(|(address, place)| address.wrapping_add(place.wrapping_mul(stride)));
        }
        let whole = |number: i64| usize::try_from(number).unwrap_or(0);
        Row { inside: address.filter(|_| count > 0), before: whole(before), count: whole(count) }
    })
}

/// What elements outside of the tensor hold: the NaN that `fma.oob` looks for, two of them in an `f32` or `tf32` and four in an `f64`, as
/// on an H200.
fn fill(map: &TensorMap) -> [u8; 2] {
    if map.fill_nan { half::OUTSIDE.to_le_bytes() } else { [0; 2] }
}

pub(super) fn copy(r: &Registers, memory: &mut Memory<'_>, copy: &TensorCopy, mask: u32) -> Result<(), BadAccess> {
    for lane in lanes_of(mask) {
        let Operands { map, map_spot, start, shared } = operands(r, memory, copy, lane)?;
        match &copy.direction {
            TensorDirection::Load { signal, multicast } => {
                let bytes = load(memory, &map, start, map_spot)?;
                let count = u32::try_from(bytes.len()).unwrap_or_default();
                let signal = Spot::of(r, signal, lane);
                for [to, signal] in targets(r, memory, *multicast, lane, [shared, signal]) {
                    for (number, unit) in (0_u64..).zip(bytes.chunks(UNIT)) {
                        let plain = to.plus(number * UNIT as u64);
                        Spot { at: map.swizzle.apply(plain.at), ..plain }.write(memory, unit)?;
                    }
                    signal.complete(memory, count)?;
                }
            }
            TensorDirection::Store => store(memory, &map, start, shared, map_spot, None)?,
            TensorDirection::Reduce(op) => store(memory, &map, start, shared, map_spot, Some(*op))?,
        }
    }
    Ok(())
}

/// A box begins at a whole unit of its rows, and one that is stored begins within the tensor or behind it.
fn check_start(map: &TensorMap, start: [i64; MOST_DIMENSIONS], direction: &TensorDirection) -> Option<()> {
    let size = u64::from(element_size(map.element).unwrap_or(1));
    let is_whole = start[0].unsigned_abs().wrapping_mul(size).is_multiple_of(UNIT as u64);
    let is_load = matches!(direction, TensorDirection::Load { .. });
    (is_whole && (is_load || start.iter().all(|coordinate| *coordinate >= 0))).then_some(())
}

/// The box as shared memory has it, before it is swizzled.
fn load(
    memory: &mut Memory<'_>,
    map: &TensorMap,
    start: [i64; MOST_DIMENSIONS],
    spot: Spot,
) -> Result<Vec<u8>, BadAccess> {
    let size = element_size(map.element).unwrap_or(1) as usize;
    let width = map.taken()[0] as usize * size;
    if map.rounds && !can_be_rounded(map.element) {
        return Err(spot.bad(FaultKind::IllegalInstruction));
    }
    let mut bytes = Vec::new();
    let outside = fill(map);
    for row in rows(map, start) {
        let from = bytes.len();
        bytes.extend(outside.iter().cycle().take(width));
        if let Some(at) = row.inside {
            let there = Spot { space: Space::Global, at, ..spot };
            let first = from + row.before * size;
            let inside = &mut bytes[first..first + row.count * size];
            there.read(memory, inside)?;
            if map.rounds {
                let (words, _) = inside.as_chunks_mut();
                words.iter_mut().for_each(|word| *word = nearest_tf32(u32::from_le_bytes(*word)).to_le_bytes());
            }
        }
    }
    Ok(bytes)
}

/// Elements outside of the tensor are left out, but for those in a unit of which the tensor has some.
fn store(
    memory: &mut Memory<'_>,
    map: &TensorMap,
    start: [i64; MOST_DIMENSIONS],
    shared: Spot,
    spot: Spot,
    reduction: Option<AtomicOp>,
) -> Result<(), BadAccess> {
    let size = element_size(map.element).unwrap_or(1) as usize;
    let width = map.taken()[0] as usize * size;
    let reduction = match reduction {
        Some(op) => {
            let ty = reduction_type(map.element).filter(|ty| is_combined(op, *ty));
            Some((op, ty.ok_or(spot.bad(FaultKind::IllegalInstruction))?))
        }
        None => None,
    };
    let mut whole = map.clone();
    let elements_a_unit = (UNIT / size.min(UNIT)) as u64;
    whole.sizes[0] = whole.sizes[0].next_multiple_of(elements_a_unit);
    let mut bytes = vec![0; width];
    for (number, row) in (0_u64..).zip(rows(&whole, start)) {
        let Some(at) = row.inside else { continue };
        let first = shared.plus(number * width as u64);
        for (unit, bytes) in (0_u64..).zip(bytes.chunks_mut(UNIT)) {
            let plain = first.plus(unit * UNIT as u64);
            Spot { at: map.swizzle.apply(plain.at), ..plain }.read(memory, bytes)?;
        }
        let inside = &bytes[row.before * size..(row.before + row.count) * size];
        let there = Spot { space: Space::Global, at, ..spot };
        match reduction {
            Some(reduction) => there.reduce(memory, reduction, inside)?,
            None => there.write(memory, inside)?,
        }
    }
    Ok(())
}

/// How elements are combined, by the driver's number of their type.
fn reduction_type(element: u8) -> Option<AtomicType> {
    Some(match element {
        2 => AtomicType::U32,
        3 => AtomicType::S32,
        4 => AtomicType::U64,
        5 => AtomicType::S64,
        6 => AtomicType::F16,
        7 | 10..=12 => AtomicType::F32,
        8 => AtomicType::F64,
        9 => AtomicType::Bf16,
        _ => return None,
    })
}

/// Which operations there are for elements of a type: an H200 takes no others.
fn is_combined(op: AtomicOp, ty: AtomicType) -> bool {
    let counts = matches!(op, AtomicOp::Increment | AtomicOp::Decrement);
    let orders = matches!(op, AtomicOp::Min | AtomicOp::Max);
    match ty {
        AtomicType::U32 => true,
        AtomicType::S32 | AtomicType::U64 => !counts,
        AtomicType::S64 => orders,
        AtomicType::F16 | AtomicType::Bf16 => orders || op == AtomicOp::Add,
        _ => op == AtomicOp::Add,
    }
}

pub(super) fn replace(
    r: &Registers,
    memory: &mut Memory<'_>,
    replace: &TensorReplace,
    mask: u32,
) -> Result<(), BadAccess> {
    for lane in lanes_of(mask) {
        let spot = Spot::of(r, &replace.map, lane).aligned(MAP_ALIGN)?;
        let mut map = read_map(memory, spot)?;
        if !map.replace(replace.field, r.read_lane(replace.value, lane)) {
            return Err(spot.bad(FaultKind::IllegalAddress));
        }
        spot.write(memory, &map.to_bytes())?;
    }
    Ok(())
}
