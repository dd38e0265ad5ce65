//! What a person sees of a mistake in a kernel: on standard error, in the driver's codes and in the process's status.

mod library;

use detshare_cuda::entry;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr_v2, CUfunction, CUmodule, CUresult, CUstream};
use library::softgpu;
use std::process::{Command, Output};

/// `race`: a barrier is missing. `stale`: shared memory that nobody wrote. `behind`: the byte after an allocation.
/// `freed`: an allocation that is there no more. `wild`: an access far from everything. `early`: a bulk copy that is not waited
/// for, but for a barrier behind it. `patient`: one that is. `fine`: none of these. `endless`: one thread's calls never end.
/// `asserts`: what one thread asserts does not hold.
const KERNELS: &core::ffi::CStr = c".version 8.0
.target sm_90
.address_size 64
.visible .entry race(.param .u64 out)
{
    .reg .b32 %t, %r<4>;
    .shared .align 4 .b8 s[256];
    mov.u32 %t, %tid.x;
    mov.u32 %r1, s;
    mad.lo.u32 %r2, %t, 4, %r1;
    st.shared.u32 [%r2], 0;
    bar.sync 0;
    xor.b32 %r3, %t, 32;
    mad.lo.u32 %r3, %r3, 4, %r1;
    ld.shared.u32 %r3, [%r3];
    st.shared.u32 [%r2], %r3;
    ret;
}
.visible .entry wild(.param .u64 out)
{
    .reg .b64 %d;
    ld.param.u64 %d, [out];
    st.global.u32 [%d+1048576], 1;
    ret;
}
.visible .entry fine(.param .u64 out)
{
    .reg .b64 %d;
    ld.param.u64 %d, [out];
    st.global.u32 [%d], 1;
    ret;
}
.visible .entry stale(.param .u64 out)
{
    .reg .b32 %t, %r<3>;
    .shared .align 4 .b8 s[256];
    mov.u32 %t, %tid.x;
    mov.u32 %r1, s;
    mad.lo.u32 %r1, %t, 4, %r1;
    st.shared.u8 [%r1], 1;
    ld.shared.u16 %r2, [%r1];
    ret;
}
.visible .entry behind(.param .u64 out)
{
    .reg .b64 %d;
    ld.param.u64 %d, [out];
    st.global.u8 [%d+63], 1;
    st.global.u8 [%d+64], 1;
    ret;
}
.visible .entry freed(.param .u64 out)
{
    .reg .b64 %d;
    .reg .b32 %r;
    ld.param.u64 %d, [out];
    ld.global.u32 %r, [%d+8];
    ret;
}
.visible .entry early(.param .u64 out)
{
    .reg .b64 %d;
    .reg .b32 %t, %r<3>;
    .reg .pred %p;
    .shared .align 16 .b8 s[64];
    .shared .align 8 .b64 full;
    ld.param.u64 %d, [out];
    mov.u32 %t, %tid.x;
    mov.u32 %r1, s;
    mov.u32 %r2, full;
    setp.ne.u32 %p, %t, 0;
    @%p bra MEET;
    mbarrier.init.shared.b64 [%r2], 1;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d], 64, [%r2];
MEET:
    bar.sync 0;
    add.u32 %r1, %r1, %t;
    ld.shared.u8 %r1, [%r1];
    ret;
}
.visible .entry patient(.param .u64 out)
{
    .reg .b64 %d;
    .reg .b32 %t, %r<3>;
    .reg .pred %p;
    .shared .align 16 .b8 s[64];
    .shared .align 8 .b64 full;
    ld.param.u64 %d, [out];
    mov.u32 %t, %tid.x;
    mov.u32 %r1, s;
    mov.u32 %r2, full;
    setp.ne.u32 %p, %t, 0;
    @%p bra MEET;
    mbarrier.init.shared.b64 [%r2], 1;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d], 64, [%r2];
MEET:
    bar.sync 0;
