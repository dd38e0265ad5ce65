//! Video instructions.

pub(crate) const VIDEO_SCALAR: &[&str] = &[
    "(vadd|vsub|vabsdiff|vmin|vmax).(u32|s32).(u32|s32).(u32|s32)(|.sat) $R, $r(|.b0|.b3|.h0|.h1), $r(|.b1|.b2|.h1);",
    "(vadd|vsub|vabsdiff|vmin|vmax).(u32|s32).(u32|s32).(u32|s32)(|.sat).(add|min|max) $R, $r(|.b2|.h0), $r(|.b1|.h1), $r;",
    "(vadd|vsub|vabsdiff|vmin|vmax).(u32|s32).(u32|s32).(u32|s32)(|.sat) $R.(b0|b1|b2|b3|h0|h1), $r(|.b2|.h0), $r(|.b1|.h1), $r;",
    "(vshl|vshr).(u32|s32).(u32|s32).u32(|.sat).(clamp|wrap) $R, $r(|.b0|.h1), $s(|.b0|.h0);",
    "(vshl|vshr).(u32|s32).(u32|s32).u32(|.sat).(clamp|wrap).(add|min|max) $R, $r(|.b0|.h1), $s, $r;",
    "vmad.(u32|s32).(u32|s32).(u32|s32)(|.sat)(|.shr7|.shr15) $R, $r(|.b0|.h1), $r(|.b1|.h0), $r;",
    "vset.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge) $R, $r(|.b0|.h1), $r(|.b1|.h0);",
    "vset.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).(add|min|max) $R, $r(|.b0|.h1), $r(|.b1|.h0), $r;",
];

pub(crate) const VIDEO_SIMD: &[&str] = &[
    "(vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2).(u32|s32).(u32|s32).(u32|s32)(|.sat) $R, $r, $r, $r;",
    "(vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2).(u32|s32).(u32|s32).(u32|s32) $R.(h0|h1|h10), $r.(h10|h32|h02|h31), $r.(h10|h23), $r;",
    "(vadd2|vsub2|vabsdiff2|vmin2|vmax2).(u32|s32).(u32|s32).(u32|s32).add $R, $r, $r, $r;",
    "(vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4).(u32|s32).(u32|s32).(u32|s32)(|.sat) $R, $r, $r, $r;",
    "(vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4).(u32|s32).(u32|s32).(u32|s32) $R.(b0|b31|b210|b3210), $r.(b3210|b7654|b5140), $r.(b3210|b0123), $r;",
    "(vadd4|vsub4|vabsdiff4|vmin4|vmax4).(u32|s32).(u32|s32).(u32|s32).add $R, $r, $r, $r;",
    "vset2.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge) $R, $r, $r, $r;",
    "vset2.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).add $R, $r, $r, $r;",
    "vset4.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge) $R, $r, $r, $r;",
    "vset4.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).add $R, $r, $r, $r;",
];
