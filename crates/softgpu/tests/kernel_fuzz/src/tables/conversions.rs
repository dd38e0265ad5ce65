//! Conversions of all pairs of types.

pub(crate) const CVT_INTEGERS: &[&str] = &[
    "cvt.(u8|s8|u16|s16).(u8|s8|u16|s16) $H, $h;",
    "cvt.(u8|s8|u16|s16|u32|s32).(u8|s8|u16|s16) $R, $h;",
    "cvt.(u8|s8|u16|s16).(u8|s8|u16|s16|u32|s32) $H, $r;",
    "cvt.(u8|s8|u16|s16|u32|s32).(u8|s8|u16|s16|u32|s32) $R, $r;",
    "cvt.(u8|s8|u16|s16|u32|s32|u64|s64).(u8|s8|u16|s16|u32|s32) $D, $r;",
    "cvt.(u8|s8|u16|s16|u32|s32).(u8|s8|u16|s16|u32|s32|u64|s64) $R, $d;",
    "cvt.sat.(u8.s8|s8.u8|u8.u16|u8.s16|s8.u16|s8.s16) $H, $h;",
    "cvt.sat.(u16.s16|s16.u16|u16.s8) $H, $h;",
    "cvt.sat.(u32.s16|u32.s8) $R, $h;",
    "cvt.sat.(u8|s8|u16|s16).(u32|s32) $R, $r;",
    "cvt.sat.(u32.s32|s32.u32) $R, $r;",
    "cvt.sat.(u8|s8|u16|s16|u32|s32).(u64|s64) $R, $d;",
    "cvt.sat.(u64.s64|s64.u64) $D, $d;",
    "cvt.sat.(u64.s32|u64.s16|u64.s8) $D, $r;",
];

pub(crate) const CVT_FLOAT_TO_INTEGER: &[&str] = &[
    "cvt.(rni|rzi|rmi|rpi)(|.ftz).(u8|s8|u16|s16|u32|s32).f32 $R, $f;",
    "cvt.(rni|rzi|rmi|rpi)(|.ftz).sat.(u8|s8|u16|s16|u32|s32).f32 $R, $f;",
    "cvt.(rni|rzi|rmi|rpi)(|.ftz)(|.sat).(u64|s64).f32 $D, $f;",
    "cvt.(rni|rzi|rmi|rpi)(|.sat).(u8|s8|u16|s16|u32|s32).f64 $R, $u;",
    "cvt.(rni|rzi|rmi|rpi)(|.sat).(u64|s64).f64 $D, $u;",
    "cvt.(rni|rzi|rmi|rpi)(|.sat).(u8|s8|u16|s16).f16 $H, $c;",
    "cvt.(rni|rzi|rmi|rpi)(|.sat).(u8|s8|u16|s16|u32|s32).f16 $R, $c;",
    "cvt.(rni|rzi|rmi|rpi)(|.sat).(u64|s64).f16 $D, $c;",
    "cvt.(rni|rzi|rmi|rpi).(u16|s16).bf16 $H, $k;",
    "cvt.(rni|rzi|rmi|rpi).(u32|s32).bf16 $R, $k;",
    "cvt.(rni|rzi|rmi|rpi).(u64|s64).bf16 $D, $k;",
];

pub(crate) const CVT_INTEGER_TO_FLOAT: &[&str] = &[
    "cvt.(rn|rz|rm|rp)(|.sat).f32.(u8|s8|u16|s16|u32|s32) $R, $r;",
    "cvt.(rn|rz|rm|rp)(|.sat).f32.(u64|s64) $R, $d;",
    "cvt.(rn|rz|rm|rp)(|.sat).f64.(u8|s8|u16|s16|u32|s32) $D, $r;",
    "cvt.(rn|rz|rm|rp)(|.sat).f64.(u64|s64) $D, $d;",
    "cvt.(rn|rz|rm|rp)(|.sat).f16.(u8|s8|u16|s16|u32|s32) $H, $r;",
    "cvt.(rn|rz|rm|rp)(|.sat).f16.(u64|s64) $H, $d;",
    "cvt.(rn|rz|rm|rp).bf16.(u16|s16) $H, $h;",
    "cvt.(rn|rz|rm|rp).bf16.(u32|s32) $H, $r;",
    "cvt.(rn|rz|rm|rp).bf16.(u64|s64) $H, $d;",
];

pub(crate) const CVT_FLOATS: &[&str] = &[
    "cvt.(rni|rzi|rmi|rpi)(|.ftz)(|.sat).f32.f32 $R, $f;",
    "cvt(|.ftz)(|.sat).f32.f32 $R, $f;",
    "cvt.(rni|rzi|rmi|rpi)(|.sat).f64.f64 $D, $g;",
    "cvt.(rni|rzi|rmi|rpi)(|.sat).f16.f16 $H, $c;",
    "cvt.(rn|rz|rm|rp)(|.ftz)(|.sat).f32.f64 $R, $g;",
    "cvt(|.ftz)(|.sat).f64.f32 $D, $f;",
    "cvt(|.ftz)(|.sat).f32.f16 $R, $c;",
    "cvt(|.sat).f64.f16 $D, $c;",
    "cvt.(rn|rz|rm|rp)(|.ftz)(|.sat).f16.f32 $H, $f;",
    "cvt.(rn|rz|rm|rp)(|.sat).f16.f64 $H, $g;",
    "cvt.(rn|rz)(|.relu).(f16|bf16).f32 $H, $f;",
    "cvt.(rm|rp).bf16.f32 $H, $f;",
    "cvt.(rn|rz|rm|rp).bf16.f64 $H, $g;",
    "cvt.(rn|rz|rm|rp).bf16.f16 $H, $c;",
    "cvt.(rn|rz|rm|rp).f16.bf16 $H, $k;",
    "cvt.f32.bf16 $R, $k;",
    "cvt.f64.bf16 $D, $k;",
    "cvt.(rni|rzi|rmi|rpi).bf16.bf16 $H, $k;",
    "cvt.(rn|rz)(|.relu).(f16x2|bf16x2).f32 $R, $f, $f;",
    "cvt.rna.tf32.f32 $R, $f;",
    "cvt.(rn|rz)(|.relu).tf32.f32 $R, $f;",
];

pub(crate) const CVT_FP8: &[&str] = &[
    "cvt.rn.satfinite(|.relu).(e4m3x2|e5m2x2).f32 $H, $f, $f;",
    "cvt.rn.satfinite(|.relu).(e4m3x2|e5m2x2).f32 $H, $a, $a;",
    "cvt.rn.satfinite(|.relu).(e4m3x2|e5m2x2).f16x2 $H, $x;",
    "cvt.rn(|.relu).f16x2.(e4m3x2|e5m2x2) $R, $h;",
];
