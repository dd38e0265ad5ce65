//! Which columns of A the stored elements stand for.

use super::values::Values;
use crate::exec::lanes::{LANES, Registers};
use crate::exec::op::{Element, Sparsity};

/// For each stored element of A, its column.
#[derive(Debug)]
pub(super) enum Columns {
    /// All are stored.
    Dense,
    Sparse {
        columns: Vec<u16>,
        stored: usize,
    },
}

impl Columns {
    /// The column that a stored element of a row stands for, and with it the row of B that it meets.
    pub(super) fn of(&self, row: usize, number: usize) -> usize {
        match self {
            Self::Dense => number,
            Self::Sparse { columns, stored } => usize::from(columns[row * stored + number]),
        }
    }

    /// What the metadata of a warp's lanes says of 16 rows.
    pub(super) fn read(r: &Registers, sparsity: Option<Sparsity>, a: &Values) -> Self {
        let Some(Sparsity { metadata, selector }) = sparsity else { return Self::Dense };
        let words = &r.narrow[metadata as usize];
        let stored = a.columns;
        let mut columns = Vec::with_capacity(a.rows * stored);
        for row in 0..a.rows {
            let bits = row_metadata(words, a.element, row, stored, selector);
            columns.extend((0..stored).map(|number| u16::try_from(column(bits, a.element, number)).unwrap_or(0)));
        }
        Self::Sparse { columns, stored }
    }
}

/// Bits of metadata that a stored element takes; two of 4 bits share one index.
fn index_bits(element: Element) -> usize {
    match element {
        Element::Tf32 => 4,
        Element::S4 | Element::U4 => 1,
        _ => 2,
    }
}

/// All of a row's metadata, the first element's at the bottom.
fn row_metadata(words: &[u32; LANES], element: Element, row: usize, stored: usize, selector: u32) -> u64 {
    let quad = row % 8 * 4;
    let lower = row / 8;
    let selector = selector as usize;
    let word = |lane: usize| u64::from(words[(quad + lane) % LANES]);
    let half = |lane: usize| word(lane) >> (16 * lower) & 0xffff;
    match (stored * index_bits(element), element.bits()) {
        // One lane has two rows,
        (16, _) => half(selector),
        // or two lanes have half of two rows each,
        (32, 16..) => half(2 * selector) | half(2 * selector + 1) << 16,
        // or a whole row each,
        (32, _) => word(2 * selector + lower),
        // or four lanes have half a row each.
        _ => word(lower) | word(lower + 2) << 32,
    }
}

/// The column of a stored element.
fn column(bits: u64, element: Element, number: usize) -> usize {
    let field = |at: usize, mask: u64| usize::try_from(bits >> at & mask).unwrap_or(0);
    match element {
        // One of two: 0b0100 is the first, 0b1110 the second.
        Element::Tf32 => number * 2 + (field(number * 4, 15) >> 1 & 1),
        // Two neighbours of eight go together.
        Element::S4 | Element::U4 => number / 4 * 8 + field(number / 2 * 2, 3) * 2 + number % 2,
        _ => number / 2 * 4 + field(number * 2, 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_within_their_chunk() {
        // 0 and 3 of the first four, 1 and 2 of the next.
        let bits = 0b10_01_11_00;
        let columns: Vec<usize> = (0..4).map(|number| column(bits, Element::F16, number)).collect();
        assert_eq!(columns, [0, 3, 5, 6]);
        let columns: Vec<usize> = (0..2).map(|number| column(0b1110_0100, Element::Tf32, number)).collect();
        assert_eq!(columns, [0, 3]);
        let columns: Vec<usize> = (0..8).map(|number| column(bits, Element::S4, number)).collect();
        assert_eq!(columns, [0, 1, 6, 7, 10, 11, 12, 13]);
    }

    #[test]
    fn metadata_comes_from_the_selected_lanes() {
        let words: [u32; LANES] =
            core::array::from_fn(|lane| u32::try_from(lane * 0x1_0001 + 0x8000_0000).unwrap_or(0));
        // 16 bits a row: the lane that the selector says.
        assert_eq!(row_metadata(&words, Element::F16, 1, 8, 2), 6);
        assert_eq!(row_metadata(&words, Element::F16, 9, 8, 2), 0x8006);
        assert_eq!(row_metadata(&words, Element::Bf16, 1, 16, 1), 0x0007_0006);
        assert_eq!(row_metadata(&words, Element::S8, 9, 16, 0), u64::from(words[5]));
        assert_eq!(row_metadata(&words, Element::E4m3, 9, 32, 0), u64::from(words[5]) | u64::from(words[7]) << 32);
    }
}
