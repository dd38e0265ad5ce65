//! Floating-point instructions.

use super::*;

const NAN: u32 = 0x7fff_ffff;

#[test]
fn arithmetic() {
    assert_eq!(float("add.f32 %f0, %f10, %f11;", &[1.5, 2.25]), 3.75);
    assert_eq!(float("sub.rn.f32 %f0, %f10, 1.0;", &[1.5]), 0.5);
    assert_eq!(float("mul.f32 %f0, %f10, 0f40000000;", &[1.5]), 3.0);
    assert_eq!(float("fma.rn.f32 %f0, %f10, %f11, %f12;", &[3.0, 4.0, -1.0]), 11.0);
    assert_eq!(float("mad.f32 %f0, %f10, %f11, %f12;", &[3.0, 4.0, -1.0]), 11.0);
    assert_eq!(float("div.rn.f32 %f0, %f10, %f11;", &[1.0, 3.0]), 1.0 / 3.0);
    assert_eq!(float("div.full.f32 %f0, %f10, %f11;", &[6.0, 3.0]), 2.0);
    assert_eq!(float("div.approx.f32 %f0, %f10, %f11;", &[6.0, 3.0]), 2.0);
    assert_eq!(float("div.approx.f32 %f0, %f10, %f11;", &[6.0, 1.2e38]), 0.0);
    assert_eq!(float("sqrt.rn.f32 %f0, %f10;", &[2.0]), 2f32.sqrt());
    assert_eq!(float("rcp.rn.f32 %f0, %f10;", &[3.0]), 1.0 / 3.0);
    assert_eq!(float("rsqrt.approx.f32 %f0, %f10;", &[4.0]), 0.5);
    assert_eq!(float("ex2.approx.f32 %f0, %f10;", &[3.0]), 8.0);
    assert_eq!(float("lg2.approx.f32 %f0, %f10;", &[8.0]), 3.0);
    assert_eq!(float("sin.approx.f32 %f0, %f10;", &[1.0]).to_bits(), 0x3f57_6aa3);
    assert_eq!(float("cos.approx.f32 %f0, %f10;", &[1.0]).to_bits(), 0x3f0a_5141);
    assert_eq!(float("tanh.approx.f32 %f0, %f10;", &[1.0]).to_bits(), 0x3f42_f848);
    assert_eq!(float("abs.f32 %f0, %f10;", &[-1.5]), 1.5);
    assert_eq!(float("neg.f32 %f0, %f10;", &[-1.5]), 1.5);
    assert_eq!(float("copysign.f32 %f0, %f10, %f11;", &[-1.0, 2.0]), -2.0);
}

#[test]
fn doubles() {
    let double = |body: &str, input: &[f64]| {
        let moves: String = (0..input.len()).map(|at| format!("mov.b64 %fd{}, %rd{};\n", at + 10, at + 10)).collect();
        let bits: Vec<u64> = input.iter().map(|value| value.to_bits()).collect();
        f64::from_bits(wide(&format!("{moves}{body}\nmov.b64 %rd0, %fd0;"), &bits))
    };
    assert_eq!(double("add.f64 %fd0, %fd10, 0d3FF0000000000000;", &[1.5]), 2.5);
    assert_eq!(double("fma.rn.f64 %fd0, %fd10, %fd11, %fd12;", &[0.1, 10.0, -1.0]), 0.1f64.mul_add(10.0, -1.0));
    assert_eq!(double("div.rn.f64 %fd0, %fd10, %fd11;", &[1.0, 3.0]), 1.0 / 3.0);
    assert_eq!(double("div.rp.f64 %fd0, %fd10, %fd11;", &[1.0, 3.0]), (1.0f64 / 3.0).next_up());
    assert_eq!(double("add.rm.f64 %fd0, %fd10, %fd11;", &[1.0, -1e-30]), 1f64.next_down());
    assert_eq!(double("mul.rp.f64 %fd0, %fd10, %fd11;", &[5e-324, 5e-324]), 5e-324);
    assert_eq!(double("sqrt.rz.f64 %fd0, %fd10;", &[2.0]), 2f64.sqrt().next_down());
    assert_eq!(double("max.f64 %fd0, %fd10, %fd11;", &[f64::NAN, 3.0]), 3.0);
    assert_eq!(double("neg.f64 %fd0, %fd10;", &[2.0]), -2.0);
    assert_eq!(double("rcp.rn.f64 %fd0, %fd10;", &[4.0]), 0.25);
    let approximate = double("rcp.approx.ftz.f64 %fd0, %fd10;", &[3.0]);
    assert!((approximate - 1.0 / 3.0).abs() < 1e-6 && approximate.to_bits() & 0xffff_ffff == 0);
}

#[test]
fn rounding_is_directed() {
    let third = 1f32 / 3.0;
    assert_eq!(float("div.rp.f32 %f0, %f10, %f11;", &[1.0, 3.0]), third);
    assert_eq!(float("div.rz.f32 %f0, %f10, %f11;", &[1.0, 3.0]), third.next_down());
    assert_eq!(float("add.rp.f32 %f0, %f10, %f11;", &[1.0, 1e-20]), 1f32.next_up());
    assert_eq!(float("add.rm.f32 %f0, %f10, %f11;", &[1.0, 1e-20]), 1.0);
    assert_eq!(float("fma.rz.f32 %f0, %f10, %f11, %f12;", &[1.0, 1.0, -1e-20]), 1f32.next_down());
    assert_eq!(float("mul.rm.f32 %f0, %f10, %f11;", &[3e38, 10.0]), f32::MAX);
}

