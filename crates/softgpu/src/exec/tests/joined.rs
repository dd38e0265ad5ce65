//! Products and sums that a GPU's compiler makes one instruction of.

use super::*;
use crate::exec::op::Op;

/// A product of these is no `f32`: the rest of it is what one rounding too many loses.
const A: f32 = 1.0 + f32::EPSILON;
const B: f32 = 1.0 - f32::EPSILON;

#[test]
fn a_product_is_joined_with_its_sum_and_rounded_once() {
    let rest = A.mul_add(B, -1.0);
    assert!(rest != 0.0 && A * B - 1.0 == 0.0);
    let of = |sum: &str| float(&format!("mul.f32 %f1, %f10, %f11; {sum}"), &[A, B, 1.0]);
    assert_eq!(of("sub.f32 %f0, %f1, %f12;"), rest);
    assert_eq!(of("sub.f32 %f0, %f12, %f1;"), -rest);
    assert_eq!(of("neg.f32 %f2, %f1; add.f32 %f0, %f12, %f2;"), -rest);
    assert_eq!(of("neg.f32 %f2, %f1; sub.f32 %f0, %f2, %f12;"), -A.mul_add(B, 1.0));
    assert_eq!(of("add.rn.f32 %f2, %f1, %f12; sub.rn.f32 %f0, %f2, 0f40000000;"), 0.0);
    // The first of two.
    assert_eq!(of("mul.f32 %f2, %f12, %f12; sub.f32 %f0, %f1, %f2;"), rest);
    assert_eq!(of("mul.f32 %f2, %f12, %f12; sub.f32 %f0, %f2, %f1;"), 0.0);
}

#[test]
fn nothing_is_joined_for_a_debugger() {
    let body = "mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f2; st.global.f32 [%out], %f4;";
    for (target, is_joined) in [(".target sm_90", true), (".target sm_90, debug", false)] {
        let image = image(&module(body).replace(".target sm_90", target));
        let code = &image.kernels["k"].program.functions[0].code;
        assert_eq!(code.iter().any(|it| matches!(it.op, Op::Fma { .. })), is_joined, "{target}");
    }
}

#[test]
fn flushed_and_saturated_sums_are_joined() {
    let tiny = f32::MIN_POSITIVE / 2.0;
    // The product would be flushed by itself.
    let of = |kind: &str, c: f32| {
        let body = format!("mul{kind}.f32 %f1, %f10, %f11; sub{kind}.f32 %f0, %f1, %f12;");
        float(&body, &[f32::MIN_POSITIVE, 0.5, c])
    };
    assert_eq!(of("", -f32::MIN_POSITIVE), f32::MIN_POSITIVE + tiny);
    assert_eq!(of(".ftz", -f32::MIN_POSITIVE), f32::MIN_POSITIVE + tiny);
    assert_eq!(of(".ftz", tiny), 0.0);
    assert_eq!(float("mul.f32 %f1, %f10, %f11; sub.sat.f32 %f0, %f12, %f1;", &[-3.0, 1.0, 1.0]), 1.0);
}

#[test]
fn a_nan_that_is_passed_on_keeps_its_sign() {
    let nan = 0x7ff8_0000_0000_1234;
    let one = 1f64.to_bits();
    let of = |sum: &str, c: u64| {
        let moves = "mov.b64 %fd1, %rd10; mov.b64 %fd2, %rd11; mov.b64 %fd3, %rd12; mul.f64 %fd4, %fd1, %fd2;";
        wide(&format!("{moves} {sum} mov.b64 %rd0, %fd5;"), &[one, one, c])
    };
    assert_eq!(of("sub.f64 %fd5, %fd4, %fd3;", nan), nan);
    assert_eq!(of("sub.f64 %fd5, %fd3, %fd4;", nan), nan);
    assert_eq!(f64::from_bits(of("sub.f64 %fd5, %fd3, %fd4;", 3f64.to_bits())), 2.0);
}

#[test]
fn halves_are_joined() {
    // 1.5 + 2^-10 squared, and less the nearest half.
    let body =
        "mov.b32 {%rs1, %rs2}, %r10; mul.f16 %rs3, %rs1, %rs1; sub.f16 %rs4, %rs3, %rs2; mov.b32 %r0, {%rs4, %rs2};";
    let (factor, square, rest) = (0x3e01, 0x4082, 0x93fe);
    assert_eq!(narrow(body, &[square << 16 | factor]) & 0xffff, rest);
}

#[test]
fn a_factor_may_be_written_to_before_the_sum() {
    let body = "mul.f32 %f10, %f10, %f11; mov.f32 %f11, %f12; sub.f32 %f0, %f10, %f12;";
    assert_eq!(float(body, &[A, B, 1.0]), A.mul_add(B, -1.0));
}

#[test]
fn a_sum_keeps_its_predicate() {
    let body = "mov.b32 %f1, %r10; mov.b32 %f2, %r11; mov.f32 %f3, 0f40A00000; setp.eq.u32 %p1, %r12, 0;
        mul.f32 %f4, %f1, %f2; @%p1 sub.f32 %f3, %f4, 0f3F800000; mov.b32 %r0, %f3;";
    let of = |condition: u32| f32::from_bits(narrow(body, &[A.to_bits(), B.to_bits(), condition]));
    assert_eq!((of(0), of(1)), (A.mul_add(B, -1.0), 5.0));
}

#[test]
fn places_in_the_code_stay_right_where_a_product_is_left_out() {
    // A loop over what is joined, and a branch to behind it.
    let body = "mov.u32 %r1, 0; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f3F800000;
        again: mul.f32 %f3, %f2, %f2; add.f32 %f1, %f1, %f3; add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, 5; @%p1 bra again; setp.lt.f32 %p2, %f1, 0f40000000; @%p2 bra behind;
        add.f32 %f1, %f1, %f2; behind: cvt.rzi.u32.f32 %r0, %f1;";
    assert_eq!(narrow(body, &[]), 6);
    let body = "mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f2;\nmov.b64 %rd1, 0;\nst.global.f32 [%rd1], %f4;";
    let source = module(body);
    let line = source.lines().position(|line| line.starts_with("st.global.f32")).expect("it is there") + 1;
    let image = image(&source);
    let code = &image.kernels["k"].program.functions[0];
    let at = (0u32..).zip(&code.code).find(|(_, it)| matches!(it.op, Op::Store(_))).expect("a store").0;
    assert_eq!(code.text(at), ("st.global.f32 [%rd1], %f4", u32::try_from(line).expect("few lines")));
    assert!(code.code.iter().any(|it| matches!(it.op, Op::Fma { .. })));
    assert!(!code.code.iter().any(|it| matches!(it.op, Op::Float2 { .. })));
}

#[test]
fn a_quotient_is_joined_by_its_last_step() {
    let (a, b) = (1.0f32, 3.0f32);
    let reciprocal = float("rcp.approx.f32 %f0, %f10;", &[b]);
    for division in ["div.full", "div.approx", "div.full.ftz"] {
        let ftz = if division.ends_with("ftz") { ".ftz" } else { "" };
        let body = format!("{division}.f32 %f1, %f10, %f11; sub{ftz}.f32 %f0, %f1, %f12;");
        assert_eq!(float(&body, &[5.0 * a, b, 5.0 / 3.0]), reciprocal.mul_add(5.0 * a, -5.0 / 3.0), "{division}");
    }
}
