//! Matrices between registers and memory, as loads and stores of each lane.

use super::super::access::{self, BadAccess, Memory};
use super::super::interface::FaultKind;
use crate::exec::lanes::{FULL, LANES, Registers};
use crate::exec::op::{
    Address, Element, Fragment, Load, Matrix, MatrixAccess, Order, Reg, RowsAccess, Space, Store, Tensor,
};

/// Bytes of a row of `ldmatrix`.
const ROW: u64 = 16;
/// Rows of each of its matrices.
const ROWS: usize = 8;

/// Registers that hold nothing but one access: where it goes, and what.
struct Scratch {
    registers: Registers,
    space: Space,
}

/// Where the scratch registers have addresses and values.
const ADDRESSES: Reg = Reg::Wide(0);
const VALUES: Reg = Reg::Wide(1);

impl Scratch {
    fn new(space: Space) -> Self {
        let registers = Registers { narrow: Vec::new(), wide: vec![[0; LANES]; 2], predicates: Vec::new(), carry: 0 };
        Self { registers, space }
    }

    fn address(&self) -> Address {
        Address { space: self.space, base: ADDRESSES, offset: 0 }
    }

    /// What all lanes load.
    fn load(&mut self, memory: &mut Memory<'_>, at: &[u64; LANES], size: u8) -> Result<[u64; LANES], BadAccess> {
        self.registers.write(ADDRESSES, FULL, at);
        let to = Box::new([Some(VALUES)]);
        let load = Load { address: self.address(), size, signed: false, order: Order::Weak, to };
        access::load(&mut self.registers, memory, &load, FULL)?;
        Ok(self.registers.read(VALUES))
    }

    fn store(
        &mut self,
        memory: &mut Memory<'_>,
        at: &[u64; LANES],
        size: u8,
        values: &[u64; LANES],
    ) -> Result<(), BadAccess> {
        self.registers.write(ADDRESSES, FULL, at);
        self.registers.write(VALUES, FULL, values);
        let store = Store { address: self.address(), size, order: Order::Weak, from: Box::new([VALUES]) };
        access::store(&self.registers, memory, &store, FULL)
    }
}

impl MatrixAccess {
    /// Whether the elements of a register are neighbours in memory.
    fn is_joined(&self) -> bool {
        self.by_rows != (self.fragment.matrix == Matrix::B)
    }

    /// The accesses of each register: so many, of so many bytes.
    fn pieces(&self) -> (usize, u8) {
        let element = self.fragment.element;
        let bytes = |bits: usize| u8::try_from(bits / 8).unwrap_or(4);
        if self.is_joined() {
            (1, bytes(element.bits() * element.per_register()))
        } else {
            (element.per_register(), bytes(element.bits()))
        }
    }

    /// Where a piece of a register is, for each lane.
    fn addresses(&self, r: &Registers, register: usize, piece: usize) -> [u64; LANES] {
        let base = access::addresses(r, &self.address);
        let Fragment { rows, columns, element, .. } = self.fragment;
        let usual = if self.by_rows { columns } else { rows };
        let places = self.fragment.places_of(register);
        core::array::from_fn(|lane| {
            let stride = self.stride.map_or(usual as u64, |slot| {
                let elements = u64::from(r.narrow[slot as usize][lane]);
                // Bits are counted one by one there.
                if element == Element::B1 { elements / 32 } else { elements }
            });
            let place = usize::from(places[lane * element.per_register() + piece]);
            let (row, column) = (place / columns, place % columns);
            let (major, minor) = if self.by_rows { (row, column) } else { (column, row) };
            let elements = (major as u64).wrapping_mul(stride).wrapping_add(minor as u64);
            base[lane].wrapping_add(elements.wrapping_mul(element.bits() as u64) / 8)
        })
    }
}

/// `wmma.load`
pub(super) fn load(
    r: &mut Registers,
    memory: &mut Memory<'_>,
    access: &MatrixAccess,
    lanes: u32,
) -> Result<(), BadAccess> {
    let mut scratch = Scratch::new(access.address.space);
    let (pieces, size) = access.pieces();
    let mut loaded = Vec::with_capacity(access.fragment.registers.len());
    for register in 0..access.fragment.registers.len() {
        let mut whole = [0; LANES];
        for piece in 0..pieces {
            let at = access.addresses(r, register, piece);
            let values = scratch.load(memory, &at, size)?;
            for (whole, value) in whole.iter_mut().zip(values) {
                *whole |= value << (piece * usize::from(size) * 8);
            }
        }
        loaded.push(whole);
    }
    // Only now: a register may hold the address.
    for (register, values) in access.fragment.registers.iter().zip(&loaded) {
        r.write(*register, lanes, values);
    }
    Ok(())
}

