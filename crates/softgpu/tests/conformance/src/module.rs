//! Modules: loading, finding functions and variables, linking, what is known of a function.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NULL_STREAM, driver_text, text};
use crate::kernels::{BROKEN, FAULTS, PROGRAM, VARIABLES};
use anyhow::{Context, Result, ensure};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut, without_provenance_mut};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdevice_attribute, CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState,
    CUjit_option, CUjitInputType, CUlinkState, CUmodule, CUmoduleLoadingMode, CUresult,
};
use std::collections::BTreeSet;
use std::ffi::CString;

tests! { module:
    loads_and_runs,
    missing_function_is_not_found,
    broken_text_is_invalid,
    unknown_directives_are_not_ignored,
    broken_text_fills_the_error_log,
    what_is_no_image_is_refused,
    newer_text_is_refused,
    missing_file_is_not_found,
    loads_from_a_file,
    loads_with_options,
    variables_are_found_with_their_size,
    variables_have_initial_values,
    variables_can_be_changed,
    constants_can_be_changed,
    missing_variable_is_not_found,
    internal_variables_are_found_too,
    each_load_has_its_own_variables,
    unloads_and_loads_again,
    functions_are_counted_and_listed,
    loading_mode_is_known,
    function_knows_its_module,
    function_can_be_loaded_early,
    links_text,
    links_no_broken_text,
    function_attributes_are_sane,
    unknown_function_attribute_is_refused,
    shared_memory_can_be_opted_into,
    parameters_are_described,
    cache_preference_is_taken,
}

fn load(driver: &Driver, image: &CStr) -> Result<CUresult> {
    let mut module = CUmodule(null_mut());
    Ok(cu!(driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast())))
}

fn variable(driver: &Driver, module: CUmodule, name: &CStr) -> Result<(CUdeviceptr, usize)> {
    let (mut pointer, mut bytes) = (NO_ADDRESS, 0);
    ok!(driver, cuModuleGetGlobal_v2(&raw mut pointer, &raw mut bytes, module, name.as_ptr()));
    ensure!(pointer != NO_ADDRESS, "{name:?} has no address");
    Ok((pointer, bytes))
}

/// What `scale` computes from the variables.
fn scaled(gpu: &Gpu, module: CUmodule) -> Result<Vec<u32>> {
    let scale = gpu.function_of(module, c"scale")?;
    let out = gpu.zeros(4)?;
    gpu.launch(scale, 4, NULL_STREAM, &[&out])?;
    gpu.read(out, 4)
}

fn loads_and_runs(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let fill = gpu.function_of(gpu.module(PROGRAM)?, c"fill")?;
    let words = gpu.zeros(8)?;
    gpu.launch(fill, 5, NULL_STREAM, &[&words, &2_u32, &5_u32])?;
    ensure!(gpu.read(words, 8)? == [2, 2, 2, 2, 2, 0, 0, 0], "the kernel left other words");
    Ok(())
}

fn missing_function_is_not_found(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(PROGRAM)?;
    let mut function = CUfunction(null_mut());
    for name in [c"none_such", c"Fill"] {
        expect!(driver, cuModuleGetFunction(&raw mut function, module, name.as_ptr()) => CUDA_ERROR_NOT_FOUND);
    }
    noted!(driver, cuModuleGetFunction(&raw mut function, module, c"".as_ptr()), "an empty name");
    gpu.function_of(module, c"fill")?;
    Ok(())
}

fn broken_text_is_invalid(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut module = CUmodule(null_mut());
    expect!(driver, cuModuleLoadData(&raw mut module, BROKEN.as_ptr().cast()) => CUDA_ERROR_INVALID_PTX);
    gpu.module(PROGRAM)?;
    Ok(())
}

