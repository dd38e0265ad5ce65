//! What kernels call without defining it: `vprintf`, `malloc`, `free`, `__assertfail`.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING, NULL_STREAM};
use anyhow::{Context, Result, ensure};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use detshare_cuda::Driver;
use detshare_cuda::types::{CUjit_option, CUlimit, CUmodule, CUresult, CUstream};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

tests! { kernel_calls:
    printed_values_are_formatted,
    printed_texts_are_read_when_they_are_printed,
    prints_of_a_thread_keep_their_order,
    every_thread_prints,
    a_copy_writes_what_was_printed,
    a_callback_comes_after_what_was_printed,
    only_the_room_asked_for_is_used,
    room_is_fixed_after_a_print,
    allocated_memory_is_aligned_and_apart,
    allocated_memory_outlives_its_kernel,
    freed_memory_is_used_again,
    too_much_is_null,
    heap_is_fixed_after_an_allocation,
    failed_assertion_says_so,
    held_assertion_says_nothing,
    a_launch_from_a_kernel_needs_its_runtime,
}

/// `vprintf` takes a format and the values, each aligned to its size.
const PRINTS: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);
.global .align 1 .b8 values[] = {91, 37, 100, 124, 37, 53, 46, 50, 102, 124, 37, 108, 108, 120, 124, 37, 99, 124, 37, 37,
    124, 37, 45, 52, 117, 124, 37, 115, 93, 10, 0};
.global .align 1 .b8 word[] = {37, 117, 10, 0};
.global .align 1 .b8 text[] = {37, 115, 10, 0};
.global .align 1 .b8 abc[] = {97, 98, 99, 0};

.visible .entry print_values(.param .u64 out)
{
    .local .align 8 .b8 area[48];
    .reg .b64 %area, %generic, %a, %out;
    .reg .b32 %r;
    .reg .f64 %d;
    ld.param.u64 %out, [out];
    mov.u64 %area, area;
    cvta.local.u64 %generic, %area;
    st.local.s32 [%area], -7;
    mov.f64 %d, 0d3FF8000000000000;
    st.local.f64 [%area+8], %d;
    mov.u64 %a, 0x123456789a;
    st.local.u64 [%area+16], %a;
    st.local.u32 [%area+24], 88;
    st.local.u32 [%area+28], 9;
    mov.u64 %a, abc;
    cvta.global.u64 %a, %a;
    st.local.u64 [%area+32], %a;
    mov.u64 %a, values;
    cvta.global.u64 %a, %a;
    {
    .param .b64 f;
    .param .b64 v;
    .param .b32 r;
    st.param.b64 [f], %a;
    st.param.b64 [v], %generic;
    call.uni (r), vprintf, (f, v);
    ld.param.b32 %r, [r];
    }
    st.global.u32 [%out], %r;
    ret;
}

.visible .entry print_text(.param .u64 buffer)
{
    .local .align 8 .b8 area[8];
    .reg .b64 %area, %generic, %a, %buffer;
    ld.param.u64 %buffer, [buffer];
    mov.u64 %area, area;
    cvta.local.u64 %generic, %area;
    st.local.u64 [%area], %buffer;
    mov.u64 %a, text;
    cvta.global.u64 %a, %a;
    {
    .param .b64 f;
    .param .b64 v;
    .param .b32 r;
    st.param.b64 [f], %a;
    st.param.b64 [v], %generic;
    call.uni (r), vprintf, (f, v);
    }
    st.global.u8 [%buffer], 90;
    ret;
}

.visible .entry print_words(.param .u32 first, .param .u32 count)
{
    .local .align 8 .b8 area[8];
    .reg .b64 %area, %generic, %a;
    .reg .b32 %i, %n, %t;
    .reg .pred %more;
    ld.param.u32 %i, [first];
    ld.param.u32 %n, [count];
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %t, %n, %i;
    add.u32 %n, %i, %n;
    mov.u64 %area, area;
    cvta.local.u64 %generic, %area;
    mov.u64 %a, word;
    cvta.global.u64 %a, %a;
NEXT:
    st.local.u32 [%area], %i;
    {
    .param .b64 f;
    .param .b64 v;
    .param .b32 r;
    st.param.b64 [f], %a;
    st.param.b64 [v], %generic;
    call.uni (r), vprintf, (f, v);
    }
    add.u32 %i, %i, 1;
    setp.lt.u32 %more, %i, %n;
    @%more bra NEXT;
    ret;
}
";

