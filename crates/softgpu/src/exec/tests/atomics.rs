//! `atom` and `red`.

use super::*;

#[test]
fn threads_add_up() {
    let body = "atom.global.add.u64 %rd1, [%in], 3; red.global.add.u32 [%in+8], %t; \
                atom.add.f32 %f1, [%in+16], 0f3F000000; atom.global.add.f64 %fd1, [%in+24], 0d3FF0000000000000; \
                atom.global.gpu.relaxed.max.s32 %r1, [%in+32], %t; bar.sync 0; \
                ld.global.u64 %rd2, [%in]; ld.global.u64 %rd3, [%in+8]; ld.global.f32 %f2, [%in+16]; \
                ld.global.f64 %fd2, [%in+24]; ld.global.u32 %r2, [%in+32]; \
                cvt.rzi.u64.f32 %rd4, %f2; cvt.rzi.u64.f64 %rd5, %fd2; cvt.u64.u32 %rd6, %r2; \
                add.u64 %rd2, %rd2, %rd3; add.u64 %rd2, %rd2, %rd4; add.u64 %rd2, %rd2, %rd5; add.u64 %rd2, %rd2, %rd6;\
                st.global.u64 [%out], %rd2;";
    let sum = 300 + 99 * 50 + 50 + 100 + 99;
    assert_eq!(threads(body, 100, &[0, 0, 0, 0, (-5i64) as u64 & 0xffff_ffff])[0], sum);
}

#[test]
fn operations_return_what_was_there() {
    let atom = |op: &str, old: u32, operands: &str| {
        let body = format!(
            "ld.global.u32 %r1, [%in]; atom.global.{op} %r0, [%in], {operands}; ld.global.u32 %r2, [%in]; \
             mov.b64 %rd0, {{%r0, %r2}};"
        );
        let both = wide(&body, &[old.into()]);
        (super::super::lanes::low(both), super::super::lanes::low(both >> 32))
    };
    assert_eq!(atom("min.u32", 5, "3"), (5, 3));
    assert_eq!(atom("min.s32", 5, "-3"), (5, -3i32 as u32));
    assert_eq!(atom("and.b32", 6, "3"), (6, 2));
    assert_eq!(atom("or.b32", 6, "3"), (6, 7));
    assert_eq!(atom("xor.b32", 6, "3"), (6, 5));
    assert_eq!(atom("exch.b32", 6, "3"), (6, 3));
    assert_eq!(atom("cas.b32", 6, "6, 9"), (6, 9));
    assert_eq!(atom("cas.b32", 6, "7, 9"), (6, 6));
    assert_eq!(atom("inc.u32", 6, "6"), (6, 0));
    assert_eq!(atom("inc.u32", 5, "6"), (5, 6));
    assert_eq!(atom("dec.u32", 0, "6"), (0, 6));
    assert_eq!(atom("dec.u32", 9, "6"), (9, 6));
    assert_eq!(atom("dec.u32", 3, "6"), (3, 2));
    assert_eq!(atom("add.noftz.f16x2", 0x3c00_3c00, "0x40003c00"), (0x3c00_3c00, 0x4200_4000));
}

#[test]
fn shared_memory_has_them_too() {
    let body = ".shared .align 4 .u32 n; .shared .align 8 .u64 m; .shared .align 4 .f32 f;
        setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [n], 0; bar.sync 0;
        atom.shared.add.u32 %r1, [n], 2; atom.shared.cas.b64 %rd1, [m], 0, 5; red.shared.add.f32 [f], 0f3F800000;
        bar.sync 0; ld.shared.u32 %r2, [n]; cvt.u64.u32 %rd2, %r2; ld.shared.u64 %rd3, [m]; add.u64 %rd2, %rd2, %rd3;
        ld.shared.f32 %f1, [f]; cvt.rzi.u64.f32 %rd4, %f1; add.u64 %rd2, %rd2, %rd4;
        st.global.u64 [%out], %rd2;";
    assert_eq!(threads(body, 64, &[])[0], 128 + 5 + 64);
}

#[test]
fn global_sums_know_no_subnormal_numbers() {
    let add = "atom.global.add.f32 %f1, [%in], 0f00000001; ld.global.u32 %r0, [%in];";
    assert_eq!(narrow(add, &[1]), 0);
    let add = ".shared .f32 s; st.shared.u32 [s], 1; atom.shared.add.f32 %f1, [s], 0f00000001; ld.shared.u32 %r0, [s];";
    assert_eq!(narrow(add, &[]), 2);
}

#[test]
fn blocks_on_several_threads_add_up() {
    let source = module("atom.global.add.u32 %r1, [%in], 1; atom.global.add.f32 %f1, [%in+4], 0f3F800000;");
    let image = image(&source);
    let kernel = &image.kernels["k"];
    let mut counters = [0u32; 2];
    let shape = shape([64, 1, 1], [256, 1, 1], 0, &[0, counters.as_mut_ptr().expose_provenance() as u64]);
    std::thread::scope(|scope| {
        for first in 0..4 {
            let shape = &shape;
            scope.spawn(move || {
                for index in (first..64).step_by(4) {
                    let mut block = block(kernel, shape, [index, 0, 0]);
                    assert_eq!(block.run(SLICE), Progress::Finished);
                }
            });
        }
    });
    assert_eq!(counters, [64 * 256, (64.0f32 * 256.0).to_bits()]);
}

/// All 128 bits are compared, and stored where they are the same.
#[test]
fn wide_ones_take_both_halves() {
    let body = ".reg .b128 %q<8>; mov.u64 %rd1, 1; mov.u64 %rd2, 2; mov.u64 %rd3, 3; mov.u64 %rd4, 4;
         mov.b128 %q1, {%rd1, %rd2}; mov.b128 %q2, {%rd1, %rd3}; mov.b128 %q3, {%rd3, %rd4};
         atom.global.cas.b128 %q4, [place], %q2, %q3; mov.b128 {%rd11, %rd12}, %q4;
         atom.global.cas.b128 %q5, [place], %q1, %q3; mov.b128 {%rd13, %rd14}, %q5;
         atom.global.exch.b128 %q6, [place], %q2; mov.b128 {%rd15, %rd16}, %q6;
         ld.global.v2.u64 {%rd17, %rd18}, [place];
         st.global.u64 [%out], %rd11; st.global.u64 [%out+8], %rd12; st.global.u64 [%out+16], %rd13; st.global.u64 [%out+24], %rd14;
         st.global.u64 [%out+32], %rd15; st.global.u64 [%out+40], %rd16; st.global.u64 [%out+48], %rd17; st.global.u64 [%out+56], %rd18;";
    let source =
        module(body).replace(".visible .entry", ".visible .global .align 16 .u64 place[2] = {1, 2};\n.visible .entry");
    let mut out = [0_u64; 8];
    let addresses = [out.as_mut_ptr().expose_provenance() as u64, 0];
    run(&image(&source), "k", &shape([1; 3], [1; 3], 0, &addresses)).unwrap();
    assert_eq!(out, [1, 2, 1, 2, 3, 4, 1, 3]);
}