AGAIN:
    mbarrier.try_wait.parity.shared.b64 %p, [%r2], 0;
    @!%p bra AGAIN;
    add.u32 %r1, %r1, %t;
    ld.shared.u8 %r1, [%r1];
    ret;
}
.func descend(.param .b32 n)
{
    .reg .b32 %n;
    ld.param.u32 %n, [n];
    add.u32 %n, %n, 1;
    {
    .param .b32 next;
    st.param.u32 [next], %n;
    call.uni descend, (next);
    }
    ret;
}
.visible .entry endless(.param .u64 out)
{
    .reg .b32 %b, %t;
    .reg .pred %p;
    mov.u32 %b, %ctaid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %t, %b, 64, %t;
    setp.ne.u32 %p, %t, 227;
    @%p ret;
    {
    .param .b32 n;
    st.param.u32 [n], %t;
    call.uni descend, (n);
    }
    ret;
}
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 message[] = {110, 32, 60, 32, 51, 0};
.global .align 1 .b8 file[] = {107, 101, 114, 110, 101, 108, 115, 47, 99, 104, 101, 99, 107, 46, 99, 117, 0};
.global .align 1 .b8 name[] = {118, 111, 105, 100, 32, 99, 104, 101, 99, 107, 40, 105, 110, 116, 41, 0};
.visible .entry asserts(.param .u64 out)
{
    .reg .b64 %m, %f, %n;
    .reg .b32 %b, %t;
    .reg .pred %holds;
    mov.u32 %b, %ctaid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %t, %b, 64, %t;
    setp.ne.u32 %holds, %t, 353;
    @%holds ret;
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
    st.param.b32 [l], 1234;
    st.param.b64 [n], %n;
    st.param.b64 [s], 1;
    call.uni __assertfail, (m, f, l, n, s);
    }
    ret;
}";

/// Run as a process of its own by the tests below: launches the kernel that the environment names and prints what
/// synchronising returns, twice.
#[test]
fn launches_a_kernel() {
    let Ok(name) = std::env::var("TEST_KERNEL") else { return };
    let driver = softgpu();
    cu!(driver, cuInit(0));
    let mut context = CUcontext(core::ptr::null_mut());
    cu!(driver, cuCtxCreate_v2(&raw mut context, 0, CUdevice_v1(0)));
    let (mut module, mut function) = (CUmodule(core::ptr::null_mut()), CUfunction(core::ptr::null_mut()));
    cu!(driver, cuModuleLoadData(&raw mut module, KERNELS.as_ptr().cast()));
    let name = std::ffi::CString::new(name).expect("a name");
    cu!(driver, cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
    let mut memory = CUdeviceptr_v2(0);
    cu!(driver, cuMemAlloc_v2(&raw mut memory, 64));
    if name == c"freed" {
        // Another one of the same page stays: that the page is there must not hide that the allocation is not.
        let mut neighbour = CUdeviceptr_v2(0);
        cu!(driver, cuMemAlloc_v2(&raw mut neighbour, 64));
        cu!(driver, cuMemFree_v2(memory));
    }
    let mut parameters = [(&raw mut memory).cast()];
    let (own, none) = (CUstream(core::ptr::null_mut()), core::ptr::null_mut());
    cu!(driver, cuLaunchKernel(function, 8, 1, 1, 64, 1, 1, 0, own, parameters.as_mut_ptr(), none));
    let codes = [cu!(driver, cuCtxSynchronize()), cu!(driver, cuMemAlloc_v2(&raw mut memory, 64))];
    println!("codes {} {}", codes[0].0, codes[1].0);
}

/// The program with that kernel and those variables.
fn run(kernel: &str, variables: &[(&str, &str)]) -> (Output, String) {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "launches_a_kernel", "--nocapture"]).env("TEST_KERNEL", kernel).env_remove("DETSHARE_LOG");
    let output = command.envs(variables.iter().copied()).output().expect("this test starts again");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, told)
}

fn codes(output: &Output) -> Vec<u32> {
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, codes) = text.split_once("codes ").expect("the program says them");
    codes.lines().next().into_iter().flat_map(str::split_whitespace).filter_map(|code| code.parse().ok()).collect()
}

const ON: (&str, &str) = ("DETSHARE_SOFTGPU_CHECK", "1");

#[test]
fn a_fault_is_told_once_and_stays() {
    let (output, told) = run("wild", &[]);
    let illegal = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS.0;
    assert_eq!(codes(&output), [illegal, illegal]);
    assert_eq!(told.matches("illegal address: kernel wild, block (").count(), 1, "{told}");
    let place =
        "in 'st.global.u32 [%d+1048576], 1', line 23; that is 1048512 bytes after the end of the allocation of 64";
    assert!(told.contains(place), "{told}");
}

