//! Loads, stores and addresses.

use super::*;

#[test]
fn elements_are_extended() {
    let load = |ty: &str| wide(&format!("ld.global.{ty} %rd0, [%in];"), &[0xffff_ffff_8182_8384]);
    assert_eq!(load("u8"), 0x84);
    assert_eq!(load("s8"), 0xffff_ffff_ffff_ff84);
    assert_eq!(load("b16"), 0x8384);
    assert_eq!(load("s16"), 0xffff_ffff_ffff_8384);
    assert_eq!(load("s32"), 0xffff_ffff_8182_8384);
    assert_eq!(load("u32"), 0x8182_8384);
    assert_eq!(narrow("ld.global.s8 %rs1, [%in]; cvt.s32.s16 %r0, %rs1;", &[0xf0]), 0xffff_fff0);
    assert_eq!(wide("mov.u64 %rd1, 0x1122334455667788; st.global.u8 [%out+8], %rd1; mov.u64 %rd0, 1;", &[0]), 1);
}

#[test]
fn vectors_are_moved_at_once() {
    let body = "ld.global.v4.u32 {%r1, %r2, _, %r4}, [%in]; st.global.v2.u32 [%out], {%r4, %r2};";
    let mut out = threads(body, 1, &[1 | 2 << 32, 3 | 4 << 32]);
    // The input's alignment is not the test's to choose.
    out.truncate(1);
    assert_eq!(out, [4 | 2 << 32]);
}

#[test]
fn every_space_has_generic_addresses() {
    let body = "
        .shared .align 8 .b64 s[4]; .local .align 8 .b64 l[4];
        mov.u64 %rd1, s; cvta.shared.u64 %rd2, %rd1; st.u64 [%rd2+8], 11;
        ld.shared.u64 %rd3, [s+8];
        mov.u64 %rd4, l; cvta.local.u64 %rd5, %rd4; st.u64 [%rd5+16], 22; ld.local.u64 %rd6, [l+16];
        cvta.to.shared.u64 %rd7, %rd2; st.shared.u64 [%rd7], 33; ld.u64 %rd8, [%rd2];
        isspacep.shared %p1, %rd2; isspacep.local %p2, %rd5; isspacep.global %p3, %out; isspacep.shared %p4, %out;
        selp.u64 %rd11, 1, 0, %p1; selp.u64 %rd12, 2, 0, %p2; selp.u64 %rd13, 4, 0, %p3; selp.u64 %rd14, 8, 0, %p4;
        add.u64 %rd0, %rd3, %rd6; add.u64 %rd0, %rd0, %rd8;
        shl.b64 %rd0, %rd0, 8; or.b64 %rd0, %rd0, %rd11; or.b64 %rd0, %rd0, %rd12; or.b64 %rd0, %rd0, %rd13;
        or.b64 %rd0, %rd0, %rd14;";
    assert_eq!(wide(body, &[]), 66 << 8 | 7);
}

#[test]
fn lanes_mix_spaces_in_one_access() {
    let body = "
        .shared .align 8 .b64 s[64];
        mul.wide.u32 %rd1, %t, 8; mov.u64 %rd2, s; cvta.shared.u64 %rd2, %rd2; add.u64 %rd3, %rd2, %rd1;
        add.u64 %rd4, %out, %rd1; and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0;
        selp.u64 %rd5, %rd3, %rd4, %p1; cvt.u64.u32 %rd6, %t; st.u64 [%rd5], %rd6; ld.u64 %rd7, [%rd5];
        add.u64 %rd7, %rd7, 100; st.global.u64 [%rd4], %rd7;";
    assert_eq!(threads(body, 32, &[]), (100..132).collect::<Vec<u64>>());
}

#[test]
fn local_memory_is_each_threads_own() {
    let body = "
        .local .align 4 .b8 a[64];
        mov.u32 %r1, 0;
    FILL:
        cvt.u64.u32 %rd1, %r1; mov.u64 %rd2, a; shl.b64 %rd1, %rd1, 2; add.u64 %rd3, %rd2, %rd1;
        mad.lo.u32 %r2, %r1, 100, %t; st.local.u32 [%rd3], %r2; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 16;
        @%p1 bra FILL;
        and.b32 %r3, %t, 15; mul.wide.u32 %rd4, %r3, 4; add.u64 %rd5, %rd2, %rd4; ld.local.u32 %r4, [%rd5];
        mul.wide.u32 %rd6, %t, 8; add.u64 %rd6, %out, %rd6; st.global.u32 [%rd6], %r4;";
    let expected: Vec<u64> = (0..40).map(|t| t % 16 * 100 + t).collect();
    assert_eq!(threads(body, 40, &[]), expected);
}

#[test]
fn special_registers() {
    let body = |register: &str, ty: &str| {
        format!(
            "mov.{ty} %{}, {register}; mul.wide.u32 %rd6, %t, 8; add.u64 %rd6, %out, %rd6; st.global.{ty} [%rd6], %{};",
            if ty == "u32" { "r1" } else { "rd1" },
            if ty == "u32" { "r1" } else { "rd1" },
        )
    };
    assert_eq!(threads(&body("%laneid", "u32"), 40, &[])[33], 1);
    assert_eq!(threads(&body("%warpid", "u32"), 40, &[])[33], 1);
    assert_eq!(threads(&body("%nwarpid", "u32"), 40, &[])[0], 2);
    assert_eq!(threads(&body("%lanemask_lt", "u32"), 40, &[])[5], 31);
    assert_eq!(threads(&body("%lanemask_ge", "u32"), 40, &[])[31], 1 << 31);
    assert_eq!(threads(&body("%smid", "u32"), 1, &[]), [3]);
    assert_eq!(threads(&body("%nsmid", "u32"), 1, &[]), [132]);
    assert_eq!(threads(&body("%gridid", "u64"), 1, &[]), [7]);
    assert_eq!(threads(&body("%ntid.x", "u32"), 9, &[])[8], 9);
    assert_eq!(threads(&body("%envreg3", "u32"), 1, &[]), [0]);
    assert!(threads(&body("%globaltimer", "u64"), 1, &[])[0] > 1_600_000_000_000_000_000);
    let clocks =
        "mov.u64 %rd1, %clock64; mov.u64 %rd2, %clock64; setp.ge.u64 %p1, %rd2, %rd1; selp.u64 %rd0, 1, 0, %p1;";
    assert_eq!(wide(clocks, &[]), 1);
}

#[test]
fn threads_know_where_they_are() {
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) {
        .reg .b32 %r<10>; .reg .b64 %rd<5>;
        ld.param.u64 %rd1, [out];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y;
        mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1;
        mul.wide.u32 %rd2, %r6, 4; add.u64 %rd3, %rd1, %rd2;
        shl.b32 %r2, %r2, 8; shl.b32 %r3, %r3, 16; or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3;
        st.global.u32 [%rd3], %r1; }";
    let image = image(source);
    let mut out = vec![0u32; 3 * 4 * 5];
    let shape = shape([1; 3], [3, 4, 5], 0, &[out.as_mut_ptr().expose_provenance() as u64]);
    run(&image, "k", &shape).unwrap();
    for (at, value) in (0u32..).zip(&out) {
        assert_eq!(*value, (at % 3) | ((at / 3 % 4) << 8) | ((at / 12) << 16));
    }
}
