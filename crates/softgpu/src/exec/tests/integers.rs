//! Integer instructions.

use super::*;

#[test]
fn sums_and_products() {
    assert_eq!(narrow("add.u32 %r0, %r10, %r11;", &[u32::MAX, 3]), 2);
    assert_eq!(narrow("sub.s32 %r0, %r10, 5;", &[3]), (-2i32).cast_unsigned());
    assert_eq!(narrow("add.sat.s32 %r0, %r10, %r11;", &[i32::MAX as u32, 3]), i32::MAX as u32);
    assert_eq!(narrow("mul.lo.s32 %r0, %r10, %r11;", &[7, -3i32 as u32]), -21i32 as u32);
    assert_eq!(narrow("mul.hi.u32 %r0, %r10, %r11;", &[1 << 31, 6]), 3);
    assert_eq!(narrow("mul.hi.s32 %r0, %r10, %r11;", &[-1i32 as u32, 6]), u32::MAX);
    assert_eq!(wide("mul.wide.s32 %rd0, -3, 5;", &[]), -15i64 as u64);
    assert_eq!(wide("cvt.u32.u64 %r1, %rd10; mul.wide.u32 %rd0, %r1, %r1;", &[u32::MAX.into()]), 0xffff_fffe_0000_0001);
    assert_eq!(wide("mad.wide.s32 %rd0, -3, 5, %rd10;", &[100]), 85);
    assert_eq!(wide("mul.hi.s64 %rd0, %rd10, %rd11;", &[-1i64 as u64, 2]), u64::MAX);
    assert_eq!(wide("mul.hi.u64 %rd0, %rd10, %rd11;", &[1 << 63, 6]), 3);
    assert_eq!(wide("mad.lo.s64 %rd0, %rd10, 3, %rd11;", &[5, -1i64 as u64]), 14);
    assert_eq!(narrow("mad.hi.s32 %r0, %r10, 4, 1;", &[1 << 30]), 2);
    assert_eq!(narrow("mul24.lo.s32 %r0, %r10, 3;", &[0x01ff_ffff]), -3i32 as u32);
    assert_eq!(narrow("mad24.lo.u32 %r0, %r10, 3, 1;", &[0x0100_0002]), 7);
    assert_eq!(narrow("sad.s32 %r0, %r10, %r11, 5;", &[3, -4i32 as u32]), 12);
    assert_eq!(narrow("mov.u16 %rs1, 60000; mul.wide.u16 %r0, %rs1, %rs1;", &[]), 3_600_000_000);
    assert_eq!(narrow("mov.u16 %rs1, 60000; add.u16 %rs2, %rs1, 10000; cvt.u32.u16 %r0, %rs2;", &[]), 4464);
    assert_eq!(narrow("mov.s16 %rs1, -5; div.s16 %rs2, %rs1, 2; cvt.s32.s16 %r0, %rs2;", &[]), -2i32 as u32);
}

#[test]
fn quotients() {
    assert_eq!(narrow("div.s32 %r0, %r10, %r11;", &[-7i32 as u32, 2]), -3i32 as u32);
    assert_eq!(narrow("rem.s32 %r0, %r10, %r11;", &[-7i32 as u32, 2]), -1i32 as u32);
    assert_eq!(narrow("div.u32 %r0, %r10, %r11;", &[u32::MAX, 2]), u32::MAX / 2);
    assert_eq!(narrow("div.s32 %r0, %r10, %r11;", &[i32::MIN as u32, u32::MAX]), i32::MIN as u32);
    assert_eq!(narrow("div.u32 %r0, %r10, %r11;", &[5, 0]), u32::MAX);
    assert_eq!(wide("rem.u64 %rd0, %rd10, %rd11;", &[1 << 40, 1000]), (1 << 40) % 1000);
}

