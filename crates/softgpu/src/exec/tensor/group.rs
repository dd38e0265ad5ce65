//! `wgmma`: products of four warps, of matrices in shared memory.
//!
//! Each warp computes its 16 rows when it comes to the instruction. That is one of the orders that PTX allows: what
//! the instruction reads may not change before `wgmma.wait_group`, and what it writes may not be read before. There the four
//! warps wait for each other, so that one thread may say for all of them that what they read may change.

use super::super::access::BadAccess;
use super::super::block::WARPS_OF_GROUP;
use super::super::interface::FaultKind;
use super::fragment::mask;
use super::multiply::product;
use super::sparse::Columns;
use super::values::Values;
use crate::exec::lanes::Registers;
use crate::exec::op::{Described, Element, GroupMultiply, GroupSource};

/// Rows of one warp.
const ROWS: usize = 16;
/// Rows and bytes of a core matrix's row.
const CORE: usize = 8;
const CORE_BYTES: usize = 16;

/// What a matrix descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Descriptor {
    start: usize,
    leading: usize,
    stride: usize,
    /// How far the swizzle's pattern is from where addresses say that it starts, in its rows.
    base: usize,
    /// Bytes of a row of the pattern: 16, 32, 64 or 128.
    width: usize,
}

impl Descriptor {
    fn new(bits: u64) -> Self {
        let field = |at: u32, mask: u64| usize::try_from(bits >> at & mask).unwrap_or_default();
        let sixteens = |at: u32| field(at, 0x3fff) * CORE_BYTES;
        let width = [16, 128, 64, 32][field(62, 3)];
        Self { start: sixteens(0), leading: sixteens(16), stride: sixteens(32), base: field(49, 7), width }
    }

    /// Where 16 bytes are: `line` counts the rows of A or columns of B, `chunk` 16 bytes along K.
    fn along_k(&self, line: usize, chunk: usize) -> usize {
        let across = if self.width == CORE_BYTES { self.leading } else { CORE_BYTES };
        self.swizzled(line % CORE * self.width + line / CORE * self.stride + chunk * across)
    }

    /// Where 16 bytes are: `chunk` counts 16 bytes along M or N, `k` along K.
    fn across_k(&self, chunk: usize, k: usize) -> usize {
        let per_row = self.width / CORE_BYTES;
        let (outer, inner) = if per_row == 1 { (self.stride, self.leading) } else { (self.leading, self.stride) };
        let offset = chunk % per_row * CORE_BYTES + chunk / per_row * outer + k % CORE * self.width + k / CORE * inner;
        self.swizzled(offset)
    }

    /// The place that a swizzle gives to 16 bytes: the pattern follows the address.
    fn swizzled(&self, offset: usize) -> usize {
        const PATTERN_ROW: usize = 128;
        let address = self.start + offset;
        let row = (address / PATTERN_ROW).wrapping_sub(self.base);
        address ^ ((row & (self.width / CORE_BYTES - 1)) * CORE_BYTES)
    }
}

/// An element's bits in shared memory.
fn element_at(shared: &[u8], chunk: usize, within: usize, element: Element) -> Result<u64, BadAccess> {
    let bits = element.bits();
    let start = chunk + within * bits / 8;
    let bytes = shared.get(start..start + bits.div_ceil(8));
    let outside = BadAccess { lane: 0, address: start as u64, kind: FaultKind::IllegalAddress };
    let bytes = bytes.ok_or(outside)?;
    Ok(super::super::access::from_bytes(bytes) >> (within * bits % 8) & mask(element))
}

/// Lines of A (its rows) or B (its columns) in shared memory, as a matrix whose rows are those lines.
fn lines(
    shared: &[u8],
    descriptor: Descriptor,
    along_k: bool,
    element: Element,
    first: usize,
    [count, k]: [usize; 2],
) -> Result<Values, BadAccess> {
    let mut values = Values::new(element, count, k);
    let per_chunk = CORE_BYTES * 8 / element.bits();
    for line in 0..count {
        for column in 0..k {
            let number = first + line;
            let bits = if along_k {
                let chunk = descriptor.along_k(number, column / per_chunk);
                element_at(shared, chunk, column % per_chunk, element)?
            } else {
                let chunk = descriptor.across_k(number / per_chunk, column);
                element_at(shared, chunk, number % per_chunk, element)?
            };
            values.set(line, column, bits);
        }
    }
    Ok(values)
}

