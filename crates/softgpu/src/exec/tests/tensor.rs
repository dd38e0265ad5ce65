//! Matrix instructions that cannot be, and lanes that come to one at different times.

use super::super::interface::FaultKind;
use super::*;

/// `mma` of ones: every element of D is the number of products, plus what the lane has in `%r20` to `%r23`.
const ONES: &str = "mov.b32 %r1, 0x3c003c00;
     mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
         {%r10, %r11, %r12, %r13}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%r20, %r21, %r22, %r23};";

fn is_refused(body: &str) -> bool {
    try_image(&[&module(body)]).is_err()
}

fn is_unsupported(body: &str) -> bool {
    image(&module(body)).kernels["k"].properties.unsupported.is_some()
}

#[test]
fn shapes_and_registers_must_fit() {
    let mma = |shape: &str, types: &str, a: &str| {
        format!(
            "mma.sync.aligned.{shape}.row.col.{types} {{%r0, %r1, %r2, %r3}}, {a}, {{%r8, %r9}}, {{%r0, %r1, %r2, %r3}};"
        )
    };
    let four = "{%r4, %r5, %r6, %r7}";
    assert!(!is_refused(&mma("m16n8k16", "f32.f16.f16.f32", four)));
    assert!(is_refused(&mma("m16n8k12", "f32.f16.f16.f32", four)));
    assert!(is_refused(&mma("m16n8k16", "f32.f16.bf16.f32", four)));
    assert!(is_refused(&mma("m16n8k16", "s32.f16.f16.s32", four)));
    assert!(is_refused(&mma("m16n8k16", "f32.f16.f16.f32", "{%r4, %r5}")));
    assert!(is_refused(&mma("m16n8k16", "f32.f16.f16.f32", "{%r4, %r5, %r6, %rd7}")));
    assert!(is_refused(&mma("m0n0k0", "f32.f16.f16.f32", four)));
    assert!(is_refused("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0, %r1}, [%in];"));
    assert!(is_refused("wmma.load.a.sync.aligned.col.m8n8k32.s4 {%r0}, [%in];"));
    assert!(is_refused("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [%r1];"));
    assert!(is_refused(
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%f0, %f1, %f2, %f3, %f4, %f5}, %rd0, %rd1, %p0, 1, 1, 0, 0;"
    ));
    assert!(is_refused(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd1, %p0, 2, 1, 0, 0;"
    ));
    assert!(is_refused(
        "mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16 {%r0, %r1}, {%r2, %r3, %r4, %r5}, {%r2, %r3, %r4, %r5}, {%r0, %r1}, %r6, 2;"
    ));
    assert!(is_unsupported("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%r2];"));
    assert!(is_unsupported(&mma("m16n8k32.kind::f8f6f4", "f32.e4m3.e2m1.f32", four)));
}

#[test]
fn lanes_that_come_late_are_waited_for() {
    // Odd lanes go round in circles first, and come to the same instruction by another way.
    let body = format!(
        "mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;
         and.b32 %r2, %t, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra together;
         mov.b32 %r3, 5000;
         again: sub.u32 %r3, %r3, 1; setp.ne.u32 %p2, %r3, 0; @%p2 bra again;
         together: {ONES}
         mad.wide.u32 %out, %t, 8, %out; st.global.u32 [%out], %r10;"
    );
    assert!(threads(&body, 32, &[0]).iter().all(|bits| f32::from_bits(*bits as u32) == 16.0));
}

#[test]
fn a_warp_takes_its_own_part_of_a_warpgroup() {
    // A is in shared memory, the number of its row times 1; B is all ones.
    let body = ".shared .align 1024 .b8 s[8192]; .reg .b16 %h;
         cvt.rn.f16.u32 %h, %t; mov.b32 %r1, {%h, %h}; mov.b32 %r4, 0x3c003c00;
         mov.u32 %r2, s; and.b32 %r5, %t, 63; mad.lo.u32 %r3, %r5, 16, %r2;
         setp.lt.u32 %p1, %t, 64; @!%p1 mov.b32 %r1, %r4; @!%p1 add.u32 %r3, %r3, 4096;
         st.shared.v4.b32 [%r3], {%r1, %r1, %r1, %r1}; st.shared.v4.b32 [%r3+1024], {%r1, %r1, %r1, %r1};
         bar.sync 0;
         shr.u32 %r2, %r2, 4; cvt.u64.u32 %rd1, %r2; or.b64 %rd1, %rd1, 0x0000000800400000; add.u64 %rd2, %rd1, 256;
         setp.ne.u32 %p2, %t, %t;
         wgmma.fence.sync.aligned;
         wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p2, 1, 1, 0, 0;
         wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
         mad.wide.u32 %out, %t, 8, %out; st.global.v2.f32 [%out], {%f0, %f2};";
    for (thread, bits) in threads(body, 128, &[0]).iter().enumerate() {
        let row = thread / 32 * 16 + thread % 32 / 4;
        let rows = [*bits as u32, (*bits >> 32) as u32].map(f32::from_bits);
        assert_eq!(rows, [row as f32 * 16.0, (row + 8) as f32 * 16.0], "thread {thread}");
    }
}

