//! What modules come in: fat binaries, packed or not, texts that are linked together, and what the compiler says.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NULL_STREAM, text};
use anyhow::{Result, ensure};
use core::ffi::{CStr, c_char, c_uint, c_void};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdeviceptr, CUjit_option as Jit, CUjitInputType, CUlibrary, CUlinkState, CUmodule, CUresult,
};

tests! { module_images:
    best_text_of_a_fat_binary,
    text_packed_by_zstd,
    text_packed_by_lz4,
    fat_binary_is_a_library_too,
    fat_binary_can_be_linked,
    broken_packing_is_refused,
    functions_of_another_text_are_linked,
    variables_of_another_text_are_linked,
    missing_function_fails_at_the_end,
    two_definitions_are_refused,
    linked_file,
    linker_tells_what_is_wrong,
    log_names_line_and_reason,
    log_is_cut_to_its_room,
    verbose_log_names_the_kernels,
    managed_variable,
}

const PLAIN: &[u8] = include_bytes!("../images/plain.fatbin");
const ZSTD: &[u8] = include_bytes!("../images/zstd.fatbin");
const LZ4: &[u8] = include_bytes!("../images/lz4.fatbin");

/// Bytes as a driver wants them: aligned.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))).collect()
}

/// The compute capability that the driver has chosen the text for.
fn chosen(driver: &Driver, image: &[u8]) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let image = aligned(image);
    let mut module = CUmodule(null_mut());
    ok!(driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
    let (kernel, out) = (gpu.function_of(module, c"architecture")?, gpu.zeros(1)?);
    gpu.launch(kernel, 1, NULL_STREAM, &[&out])?;
    let architecture = gpu.read(out, 1)?[0];
    ensure!(architecture == 900, "the text for {architecture} was taken");
    Ok(())
}

fn best_text_of_a_fat_binary(driver: &Driver) -> Outcome {
    chosen(driver, PLAIN)
}

fn text_packed_by_zstd(driver: &Driver) -> Outcome {
    chosen(driver, ZSTD)
}

fn text_packed_by_lz4(driver: &Driver) -> Outcome {
    chosen(driver, LZ4)
}

fn fat_binary_is_a_library_too(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let (image, mut library, mut count) = (aligned(ZSTD), CUlibrary(null_mut()), 0);
    let (none, nothing) = (null_mut(), null_mut());
    let code = image.as_ptr().cast();
    ok!(driver, cuLibraryLoadData(&raw mut library, code, none, nothing, 0, null_mut(), null_mut(), 0));
    ok!(driver, cuLibraryGetKernelCount(&raw mut count, library));
    ensure!(count == 1, "{count} kernels");
    Ok(())
}

/// Linking, with a log for what goes wrong.
struct Linker<'d> {
    driver: &'d Driver,
    state: CUlinkState,
    log: Box<[c_char; 2048]>,
    /// The driver writes here how much of the log is filled.
    _values: Box<[*mut c_void; 2]>,
}

impl<'d> Linker<'d> {
    fn new(driver: &'d Driver) -> Result<Self> {
        let mut log = Box::new([0; 2048]);
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = Box::new([log.as_mut_ptr().cast(), core::ptr::without_provenance_mut(log.len())]);
        let mut state = CUlinkState(null_mut());
        ok!(driver, cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut state));
        Ok(Self { driver, state, log, _values: values })
    }

    fn add(&self, kind: CUjitInputType, image: &[u8]) -> Result<CUresult> {
        let image = aligned(image);
        let (data, size) = (image.as_ptr().cast_mut().cast(), image.len() * 8);
        let name = c"part".as_ptr();
        Ok(cu!(self.driver, cuLinkAddData_v2(self.state, kind, data, size, name, 0, null_mut(), null_mut())))
    }

    fn add_text(&self, text: &CStr) -> Outcome {
        let code = self.add(CUjitInputType::CU_JIT_INPUT_PTX, text.to_bytes_with_nul())?;
        crate::call::judge("cuLinkAddData", code, &[CUresult::CUDA_SUCCESS])
    }

    fn complete(&self) -> Result<(CUresult, *mut c_void)> {
        let (mut image, mut size) = (null_mut(), 0);
        let code = cu!(self.driver, cuLinkComplete(self.state, &raw mut image, &raw mut size));
        ensure!(code != CUresult::CUDA_SUCCESS || size > 0, "an image of no bytes");
        Ok((code, image))
    }

    /// The linked module.
    fn load(&self) -> Result<CUmodule> {
        let (code, image) = self.complete()?;
        crate::call::judge("cuLinkComplete", code, &[CUresult::CUDA_SUCCESS])?;
        let mut module = CUmodule(null_mut());
        ok!(self.driver, cuModuleLoadData(&raw mut module, image));
        Ok(module)
    }

    fn said(&self) -> String {
        text(&self.log[..])
    }
}

fn fat_binary_can_be_linked(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let linker = Linker::new(driver)?;
    let code = linker.add(CUjitInputType::CU_JIT_INPUT_FATBINARY, LZ4)?;
    crate::call::judge("cuLinkAddData", code, &[CUresult::CUDA_SUCCESS])?;
    gpu.function_of(linker.load()?, c"architecture")?;
    ok!(driver, cuLinkDestroy(linker.state));
    Ok(())
}

