//! Copies that are waited for, and the barriers that count them.

use super::super::interface::FaultKind;
use super::super::tensor_map::{Swizzle, TensorMap};
use super::*;

const STORE: &str = "mul.wide.u32 %rd40, %t, 8; add.u64 %rd40, %out, %rd40; st.global.u32 [%rd40], %r0;";

#[test]
fn warps_meet_at_a_barrier_in_memory() {
    let body = format!(
        ".shared .align 8 .b64 bar; .shared .align 4 .u32 s; setp.ne.u32 %p1, %t, 0; @%p1 bra READY;
         mbarrier.init.shared.b64 [bar], 96; st.shared.u32 [s], 0; READY: bar.sync 0;
         atom.shared.add.u32 %r1, [s], 1; mbarrier.arrive.shared.b64 %rd1, [bar];
         WAIT: mbarrier.test_wait.shared.b64 %p2, [bar], %rd1; @!%p2 bra WAIT; ld.shared.u32 %r0, [s]; {STORE}"
    );
    assert_eq!(threads(&body, 96, &[]), [96; 96]);
}

#[test]
fn pending_arrivals_are_those_before() {
    let body = "st.global.u64 [%out], 0; .shared .align 8 .b64 bar; mbarrier.init.shared.b64 [bar], 3;
        mbarrier.arrive.shared.b64 %rd1, [bar]; mbarrier.arrive.noComplete.shared.b64 %rd2, [bar], 1;
        mbarrier.pending_count.b64 %r1, %rd1; mbarrier.pending_count.b64 %r2, %rd2; mad.lo.u32 %r0, %r1, 10, %r2;";
    assert_eq!(threads(&format!("{body} {STORE}"), 1, &[]), [32]);
}

/// A copy may be shorter than what it writes, or be left out.
#[test]
fn small_copies_fill_up_with_zeros() {
    let body = format!(
        ".shared .align 16 .b8 s[1024]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 16, %r1; mul.wide.u32 %rd1, %t, 16;
         add.u64 %rd1, %in, %rd1; mov.u32 %r3, -1; st.shared.v4.u32 [%r2], {{%r3, %r3, %r3, %r3}};
         setp.eq.u32 %p1, %t, 1; @%p1 bra PART; setp.eq.u32 %p2, %t, 2;
         cp.async.cg.shared.global [%r2], [%rd1], 16, %p2; bra DONE;
         PART: cp.async.ca.shared.global.L2::128B [%r2], [%rd1], 8, 4;
         DONE: cp.async.commit_group; cp.async.wait_group 0;
         ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r2]; add.u32 %r4, %r4, %r5; add.u32 %r6, %r6, %r7; add.u32 %r0, %r4, %r6; {STORE}"
    );
    let input: Vec<u64> = (0..6).map(|at| (at + 1) * 0x64_0000_0001).collect();
    // The second keeps the upper half that it had before: two times -1.
    assert_eq!(threads(&body, 3, &input), [303, u64::from(3u32.wrapping_sub(2)), 0]);
}

#[test]
fn barriers_wait_for_copies() {
    let body = format!(
        ".shared .align 8 .b64 bar; .shared .align 16 .b8 s[64]; mov.u32 %r1, s; mov.u32 %r2, bar;
         mbarrier.init.shared.b64 [%r2], 2; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 32;
         mbarrier.arrive.shared.b64 %rd1, [%r2]; cp.async.mbarrier.arrive.shared.b64 [%r2];
         cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];
         mbarrier.test_wait.shared.b64 %p1, [%r2], %rd1; selp.u32 %r3, 1, 0, %p1;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 32, [%r2];
         mbarrier.test_wait.parity.shared.b64 %p2, [%r2], 0; selp.u32 %r4, 2, 0, %p2;
         mbarrier.test_wait.parity.shared.b64 %p3, [%r2], 1; selp.u32 %r5, 4, 0, %p3;
         ld.shared.u32 %r6, [%r1+24]; add.u32 %r0, %r3, %r4; add.u32 %r0, %r0, %r5; mad.lo.u32 %r0, %r6, 10, %r0; {STORE}"
    );
    assert_eq!(threads(&body, 1, &[1, 2, 3, 4]), [42]);
}

#[test]
fn bulk_copies_reduce() {
    let body = "setp.ne.u32 %p1, %t, 0; @%p1 exit; .shared .align 16 .u32 s[4]; mov.u32 %r1, s; st.shared.u32 [s], 5; st.shared.u32 [s+4], -1;
        st.shared.u32 [s+8], 0; st.shared.u32 [s+12], 9;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%r1], 16; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0; cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%out], [%r1], 16;";
    assert_eq!(threads(body, 2, &[]), [0xffff_ffff_0000_0005, 0x0000_0009_0000_0000]);
}