#[test]
fn a_stack_overflow_is_told_once_and_stays() {
    let (output, told) = run("endless", &[]);
    let overflow = CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR.0;
    assert_eq!(codes(&output), [overflow, overflow]);
    let words = "stack overflow: kernel endless, block (3, 0, 0), thread (35, 0, 0): too many nested calls in 'call.uni descend, (next)'";
    assert_eq!(told.matches(words).count(), 1, "{told}");
    assert!(told.contains("of function descend, line 117"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

/// In the words that a program's user knows, and in none of ours.
#[test]
fn a_failed_assertion_is_told_once_and_stays() {
    let (output, told) = run("asserts", &[]);
    let failed = CUresult::CUDA_ERROR_ASSERT.0;
    assert_eq!(codes(&output), [failed, failed]);
    let words = "kernels/check.cu:1234: void check(int): block: [5,0,0], thread: [33,0,0] Assertion `n < 3` failed.\n";
    assert_eq!(told, words);
}

#[test]
fn findings_are_told_once_and_counted() {
    let (output, told) = run("race", &[ON]);
    assert_eq!((output.status.code(), codes(&output)), (Some(0), vec![0, 0]));
    assert_eq!(told.matches("check: race in shared memory: kernel race, block (").count(), 1, "{told}");
    assert!(told.contains("check: findings: 1, which occurred 512 times"), "{told}");
    let (_, told) = run("race", &[ON, ("DETSHARE_SOFTGPU_CHECK_LIMIT", "0")]);
    assert!(!told.contains("race in shared memory") && told.contains("1 of them not shown"), "{told}");
    assert_eq!(run("race", &[]).1, "", "nobody asked");
    assert_eq!(run("fine", &[ON]).1, "", "nothing is wrong");
}

/// A kernel that does one thing wrong in every one of its 512 threads, and what is said of it.
#[track_caller]
fn is_found(kernel: &str, kind: &str, place: &str, words: &str) {
    assert_eq!(run(kernel, &[]).1, "", "without the checker it is no fault");
    let (output, told) = run(kernel, &[ON]);
    assert_eq!((output.status.code(), codes(&output)), (Some(0), vec![0, 0]));
    assert_eq!(told.matches("check: ").count(), 2, "one thing, and the summary: {told}");
    assert_eq!(told.matches(&format!("check: {kind}: kernel {kernel}, block (")).count(), 1, "{told}");
    assert!(told.contains(&format!("in '{place}")) && told.contains(words), "{told}");
    assert!(told.contains("check: findings: 1, which occurred 512 times"), "{told}");
}

#[test]
fn shared_memory_that_nobody_wrote_is_found() {
    is_found("stale", "read of shared memory that nobody has written", "ld.shared.u16 %r2, [%r1]', line 41", "");
}

#[test]
fn a_byte_behind_an_allocation_is_found() {
    let words = "that is 0 bytes after the end of the allocation of 64 bytes at ";
    is_found("behind", "access of 1 bytes outside of all allocations", "st.global.u8 [%d+64], 1', line 49", words);
}

#[test]
fn an_allocation_that_was_freed_is_found() {
    is_found(
        "freed",
        "access of 4 bytes outside of all allocations",
        "ld.global.u32 %r, [%d+8]', line 57",
        "that is byte 8 of an allocation of 64 bytes at ",
    );
}

#[test]
fn a_copy_that_nobody_waits_for_is_found() {
    is_found("early", "race in shared memory", "ld.shared.u8 %r1, [%r1]', line 80", "the copy is not waited for");
    assert_eq!(run("patient", &[ON]).1, "", "it is waited for");
}

#[test]
fn findings_can_end_the_kernel_or_the_process() {
    let failed = CUresult::CUDA_ERROR_LAUNCH_FAILED.0;
    for kernel in ["race", "stale", "behind", "freed", "early"] {
        let (output, _) = run(kernel, &[("DETSHARE_SOFTGPU_CHECK", "fail")]);
        assert_eq!(codes(&output), [failed, failed], "{kernel}");
    }
    let status = ("DETSHARE_SOFTGPU_CHECK_EXIT", "9");
    let (output, _) = run("race", &[ON, status]);
    assert_eq!((output.status.code(), codes(&output)), (Some(9), vec![0, 0]), "what it printed is there all the same");
    assert_eq!(run("fine", &[ON, status]).0.status.code(), Some(0));
}