#[test]
fn order_and_sign() {
    assert_eq!(narrow("min.s32 %r0, %r10, %r11;", &[-1i32 as u32, 1]), u32::MAX);
    assert_eq!(narrow("min.u32 %r0, %r10, %r11;", &[-1i32 as u32, 1]), 1);
    assert_eq!(wide("max.s64 %rd0, %rd10, %rd11;", &[-1i64 as u64, 1]), 1);
    assert_eq!(narrow("abs.s32 %r0, %r10;", &[-9i32 as u32]), 9);
    assert_eq!(narrow("neg.s32 %r0, %r10;", &[9]), -9i32 as u32);
    assert_eq!(wide("abs.s64 %rd0, %rd10;", &[i64::MIN as u64]), i64::MIN as u64);
}

#[test]
fn bits() {
    assert_eq!(narrow("and.b32 %r1, %r10, 0xff; or.b32 %r2, %r1, 0x100; xor.b32 %r0, %r2, 1;", &[0x1234]), 0x135);
    assert_eq!(narrow("not.b32 %r0, %r10;", &[0]), u32::MAX);
    assert_eq!(narrow("cnot.b32 %r0, %r10;", &[0]), 1);
    assert_eq!(narrow("shl.b32 %r0, %r10, 32;", &[1]), 0);
    assert_eq!(narrow("shr.s32 %r0, %r10, 40;", &[1 << 31]), u32::MAX);
    assert_eq!(narrow("shr.u32 %r0, %r10, 4;", &[0xf0]), 0xf);
    assert_eq!(wide("shl.b64 %rd0, %rd10, 40;", &[3]), 3 << 40);
    assert_eq!(wide("shr.s64 %rd0, %rd10, 63;", &[1 << 63]), u64::MAX);
    assert_eq!(narrow("popc.b32 %r0, %r10;", &[0xf0f0]), 8);
    assert_eq!(narrow("clz.b32 %r0, %r10;", &[1]), 31);
    assert_eq!(wide("popc.b64 %r0, %rd10; clz.b64 %r1, %rd10; mov.b64 %rd0, {%r0, %r1};", &[0xff << 40]), 16 << 32 | 8);
    assert_eq!(narrow("bfind.u32 %r0, %r10;", &[0x1000]), 12);
    assert_eq!(narrow("bfind.s32 %r0, %r10;", &[-2i32 as u32]), 0);
    assert_eq!(narrow("bfind.u32 %r0, %r10;", &[0]), u32::MAX);
    assert_eq!(narrow("bfind.shiftamt.u32 %r0, %r10;", &[0x1000]), 19);
    assert_eq!(narrow("brev.b32 %r0, %r10;", &[1]), 1 << 31);
    assert_eq!(narrow("bfe.u32 %r0, %r10, 4, 8;", &[0xabcd]), 0xbc);
    assert_eq!(narrow("bfe.s32 %r0, %r10, 4, 8;", &[0xabcd]), 0xffff_ffbc);
    assert_eq!(narrow("bfe.s32 %r0, %r10, 28, 8;", &[0xf000_0000]), u32::MAX);
    assert_eq!(narrow("bfe.u32 %r0, %r10, 28, 8;", &[0xf000_0000]), 0xf);
    assert_eq!(narrow("bfe.u32 %r0, %r10, 0, 0;", &[0xf]), 0);
    assert_eq!(wide("bfe.u64 %rd0, %rd10, 32, 16;", &[0x1234_5678_9abc_def0]), 0x5678);
    assert_eq!(narrow("bfi.b32 %r0, %r10, %r11, 8, 4;", &[0xf, 0]), 0xf00);
    assert_eq!(wide("bfi.b64 %rd0, %rd10, %rd11, 60, 8;", &[0xff, 1]), 0xf000_0000_0000_0001);
    assert_eq!(narrow("bmsk.clamp.b32 %r0, 4, 8;", &[]), 0xff0);
    assert_eq!(narrow("lop3.b32 %r0, %r10, %r11, %r12, 0x96;", &[5, 3, 9]), 5 ^ 3 ^ 9);
    assert_eq!(narrow("lop3.b32 %r0, %r10, %r11, %r12, 0xe8;", &[5, 3, 9]), (5 & 3) | (5 & 9) | (3 & 9));
}