const ALLOCATES: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);

.visible .entry take(.param .u64 out, .param .u64 bytes)
{
    .reg .b64 %out, %p, %n, %o;
    .reg .b32 %t;
    .reg .pred %none;
    ld.param.u64 %out, [out];
    ld.param.u64 %n, [bytes];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %o, %t, 8;
    add.u64 %out, %out, %o;
    {
    .param .b64 n;
    .param .b64 r;
    st.param.b64 [n], %n;
    call.uni (r), malloc, (n);
    ld.param.b64 %p, [r];
    }
    st.global.u64 [%out], %p;
    setp.eq.u64 %none, %p, 0;
    @%none bra DONE;
    st.u32 [%p], %t;
DONE:
    ret;
}

.visible .entry look(.param .u64 in, .param .u64 out)
{
    .reg .b64 %in, %out, %p, %o;
    .reg .b32 %t, %v;
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %o, %t, 8;
    add.u64 %in, %in, %o;
    ld.global.u64 %p, [%in];
    ld.u32 %v, [%p];
    mul.wide.u32 %o, %t, 4;
    add.u64 %out, %out, %o;
    st.global.u32 [%out], %v;
    {
    .param .b64 p;
    st.param.b64 [p], %p;
    call.uni free, (p);
    }
    ret;
}

.visible .entry churn(.param .u64 out, .param .u64 bytes, .param .u32 turns)
{
    .reg .b64 %out, %p, %n;
    .reg .b32 %left, %failed;
    .reg .pred %none, %more;
    ld.param.u64 %out, [out];
    ld.param.u64 %n, [bytes];
    ld.param.u32 %left, [turns];
    mov.u32 %failed, 0;
NEXT:
    {
    .param .b64 n;
    .param .b64 r;
    st.param.b64 [n], %n;
    call.uni (r), malloc, (n);
    ld.param.b64 %p, [r];
    }
    setp.eq.u64 %none, %p, 0;
    @%none add.u32 %failed, %failed, 1;
    {
    .param .b64 p;
    st.param.b64 [p], %p;
    call.uni free, (p);
    }
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra NEXT;
    st.global.u32 [%out], %failed;
    ret;
}
";

const ASSERTS: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 message[] = {110, 60, 51, 0};
.global .align 1 .b8 file[] = {97, 46, 99, 117, 0};
.global .align 1 .b8 name[] = {118, 111, 105, 100, 32, 107, 40, 41, 0};
.visible .entry check(.param .u32 value)
{
    .reg .b64 %m, %f, %n;
    .reg .b32 %v;
    .reg .pred %holds;
    ld.param.u32 %v, [value];
    setp.lt.u32 %holds, %v, 3;
    @%holds bra DONE;
    mov.u64 %m, message;
    cvta.global.u64 %m, %m;
    mov.u64 %f, file;
    cvta.global.u64 %f, %f;
    mov.u64 %n, name;
    cvta.global.u64 %n, %n;
    {
    .param .b64 m;
    .param .b64 f;
    .param .b32 l;
    .param .b64 n;
    .param .b64 s;
    st.param.b64 [m], %m;
    st.param.b64 [f], %f;
    st.param.b32 [l], 42;
    st.param.b64 [n], %n;
    st.param.b64 [s], 1;
    call.uni __assertfail, (m, f, l, n, s);
    }
DONE:
    ret;
}
";

