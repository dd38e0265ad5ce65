//! `cvt`, comparisons and selections.

use super::*;

#[test]
fn integers_change_their_size() {
    assert_eq!(wide("cvt.s64.s32 %rd0, %r1;", &[]), 0);
    assert_eq!(wide("cvt.u32.u64 %r1, %rd10; cvt.s64.s32 %rd0, %r1;", &[0xffff_fff0]), 0xffff_ffff_ffff_fff0);
    assert_eq!(wide("cvt.u32.u64 %r1, %rd10; cvt.u64.u32 %rd0, %r1;", &[0xffff_fff0]), 0xffff_fff0);
    assert_eq!(narrow("cvt.s32.s8 %r0, %r10;", &[0x1ff]), u32::MAX);
    assert_eq!(narrow("cvt.u32.u8 %r0, %r10;", &[0x1ff]), 0xff);
    assert_eq!(narrow("cvt.sat.u8.s32 %r0, %r10;", &[300]), 255);
    assert_eq!(narrow("cvt.sat.u8.s32 %r0, %r10;", &[-3i32 as u32]), 0);
    assert_eq!(narrow("cvt.sat.s32.s64 %r0, %rd1;", &[]), 0);
    assert_eq!(narrow("cvt.s16.s32 %rs1, %r10; cvt.s32.s16 %r0, %rs1;", &[0x8000]), 0xffff_8000);
}

#[test]
fn numbers_become_integers() {
    let convert = |conversion: &str, value: f32| {
        narrow(&format!("mov.b32 %f10, %r10; cvt.{conversion} %r0, %f10;"), &[value.to_bits()])
    };
    assert_eq!(convert("rni.s32.f32", 2.5), 2);
    assert_eq!(convert("rzi.s32.f32", -2.9), -2i32 as u32);
    assert_eq!(convert("rmi.s32.f32", -2.1), -3i32 as u32);
    assert_eq!(convert("rpi.s32.f32", 2.1), 3);
    assert_eq!(convert("rzi.s32.f32", 1e20), i32::MAX as u32);
    assert_eq!(convert("rzi.s32.f32", -1e20), i32::MIN as u32);
    assert_eq!(convert("rzi.u32.f32", -5.0), 0);
    assert_eq!(convert("rzi.u32.f32", 1e20), u32::MAX);
    assert_eq!(convert("rzi.u32.f32", f32::NAN), 0);
    assert_eq!(convert("rzi.s32.f32", f32::NAN), 0);
    assert_eq!(convert("rzi.u8.f32", 300.0), 255);
    let nan = f64::NAN.to_bits();
    assert_eq!(wide("mov.b64 %fd1, %rd10; cvt.rzi.s64.f64 %rd0, %fd1;", &[nan]), 1 << 63);
    assert_eq!(wide("mov.b64 %fd1, %rd10; cvt.rzi.u64.f64 %rd0, %fd1;", &[3e15f64.to_bits()]), 3_000_000_000_000_000);
    assert_eq!(wide("mov.b64 %fd1, %rd10; cvt.rzi.s64.f64 %rd0, %fd1;", &[(-1e30f64).to_bits()]), 1 << 63);
}

#[test]
fn integers_become_numbers() {
    assert_eq!(float("mov.b32 %r1, %f10; cvt.rn.f32.s32 %f0, %r1;", &[f32::from_bits(-7i32 as u32)]), -7.0);
    assert_eq!(float("cvt.rn.f32.u32 %f0, 4294967295;", &[]), 4_294_967_296.0);
    assert_eq!(float("cvt.rz.f32.u32 %f0, 4294967295;", &[]), 4_294_967_040.0);
    assert_eq!(float("cvt.rm.f32.s32 %f0, -16777217;", &[]), -16_777_218.0);
    assert_eq!(
        wide("cvt.rn.f64.u64 %fd0, %rd10; mov.b64 %rd0, %fd0;", &[u64::MAX]),
        1.844_674_407_370_955_2e19f64.to_bits()
    );
    assert_eq!(wide("cvt.rn.f64.s32 %fd0, -3; mov.b64 %rd0, %fd0;", &[]), (-3f64).to_bits());
}

#[test]
fn numbers_change_their_format() {
    assert_eq!(
        wide(
            "mov.b64 %fd1, %rd10; cvt.rn.f32.f64 %f1, %fd1; cvt.f64.f32 %fd0, %f1; mov.b64 %rd0, %fd0;",
            &[0.1f64.to_bits()]
        ),
        f64::from(0.1f32).to_bits()
    );
    assert_eq!(float("cvt.rni.f32.f32 %f0, %f10;", &[2.5]), 2.0);
    assert_eq!(float("cvt.rmi.f32.f32 %f0, %f10;", &[-2.5]), -3.0);
    assert_eq!(float("cvt.sat.f32.f32 %f0, %f10;", &[1.5]), 1.0);
    assert_eq!(float("cvt.rn.f16.f32 %rs1, %f10; cvt.f32.f16 %f0, %rs1;", &[0.1]), 0.099_975_586);
    assert_eq!(float("cvt.rn.bf16.f32 %rs1, %f10; cvt.f32.bf16 %f0, %rs1;", &[0.1]), 0.100_097_656);
    assert_eq!(narrow("mov.b32 %f10, %r10; cvt.rn.f16x2.f32 %r0, %f10, 1.0;", &[2f32.to_bits()]), 0x4000_3c00);
    assert_eq!(narrow("mov.b32 %f10, %r10; cvt.rna.tf32.f32 %r0, %f10;", &[0x3f80_1000]), 0x3f80_2000);
    assert_eq!(
        wide("mov.b64 %fd1, %rd10; cvt.rzi.f64.f64 %fd0, %fd1; mov.b64 %rd0, %fd0;", &[2.9f64.to_bits()]),
        2f64.to_bits()
    );
}

