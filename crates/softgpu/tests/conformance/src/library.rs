//! Libraries: code that is loaded once for all contexts.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Gpu, NO_ADDRESS, NULL_STREAM, addresses, driver_text};
use crate::kernels::{BROKEN, FAULTS, PROGRAM, VARIABLES};
use crate::module::MANY_PARAMETERS;
use anyhow::{Result, ensure};
use core::ffi::{CStr, c_char};
use core::ptr::{null, null_mut};
use detshare_cuda::Driver;
use detshare_cuda::types::{CUfunc_cache, CUfunction, CUfunction_attribute, CUkernel, CUlibrary, CUmodule, CUresult};
use std::collections::BTreeSet;

tests! { library:
    kernel_gives_a_function,
    kernel_stands_for_a_function,
    loads_without_a_context,
    missing_kernel_is_not_found,
    missing_file_is_not_found,
    broken_text_is_refused,
    kernels_are_counted_and_listed,
    kernel_knows_its_name_and_library,
    kernel_parameters_are_described,
    kernel_attributes_are_sane,
    kernels_are_no_functions,
    variables_are_found,
    gives_a_module,
    unloads,
}

fn try_load(driver: &Driver, code: &CStr) -> Result<(CUlibrary, CUresult)> {
    let mut library = CUlibrary(null_mut());
    let code = code.as_ptr().cast();
    let result =
        cu!(driver, cuLibraryLoadData(&raw mut library, code, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0));
    Ok((library, result))
}

fn load(driver: &Driver, code: &CStr) -> Result<CUlibrary> {
    let (library, result) = try_load(driver, code)?;
    ensure!(result == CUresult::CUDA_SUCCESS, "cuLibraryLoadData returned {}", describe(result));
    Ok(library)
}

fn kernel(driver: &Driver, library: CUlibrary, name: &CStr) -> Result<CUkernel> {
    let mut kernel = CUkernel(null_mut());
    ok!(driver, cuLibraryGetKernel(&raw mut kernel, library, name.as_ptr()));
    ensure!(!kernel.0.is_null(), "no kernel");
    Ok(kernel)
}

fn function(driver: &Driver, kernel: CUkernel) -> Result<CUfunction> {
    let mut function = CUfunction(null_mut());
    ok!(driver, cuKernelGetFunction(&raw mut function, kernel));
    Ok(function)
}

fn kernel_gives_a_function(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let fill = function(driver, kernel(driver, load(driver, PROGRAM)?, c"fill")?)?;
    let words = gpu.zeros(3)?;
    gpu.launch(fill, 3, NULL_STREAM, &[&words, &4_u32, &2_u32])?;
    ensure!(gpu.read(words, 3)? == [4, 4, 0], "the kernel left other words");
    Ok(())
}

fn kernel_stands_for_a_function(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let fill = kernel(driver, load(driver, PROGRAM)?, c"fill")?;
    let words = gpu.zeros(3)?;
    let mut pointers = addresses(&[&words, &4_u32, &2_u32]);
    let function = CUfunction(fill.0.cast());
    ok!(driver, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL_STREAM, pointers.as_mut_ptr(), null_mut()));
    ensure!(gpu.read(words, 3)? == [4, 4, 0], "the kernel left other words");
    Ok(())
}

fn loads_without_a_context(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    let library = load(driver, PROGRAM)?;
    let fill = kernel(driver, library, c"fill")?;
    let gpu = Gpu::new(driver)?;
    let words = gpu.zeros(1)?;
    gpu.launch(function(driver, fill)?, 1, NULL_STREAM, &[&words, &4_u32, &1_u32])?;
    ensure!(gpu.read(words, 1)? == [4], "the kernel left another word");
    Ok(())
}

fn missing_kernel_is_not_found(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let library = load(driver, PROGRAM)?;
    let mut kernel = CUkernel(null_mut());
    expect!(driver, cuLibraryGetKernel(&raw mut kernel, library, c"none_such".as_ptr()) => CUDA_ERROR_NOT_FOUND);
    Ok(())
}