/// Whatever is changed in a packed image, there is a code and no crash.
fn broken_packing_is_refused(driver: &Driver) -> Outcome {
    if Gpu::new(driver)?.name()? != "DetShare Software GPU" {
        skip!("a driver may trust its compiler's images");
    }
    for image in [ZSTD, LZ4] {
        for at in (16..image.len()).step_by(3) {
            let mut broken = image.to_vec();
            broken[at] ^= 0x41;
            let broken = aligned(&broken);
            let mut module = CUmodule(null_mut());
            cu!(driver, cuModuleLoadData(&raw mut module, broken.as_ptr().cast()));
        }
    }
    Ok(())
}

const CALLER: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) scaled(.param .b32 v);
.extern .global .align 4 .u32 shared_word;
.visible .entry run(.param .u64 out)
{
    .reg .b64 %out;
    .reg .b32 %v, %w;
    ld.param.u64 %out, [out];
    ld.global.u32 %w, [shared_word];
    {
    .param .b32 v;
    .param .b32 r;
    st.param.b32 [v], %w;
    call.uni (r), scaled, (v);
    ld.param.b32 %v, [r];
    }
    st.global.u32 [%out], %v;
    add.u32 %w, %w, 1;
    st.global.u32 [shared_word], %w;
    ret;
}
";

const CALLEE: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 shared_word = 14;
.global .align 4 .u32 factor = 3;
.visible .func (.param .b32 r) scaled(.param .b32 v)
{
    .reg .b32 %v, %f;
    ld.param.b32 %v, [v];
    ld.global.u32 %f, [factor];
    mul.lo.u32 %v, %v, %f;
    st.param.b32 [r], %v;
    ret;
}
";

fn functions_of_another_text_are_linked(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let linker = Linker::new(driver)?;
    linker.add_text(CALLER)?;
    linker.add_text(CALLEE)?;
    let (run, out) = (gpu.function_of(linker.load()?, c"run")?, gpu.zeros(1)?);
    for expected in [42, 45] {
        gpu.launch(run, 1, NULL_STREAM, &[&out])?;
        let seen = gpu.read(out, 1)?[0];
        ensure!(seen == expected, "{seen} instead of {expected}");
    }
    Ok(())
}

fn variables_of_another_text_are_linked(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let linker = Linker::new(driver)?;
    linker.add_text(CALLEE)?;
    linker.add_text(CALLER)?;
    let module = linker.load()?;
    let (mut address, mut size): (CUdeviceptr, usize) = (NO_ADDRESS, 0);
    ok!(driver, cuModuleGetGlobal_v2(&raw mut address, &raw mut size, module, c"shared_word".as_ptr()));
    ensure!(size == 4 && gpu.read(address, 1)? == [14], "the variable is another one");
    gpu.write(address, &[5])?;
    let (run, out) = (gpu.function_of(module, c"run")?, gpu.zeros(1)?);
    gpu.launch(run, 1, NULL_STREAM, &[&out])?;
    ensure!(gpu.read(out, 1)? == [15], "the kernel has a variable of its own");
    Ok(())
}

fn missing_function_fails_at_the_end(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let linker = Linker::new(driver)?;
    linker.add_text(CALLER)?;
    let (code, _) = linker.complete()?;
    note!("without the function: cuLinkComplete gives {}", crate::call::describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS, "it was linked");
    ensure!(linker.said().contains("scaled") || linker.said().contains("shared_word"), "the log: {:?}", linker.said());
    Ok(())
}

fn two_definitions_are_refused(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let linker = Linker::new(driver)?;
    linker.add_text(CALLEE)?;
    let added = linker.add(CUjitInputType::CU_JIT_INPUT_PTX, CALLEE.to_bytes_with_nul())?;
    let code = if added == CUresult::CUDA_SUCCESS { linker.complete()?.0 } else { added };
    note!("the same text twice gives {}", crate::call::describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS, "it was linked");
    Ok(())
}

fn linked_file(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let linker = Linker::new(driver)?;
    let path = std::env::temp_dir().join(format!("conformance-{}.ptx", std::process::id()));
    std::fs::write(&path, CALLEE.to_bytes())?;
    linker.add_text(CALLER)?;
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    let kind = CUjitInputType::CU_JIT_INPUT_PTX;
    let code = cu!(driver, cuLinkAddFile_v2(linker.state, kind, name.as_ptr(), 0, null_mut(), null_mut()));
    std::fs::remove_file(&path)?;
    crate::call::judge("cuLinkAddFile", code, &[CUresult::CUDA_SUCCESS])?;
    gpu.function_of(linker.load()?, c"run")?;
    let code = cu!(driver, cuLinkAddFile_v2(linker.state, kind, c"/none/such.ptx".as_ptr(), 0, null_mut(), null_mut()));
    ensure!(code != CUresult::CUDA_SUCCESS, "a file was added that is not there");
    Ok(())
}