/// `ptxas` takes no directive that it does not know; what ignored it would run something else.
fn unknown_directives_are_not_ignored(driver: &Driver) -> Outcome {
    const TEXT: &CStr = c"
.version 8.0
.target sm_90
.address_size 64
.visible .entry odd() .never_heard_of 1 { ret; }
.visible .entry plain() { ret; }
";
    let gpu = Gpu::new(driver)?;
    let mut module = CUmodule(null_mut());
    let code = cu!(driver, cuModuleLoadData(&raw mut module, TEXT.as_ptr().cast()));
    note!("a module with an unknown directive gives {}", crate::call::describe(code));
    if code == CUresult::CUDA_SUCCESS {
        let [odd, plain] = [c"odd", c"plain"].map(|name| gpu.function_of(module, name));
        let code = gpu.try_launch(odd?, (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &[])?;
        note!("its kernel gives {}", crate::call::describe(code));
        ensure!(code != CUresult::CUDA_SUCCESS, "the directive is ignored");
        gpu.launch(plain?, 1, NULL_STREAM, &[])?;
    }
    gpu.synchronise()
}

fn broken_text_fills_the_error_log(driver: &Driver) -> Outcome {
    const ROOM: usize = 4_096;
    Gpu::new(driver)?;
    let mut log = vec![0; ROOM];
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), without_provenance_mut(ROOM)];
    let mut module = CUmodule(null_mut());
    let image = BROKEN.as_ptr().cast();
    expect!(driver, cuModuleLoadDataEx(&raw mut module, image, 2, options.as_mut_ptr(), values.as_mut_ptr())
        => CUDA_ERROR_INVALID_PTX);
    let message = text(&log);
    ensure!(!message.is_empty(), "the error log is empty");
    note!("the log of {} bytes says {:?}", values[1].addr(), message.lines().next().unwrap_or_default());
    Ok(())
}

fn what_is_no_image_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for beginning in ["this is no image at all", "\x7fELF and then zeros", ""] {
        // A driver finds an image's end by what it reads: zeros enough for any header.
        let mut image = vec![0_u8; 64 << 10];
        image[..beginning.len()].copy_from_slice(beginning.as_bytes());
        let mut module = CUmodule(null_mut());
        let code = noted!(driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast()), format!("{beginning:?}"));
        ensure!(code != CUresult::CUDA_SUCCESS, "{beginning:?} was loaded");
    }
    gpu.module(PROGRAM)?;
    Ok(())
}

fn newer_text_is_refused(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let code = load(driver, c".version 99.0\n.target sm_70\n.address_size 64\n")?;
    note!("PTX 99.0 gives {}", crate::call::describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS, "PTX 99.0 was loaded");
    let code = load(driver, c".version 7.0\n.target sm_999\n.address_size 64\n")?;
    note!("sm_999 gives {}", crate::call::describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS, "sm_999 was loaded");
    Ok(())
}

fn missing_file_is_not_found(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut module = CUmodule(null_mut());
    expect!(driver, cuModuleLoad(&raw mut module, c"/none/such.ptx".as_ptr()) => CUDA_ERROR_FILE_NOT_FOUND);
    Ok(())
}

fn loads_from_a_file(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let path = std::env::temp_dir().join(format!("conformance-{}.ptx", std::process::id()));
    std::fs::write(&path, PROGRAM.to_bytes())?;
    let name = CString::new(path.to_str().context("the temporary folder has an odd name")?)?;
    let mut module = CUmodule(null_mut());
    let code = cu!(driver, cuModuleLoad(&raw mut module, name.as_ptr()));
    std::fs::remove_file(&path)?;
    ensure!(code == CUresult::CUDA_SUCCESS, "cuModuleLoad gives {}", crate::call::describe(code));
    gpu.function_of(module, c"fill")?;
    Ok(())
}

fn loads_with_options(driver: &Driver) -> Outcome {
    const ROOM: usize = 4_096;
    let gpu = Gpu::new(driver)?;
    let mut log = vec![0; ROOM];
    let mut options = [
        CUjit_option::CU_JIT_INFO_LOG_BUFFER,
        CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::CU_JIT_LOG_VERBOSE,
        CUjit_option::CU_JIT_WALL_TIME,
        CUjit_option::CU_JIT_OPTIMIZATION_LEVEL,
    ];
    let mut values: [*mut c_void; 5] = [
        log.as_mut_ptr().cast(),
        without_provenance_mut(ROOM),
        without_provenance_mut(1),
        null_mut(),
        without_provenance_mut(3),
    ];
    let mut module = CUmodule(null_mut());
    let image = PROGRAM.as_ptr().cast();
    ok!(driver, cuModuleLoadDataEx(&raw mut module, image, 5, options.as_mut_ptr(), values.as_mut_ptr()));
    note!("the information log begins with {:?}", text(&log).lines().next().unwrap_or_default());
    gpu.function_of(module, c"fill")?;
    ok!(driver, cuModuleLoadDataEx(&raw mut module, image, 0, null_mut(), null_mut()));
    Ok(())
}

