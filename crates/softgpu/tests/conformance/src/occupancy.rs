//! How many blocks of a kernel fit.

use crate::Outcome;
use crate::gpu::Gpu;
use anyhow::{Result, ensure};
use core::ffi::{c_int, c_void};
use core::ptr::{null_mut, without_provenance_mut};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdevice_attribute, CUfunction, CUfunction_attribute, CUjit_option, CUjitInputType, CUlinkState, CUmodule,
    CUoccupancy_flags,
};
use std::ffi::CString;

tests! { occupancy:
    blocks_fit_a_multiprocessor,
    shared_memory_lowers_it,
    flags_are_taken,
    impossible_blocks,
    potential_block_size_is_launchable,
    potential_block_size_with_shared_memory,
    available_shared_memory,
    registers_are_limited_by_directives,
    registers_are_limited_by_options,
    registers_are_limited_by_options_of_the_linker,
}

fn blocks(driver: &Driver, function: CUfunction, threads: c_int, shared: usize) -> Result<c_int> {
    let mut blocks = -1;
    ok!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function, threads, shared));
    Ok(blocks)
}

fn blocks_fit_a_multiprocessor(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let most = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
    let most_blocks = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?;
    for threads in [32, 128, 256, 1_024] {
        let blocks = blocks(driver, fill, threads, 0)?;
        ensure!(blocks >= 1 && blocks * threads <= most, "{blocks} blocks of {threads} threads");
        ensure!(blocks <= most_blocks, "{blocks} blocks");
        note!("{blocks} blocks of {threads}");
    }
    Ok(())
}

fn shared_memory_lowers_it(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [reverse] = gpu.kernels([c"reverse"])?;
    let per_processor = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
    let room = usize::try_from(gpu.attribute(per_processor)?)?;
    let bytes = 48 << 10;
    let with = usize::try_from(blocks(driver, reverse, 32, bytes)?)?;
    ensure!(with >= 1 && with * bytes <= room, "{with} blocks of {bytes} bytes in {room}");
    ensure!(blocks(driver, reverse, 32, 0)? > c_int::try_from(with)?, "shared memory makes no difference");
    Ok(())
}

fn flags_are_taken(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let plain = blocks(driver, fill, 128, 0)?;
    for flags in [CUoccupancy_flags::CU_OCCUPANCY_DEFAULT, CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE] {
        let mut blocks = -1;
        ok!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&raw mut blocks, fill, 128, 0, flags.0));
        ensure!(blocks == plain, "{blocks} blocks with {flags:?}, {plain} without flags");
    }
    Ok(())
}

fn impossible_blocks(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    for threads in [0, -1, 2_048] {
        let mut blocks = -1;
        let what = format!("blocks of {threads} threads");
        noted!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, fill, threads, 0), what);
        ensure!(blocks <= 0, "{blocks} blocks of {threads} threads");
    }
    let mut blocks = -1;
    let bytes = 1 << 20;
    noted!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, fill, 32, bytes), "a MiB each");
    ensure!(blocks <= 0, "{blocks} blocks with a MiB of shared memory each");
    Ok(())
}

fn potential_block_size_is_launchable(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, few_threads] = gpu.kernels([c"fill", c"few_threads"])?;
    let suggest = |function, limit| -> Result<(c_int, c_int)> {
        let (mut grid, mut block) = (0, 0);
        ok!(driver, cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, function, None, 0, limit));
        Ok((grid, block))
    };
    let processors = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let (grid, block) = suggest(fill, 0)?;
    ensure!(grid >= processors && (32..=1_024).contains(&block), "{grid} blocks of {block}");
    ensure!(blocks(driver, fill, block, 0)? * processors == grid, "{grid} blocks of {block} do not fill the device");
    let (_, block) = suggest(fill, 96)?;
    ensure!((1..=96).contains(&block), "blocks of {block} where 96 is the limit");
    let (_, block) = suggest(few_threads, 0)?;
    ensure!((1..=64).contains(&block), "blocks of {block} where the kernel allows 64");
    Ok(())
}

/// A word for each thread.
unsafe extern "C" fn word_for_each(threads: c_int) -> usize {
    4 * usize::try_from(threads).unwrap_or_default()
}

fn potential_block_size_with_shared_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [reverse] = gpu.kernels([c"reverse"])?;
    let (mut grid, mut block) = (0, 0);
    let size = Some(word_for_each as unsafe extern "C" fn(c_int) -> usize);
    ok!(driver, cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, reverse, size, 0, 0));
    ensure!(grid >= 1 && (32..=1_024).contains(&block), "{grid} blocks of {block}");
    ok!(driver, cuOccupancyMaxPotentialBlockSizeWithFlags(&raw mut grid, &raw mut block, reverse, size, 0, 0, 0));
    ensure!(grid >= 1 && (32..=1_024).contains(&block), "{grid} blocks of {block} by the one with flags");
    Ok(())
}