/// A launch of a kernel from a kernel begins so.
const LAUNCHES: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b64 r) cudaGetParameterBufferV2(.param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
.visible .entry parent()
{
    .reg .b64 %p;
    {
    .param .b64 f;
    .param .align 4 .b8 g[12];
    .param .align 4 .b8 b[12];
    .param .b32 s;
    .param .b64 r;
    st.param.b64 [f], 0;
    st.param.b32 [s], 0;
    call.uni (r), cudaGetParameterBufferV2, (f, g, b, s);
    ld.param.b64 %p, [r];
    }
    ret;
}
";

/// What the process writes to one of its files, kept instead.
struct Written {
    descriptor: c_int,
    before: c_int,
    kept: File,
}

impl Written {
    fn to(descriptor: c_int) -> Result<Self> {
        // SAFETY: a name and no flags.
        let memory = unsafe { libc::memfd_create(c"written".as_ptr(), 0) };
        ensure!(memory >= 0, "no memory file");
        // SAFETY: a new descriptor that nobody else has.
        let kept = unsafe { File::from_raw_fd(memory) };
        flush();
        // SAFETY: descriptors that are open.
        let before = unsafe { libc::dup(descriptor) };
        // SAFETY: as above.
        unsafe { libc::dup2(kept.as_raw_fd(), descriptor) };
        Ok(Self { descriptor, before, kept })
    }

    /// What was written so far.
    fn text(&self) -> Result<String> {
        flush();
        let mut text = String::new();
        let mut file = File::open(format!("/proc/self/fd/{}", self.kept.as_raw_fd()))?;
        file.read_to_string(&mut text).context("what was written is no text")?;
        Ok(text)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        flush();
        // SAFETY: descriptors that are open.
        unsafe { libc::dup2(self.before, self.descriptor) };
    }
}

/// Empties C's own buffers.
fn flush() {
    // SAFETY: NULL means all of them.
    unsafe { libc::fflush(null_mut()) };
}

fn printed_values_are_formatted(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let print = gpu.function_of(gpu.module(PRINTS)?, c"print_values")?;
    let count = gpu.zeros(1)?;
    let written = Written::to(libc::STDOUT_FILENO)?;
    gpu.launch(print, 1, NULL_STREAM, &[&count])?;
    gpu.synchronise()?;
    let text = written.text()?;
    drop(written);
    ensure!(text == "[-7| 1.50|123456789a|X|%|9   |abc]\n", "the kernel printed {text:?}");
    note!("vprintf returned {}", gpu.read(count, 1)?[0].cast_signed());
    Ok(())
}

fn printed_texts_are_read_when_they_are_printed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let print = gpu.function_of(gpu.module(PRINTS)?, c"print_text")?;
    let buffer = gpu.upload(&[u32::from_le_bytes(*b"dog\0")])?;
    let written = Written::to(libc::STDOUT_FILENO)?;
    gpu.launch(print, 1, NULL_STREAM, &[&buffer])?;
    gpu.synchronise()?;
    let text = written.text()?;
    ensure!(text == "dog\n", "the kernel printed {text:?}, and changed the text afterwards");
    Ok(())
}

fn prints_of_a_thread_keep_their_order(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let print = gpu.function_of(gpu.module(PRINTS)?, c"print_words")?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let written = Written::to(libc::STDOUT_FILENO)?;
    for first in [0_u32, 5, 10] {
        gpu.launch(print, 1, stream, &[&first, &5_u32])?;
    }
    gpu.wait(stream)?;
    let text = written.text()?;
    let expected: String = (0..15).map(|number| format!("{number}\n")).collect();
    ensure!(text == expected, "the kernels printed {text:?}");
    Ok(())
}

fn every_thread_prints(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let print = gpu.function_of(gpu.module(PRINTS)?, c"print_words")?;
    let written = Written::to(libc::STDOUT_FILENO)?;
    gpu.launch(print, 100, NULL_STREAM, &[&0_u32, &2_u32])?;
    gpu.synchronise()?;
    let text = written.text()?;
    let mut numbers: Vec<u32> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    numbers.sort_unstable();
    ensure!(numbers == (0..200).collect::<Vec<_>>(), "the threads printed {numbers:?}");
    Ok(())
}