fn variables_are_found_with_their_size(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(VARIABLES)?;
    let expected = [(c"counter", 4), (c"wide", 8), (c"quarters", 16), (c"zeros", 256), (c"factors", 16)];
    for (name, size) in expected {
        let (_, bytes) = variable(driver, module, name)?;
        ensure!(bytes == size, "{name:?} has {bytes} bytes");
    }
    let (mut pointer, mut bytes) = (NO_ADDRESS, 0);
    ok!(driver, cuModuleGetGlobal_v2(&raw mut pointer, null_mut(), module, c"wide".as_ptr()));
    ok!(driver, cuModuleGetGlobal_v2(null_mut(), &raw mut bytes, module, c"wide".as_ptr()));
    ensure!(variable(driver, module, c"wide")? == (pointer, bytes), "each alone gives something else");
    Ok(())
}

fn variables_have_initial_values(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(VARIABLES)?;
    let words = |name, count| -> Result<Vec<u32>> { gpu.read(variable(driver, module, name)?.0, count) };
    ensure!(words(c"counter", 1)? == [7], "counter is not 7");
    ensure!(words(c"wide", 2)? == [0x5566_7788, 0x1122_3344], "wide has another value");
    let quarters: Vec<_> = words(c"quarters", 4)?.into_iter().map(f32::from_bits).collect();
    ensure!(quarters == [0.25, 0.5, 0.75, 1.0], "quarters are {quarters:?}");
    ensure!(words(c"zeros", 64)? == [0; 64], "zeros are not zero");
    ensure!(words(c"factors", 4)? == [1, 10, 100, 1_000], "factors have other values");
    ensure!(scaled(&gpu, module)? == [7, 70, 700, 7_000], "the kernel sees other values");
    Ok(())
}

fn variables_can_be_changed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(VARIABLES)?;
    gpu.write(variable(driver, module, c"counter")?.0, &[3])?;
    ensure!(scaled(&gpu, module)? == [3, 30, 300, 3_000], "the kernel does not see the new value");
    Ok(())
}

fn constants_can_be_changed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(VARIABLES)?;
    gpu.write(variable(driver, module, c"factors")?.0, &[4, 3, 2, 1])?;
    ensure!(scaled(&gpu, module)? == [28, 21, 14, 7], "the kernel does not see the new values");
    Ok(())
}

/// Compilers leave `.visible` out of what no other module uses; the host reaches it all the same.
fn internal_variables_are_found_too(driver: &Driver) -> Outcome {
    const INTERNAL: &CStr = c".version 7.0 .target sm_70 .address_size 64
        .global .align 4 .u32 counter = 5;
        .const .align 4 .u32 factor = 3;
        .visible .entry use(.param .u64 out)
        {
            .reg .b32 %a, %b; .reg .b64 %out;
            ld.param.u64 %out, [out];
            ld.global.u32 %a, [counter];
            ld.const.u32 %b, [factor];
            mul.lo.u32 %a, %a, %b;
            st.global.u32 [%out], %a;
            ret;
        }";
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(INTERNAL)?;
    let (counter, bytes) = variable(driver, module, c"counter")?;
    ensure!(bytes == 4 && gpu.read(counter, 1)? == [5], "the counter is another");
    gpu.write(counter, &[7])?;
    gpu.write(variable(driver, module, c"factor")?.0, &[11])?;
    let out = gpu.zeros(1)?;
    gpu.launch(gpu.function_of(module, c"use")?, 1, NULL_STREAM, &[&out])?;
    ensure!(gpu.read(out, 1)? == [77], "the kernel does not see what the host wrote");
    Ok(())
}

fn missing_variable_is_not_found(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(VARIABLES)?;
    let (mut pointer, mut bytes) = (NO_ADDRESS, 0);
    expect!(driver, cuModuleGetGlobal_v2(&raw mut pointer, &raw mut bytes, module, c"none_such".as_ptr())
        => CUDA_ERROR_NOT_FOUND);
    let code = noted!(
        driver,
        cuModuleGetGlobal_v2(&raw mut pointer, &raw mut bytes, module, c"scale".as_ptr()),
        "a kernel's name"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "a kernel is a variable");
    Ok(())
}

fn each_load_has_its_own_variables(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (first, second) = (gpu.module(VARIABLES)?, gpu.module(VARIABLES)?);
    gpu.write(variable(driver, first, c"counter")?.0, &[1])?;
    ensure!(scaled(&gpu, first)?[0] == 1, "the first module does not see its new value");
    ensure!(scaled(&gpu, second)?[0] == 7, "the second module sees the first one's value");
    Ok(())
}