fn available_shared_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [reverse] = gpu.kernels([c"reverse"])?;
    let available = |blocks| -> Result<usize> {
        let mut bytes = 0;
        ok!(driver, cuOccupancyAvailableDynamicSMemPerBlock(&raw mut bytes, reverse, blocks, 128));
        Ok(bytes)
    };
    let (one, two, four) = (available(1)?, available(2)?, available(4)?);
    ensure!(one >= two && two >= four && four > 0, "{one}, {two} and {four} bytes for 1, 2 and 4 blocks");
    note!("{one}, {two} and {four} bytes for 1, 2 and 4 blocks");
    Ok(())
}

/// What a thread gets where it wants more.
const FEW: c_int = 32;

/// A kernel that has many numbers at once.
fn hungry(directives: &str) -> Result<CString> {
    const NUMBERS: usize = 60;
    let all = |line: &dyn Fn(usize) -> String| (0..NUMBERS).map(line).collect::<String>();
    let loads = all(&|number| format!("ld.volatile.global.f32 %f{number}, [%p+{}];\n", number * 4));
    let stores = all(&|number| format!("st.volatile.global.f32 [%p+{}], %f{number};\n", number * 4));
    Ok(CString::new(format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry hungry(.param .u64 p) {directives}\n{{\n\
         .reg .f32 %f<{NUMBERS}>;\n.reg .b64 %p;\nld.param.u64 %p, [p];\n{loads}{stores}ret;\n}}\n"
    ))?)
}

fn registers(gpu: &Gpu<'_>, driver: &Driver, module: CUmodule) -> Result<c_int> {
    let (kernel, mut registers) = (gpu.function_of(module, c"hungry")?, 0);
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
    ok!(driver, cuFuncGetAttribute(&raw mut registers, attribute, kernel));
    Ok(registers)
}

fn registers_are_limited_by_directives(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let of = |directives: &str| registers(&gpu, driver, gpu.module(&hungry(directives)?)?);
    let free = of("")?;
    note!("{free} registers without a limit");
    ensure!(free > 60, "{free} registers for 60 numbers");
    ensure!(of(".maxnreg 32")? == FEW, "another limit than asked for");
    ensure!(of(".maxntid 1024 .minnctapersm 2")? == FEW, "two blocks of 1024 threads would not fit");
    ensure!(of(".maxntid 1024")? == 64.min(free), "a block of 1024 threads would not fit");
    ensure!(of(".maxnreg 8")? == 24, "fewer registers than any kernel has");
    Ok(())
}

fn registers_are_limited_by_options(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let of = |directives: &str, most: c_int| -> Result<c_int> {
        let (image, mut module) = (hungry(directives)?, CUmodule(null_mut()));
        let mut options = [CUjit_option::CU_JIT_MAX_REGISTERS];
        let mut values: [*mut c_void; 1] = [without_provenance_mut(usize::try_from(most)?)];
        let image = image.as_ptr().cast();
        ok!(driver, cuModuleLoadDataEx(&raw mut module, image, 1, options.as_mut_ptr(), values.as_mut_ptr()));
        registers(&gpu, driver, module)
    };
    ensure!(of("", FEW)? == FEW, "another limit than asked for");
    ensure!(of(".maxnreg 40", FEW)? == 40, "the kernel's own limit does not count");
    Ok(())
}

fn registers_are_limited_by_options_of_the_linker(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let image = hungry("")?;
    let mut options = [CUjit_option::CU_JIT_MAX_REGISTERS];
    let mut values: [*mut c_void; 1] = [without_provenance_mut(usize::try_from(FEW)?)];
    let mut linker = CUlinkState(null_mut());
    ok!(driver, cuLinkCreate_v2(1, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut linker));
    let (data, size) = (image.as_ptr().cast_mut().cast(), image.as_bytes_with_nul().len());
    let kind = CUjitInputType::CU_JIT_INPUT_PTX;
    let (name, none) = (c"hungry".as_ptr(), null_mut());
    ok!(driver, cuLinkAddData_v2(linker, kind, data, size, name, 0, none, null_mut()));
    let (mut linked, mut bytes, mut module) = (null_mut(), 0, CUmodule(null_mut()));
    ok!(driver, cuLinkComplete(linker, &raw mut linked, &raw mut bytes));
    ok!(driver, cuModuleLoadData(&raw mut module, linked));
    let few = registers(&gpu, driver, module)?;
    ok!(driver, cuLinkDestroy(linker));
    ensure!(few == FEW, "{few} registers, which is another limit than asked for");
    Ok(())
}