/// Where the 16 bytes lie that [`lines`] takes elements from.
fn chunks(descriptor: Descriptor, along_k: bool, element: Element, first: usize, [count, k]: [usize; 2]) -> Vec<usize> {
    let per_chunk = CORE_BYTES * 8 / element.bits();
    if along_k {
        let line = |number| (0..k.div_ceil(per_chunk)).map(move |chunk| descriptor.along_k(number, chunk));
        (first..first + count).flat_map(line).collect()
    } else {
        let chunk = |number| (0..k).map(move |column| descriptor.across_k(number, column));
        (first / per_chunk..(first + count).div_ceil(per_chunk)).flat_map(chunk).collect()
    }
}

impl GroupMultiply {
    /// What the warp with that number reads of shared memory: the lane whose descriptors count, the address and how many bytes.
    pub(in crate::exec) fn places(&self, r: &Registers, warp: u32, lanes: u32) -> Vec<(usize, u64, u64)> {
        let leader = (lanes.trailing_zeros() as usize).min(31);
        let chunks = |described: Described, element: Element, first: usize, size: [usize; 2]| {
            let descriptor = Descriptor::new(r.wide[described.descriptor as usize][leader]);
            chunks(descriptor, described.along_k, element, first, size)
        };
        let mut places = chunks(self.b, self.b_element, 0, [self.d.columns, self.k]);
        if let GroupSource::Shared(described) = &self.a {
            let first = (warp % WARPS_OF_GROUP) as usize * ROWS;
            places.extend(chunks(*described, self.a_element, first, [ROWS, self.a_columns]));
        }
        places.into_iter().map(|at| (leader, at as u64, CORE_BYTES as u64)).collect()
    }
}

fn transposed(values: &Values) -> Values {
    let mut result = Values::new(values.element, values.columns, values.rows);
    for row in 0..values.rows {
        for column in 0..values.columns {
            result.set(column, row, values.at(row, column));
        }
    }
    result
}

/// The part of the warp with that number in its block.
pub(super) fn multiply(
    r: &mut Registers,
    shared: &[u8],
    multiply: &GroupMultiply,
    warp: u32,
    lanes: u32,
) -> Result<(), BadAccess> {
    let leader = (lanes.trailing_zeros() as usize).min(31);
    let descriptor = |described: Described| Descriptor::new(r.wide[described.descriptor as usize][leader]);
    let mut a = match &multiply.a {
        GroupSource::Registers(fragment) => fragment.gather(r),
        GroupSource::Shared(described) => {
            let first = (warp % WARPS_OF_GROUP) as usize * ROWS;
            let size = [ROWS, multiply.a_columns];
            lines(shared, descriptor(*described), described.along_k, multiply.a_element, first, size)?
        }
    };
    let size = [multiply.d.columns, multiply.k];
    let b = lines(shared, descriptor(multiply.b), multiply.b.along_k, multiply.b_element, 0, size)?;
    let mut b = transposed(&b);
    if multiply.negate_a {
        a.negate();
    }
    if multiply.negate_b {
        b.negate();
    }
    let adds = r.condition(multiply.adds) >> leader & 1 != 0;
    let c =
        if adds { multiply.d.gather(r) } else { Values::new(multiply.d.element, multiply.d.rows, multiply.d.columns) };
    let columns = Columns::read(r, multiply.sparsity, &a);
    let d = product(&a, &b, &c, &columns, &multiply.arithmetic);
    multiply.d.scatter(r, &d, lanes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(width: usize) -> Descriptor {
        Descriptor { start: 2048, leading: 0x1000, stride: 0x400, base: 0, width }
    }

    #[test]
    fn descriptors_are_taken_apart() {
        let bits = 1 << 62 | 3 << 49 | 64 << 32 | 1 << 16 | 128;
        let expected = Descriptor { start: 2048, leading: 16, stride: 1024, base: 3, width: 128 };
        assert_eq!(Descriptor::new(bits), expected);
    }

    #[test]
    fn patterns_are_those_of_their_width() {
        assert_eq!(descriptor(16).along_k(9, 1), 2048 + 16 + 0x400 + 0x1000);
        // Row 5 of 128 bytes: chunk 1 is where chunk 4 would be.
        assert_eq!(descriptor(128).along_k(5, 1), 2048 + 5 * 128 + 4 * 16);
        // Two rows of 64 bytes in each 128.
        assert_eq!(descriptor(64).along_k(3, 0), 2048 + 3 * 64 + 16);
        assert_eq!(descriptor(32).along_k(4, 1), 2048 + 4 * 32);
        assert_eq!(descriptor(16).across_k(1, 9), 2048 + 0x400 + 16 + 0x1000);
        assert_eq!(descriptor(128).across_k(8, 9), 2048 + 0x1000 + 0x400 + 128 + 16);
    }
}