#[test]
fn zeros_and_nans_survive() {
    assert_eq!(float("cvt.rpi.f32.f32 %f0, %f10;", &[0.0]).to_bits(), 0);
    assert_eq!(float("cvt.rmi.f32.f32 %f0, %f10;", &[-0.0]).to_bits(), 1 << 31);
    let to_single = "mov.b64 %fd1, %rd10; cvt.rn.f32.f64 %f1, %fd1; mov.b32 %r1, %f1; cvt.u64.u32 %rd0, %r1;";
    assert_eq!(wide(to_single, &[0xfff8_0000_2000_0123]), 0xffc0_0001);
    let to_double = "cvt.u32.u64 %r1, %rd10; mov.b32 %f1, %r1; cvt.f64.f32 %fd0, %f1; mov.b64 %rd0, %fd0;";
    assert_eq!(wide(to_double, &[0xffc0_0001]), 0xfff8_0000_2000_0000);
    assert_eq!(narrow("mov.b64 %fd1, 0d7FF8000000000000; cvt.rzi.s16.f64 %r0, %fd1;", &[]), 0xffff_8000);
}

#[test]
fn comparisons_of_integers() {
    let holds = |comparison: &str, a: u32, b: u32| {
        narrow(&format!("setp.{comparison} %p1, %r10, %r11; selp.u32 %r0, 1, 0, %p1;"), &[a, b]) != 0
    };
    let minus_one = u32::MAX;
    assert!(holds("lt.s32", minus_one, 1) && !holds("lt.u32", minus_one, 1));
    assert!(holds("hi.u32", minus_one, 1) && holds("ls.u32", 1, 1) && holds("ge.s32", 1, minus_one));
    assert!(holds("eq.b32", 5, 5) && holds("ne.s32", 5, 6) && !holds("ne.u32", 5, 5));
}

#[test]
fn comparisons_of_numbers() {
    let holds = |comparison: &str, a: f32, b: f32| {
        let body = format!(
            "mov.b32 %f1, %r10; mov.b32 %f2, %r11; setp.{comparison}.f32 %p1, %f1, %f2; selp.u32 %r0, 1, 0, %p1;"
        );
        narrow(&body, &[a.to_bits(), b.to_bits()]) != 0
    };
    let nan = f32::NAN;
    for comparison in ["eq", "ne", "lt", "le", "gt", "ge"] {
        assert!(!holds(comparison, nan, 1.0), "{comparison}");
        assert!(holds(&format!("{comparison}u"), nan, 1.0), "{comparison}");
        assert!(holds(&format!("{comparison}u"), 1.0, nan), "{comparison}");
    }
    assert!(holds("ltu", 1.0, 2.0) && !holds("ltu", 2.0, 1.0) && holds("equ", 1.0, 1.0) && !holds("equ", 1.0, 2.0));
    assert!(holds("num", 1.0, 2.0) && !holds("num", 1.0, nan) && holds("nan", nan, 1.0) && !holds("nan", 1.0, 1.0));
    assert!(holds("eq", 0.0, -0.0) && holds("eq.ftz", 1e-40, 0.0) && !holds("eq", 1e-40, 0.0));
    assert!(holds("neu", 1.0, 2.0) && !holds("neu", 1.0, 1.0));
}

#[test]
fn predicates_are_combined() {
    let body = "setp.lt.u32 %p1, %r10, 5; setp.gt.and.u32 %p2|%p3, %r10, 1, %p1; selp.u32 %r1, 1, 0, %p2; \
                selp.u32 %r2, 2, 0, %p3; or.b32 %r0, %r1, %r2;";
    assert_eq!(narrow(body, &[3]), 1);
    assert_eq!(narrow(body, &[0]), 2);
    assert_eq!(narrow(body, &[9]), 0);
    let body = "setp.eq.u32 %p1, %r10, 1; not.pred %p2, %p1; xor.pred %p3, %p1, %p2; and.pred %p4, %p3, !%p1; \
                mov.pred %p5, %p4; @%p5 mov.u32 %r0, 7; @!%p5 mov.u32 %r0, 8;";
    assert_eq!(narrow(body, &[1]), 8);
    assert_eq!(narrow(body, &[2]), 7);
    assert_eq!(narrow("setp.lt.or.s32 %p1, %r10, 0, !%p2; selp.u32 %r0, 1, 0, %p1;", &[1]), 1);
}

#[test]
fn values_are_chosen() {
    assert_eq!(narrow("set.lt.u32.s32 %r0, %r10, 0;", &[-1i32 as u32]), u32::MAX);
    assert_eq!(narrow("set.lt.f32.s32 %f0, %r10, 0; mov.b32 %r0, %f0;", &[-1i32 as u32]), 1f32.to_bits());
    assert_eq!(narrow("slct.u32.s32 %r0, 10, 20, %r10;", &[-1i32 as u32]), 20);
    assert_eq!(wide("setp.ne.u64 %p1, %rd10, 0; selp.b64 %rd0, %rd10, %rd11, %p1;", &[0, 9]), 9);
}