fn a_copy_writes_what_was_printed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let print = gpu.function_of(gpu.module(PRINTS)?, c"print_words")?;
    let word = gpu.zeros(1)?;
    let written = Written::to(libc::STDOUT_FILENO)?;
    gpu.launch(print, 1, NULL_STREAM, &[&3_u32, &1_u32])?;
    gpu.read(word, 1)?;
    let text = written.text()?;
    ensure!(text == "3\n", "after the copy there is {text:?}");
    Ok(())
}

struct Looks<'a> {
    written: &'a Written,
    was_there: AtomicBool,
}

unsafe extern "C" fn look(_: CUstream, _: CUresult, data: *mut c_void) {
    // SAFETY: registered with the address of a Looks whose stream is waited for.
    let looks = unsafe { &*data.cast::<Looks<'_>>() };
    looks.was_there.store(looks.written.text().is_ok_and(|text| text == "8\n"), Ordering::SeqCst);
}

fn a_callback_comes_after_what_was_printed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let print = gpu.function_of(gpu.module(PRINTS)?, c"print_words")?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let written = Written::to(libc::STDOUT_FILENO)?;
    let looks = Looks { written: &written, was_there: AtomicBool::new(false) };
    gpu.launch(print, 1, stream, &[&8_u32, &1_u32])?;
    let data = core::ptr::from_ref(&looks).cast_mut().cast();
    ok!(driver, cuStreamAddCallback(stream, Some(look), data, 0));
    gpu.wait(stream)?;
    ensure!(looks.was_there.load(Ordering::SeqCst), "the callback came before the text");
    Ok(())
}

/// Far more is printed than there is room: what is left is whole lines.
fn only_the_room_asked_for_is_used(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    ok!(driver, cuCtxSetLimit(CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, 4096));
    let mut room = 0;
    ok!(driver, cuCtxGetLimit(&raw mut room, CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE));
    ensure!(room >= 4096, "there is room for {room} bytes");
    let print = gpu.function_of(gpu.module(PRINTS)?, c"print_words")?;
    let count = u32::try_from(room)?;
    let written = Written::to(libc::STDOUT_FILENO)?;
    gpu.launch(print, 1, NULL_STREAM, &[&0_u32, &count])?;
    gpu.synchronise()?;
    let text = written.text()?;
    drop(written);
    let numbers: Vec<u32> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(!numbers.is_empty() && numbers.len() < count as usize, "{} of {count} lines are left", numbers.len());
    let (first, last) = (numbers.first(), numbers.last());
    note!("of {count} lines in {room} bytes, {} are left: {first:?} to {last:?}", numbers.len());
    Ok(())
}

fn room_is_fixed_after_a_print(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let print = gpu.function_of(gpu.module(PRINTS)?, c"print_words")?;
    let _written = Written::to(libc::STDOUT_FILENO)?;
    gpu.launch(print, 1, NULL_STREAM, &[&0_u32, &1_u32])?;
    gpu.synchronise()?;
    noted!(driver, cuCtxSetLimit(CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20), "after a print");
    Ok(())
}

/// Memory that a kernel writes 64-bit numbers to.
fn longs(gpu: &Gpu, pointer: detshare_cuda::types::CUdeviceptr, count: usize) -> Result<Vec<u64>> {
    let words = gpu.read(pointer, 2 * count)?;
    Ok(words.chunks(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect())
}

fn allocated_memory_is_aligned_and_apart(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let take = gpu.function_of(gpu.module(ALLOCATES)?, c"take")?;
    let out = gpu.zeros(128)?;
    gpu.launch(take, 64, NULL_STREAM, &[&out, &100_u64])?;
    let mut addresses = longs(&gpu, out, 64)?;
    addresses.sort_unstable();
    ensure!(addresses[0] != 0, "the heap gave nothing");
    ensure!(addresses.iter().all(|address| address % 16 == 0), "not aligned to 16 bytes: {addresses:x?}");
    ensure!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 100), "parts overlap: {addresses:x?}");
    Ok(())
}

