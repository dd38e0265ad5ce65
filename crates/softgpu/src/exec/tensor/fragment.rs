//! Where the registers of a warp have the elements of a matrix.
//!
//! For `mma` and `wgmma` PTX says where. For `wmma` it does not: a matrix there is made of the pieces that `mma`
//! takes, as on the hardware.

use super::values::Values;
use crate::exec::lanes::{LANES, Registers};
use crate::exec::op::{Element, Fragment, Matrix, Reg};

/// Rows of A, and of C, that one register has in all lanes.
const STRIP: usize = 8;
/// Lanes side by side along K, or along the columns of C.
const QUAD: usize = 4;

impl Fragment {
    pub(in crate::exec) fn new(
        matrix: Matrix,
        element: Element,
        [rows, columns]: [usize; 2],
        registers: Box<[Reg]>,
    ) -> Self {
        let mut fragment = Self { matrix, element, rows, columns, registers, places: Box::default() };
        let per_register = LANES * element.per_register();
        let places = (0..fragment.distinct() * per_register).map(|number| {
            let (register, number) = (number / per_register, number % per_register);
            let (row, column) =
                fragment.place(register, number / element.per_register(), number % element.per_register());
            u16::try_from(row * columns + column).unwrap_or(u16::MAX)
        });
        fragment.places = places.collect();
        fragment
    }

    /// How many registers hold the matrix once.
    pub(super) fn distinct(&self) -> usize {
        self.rows * self.columns / (LANES * self.element.per_register())
    }

    /// The places of a register's elements, lane by lane. The registers may hold the matrix more than once.
    pub(super) fn places_of(&self, register: usize) -> &[u16] {
        let per_register = LANES * self.element.per_register();
        let first = register % self.distinct().max(1) * per_register;
        &self.places[first..first + per_register]
    }

    /// Row and column of an element: the register's, the lane's, and its place in the register.
    fn place(&self, register: usize, lane: usize, within: usize) -> (usize, usize) {
        let (strip, quad) = (lane / QUAD, lane % QUAD);
        let width = self.element.per_register();
        let register = register % self.distinct().max(1);
        match self.matrix {
            Matrix::A => {
                let column = |step: usize| quad * width + within + step * QUAD * width;
                if self.rows == STRIP {
                    return (strip, column(register));
                }
                let steps = self.columns / (QUAD * width);
                let (tile, register) = (register / (2 * steps), register % (2 * steps));
                (tile * 2 * STRIP + register % 2 * STRIP + strip, column(register / 2))
            }
            Matrix::B => {
                let steps = self.rows / (QUAD * width);
                let (tile, step) = (register / steps, register % steps);
                (quad * width + within + step * QUAD * width, tile * STRIP + strip)
            }
            Matrix::C => {
                let number = register * width + within;
                let pair = quad * 2 + number % 2;
                if self.rows == STRIP {
                    return (strip, number / 2 * STRIP + pair);
                }
                let tiles = self.columns / STRIP;
                let tile = number / 4;
                (tile / tiles * 2 * STRIP + number / 2 % 2 * STRIP + strip, tile % tiles * STRIP + pair)
            }
        }
    }

    /// The matrix that the registers hold.
    pub(super) fn gather(&self, r: &Registers) -> Values {
        let mut values = Values::new(self.element, self.rows, self.columns);
        let (bits, mask) = (self.element.bits(), mask(self.element));
        for (number, register) in self.registers.iter().enumerate().take(self.distinct()) {
            let lanes = r.read(*register);
            let places = self.places_of(number).chunks_exact(self.element.per_register());
            for (held, places) in lanes.iter().zip(places) {
                for (within, place) in places.iter().enumerate() {
                    values.bits[usize::from(*place)] = held >> (within * bits) & mask;
                }
            }
        }
        values
    }

    /// Writes the registers in the lanes of the mask.
    pub(super) fn scatter(&self, r: &mut Registers, values: &Values, lanes: u32) {
        let bits = self.element.bits();
        for (number, register) in self.registers.iter().enumerate() {
            let mut held = [0; LANES];
            let places = self.places_of(number).chunks_exact(self.element.per_register());
            for (held, places) in held.iter_mut().zip(places) {
                for (within, place) in places.iter().enumerate() {
                    *held |= values.bits[usize::from(*place)] << (within * bits);
                }
            }
            r.write(*register, lanes, &held);
        }
    }

    /// Whether it has the registers that it needs, each of the right size.
    pub(in crate::exec) fn is_whole(&self, registers: usize) -> bool {
        let distinct = self.distinct();
        let wide = self.element == Element::F64;
        let fits = |register: &Reg| matches!(register, Reg::Wide(_)) == wide;
        distinct > 0 && self.registers.len() == registers.max(distinct) && self.registers.iter().all(fits)
    }
}

/// The bits of one element.
pub(super) fn mask(element: Element) -> u64 {
    u64::MAX >> (64 - element.bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(matrix: Matrix, element: Element, rows: usize, columns: usize) -> Fragment {
        let registers = rows * columns / (LANES * element.per_register());
        Fragment::new(matrix, element, [rows, columns], vec![Reg::Narrow(0); registers].into())
    }

    #[test]
    fn every_element_has_exactly_one_place() {
        let fragments = [
            fragment(Matrix::A, Element::F16, 16, 16),
            fragment(Matrix::A, Element::Bf16, 8, 16),
            fragment(Matrix::A, Element::Bf16, 32, 16),
            fragment(Matrix::A, Element::S8, 32, 16),
            fragment(Matrix::A, Element::F64, 16, 16),
            fragment(Matrix::A, Element::S4, 16, 64),
            fragment(Matrix::B, Element::S8, 16, 32),
            fragment(Matrix::B, Element::Tf32, 8, 16),
            fragment(Matrix::B, Element::S4, 128, 8),
            fragment(Matrix::C, Element::F32, 16, 256),
            fragment(Matrix::C, Element::F16, 8, 32),
            fragment(Matrix::C, Element::F32, 32, 8),
        ];
        for fragment in fragments {
            let mut seen = vec![false; fragment.rows * fragment.columns];
            for register in 0..fragment.registers.len() {
                for lane in 0..LANES {
                    for within in 0..fragment.element.per_register() {
                        let (row, column) = fragment.place(register, lane, within);
                        assert!(!core::mem::replace(&mut seen[row * fragment.columns + column], true), "{fragment:?}");
                    }
                }
            }
            assert!(seen.iter().all(|seen| *seen), "{fragment:?}");
        }
    }
}