/// `wmma.store`
pub(super) fn store(r: &Registers, memory: &mut Memory<'_>, access: &MatrixAccess) -> Result<(), BadAccess> {
    let mut scratch = Scratch::new(access.address.space);
    let (pieces, size) = access.pieces();
    for (number, register) in access.fragment.registers.iter().enumerate() {
        let values = r.read(*register);
        for piece in 0..pieces {
            let at = access.addresses(r, number, piece);
            let values = values.map(|value| value >> (piece * usize::from(size) * 8));
            scratch.store(memory, &at, size, &values)?;
        }
    }
    Ok(())
}

impl Tensor {
    /// Where in memory it loads from or stores to: for each part the lane, the address and how many bytes.
    pub(in crate::exec) fn places(&self, r: &Registers) -> Vec<(usize, u64, u64)> {
        match self {
            Self::Load(access) | Self::Store(access) => {
                let (pieces, size) = access.pieces();
                let parts =
                    (0..access.fragment.registers.len()).flat_map(|number| (0..pieces).map(move |it| (number, it)));
                let lanes = |(number, piece)| access.addresses(r, number, piece).into_iter().enumerate();
                parts.flat_map(lanes).map(|(lane, at)| (lane, at, size.into())).collect()
            }
            Self::LoadRows(access) | Self::StoreRows(access) => {
                let rows = access::addresses(r, &access.address).into_iter().enumerate();
                rows.take(access.registers.len() * ROWS).map(|(lane, at)| (lane, at, ROW)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Where each lane has its part of a matrix: rows begin where lanes say.
fn row_addresses(
    rows: &[u64; LANES],
    access: &RowsAccess,
    matrix: usize,
    within: usize,
) -> Result<[u64; LANES], BadAccess> {
    let mut at = [0; LANES];
    for (lane, at) in at.iter_mut().enumerate() {
        let (strip, quad) = (lane / 4, lane % 4);
        let (row, offset) = if access.transposed { (quad * 2 + within, strip * 2) } else { (strip, quad * 4) };
        let from = matrix * ROWS + row;
        let start = rows[from % LANES];
        if !start.is_multiple_of(ROW) {
            return Err(BadAccess { lane: from % LANES, address: start, kind: FaultKind::MisalignedAddress });
        }
        *at = start.wrapping_add(offset as u64);
    }
    Ok(at)
}

/// `ldmatrix`
pub(super) fn load_rows(
    r: &mut Registers,
    memory: &mut Memory<'_>,
    access: &RowsAccess,
    lanes: u32,
) -> Result<(), BadAccess> {
    let mut scratch = Scratch::new(access.address.space);
    let rows = access::addresses(r, &access.address);
    let mut loaded = Vec::with_capacity(access.registers.len());
    for matrix in 0..access.registers.len() {
        loaded.push(if access.transposed {
            let first = scratch.load(memory, &row_addresses(&rows, access, matrix, 0)?, 2)?;
            let second = scratch.load(memory, &row_addresses(&rows, access, matrix, 1)?, 2)?;
            core::array::from_fn(|lane| first[lane] | second[lane] << 16)
        } else {
            scratch.load(memory, &row_addresses(&rows, access, matrix, 0)?, 4)?
        });
    }
    // Only now: a register may hold the address.
    for (register, values) in access.registers.iter().zip(&loaded) {
        r.write(*register, lanes, values);
    }
    Ok(())
}

/// `stmatrix`
pub(super) fn store_rows(r: &Registers, memory: &mut Memory<'_>, access: &RowsAccess) -> Result<(), BadAccess> {
    let mut scratch = Scratch::new(access.address.space);
    let rows = access::addresses(r, &access.address);
    for (matrix, register) in access.registers.iter().enumerate() {
        let values = r.read(*register);
        if access.transposed {
            scratch.store(memory, &row_addresses(&rows, access, matrix, 0)?, 2, &values)?;
            scratch.store(memory, &row_addresses(&rows, access, matrix, 1)?, 2, &values.map(|value| value >> 16))?;
        } else {
            scratch.store(memory, &row_addresses(&rows, access, matrix, 0)?, 4, &values)?;
        }
    }
    Ok(())
}

/// `movmatrix`: the lanes' matrix of 8 by 8 halves, rows and columns exchanged.
pub(super) fn transpose(r: &mut Registers, d: usize, a: usize, lanes: u32) {
    let from = r.narrow[a];
    let half = |row: usize, column: usize| from[row * 4 + column / 2] >> (column % 2 * 16) & 0xffff;
    let values = core::array::from_fn(|lane| {
        let (row, column) = (lane / 4, lane % 4 * 2);
        u64::from(half(column, row) | half(column + 1, row) << 16)
    });
    r.write(Reg::Narrow(u32::try_from(d).unwrap_or_default()), lanes, &values);
}
