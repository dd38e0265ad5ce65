//! The matrix units: products of matrices, and matrices between registers and memory.
//!
//! * `numerics`: how the hardware rounds, as numbers. `dot`: sums made that way.
//! * `fragment`, `sparse`: which lane has which element. `values`: elements as numbers.
//! * `multiply`: `mma` and `wmma`. `group`: `wgmma`. `memory`: `wmma.load`, `ldmatrix` and the like.

mod dot;
mod fragment;
mod group;
mod memory;
mod multiply;
mod numerics;
mod sparse;
mod values;

use super::access::Memory;
use super::block::Surroundings;
use super::interface::Fault;
use super::op::{Op, Tensor};
use super::program::Program;
use super::warp::{Group, Warp};

impl Warp {
    /// Runs an instruction of the matrix units. All lanes of the warp are meant to be there.
    pub(super) fn tensor(
        &mut self,
        program: &Program,
        block: &mut Surroundings,
        group: Group,
        op: &Op,
        lanes: u32,
    ) -> Result<(), Box<Fault>> {
        let Op::Tensor { tensor, .. } = op else { return Ok(()) };
        let r = &mut self.frames[group.frame].registers;
        let mut memory = Memory::of(block, &mut self.local);
        let result = match &**tensor {
            Tensor::Multiply(multiply) => {
                multiply::multiply(r, multiply, lanes);
                Ok(())
            }
            Tensor::QuadMultiply(multiply) => {
                multiply::quad_multiply(r, multiply, lanes);
                Ok(())
            }
            Tensor::GroupMultiply(multiply) => group::multiply(r, memory.shared, multiply, self.number, lanes),
            Tensor::Load(access) => memory::load(r, &mut memory, access, lanes),
            Tensor::Store(access) => memory::store(r, &mut memory, access),
            Tensor::LoadRows(access) => memory::load_rows(r, &mut memory, access, lanes),
            Tensor::StoreRows(access) => memory::store_rows(r, &mut memory, access),
            Tensor::Transpose { d, a } => {
                memory::transpose(r, *d as usize, *a as usize, lanes);
                Ok(())
            }
        };
        result.map_err(|access| self.bad_access(program, block, group, op, access))
    }
}
