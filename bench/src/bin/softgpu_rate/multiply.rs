//! A matrix multiply through tiles in shared memory, with barriers: what kernels do that loops of an instruction do not.

use crate::device::Device;
use anyhow::{Result, ensure};
use core::ffi::c_void;
use detshare_bench::cu;
use detshare_cuda::types::{CUdeviceptr_v2, CUstream};
use std::ffi::CString;
use std::time::Instant;

/// As `--instruction` names it.
pub(crate) const NAME: &str = "multiply";

/// Rows and columns of a tile, and threads of a block in each direction.
const TILE: u32 = 16;
/// Rows and columns of a matrix.
const SIZE: u32 = 512;

/// One step along a row of tiles: each thread fetches a value of both tiles, and all add their products up.
fn step() -> String {
    let products: String = (0..TILE)
        .map(|k| {
            format!(
                "    ld.shared.f32 %x, [%row+{}];\n    ld.shared.f32 %y, [%column+{}];\n    fma.rn.f32 %sum, %x, %y, %sum;\n",
                4 * k,
                4 * TILE * k
            )
        })
        .collect();
    format!(
        "    ld.global.f32 %x, [%a];
    ld.global.f32 %y, [%b];
    st.shared.f32 [%own], %x;
    st.shared.f32 [%own+1024], %y;
    bar.sync 0;
{products}    bar.sync 0;
    add.u64 %a, %a, 64;
    add.u64 %b, %b, %down;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra STEP;
"
    )
}

fn ptx(step: &str) -> Result<CString> {
    let text = format!(
        "
.version 7.0
.target sm_75
.address_size 64
.visible .entry multiply(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 size)
{{
    .reg .pred %more;
    .reg .f32 %x, %y, %sum;
    .reg .b32 %tx, %ty, %i, %k, %size, %left, %own, %row, %column, %at;
    .reg .b64 %a, %b, %c, %down, %offset;
    .shared .align 4 .b8 tiles[2048];
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u64 %c, [c];
    ld.param.u32 %size, [size];
    mov.u32 %tx, %tid.x;
    mov.u32 %ty, %tid.y;
    mov.u32 %i, %ctaid.y;
    mad.lo.u32 %i, %i, 16, %ty;
    mov.u32 %k, %ctaid.x;
    mad.lo.u32 %k, %k, 16, %tx;
    mad.lo.u32 %at, %i, %size, %tx;
    mul.wide.u32 %offset, %at, 4;
    add.u64 %a, %a, %offset;
    mad.lo.u32 %at, %ty, %size, %k;
    mul.wide.u32 %offset, %at, 4;
    add.u64 %b, %b, %offset;
    mad.lo.u32 %at, %i, %size, %k;
    mul.wide.u32 %offset, %at, 4;
    add.u64 %c, %c, %offset;
    mul.wide.u32 %down, %size, 64;
    mov.u32 %at, tiles;
    mad.lo.u32 %row, %ty, 64, %at;
    mad.lo.u32 %own, %tx, 4, %row;
    mad.lo.u32 %column, %tx, 4, %at;
    add.u32 %column, %column, 1024;
    shr.u32 %left, %size, 4;
    mov.f32 %sum, 0f00000000;
STEP:
{step}    st.global.f32 [%c], %sum;
    ret;
}}
"
    );
    Ok(CString::new(text)?)
}

/// Small whole numbers, so that every order of adding gives the same.
fn operands() -> [Vec<f32>; 2] {
    let matrix = |seed: u16| -> Vec<f32> {
        let value = |i: u32, k: u32| (i * 7 + k * 3 + u32::from(seed) + i * k) % 5;
        let values = (0..SIZE).flat_map(|i| (0..SIZE).map(move |k| value(i, k)));
        values.map(|value| f32::from(u8::try_from(value).unwrap_or(0))).collect()
    };
    [matrix(0), matrix(1)]
}

fn product([a, b]: &[Vec<f32>; 2]) -> Vec<f32> {
    let size = SIZE as usize;
    let mut c = vec![0.0; size * size];
    for (row, a) in c.chunks_mut(size).zip(a.chunks(size)) {
        for (factor, b) in a.iter().zip(b.chunks(size)) {
            row.iter_mut().zip(b).for_each(|(sum, b)| *sum += factor * b);
        }
    }
    c
}

/// Thread instructions a second, of the loop over tiles alone: the median of so many launches.
pub(crate) fn rate(device: &Device, launches: usize) -> Result<f64> {
    let step = step();
    let kernel = device.kernel(&ptx(&step)?, c"multiply")?;
    let driver = &device.driver;
    let operands = operands();
    let expected = product(&operands);
    let bytes = size_of_val(expected.as_slice());
    let mut places = [CUdeviceptr_v2(0); 3];
    for place in &mut places {
        cu!(driver, cuMemAlloc_v2(place, bytes))?;
    }
    for (place, values) in places.iter().zip(&operands) {
        cu!(driver, cuMemcpyHtoD_v2(*place, values.as_ptr().cast(), bytes))?;
    }
    let mut size = SIZE;
    let [a, b, c] = &mut places;
    let mut parameters: [*mut c_void; 4] = [
        core::ptr::from_mut(a).cast(),
        core::ptr::from_mut(b).cast(),
        core::ptr::from_mut(c).cast(),
        (&raw mut size).cast(),
    ];
    let steps = f64::from(SIZE / TILE);
    let instructions = f64::from(u32::try_from(step.lines().count())?) * steps * f64::from(SIZE) * f64::from(SIZE);
    let (blocks, none) = (SIZE / TILE, core::ptr::null_mut());
    let stream = CUstream(core::ptr::null_mut());
    let mut rates = Vec::new();
    for _ in 0..launches {
        cu!(driver, cuMemsetD8_v2(places[2], 0xff, bytes))?;
        let start = Instant::now();
        cu!(
            driver,
            cuLaunchKernel(kernel, blocks, blocks, 1, TILE, TILE, 1, 0, stream, parameters.as_mut_ptr(), none)
        )?;
        cu!(driver, cuCtxSynchronize())?;
        let seconds = start.elapsed().as_secs_f64();
        let mut found = vec![0_f32; expected.len()];
        cu!(driver, cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), places[2], bytes))?;
        ensure!(found == expected, "the kernel computed something else");
        rates.push(instructions / seconds);
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}
