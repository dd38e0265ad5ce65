//! Floating point. Every rounding is written out: without it a compiler may make one `fma` of two instructions.

pub(crate) const F32: &[&str] = &[
    "(add|sub|mul).(rn|rz|rm|rp)(|.ftz)(|.sat).f32 $R, $f, $f;",
    "(add|sub|mul).rn.f32 $R, $f, $f;",
    "fma.(rn|rz|rm|rp)(|.ftz)(|.sat).f32 $R, $f, $f, $f;",
    "fma.rn.f32 $R, $f, $f, $f;",
    "mad.(rn|rz)(|.ftz).f32 $R, $f, $f, $f;",
    "(min|max)(|.ftz)(|.NaN)(|.xorsign.abs).f32 $R, $f, $f;",
    "add.rn.f32 $R, $f, 0f3fc00000;",
    "fma.rn.f32 $R, $f, 0f40490fdb, 0fc2f63c00;",
];

pub(crate) const F32_DIVISION: &[&str] = &[
    "div.(rn|rz|rm|rp)(|.ftz).f32 $R, $f, $f;",
    "rcp.(rn|rz|rm|rp)(|.ftz).f32 $R, $f;",
    "sqrt.(rn|rz|rm|rp)(|.ftz).f32 $R, $f;",
];

pub(crate) const F64: &[&str] = &[
    "(add|sub|mul).(rn|rz|rm|rp).f64 $D, $g, $g;",
    "fma.(rn|rz|rm|rp).f64 $D, $g, $g, $g;",
    "mad.(rn|rz).f64 $D, $g, $g, $g;",
    "(min|max).f64 $D, $g, $g;",
];

pub(crate) const F64_DIVISION: &[&str] =
    &["div.(rn|rz|rm|rp).f64 $D, $g, $g;", "rcp.(rn|rz|rm|rp).f64 $D, $g;", "sqrt.(rn|rz|rm|rp).f64 $D, $g;"];

/// NaNs go through `f64` operations; of two it is the compiler's order of operands that decides.
pub(crate) const F64_NAN: &[&str] = &[
    "(add|sub|mul).(rn|rz|rm|rp).f64 $D, $u, $g;",
    "(add|sub|mul).rn.f64 $D, $g, $u;",
    "fma.rn.f64 $D, $u, $g, $g;",
    "fma.rn.f64 $D, $g, $u, $g;",
    "fma.rn.f64 $D, $g, $g, $u;",
    "(min|max).f64 $D, $u, $u;",
    "(abs|neg).f64 $D, $u;",
    "copysign.f64 $D, $u, $u;",
    "div.rn.f64 $D, $u, $g;",
    "(rcp|sqrt).rn.f64 $D, $u;",
    "cvt.rn.f32.f64 $R, $u;",
    "cvt.f64.f32 $D, $f;",
];

/// What only touches the sign, and what it makes of a NaN.
pub(crate) const SIGNS: &[&str] = &[
    "(abs|neg)(|.ftz).f32 $R, $f;",
    "copysign.f32 $R, $f, $f;",
    "(abs|neg)(|.ftz).f16 $H, $c;",
    "(abs|neg)(|.ftz).f16x2 $R, $x;",
    "(abs|neg).bf16 $H, $k;",
    "(abs|neg).bf16x2 $R, $y;",
];

pub(crate) const F16: &[&str] = &[
    "(add|sub|mul).rn(|.ftz)(|.sat).f16 $H, $c, $c;",
    "(add|sub|mul).rn(|.ftz)(|.sat).f16x2 $R, $x, $x;",
    "fma.rn(|.ftz)(|.sat|.relu).f16 $H, $c, $c, $c;",
    "fma.rn(|.ftz)(|.sat|.relu).f16x2 $R, $x, $x, $x;",
    "(min|max)(|.ftz)(|.NaN)(|.xorsign.abs).f16 $H, $c, $c;",
    "(min|max)(|.ftz)(|.NaN)(|.xorsign.abs).f16x2 $R, $x, $x;",
];

pub(crate) const BF16: &[&str] = &[
    "(add|sub|mul).rn.bf16 $H, $k, $k;",
    "(add|sub|mul).rn.bf16x2 $R, $y, $y;",
    "fma.rn(|.relu).bf16 $H, $k, $k, $k;",
    "fma.rn(|.relu).bf16x2 $R, $y, $y, $y;",
    "(min|max)(|.NaN)(|.xorsign.abs).bf16 $H, $k, $k;",
    "(min|max)(|.NaN)(|.xorsign.abs).bf16x2 $R, $y, $y;",
];

/// An operand of infinity times zero that is out of bounds, as the instruction's own rule has it.
pub(crate) const FMA_OOB: &[&str] = &[
    "fma.rn.oob(|.relu).f16 $H, $c, $c, $c;",
    "fma.rn.oob(|.relu).f16x2 $R, $x, $x, $x;",
    "fma.rn.oob(|.relu).bf16 $H, $k, $k, $k;",
    "fma.rn.oob(|.relu).bf16x2 $R, $y, $y, $y;",
];

/// Every approximation is a class of its own: its name, and the instructions.
pub(crate) const APPROXIMATIONS: &[(&str, &[&str])] = &[
    ("approx_rcp", &["rcp.approx(|.ftz).f32 $R, $a;", "rcp.approx(|.ftz).f32 $R, $f;", "rcp.approx.ftz.f64 $D, $g;"]),
    ("approx_sqrt", &["sqrt.approx(|.ftz).f32 $R, $a;", "sqrt.approx(|.ftz).f32 $R, $f;"]),
    (
        "approx_rsqrt",
        &["rsqrt.approx(|.ftz).f32 $R, $a;", "rsqrt.approx(|.ftz).f32 $R, $f;", "rsqrt.approx.ftz.f64 $D, $g;"],
    ),
    ("approx_rsqrt_f64", &["rsqrt.approx.f64 $D, $g;"]),
    ("approx_sin_cos", &["(sin|cos).approx(|.ftz).f32 $R, $a;", "(sin|cos).approx(|.ftz).f32 $R, $f;"]),
    ("approx_lg2", &["lg2.approx(|.ftz).f32 $R, $a;", "lg2.approx(|.ftz).f32 $R, $f;"]),
    ("approx_ex2", &["ex2.approx(|.ftz).f32 $R, $a;", "ex2.approx(|.ftz).f32 $R, $f;"]),
    (
        "approx_ex2_half",
        &[
            "ex2.approx.f16 $H, $c;",
            "ex2.approx.f16x2 $R, $x;",
            "ex2.approx.ftz.bf16 $H, $k;",
            "ex2.approx.ftz.bf16x2 $R, $y;",
        ],
    ),
    ("approx_tanh", &["tanh.approx.f32 $R, $a;", "tanh.approx.f32 $R, $f;"]),
    (
        "approx_tanh_half",
        &[
            "tanh.approx.f16 $H, $c;",
            "tanh.approx.f16x2 $R, $x;",
            "tanh.approx.bf16 $H, $k;",
            "tanh.approx.bf16x2 $R, $y;",
        ],
    ),
    ("approx_div", &["div.(approx|full)(|.ftz).f32 $R, $a, $a;", "div.(approx|full)(|.ftz).f32 $R, $f, $f;"]),
];
