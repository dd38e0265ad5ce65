//! Matrices in memory: parts that lanes load and store together, and those that warp groups multiply where they lie.

use super::super::access::resolve;
use super::super::op::{Op, Space, Tensor};
use super::super::warp::{Group, Warp};
use super::shadow::Touch;
use super::{Checker, Moment};

/// Where a matrix lies, and what happens to it.
pub(super) struct Matrix {
    parts: Vec<Part>,
    touch: Touch,
    /// It is read by a product, which runs on its own.
    multiplied: bool,
}

/// Where a lane has a part of a matrix.
struct Part {
    lane: usize,
    space: Space,
    address: u64,
    bytes: u64,
}

impl Warp {
    /// The matrix that an instruction moves or reads.
    pub(super) fn matrix(&self, group: Group, op: &Op, active: u32) -> Option<Matrix> {
        let Op::Tensor { tensor, .. } = op else { return None };
        let registers = &self.frames[group.frame].registers;
        let (touch, multiplied) = match &**tensor {
            Tensor::Load(_) | Tensor::LoadRows(_) => (Touch::Read { strong: false }, false),
            Tensor::Store(_) | Tensor::StoreRows(_) => (Touch::Replace, false),
            Tensor::GroupMultiply(_) => (Touch::Read { strong: false }, true),
            _ => return None,
        };
        let space = tensor.space();
        let within = |address: u64| if space == Space::Generic { resolve(address) } else { (space, address) };
        let places = match &**tensor {
            Tensor::GroupMultiply(multiply) => multiply.places(registers, self.number, active),
            tensor => tensor.places(registers),
        };
        let parts = places.into_iter().map(|(lane, address, bytes)| {
            let (space, address) = within(address);
            Part { lane, space, address, bytes }
        });
        Some(Matrix { parts: parts.collect(), touch, multiplied })
    }
}

impl Checker {
    /// Parts of a matrix are read or written.
    pub(super) fn matrix(&mut self, moment: Moment<'_>, matrix: &Matrix) {
        let warp = moment.accessor.warp;
        let first = self.warp(moment.block.rank, 0);
        let product = matrix.multiplied.then(|| self.products.issue(warp, first, &mut self.clocks));
        for Part { lane, space, address, bytes } in &matrix.parts {
            match space {
                Space::Global => self.global(moment, *lane, *address, *bytes),
                Space::Shared => {
                    let access = self.new_access(moment.accessor, *lane, matrix.touch);
                    let access = product.map_or(access, |product| access.by(product));
                    self.touch(moment, *lane, moment.place(*address), *bytes, (access, matrix.touch));
                }
                _ => {}
            }
        }
    }
}
