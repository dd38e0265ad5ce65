//! The kernel, and the ways in which programs load one.

use anyhow::Result;
use clap::Args;
use core::ffi::{CStr, c_uint, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{CUjit_option, CUjitInputType, CUlinkState, CUmodule};
use detshare_workloads::{Library, cu};
use std::path::PathBuf;

/// Each word goes through `rounds` rounds, and each block counts itself. A variable of the module is part of it.
const KERNEL: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 salt = 12345;
.visible .entry work(.param .u64 data, .param .u64 counts, .param .u32 rounds)
{
    .reg .pred %more, %first;
    .reg .b32 %x, %high, %row, %width, %block, %size, %thread, %i, %left, %salt;
    .reg .b64 %data, %counts, %offset;
    ld.param.u64 %data, [data];
    ld.param.u64 %counts, [counts];
    ld.param.u32 %left, [rounds];
    mov.u32 %row, %ctaid.y;
    mov.u32 %width, %nctaid.x;
    mov.u32 %block, %ctaid.x;
    mad.lo.u32 %block, %row, %width, %block;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %data, %data, %offset;
    ld.global.u32 %salt, [salt];
    ld.global.u32 %x, [%data];
AGAIN:
    mad.lo.u32 %x, %x, 1664525, %salt;
    shr.u32 %high, %x, 15;
    xor.b32 %x, %x, %high;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;
    st.global.u32 [%data], %x;
    setp.eq.u32 %first, %thread, 0;
    @!%first ret;
    mul.wide.u32 %offset, %block, 4;
    add.u64 %counts, %counts, %offset;
    red.global.add.u32 [%counts], 1;
    ret;
}
";

/// What is linked with it: a module of nothing but a variable.
const PIECE: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 piece = 1;
";

/// How the kernel is loaded.
#[derive(Args)]
pub(crate) struct How {
    /// Put what FILE has in front of the kernel's PTX
    #[arg(long, value_name = "FILE")]
    text_before: Option<PathBuf>,
    /// Have it compiled with this level of optimisation
    #[arg(long)]
    level: Option<usize>,
    /// Have it compiled for this architecture, such as 90
    #[arg(long, conflicts_with = "level")]
    target: Option<usize>,
    /// Link it first, alone or with another piece
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2))]
    pieces: Option<u32>,
}

/// Loads it.
pub(crate) fn load(library: &Library, how: &How) -> Result<CUmodule> {
    let mut text = how.text_before.as_ref().map_or_else(|| Ok(Vec::new()), std::fs::read)?;
    text.extend(KERNEL.to_bytes_with_nul());
    let target = how.target.map(|target| (CUjit_option::CU_JIT_TARGET, target));
    let asked = how.level.map(|level| (CUjit_option::CU_JIT_OPTIMIZATION_LEVEL, level)).or(target);
    let (mut option, value) = asked.unwrap_or((CUjit_option::CU_JIT_TARGET, 0));
    let mut value = core::ptr::without_provenance_mut::<c_void>(value);
    let (count, options, values) = (c_uint::from(asked.is_some()), &raw mut option, &raw mut value);
    let mut module = CUmodule(null_mut());
    let Some(pieces) = how.pieces else {
        match asked {
            Some(_) => cu!(library, cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), count, options, values))?,
            None => cu!(library, cuModuleLoadData(&raw mut module, text.as_ptr().cast()))?,
        }
        return Ok(module);
    };
    let mut state = CUlinkState(null_mut());
    cu!(library, cuLinkCreate_v2(count, options, values, &raw mut state))?;
    for piece in [text.as_slice(), PIECE.to_bytes_with_nul()].iter().take(pieces as usize) {
        let (data, kind) = (piece.as_ptr().cast_mut().cast(), CUjitInputType::CU_JIT_INPUT_PTX);
        cu!(library, cuLinkAddData_v2(state, kind, data, piece.len(), c"piece".as_ptr(), 0, null_mut(), null_mut()))?;
    }
    let (mut image, mut size) = (null_mut(), 0);
    cu!(library, cuLinkComplete(state, &raw mut image, &raw mut size))?;
    cu!(library, cuModuleLoadData(&raw mut module, image))?;
    cu!(library, cuLinkDestroy(state))?;
    Ok(module)
}