fn missing_file_is_not_found(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut library = CUlibrary(null_mut());
    let path = c"/none/such.ptx".as_ptr();
    let code = noted!(
        driver,
        cuLibraryLoadFromFile(&raw mut library, path, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0),
        "no such file"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "a file was loaded that is not there");
    Ok(())
}

/// A driver may compile at the load or when a function is asked for.
fn broken_text_is_refused(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let (library, code) = try_load(driver, BROKEN)?;
    note!("cuLibraryLoadData gives {}", describe(code));
    if code == CUresult::CUDA_SUCCESS {
        let mut kernel = CUkernel(null_mut());
        let mut code = noted!(driver, cuLibraryGetKernel(&raw mut kernel, library, c"broken".as_ptr()), "broken");
        if code == CUresult::CUDA_SUCCESS {
            let mut function = CUfunction(null_mut());
            code = noted!(driver, cuKernelGetFunction(&raw mut function, kernel), "broken");
        }
        ensure!(code != CUresult::CUDA_SUCCESS, "a broken kernel gives a function");
    }
    Ok(())
}

fn name_of(driver: &Driver, kernel: CUkernel) -> Result<String> {
    let mut name: *const c_char = null();
    ok!(driver, cuKernelGetName(&raw mut name, kernel));
    driver_text(name)
}

fn kernels_are_counted_and_listed(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let library = load(driver, FAULTS)?;
    let mut count = 0;
    ok!(driver, cuLibraryGetKernelCount(&raw mut count, library));
    ensure!(count == 3, "{count} kernels");
    let mut kernels = [CUkernel(null_mut()); 3];
    ok!(driver, cuLibraryEnumerateKernels(kernels.as_mut_ptr(), count, library));
    let names: BTreeSet<_> = kernels.iter().map(|kernel| name_of(driver, *kernel)).collect::<Result<_>>()?;
    ensure!(names.iter().eq(["misaligned", "store", "trap_now"]), "the kernels are {names:?}");
    Ok(())
}

fn kernel_knows_its_name_and_library(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let library = load(driver, PROGRAM)?;
    let fill = kernel(driver, library, c"fill")?;
    ensure!(name_of(driver, fill)? == "fill", "it has another name");
    let mut found = CUlibrary(null_mut());
    ok!(driver, cuKernelGetLibrary(&raw mut found, fill));
    ensure!(found == library, "it belongs to another library");
    let mut name: *const c_char = null();
    ok!(driver, cuFuncGetName(&raw mut name, function(driver, fill)?));
    ensure!(driver_text(name)? == "fill", "its function has another name");
    Ok(())
}