const WRONG: &CStr = c".version 7.0
.target sm_70
.address_size 64
.visible .entry wrong()
{
    .reg .b32 %r<3>;
    add.u32 %r1, %r2;
    ret;
}
";

fn linker_tells_what_is_wrong(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let linker = Linker::new(driver)?;
    let mut code = linker.add(CUjitInputType::CU_JIT_INPUT_PTX, WRONG.to_bytes_with_nul())?;
    if code == CUresult::CUDA_SUCCESS {
        code = linker.complete()?.0;
    }
    ensure!(code == CUresult::CUDA_ERROR_INVALID_PTX, "{}", crate::call::describe(code));
    ensure!(linker.said().contains("line 7"), "the log: {:?}", linker.said());
    Ok(())
}

/// Loads with these options and values, and gives the code.
fn load_with(driver: &Driver, image: &CStr, options: &mut [Jit], values: &mut [*mut c_void]) -> Result<CUresult> {
    let mut module = CUmodule(null_mut());
    let count = c_uint::try_from(options.len())?;
    let image = image.as_ptr().cast();
    Ok(cu!(driver, cuModuleLoadDataEx(&raw mut module, image, count, options.as_mut_ptr(), values.as_mut_ptr())))
}

fn log_names_line_and_reason(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let mut log = [0 as c_char; 2048];
    let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), core::ptr::without_provenance_mut(log.len())];
    let code = load_with(driver, WRONG, &mut options, &mut values)?;
    ensure!(code == CUresult::CUDA_ERROR_INVALID_PTX, "{}", crate::call::describe(code));
    let said = text(&log);
    ensure!(said.starts_with("ptxas ") && said.contains("line 7; error   : "), "the log: {said:?}");
    ensure!(values[1].addr() > 0 && values[1].addr() <= said.len() + 1, "{} bytes are filled", values[1].addr());
    Ok(())
}

fn log_is_cut_to_its_room(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let mut log = [0x55 as c_char; 64];
    let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), core::ptr::without_provenance_mut(16)];
    let code = load_with(driver, WRONG, &mut options, &mut values)?;
    ensure!(code == CUresult::CUDA_ERROR_INVALID_PTX, "{}", crate::call::describe(code));
    ensure!(log[16..].iter().all(|character| *character == 0x55), "the log is longer than its room");
    Ok(())
}

fn verbose_log_names_the_kernels(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let mut log = vec![0 as c_char; 1 << 16];
    let mut options = [
        Jit::CU_JIT_INFO_LOG_BUFFER,
        Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        Jit::CU_JIT_LOG_VERBOSE,
        Jit::CU_JIT_CACHE_MODE,
    ];
    let one: *mut c_void = core::ptr::without_provenance_mut(1);
    let room = core::ptr::without_provenance_mut(log.len());
    let mut values = [log.as_mut_ptr().cast(), room, one, null_mut()];
    let code = load_with(driver, crate::kernels::PROGRAM, &mut options, &mut values)?;
    ensure!(code == CUresult::CUDA_SUCCESS, "{}", crate::call::describe(code));
    let said = text(&log);
    note!("{} bytes of information", said.len());
    // What comes out of a cache was compiled before, and then there is nothing to tell.
    ensure!(said.is_empty() || said.contains("Compiling entry function 'saxpy' for 'sm_90'"), "the log: {said:?}");
    Ok(())
}

const MANAGED: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 counter = 5;
.visible .global .align 4 .u32 plain = 6;
.visible .entry count()
{
    .reg .b32 %v;
    ld.global.u32 %v, [counter];
    add.u32 %v, %v, 1;
    st.global.u32 [counter], %v;
    ret;
}
";

fn managed_variable(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut library = CUlibrary(null_mut());
    let (none, nothing) = (null_mut(), null_mut());
    let image = MANAGED.as_ptr().cast();
    ok!(driver, cuLibraryLoadData(&raw mut library, image, none, nothing, 0, null_mut(), null_mut(), 0));
    let (mut address, mut size): (CUdeviceptr, usize) = (NO_ADDRESS, 0);
    ok!(driver, cuLibraryGetManaged(&raw mut address, &raw mut size, library, c"counter".as_ptr()));
    ensure!(size == 4, "{size} bytes");
    let mut module = CUmodule(null_mut());
    ok!(driver, cuLibraryGetModule(&raw mut module, library));
    gpu.launch(gpu.function_of(module, c"count")?, 1, NULL_STREAM, &[])?;
    gpu.synchronise()?;
    let counter: *const u32 = core::ptr::with_exposed_provenance(usize::try_from(address.0)?);
    // SAFETY: managed memory is the host's too, and nothing runs.
    let seen = unsafe { counter.read_volatile() };
    ensure!(seen == 6, "the host sees {seen}");
    let code = noted!(
        driver,
        cuLibraryGetManaged(&raw mut address, &raw mut size, library, c"plain".as_ptr()),
        "a variable that is not managed"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "it was found");
    expect!(
        driver,
        cuLibraryGetManaged(&raw mut address, &raw mut size, library, c"none_such".as_ptr()) => CUDA_ERROR_NOT_FOUND
    );
    Ok(())
}