fn unloads_and_loads_again(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for _ in 0..3 {
        let module = gpu.module(VARIABLES)?;
        ensure!(scaled(&gpu, module)?[0] == 7, "a fresh module has an old value");
        gpu.write(variable(driver, module, c"counter")?.0, &[99])?;
        ok!(driver, cuModuleUnload(module));
    }
    Ok(())
}

fn name_of(driver: &Driver, function: CUfunction) -> Result<String> {
    let mut name: *const c_char = null();
    ok!(driver, cuFuncGetName(&raw mut name, function));
    driver_text(name)
}

fn functions_are_counted_and_listed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(FAULTS)?;
    let mut count = 0;
    ok!(driver, cuModuleGetFunctionCount(&raw mut count, module));
    ensure!(count == 3, "{count} functions");
    let mut functions = [CUfunction(null_mut()); 3];
    ok!(driver, cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module));
    let names: BTreeSet<_> = functions.iter().map(|function| name_of(driver, *function)).collect::<Result<_>>()?;
    ensure!(names.iter().eq(["misaligned", "store", "trap_now"]), "the functions are {names:?}");
    Ok(())
}

fn loading_mode_is_known(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut mode = CUmoduleLoadingMode(0);
    ok!(driver, cuModuleGetLoadingMode(&raw mut mode));
    let known = [CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING, CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING];
    ensure!(known.contains(&mode), "{mode:?}");
    note!("{mode:?}");
    Ok(())
}

fn function_knows_its_module(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(PROGRAM)?;
    let function = gpu.function_of(module, c"fill")?;
    let mut found = CUmodule(null_mut());
    ok!(driver, cuFuncGetModule(&raw mut found, function));
    ensure!(found == module, "it belongs to another module");
    let name = name_of(driver, function)?;
    ensure!(name == "fill", "it is called {name:?}");
    Ok(())
}

fn function_can_be_loaded_early(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(PROGRAM)?;
    let mut function = CUfunction(null_mut());
    ok!(driver, cuModuleGetFunction(&raw mut function, module, c"fill".as_ptr()));
    let mut state = CUfunctionLoadingState(u32::MAX);
    ok!(driver, cuFuncIsLoaded(&raw mut state, function));
    note!("{state:?} at first");
    ok!(driver, cuFuncLoad(function));
    ok!(driver, cuFuncIsLoaded(&raw mut state, function));
    ensure!(state == CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED, "{state:?} after cuFuncLoad");
    Ok(())
}

/// Adds the text to a new linker and gives the code.
fn link(driver: &Driver, image: &CStr) -> Result<(CUlinkState, CUresult)> {
    let mut state = CUlinkState(null_mut());
    ok!(driver, cuLinkCreate_v2(0, null_mut(), null_mut(), &raw mut state));
    let (data, bytes) = (image.as_ptr().cast_mut().cast(), image.to_bytes_with_nul().len());
    let kind = CUjitInputType::CU_JIT_INPUT_PTX;
    let name = c"text".as_ptr();
    let code = cu!(driver, cuLinkAddData_v2(state, kind, data, bytes, name, 0, null_mut(), null_mut()));
    Ok((state, code))
}

fn links_text(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (state, code) = link(driver, VARIABLES)?;
    ensure!(code == CUresult::CUDA_SUCCESS, "cuLinkAddData gives {}", crate::call::describe(code));
    let (mut image, mut bytes) = (null_mut(), 0);
    ok!(driver, cuLinkComplete(state, &raw mut image, &raw mut bytes));
    ensure!(!image.is_null() && bytes > 0, "an image of {bytes} bytes");
    let mut module = CUmodule(null_mut());
    ok!(driver, cuModuleLoadData(&raw mut module, image));
    ok!(driver, cuLinkDestroy(state));
    ensure!(scaled(&gpu, module)? == [7, 70, 700, 7_000], "the linked kernel computes something else");
    Ok(())
}

fn links_no_broken_text(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let (state, mut code) = link(driver, BROKEN)?;
    note!("cuLinkAddData gives {}", crate::call::describe(code));
    if code == CUresult::CUDA_SUCCESS {
        let (mut image, mut bytes) = (null_mut(), 0);
        code = noted!(driver, cuLinkComplete(state, &raw mut image, &raw mut bytes), "broken text");
    }
    ensure!(code == CUresult::CUDA_ERROR_INVALID_PTX, "{}", crate::call::describe(code));
    ok!(driver, cuLinkDestroy(state));
    Ok(())
}