#[test]
fn results_are_flushed_and_clamped() {
    let tiny = 1e-40;
    assert_eq!(float("add.ftz.f32 %f0, %f10, %f11;", &[tiny, 0.0]), 0.0);
    assert_eq!(float("mul.ftz.f32 %f0, %f10, %f11;", &[1e-30, 1e-10]), 0.0);
    assert_eq!(float("mul.f32 %f0, %f10, %f11;", &[1e-30, 1e-10]), 1e-30f32 * 1e-10);
    assert_eq!(float("fma.rn.ftz.f32 %f0, %f10, %f11, %f12;", &[-tiny, 1.0, 0.0]).to_bits(), 0);
    assert_eq!(float("add.sat.f32 %f0, %f10, %f11;", &[0.75, 0.5]), 1.0);
    assert_eq!(float("fma.rn.sat.f32 %f0, %f10, %f11, %f12;", &[-1.0, 1.0, 0.0]), 0.0);
    assert_eq!(float("add.sat.f32 %f0, %f10, %f11;", &[f32::NAN, 0.5]).to_bits(), 0);
}

#[test]
fn there_is_one_nan() {
    assert_eq!(float("add.f32 %f0, %f10, %f11;", &[f32::INFINITY, f32::NEG_INFINITY]).to_bits(), NAN);
    assert_eq!(float("mul.f32 %f0, %f10, %f11;", &[f32::from_bits(0xffc0_0001), 1.0]).to_bits(), NAN);
    assert_eq!(float("sqrt.rn.f32 %f0, %f10;", &[-1.0]).to_bits(), NAN);
    assert_eq!(float("min.f32 %f0, %f10, %f11;", &[f32::NAN, 2.0]), 2.0);
    assert_eq!(float("max.f32 %f0, %f10, %f11;", &[2.0, f32::NAN]), 2.0);
    assert_eq!(float("max.f32 %f0, %f10, %f11;", &[f32::NAN, f32::NAN]).to_bits(), NAN);
    assert_eq!(float("min.NaN.f32 %f0, %f10, %f11;", &[f32::NAN, 2.0]).to_bits(), NAN);
    assert_eq!(float("min.f32 %f0, %f10, %f11;", &[0.0, -0.0]).to_bits(), 1 << 31);
    assert_eq!(float("max.f32 %f0, %f10, %f11;", &[-0.0, 0.0]).to_bits(), 0);
    assert_eq!(float("max.f32 %f0, %f10, %f11;", &[-3.0, -2.0]), -2.0);
}

/// With two of them, the second one; with none, the one that the hardware makes.
#[test]
fn doubles_pass_nans_on() {
    let (one, two) = (0x7ff0_0000_0000_0001, 0xfff8_0000_0000_0002);
    for operation in ["add.rn", "add.rz", "mul.rn", "mul.rp"] {
        let body =
            format!("mov.b64 %fd1, %rd10; mov.b64 %fd2, %rd11; {operation}.f64 %fd0, %fd1, %fd2; mov.b64 %rd0, %fd0;");
        assert_eq!(wide(&body, &[one, two]), two, "{operation}");
        assert_eq!(wide(&body, &[one, 0]), one | 1 << 51, "{operation}");
    }
    let body = "mov.b64 %fd1, %rd10; sqrt.rn.f64 %fd0, %fd1; mov.b64 %rd0, %fd0;";
    assert_eq!(wide(body, &[(-1f64).to_bits()]), 0xfff8_0000_0000_0000);
}

#[test]
fn kinds_are_told_apart() {
    let is = |test: &str, value: f32| {
        narrow(&format!("mov.b32 %f10, %r10; testp.{test}.f32 %p1, %f10; selp.u32 %r0, 1, 0, %p1;"), &[value.to_bits()])
    };
    assert_eq!([is("finite", 1.0), is("finite", f32::INFINITY)], [1, 0]);
    assert_eq!([is("infinite", f32::NEG_INFINITY), is("notanumber", f32::NAN)], [1, 1]);
    assert_eq!([is("normal", 1.0), is("normal", 0.0), is("normal", 1e-40), is("subnormal", 1e-40)], [1, 1, 0, 1]);
    assert_eq!([is("number", f32::NAN), is("number", 0.0)], [0, 1]);
}

#[test]
fn halves_are_computed() {
    let one_and_two = 0x4000_3c00;
    assert_eq!(narrow("add.f16x2 %r0, %r10, %r10;", &[one_and_two]), 0x4400_4000);
    assert_eq!(narrow("fma.rn.f16x2 %r0, %r10, %r10, %r10;", &[one_and_two]), 0x4600_4000);
    assert_eq!(narrow("mul.bf16x2 %r0, %r10, %r10;", &[0x4000_3f80]), 0x4080_3f80);
    assert_eq!(narrow("cvt.u16.u32 %rs1, %r10; add.f16 %rs2, %rs1, %rs1; cvt.u32.u16 %r0, %rs2;", &[0x3c00]), 0x4000);
    assert_eq!(narrow("neg.f16x2 %r0, %r10;", &[one_and_two]), 0xc000_bc00);
    assert_eq!(narrow("max.f16x2 %r0, %r10, 0;", &[0x4000_bc00]), 0x4000_0000);
}
