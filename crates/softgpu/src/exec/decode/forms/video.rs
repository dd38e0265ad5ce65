//! Video instructions.

pub(super) const FORMS: &[&str] = &[
    "<vadd|vsub|vabsdiff|vmin|vmax><.u32|.s32><.u32|.s32><.u32|.s32><|.sat> r, r, r",
    "<vadd|vsub|vabsdiff|vmin|vmax><.u32|.s32>.s32.u32<|.sat><.add|.min|.max> r, r<.b0|.b1|.b2|.b3|.h0|.h1>, r.h1, r",
    "<vadd|vsub|vabsdiff|vmin|vmax><.u32|.s32>.s32.u32<|.sat> r<.b0|.b1|.b2|.b3|.h0|.h1>, r.b0, r, r",
    "<vshl|vshr><.u32|.s32><.u32|.s32>.u32<|.sat><.clamp|.wrap> r, r, r",
    "<vshl|vshr><.u32|.s32>.s32.u32<|.sat><.clamp|.wrap><.add|.min|.max> r, r.h0, r.b2, r",
    "<vshl|vshr><.u32|.s32>.s32.u32<|.sat><.clamp|.wrap> r<.b0|.b3|.h1>, r.h0, r.b2, r",
    "vset<.u32|.s32><.u32|.s32><.eq|.ne|.lt|.le|.gt|.ge> r, r, r",
    "vset.u32.s32<.eq|.ne|.lt|.le|.gt|.ge><.add|.min|.max> r, r.b1, r.h1, r",
    "vset.u32.s32<.eq|.ne|.lt|.le|.gt|.ge> r<.b2|.h1>, r.b1, r.h1, r",
    "vmad<.u32|.s32><.u32|.s32><.u32|.s32><|.sat><|.shr7|.shr15> r, r, r.h1, r",
    "vmad.s32.s32.s32<|.sat><|.shr7|.shr15> r, <-r, r|r, -r.b0>, r",
    "vmad.s32.s32.s32<|.sat><|.shr7|.shr15> r, r, r, -r",
    "vmad.s32.s32.s32.po<|.sat><|.shr7|.shr15> r, r.h0, r.b3, r",
    "<vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2><.u32|.s32><.u32|.s32><.u32|.s32><|.sat|.add> r, r, r, r",
    "<vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2>.s32.s32.u32<|.sat|.add> r<.h0|.h1|.h10>, r.h32, r.h02, r",
    "<vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4><.u32|.s32><.u32|.s32><.u32|.s32><|.sat|.add> r, r, r, r",
    "<vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4>.s32.s32.u32<|.sat|.add> r<.b0|.b31|.b210|.b3210>, r.b7654, r.b0246, r",
    "<vset2|vset4><.u32|.s32><.u32|.s32><.eq|.ne|.lt|.le|.gt|.ge><|.add> r, r, r, r",
];