fn allocated_memory_outlives_its_kernel(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let module = gpu.module(ALLOCATES)?;
    let (take, look) = (gpu.function_of(module, c"take")?, gpu.function_of(module, c"look")?);
    let (out, seen) = (gpu.zeros(64)?, gpu.zeros(32)?);
    gpu.launch(take, 32, NULL_STREAM, &[&out, &16_u64])?;
    gpu.launch(look, 32, NULL_STREAM, &[&out, &seen])?;
    let seen = gpu.read(seen, 32)?;
    ensure!(seen == (0..32).collect::<Vec<_>>(), "the next kernel found {seen:?}");
    Ok(())
}

fn freed_memory_is_used_again(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let churn = gpu.function_of(gpu.module(ALLOCATES)?, c"churn")?;
    let failed = gpu.zeros(1)?;
    gpu.launch(churn, 1, NULL_STREAM, &[&failed, &(1_u64 << 20), &100_u32])?;
    let failed = gpu.read(failed, 1)?[0];
    ensure!(failed == 0, "{failed} of 100 allocations failed, though each was freed");
    Ok(())
}

fn too_much_is_null(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    ok!(driver, cuCtxSetLimit(CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20));
    let take = gpu.function_of(gpu.module(ALLOCATES)?, c"take")?;
    let out = gpu.zeros(2 * 100)?;
    gpu.launch(take, 1, NULL_STREAM, &[&out, &(1_u64 << 40)])?;
    ensure!(longs(&gpu, out, 1)? == [0], "a heap of 8 MiB gave a TiB");
    gpu.launch(take, 100, NULL_STREAM, &[&out, &(1_u64 << 20)])?;
    let given = longs(&gpu, out, 100)?.into_iter().filter(|address| *address != 0).count();
    let mut limit = 0;
    ok!(driver, cuCtxGetLimit(&raw mut limit, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE));
    ensure!(given > 0 && given <= limit >> 20, "a heap of {limit} bytes gave a MiB {given} times");
    Ok(())
}

fn heap_is_fixed_after_an_allocation(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let take = gpu.function_of(gpu.module(ALLOCATES)?, c"take")?;
    let out = gpu.zeros(2)?;
    gpu.launch(take, 1, NULL_STREAM, &[&out, &16_u64])?;
    gpu.synchronise()?;
    expect!(driver, cuCtxSetLimit(CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 20) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn failed_assertion_says_so(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let check = gpu.function_of(gpu.module(ASSERTS)?, c"check")?;
    let written = Written::to(libc::STDERR_FILENO)?;
    gpu.launch(check, 1, NULL_STREAM, &[&3_u32])?;
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_ASSERT);
    let text = written.text()?;
    drop(written);
    let expected = "a.cu:42: void k(): block: [0,0,0], thread: [0,0,0] Assertion `n<3` failed.\n";
    ensure!(text == expected, "the driver wrote {text:?}");
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_ASSERT);
    Ok(())
}

fn held_assertion_says_nothing(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let check = gpu.function_of(gpu.module(ASSERTS)?, c"check")?;
    let written = Written::to(libc::STDERR_FILENO)?;
    gpu.launch(check, 64, NULL_STREAM, &[&2_u32])?;
    gpu.synchronise()?;
    let text = written.text()?;
    ensure!(text.is_empty(), "the driver wrote {text:?}");
    Ok(())
}

fn a_launch_from_a_kernel_needs_its_runtime(driver: &Driver) -> Outcome {
    let _gpu = Gpu::new(driver)?;
    let mut log = vec![0 as c_char; 1024];
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), core::ptr::without_provenance_mut(log.len())];
    let mut module = CUmodule(null_mut());
    let count = c_uint::try_from(options.len())?;
    let image = LAUNCHES.as_ptr().cast();
    let code = noted!(
        driver,
        cuModuleLoadDataEx(&raw mut module, image, count, options.as_mut_ptr(), values.as_mut_ptr()),
        "a launch from a kernel"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "the module was loaded");
    let log = crate::gpu::text(&log);
    ensure!(log.contains("cudaGetParameterBufferV2"), "the log does not say what is missing: {log:?}");
    Ok(())
}