fn kernel_parameters_are_described(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let many = kernel(driver, load(driver, PROGRAM)?, c"many")?;
    let (mut offset, mut size) = (0, 0);
    for (index, expected) in MANY_PARAMETERS.into_iter().enumerate() {
        ok!(driver, cuKernelGetParamInfo(many, index, &raw mut offset, &raw mut size));
        ensure!((offset, size) == expected, "parameter {index}: {size} bytes at {offset} instead of {expected:?}");
    }
    expect!(driver, cuKernelGetParamInfo(many, 7, &raw mut offset, &raw mut size) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn kernel_attributes_are_sane(driver: &Driver) -> Outcome {
    use CUfunction_attribute as Attribute;
    let gpu = Gpu::new(driver)?;
    let few_threads = kernel(driver, load(driver, PROGRAM)?, c"few_threads")?;
    let mut value = -1;
    let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    ok!(driver, cuKernelGetAttribute(&raw mut value, most, few_threads, gpu.device));
    ensure!(value == 64, "{value} threads instead of 64");
    let limit = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    ok!(driver, cuKernelSetAttribute(limit, 50_000, few_threads, gpu.device));
    ok!(driver, cuKernelGetAttribute(&raw mut value, limit, few_threads, gpu.device));
    ensure!(value == 50_000, "{value} bytes instead of 50000");
    Ok(())
}

/// A kernel's handle can be launched and asked how many of it fit. For all else it is not a function, nor is a function a kernel.
fn kernels_are_no_functions(driver: &Driver) -> Outcome {
    use CUfunction_attribute as Attribute;
    let gpu = Gpu::new(driver)?;
    let fill = kernel(driver, load(driver, PROGRAM)?, c"fill")?;
    let as_function = CUfunction(fill.0.cast());
    let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    let limit = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let (mut value, mut name, mut module) = (-1, null(), CUmodule(null_mut()));
    let (mut offset, mut size) = (0, 0);
    expect!(driver, cuFuncGetAttribute(&raw mut value, most, as_function) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuFuncSetAttribute(as_function, limit, 1_024) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuFuncSetCacheConfig(as_function, CUfunc_cache::CU_FUNC_CACHE_PREFER_L1)
        => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuFuncGetName(&raw mut name, as_function) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuFuncGetModule(&raw mut module, as_function) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuFuncGetParamInfo(as_function, 0, &raw mut offset, &raw mut size) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuFuncLoad(as_function) => CUDA_ERROR_INVALID_HANDLE);
    ok!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut value, as_function, 128, 0));
    ensure!(value > 0, "none of it fits");
    let words = gpu.zeros(1)?;
    gpu.launch(as_function, 1, NULL_STREAM, &[&words, &6_u32, &1_u32])?;
    ensure!(gpu.read(words, 1)? == [6], "the kernel left another word");

    let of_kernel = function(driver, fill)?;
    let [of_module] = gpu.kernels([c"fill"])?;
    for function in [of_kernel, of_module] {
        let as_kernel = CUkernel(function.0.cast());
        let (mut library, mut again) = (CUlibrary(null_mut()), CUfunction(null_mut()));
        expect!(driver, cuKernelGetName(&raw mut name, as_kernel) => CUDA_ERROR_INVALID_HANDLE);
        expect!(driver, cuKernelGetAttribute(&raw mut value, most, as_kernel, gpu.device) => CUDA_ERROR_INVALID_HANDLE);
        expect!(driver, cuKernelGetLibrary(&raw mut library, as_kernel) => CUDA_ERROR_INVALID_HANDLE);
        expect!(driver, cuKernelGetFunction(&raw mut again, as_kernel) => CUDA_ERROR_INVALID_HANDLE);
    }
    Ok(())
}

fn variables_are_found(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let library = load(driver, VARIABLES)?;
    let (mut pointer, mut bytes) = (NO_ADDRESS, 0);
    ok!(driver, cuLibraryGetGlobal(&raw mut pointer, &raw mut bytes, library, c"quarters".as_ptr()));
    ensure!(bytes == 16, "{bytes} bytes");
    ensure!(f32::from_bits(gpu.read(pointer, 4)?[2]).to_bits() == 0.75_f32.to_bits(), "another value");
    expect!(driver, cuLibraryGetGlobal(&raw mut pointer, &raw mut bytes, library, c"none_such".as_ptr())
        => CUDA_ERROR_NOT_FOUND);
    Ok(())
}

fn gives_a_module(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let library = load(driver, PROGRAM)?;
    let mut module = CUmodule(null_mut());
    ok!(driver, cuLibraryGetModule(&raw mut module, library));
    let fill = gpu.function_of(module, c"fill")?;
    let words = gpu.zeros(1)?;
    gpu.launch(fill, 1, NULL_STREAM, &[&words, &4_u32, &1_u32])?;
    ensure!(gpu.read(words, 1)? == [4], "the kernel left another word");
    Ok(())
}

fn unloads(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for value in 1..4_u32 {
        let library = load(driver, PROGRAM)?;
        let fill = function(driver, kernel(driver, library, c"fill")?)?;
        let words = gpu.zeros(1)?;
        gpu.launch(fill, 1, NULL_STREAM, &[&words, &value, &1_u32])?;
        ensure!(gpu.read(words, 1)? == [value], "the kernel left another word");
        ok!(driver, cuLibraryUnload(library));
    }
    Ok(())
}