#[test]
fn bulk_copies_are_aligned() {
    let copy = |at: u32, size: u32| {
        format!(
            ".shared .align 16 .b8 s[64]; mov.u32 %r1, s;
             cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1+{at}], {size};"
        )
    };
    for (at, size) in [(8, 16), (0, 8)] {
        let fault = try_threads(&copy(at, size), 8, &[]).expect_err("misaligned");
        assert_eq!(fault.kind, FaultKind::MisalignedAddress);
    }
    assert_eq!(try_threads(&copy(48, 32), 8, &[]).expect_err("outside").kind, FaultKind::IllegalAddress);
}

/// Two dimensions with a stride, a part of the box outside of the tensor, and both directions.
#[test]
fn boxes_of_tensors_are_copied() {
    #[repr(align(128))]
    struct Aligned<T>(T);
    // 6 columns of 4 bytes in rows of 32 bytes, 3 rows.
    let mut tensor = Aligned([0u32; 24]);
    for row in 0..3 {
        for column in 0..6 {
            tensor.0[row * 8 + column] = (row * 10 + column + 1) as u32;
        }
    }
    let mut copied = Aligned([u32::MAX; 24]);
    let map = |address: u64| TensorMap {
        address,
        element: 2,
        rounds: false,
        dimensions: 2,
        swizzle: Swizzle::None,
        fill_nan: false,
        sizes: [6, 3, 1, 1, 1],
        strides: [32, 0, 0, 0],
        extent: [4, 2, 1, 1, 1],
        steps: [1; 5],
    };
    let mut maps = Aligned([[0u8; 128]; 2]);
    maps.0[0] = map(tensor.0.as_mut_ptr().expose_provenance() as u64).to_bytes();
    maps.0[1] = map(copied.0.as_mut_ptr().expose_provenance() as u64).to_bytes();
    let body = ".shared .align 128 .b8 s[128]; .shared .align 8 .b64 bar; mov.u32 %r1, s; mov.u32 %r2, bar;
        mbarrier.init.shared.b64 [%r2], 1; mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], 32; mov.u32 %r3, 4; mov.u32 %r4, 2;
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%in, {%r3, %r4}], [%r2];
        WAIT: mbarrier.try_wait.shared.b64 %p1, [%r2], %rd1; @!%p1 bra WAIT;
        mov.u32 %r5, 4; mov.u32 %r6, 2;
        cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%in+128, {%r5, %r6}], [%r1];
        ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [s]; ld.shared.u32 %r14, [s+16];
        st.global.v4.u32 [%out], {%r10, %r11, %r12, %r13}; st.global.u32 [%out+16], %r14;";
    let image = image(&module(body));
    let mut out = Aligned([u64::MAX; 3]);
    let addresses = [out.0.as_mut_ptr().expose_provenance() as u64, maps.0.as_mut_ptr().expose_provenance() as u64];
    run(&image, "k", &shape([1; 3], [1, 1, 1], 0, &addresses)).expect("no fault");
    // Columns 4 to 7 of row 2, of which two are there; row 3 is not.
    assert_eq!(out.0, [26 << 32 | 25, 0, 0xffff_ffff_0000_0000]);
    // The same columns, with the two that share 16 bytes with the last one; row 3 is left out.
    let mut expected = [u32::MAX; 24];
    expected[20..24].copy_from_slice(&[25, 26, 0, 0]);
    assert_eq!(copied.0, expected);
    // A box cannot begin within 16 bytes, and one that is stored not before the tensor.
    for (column, load) in [(3, true), (-1, true), (-4, true), (3, false), (-4, false)] {
        let copy = if load {
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%in, {%r3, %r4}], [%r2];"
        } else {
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%in+128, {%r3, %r4}], [%r1];"
        };
        let body = format!(
            ".shared .align 128 .b8 s[128]; .shared .align 8 .b64 bar; mov.u32 %r1, s; mov.u32 %r2, bar;
             mbarrier.init.shared.b64 [%r2], 1; mov.u32 %r3, {column}; mov.u32 %r4, 0; {copy}"
        );
        let ended = run(&super::image(&module(&body)), "k", &shape([1; 3], [1, 1, 1], 0, &addresses));
        let fault = ended.err().map(|fault| fault.kind);
        let is_legal = (column, load) == (-4, true);
        assert_eq!(fault, (!is_legal).then_some(FaultKind::IllegalInstruction), "{body}");
    }
}