#[test]
fn bytes_are_permuted() {
    let (a, b) = (0x3322_1100, 0x7766_5544);
    assert_eq!(narrow("prmt.b32 %r0, %r10, %r11, 0x7531;", &[a, b]), 0x7755_3311);
    assert_eq!(narrow("prmt.b32 %r0, %r10, %r11, 0x000f;", &[a, 0x8000_0000]), 0x0000_00ff);
    assert_eq!(narrow("prmt.b32.f4e %r0, %r10, %r11, 1;", &[a, b]), 0x4433_2211);
    assert_eq!(narrow("prmt.b32.b4e %r0, %r10, %r11, 1;", &[a, b]), 0x6677_0011);
    assert_eq!(narrow("prmt.b32.rc8 %r0, %r10, %r11, 2;", &[a, b]), 0x2222_2222);
    assert_eq!(narrow("prmt.b32.ecl %r0, %r10, %r11, 2;", &[a, b]), 0x3322_2222);
    assert_eq!(narrow("prmt.b32.ecr %r0, %r10, %r11, 2;", &[a, b]), 0x2222_1100);
    assert_eq!(narrow("prmt.b32.rc16 %r0, %r10, %r11, 1;", &[a, b]), 0x3322_3322);
    assert_eq!(narrow("shf.l.wrap.b32 %r0, %r10, %r11, 8;", &[0x8000_0000, 0x12]), 0x1280);
    assert_eq!(narrow("shf.r.wrap.b32 %r0, %r10, %r11, 8;", &[0x1200, 0x34]), 0x3400_0012);
    assert_eq!(narrow("shf.r.clamp.b32 %r0, %r10, %r11, 40;", &[0x1200, 0x34]), 0x34);
    assert_eq!(narrow("dp4a.s32.u32 %r0, %r10, %r11, 100;", &[0x01ff_0203, 0x0101_0101]), 105);
}

#[test]
fn carries() {
    let sum = "add.cc.u32 %r1, %r10, %r12; addc.u32 %r2, %r11, %r13; mov.u32 %r0, %r2;";
    assert_eq!(narrow(sum, &[u32::MAX, 5, 1, 7]), 13);
    let difference = "sub.cc.u32 %r1, %r10, %r12; subc.u32 %r0, %r11, %r13;";
    assert_eq!(narrow(difference, &[0, 5, 1, 2]), 2);
    let not_borrowed = "sub.cc.u32 %r1, %r10, %r11; addc.u32 %r0, 0, 0;";
    assert_eq!([narrow(not_borrowed, &[3, 2]), narrow(not_borrowed, &[2, 3])], [1, 0]);
    let product = "mad.lo.cc.u32 %r1, %r10, %r11, %r12; madc.hi.u32 %r0, %r10, %r11, 0;";
    assert_eq!(narrow(product, &[u32::MAX, 2, 2]), 2);
    let wide_sum = "add.cc.u64 %rd1, %rd10, %rd11; addc.u64 %rd0, 0, 0;";
    assert_eq!(wide(wide_sum, &[u64::MAX, 1]), 1);
}

#[test]
fn registers_are_taken_apart_and_put_together() {
    assert_eq!(
        wide("mov.b64 {%r1, %r2}, %rd10; mov.b64 %rd0, {%r2, %r1};", &[0x1111_1111_2222_2222]),
        0x2222_2222_1111_1111
    );
    assert_eq!(narrow("mov.b32 {%rs1, %rs2}, %r10; mov.b32 %r0, {%rs2, %rs1};", &[0x1234_5678]), 0x5678_1234);
    assert_eq!(wide("mov.b64 {_, %r2}, %rd10; mov.b64 %rd0, {%r2, 7};", &[5 << 32]), 7 << 32 | 5);
    let vector =
        ".reg .v2 .b32 %v; mov.u32 %v.x, 3; mov.u32 %v.y, 4; st.global.v2.u32 [%out], %v; ld.global.u64 %rd0, [%out];";
    assert_eq!(wide(vector, &[]), 4 << 32 | 3);
}