/// As kernels do that keep buffers full: one thread of the four warps says that a buffer is free, and a fifth warp fills it again.
#[test]
fn a_product_is_over_for_none_of_its_warps_before_it_is_for_all() {
    let body = ".shared .align 1024 .b8 s[8192]; .shared .align 8 .b64 free; .reg .b16 %h;
         mov.u32 %r2, s; mov.u32 %r6, free; setp.eq.u32 %p3, %t, 0; @%p3 mbarrier.init.shared.b64 [%r6], 1;
         mov.b32 %r4, 0x3c003c00; and.b32 %r5, %t, 127; mad.lo.u32 %r3, %r5, 32, %r2;
         st.shared.v4.b32 [%r3], {%r4, %r4, %r4, %r4}; st.shared.v4.b32 [%r3+16], {%r4, %r4, %r4, %r4};
         st.shared.v4.b32 [%r3+4096], {%r4, %r4, %r4, %r4}; st.shared.v4.b32 [%r3+4112], {%r4, %r4, %r4, %r4};
         fence.proxy.async; bar.sync 0;
         setp.ge.u32 %p4, %t, 128; @%p4 bra FILL;
         shr.u32 %r7, %r2, 4; cvt.u64.u32 %rd1, %r7; or.b64 %rd1, %rd1, 0x0000000800400000; add.u64 %rd2, %rd1, 256;
         setp.ne.u32 %p2, %t, %t; setp.lt.u32 %p5, %t, 32; @%p5 bra GO; mov.u32 %r8, 0;
         LATE: add.u32 %r8, %r8, 1; setp.lt.u32 %p6, %r8, 20000; @%p6 bra LATE; GO:
         wgmma.fence.sync.aligned;
         wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p2, 1, 1, 0, 0;
         wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
         @%p3 mbarrier.arrive.shared.b64 _, [%r6];
         mad.wide.u32 %out, %t, 8, %out; st.global.v2.f32 [%out], {%f0, %f2}; bra END;
         FILL: mbarrier.try_wait.parity.shared.b64 %p7, [%r6], 0; @!%p7 bra FILL;
         mov.u32 %r9, 0; and.b32 %r10, %t, 31; mad.lo.u32 %r3, %r10, 256, %r2;
         AGAIN: add.u32 %r11, %r3, %r9; st.shared.u32 [%r11], 0; add.u32 %r9, %r9, 4; setp.lt.u32 %p8, %r9, 256; @%p8 bra AGAIN;
         END:";
    for (thread, bits) in threads(body, 160, &[0]).iter().enumerate().take(128) {
        let sums = [*bits as u32, (*bits >> 32) as u32].map(f32::from_bits);
        assert_eq!(sums, [16.0; 2], "thread {thread}");
    }
}

/// A warp that has ended is not waited for.
#[test]
fn warps_that_have_ended_come_to_no_product() {
    let body = "setp.lt.u32 %p1, %t, 32; @%p1 bra END; wgmma.wait_group.sync.aligned 0; END:
         mad.wide.u32 %out, %t, 8, %out; mov.u64 %rd1, 7; st.global.u64 [%out], %rd1;";
    assert!(threads(body, 128, &[0]).iter().all(|bits| *bits == 7));
}

#[test]
fn descriptors_stay_within_shared_memory() {
    let body = "mov.u64 %rd1, 0x3fff; setp.eq.u32 %p1, %t, %t;
         wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd1, %p1, 1, 1, 0, 0;";
    let fault = try_threads(body, 128, &[0]).expect_err("there is no such memory");
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert!(fault.place.contains("wgmma.mma_async"), "{}", fault.place);
}