fn attribute(driver: &Driver, attribute: CUfunction_attribute, function: CUfunction) -> Result<c_int> {
    let mut value = -1;
    ok!(driver, cuFuncGetAttribute(&raw mut value, attribute, function));
    Ok(value)
}

fn function_attributes_are_sane(driver: &Driver) -> Outcome {
    use CUfunction_attribute as Attribute;
    let gpu = Gpu::new(driver)?;
    let [fill, few_threads, static_shared] = gpu.kernels([c"fill", c"few_threads", c"static_shared"])?;
    let major = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let expected = [
        (fill, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1_024),
        (few_threads, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 64),
        (fill, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 0),
        (static_shared, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1_024),
        (fill, Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 0),
        (fill, Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION, 70),
        (fill, Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION, 10 * major + minor),
    ];
    for (function, which, value) in expected {
        let seen = attribute(driver, which, function)?;
        ensure!(seen == value, "{which:?} is {seen} instead of {value}");
    }
    let registers = attribute(driver, Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS, fill)?;
    ensure!((1..=255).contains(&registers), "{registers} registers");
    let constants = attribute(driver, Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, fill)?;
    ensure!(constants >= 0, "{constants} bytes of constants");
    let dynamic = attribute(driver, Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_shared)?;
    note!("{registers} registers, {constants} bytes of constants, beside 1024 static up to {dynamic} dynamic bytes");
    Ok(())
}

fn unknown_function_attribute_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let mut value = -1;
    let unknown = CUfunction_attribute(999);
    expect!(driver, cuFuncGetAttribute(&raw mut value, unknown, fill) => CUDA_ERROR_INVALID_VALUE);
    let read_only = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
    expect!(driver, cuFuncSetAttribute(fill, read_only, 16) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn shared_memory_can_be_opted_into(driver: &Driver) -> Outcome {
    const THREADS: u32 = 256;
    const BYTES: u32 = 64 << 10;
    let gpu = Gpu::new(driver)?;
    let most = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    if most < BYTES.cast_signed() {
        skip!("a block has at most {most} bytes of shared memory");
    }
    let [reverse] = gpu.kernels([c"reverse"])?;
    let words: Vec<_> = (0..THREADS).collect();
    let pointer = gpu.upload(&words)?;
    let launch = || gpu.try_launch(reverse, (1, 1, 1), (THREADS, 1, 1), BYTES, NULL_STREAM, &[&pointer]);
    let refused = launch()?;
    ensure!(refused == CUresult::CUDA_ERROR_INVALID_VALUE, "before: {}", crate::call::describe(refused));
    let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    expect!(driver, cuFuncSetAttribute(reverse, limit, most + 1) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuFuncSetAttribute(reverse, limit, BYTES.cast_signed()));
    ensure!(attribute(driver, limit, reverse)? == BYTES.cast_signed(), "the attribute was not kept");
    let taken = launch()?;
    ensure!(taken == CUresult::CUDA_SUCCESS, "after: {}", crate::call::describe(taken));
    ensure!(gpu.read(pointer, words.len())?.iter().eq(words.iter().rev()), "the words are not reversed");
    Ok(())
}

/// Where each parameter of `many` lies, and its size.
pub(crate) const MANY_PARAMETERS: [(usize, usize); 7] = [(0, 8), (8, 4), (12, 2), (16, 8), (24, 12), (36, 1), (40, 8)];

fn parameters_are_described(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [many, empty] = gpu.kernels([c"many", c"empty"])?;
    let (mut offset, mut size) = (0, 0);
    for (index, expected) in MANY_PARAMETERS.into_iter().enumerate() {
        ok!(driver, cuFuncGetParamInfo(many, index, &raw mut offset, &raw mut size));
        ensure!((offset, size) == expected, "parameter {index}: {size} bytes at {offset} instead of {expected:?}");
    }
    expect!(driver, cuFuncGetParamInfo(many, 7, &raw mut offset, &raw mut size) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuFuncGetParamInfo(empty, 0, &raw mut offset, &raw mut size) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuFuncGetParamInfo(many, 1, &raw mut offset, null_mut()));
    Ok(())
}

fn cache_preference_is_taken(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    ok!(driver, cuFuncSetCacheConfig(fill, CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED));
    Ok(())
}
