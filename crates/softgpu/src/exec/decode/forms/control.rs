//! Ways through a function, and barriers.

pub(super) const FORMS: &[&str] = &[
    "<|@p |@!p >bra<|.uni> label",
    "brx.idx<|.uni> r, targets",
    "call<|.uni> <f|d, prototype>",
    "ret<|.uni>",
    "exit",
    "trap",
    "brkpt",
    "nanosleep.u32 r",
    "pmevent<|.mask> 1",
    "griddepcontrol<.launch_dependents|.wait>",
    "setmaxnreg<.inc|.dec>.sync.aligned.u32 64",
    "<bar|barrier|bar.cta|barrier.cta>.sync r<|, r>",
    "<bar|barrier|bar.cta|barrier.cta>.arrive r, r",
    "<bar|barrier|bar.cta|barrier.cta>.red.popc.u32 r, r, <|r, >p",
    "<bar|barrier|bar.cta|barrier.cta>.red<.and|.or>.pred p, r, <|r, >p",
    "<barrier|barrier.cta>.sync.aligned r<|, r>",
    "<barrier|barrier.cta>.arrive.aligned r, r",
    "<barrier|barrier.cta>.red.popc.aligned.u32 r, r, <|r, >p",
    "<barrier|barrier.cta>.red<.and|.or>.aligned.pred p, r, <|r, >p",
    "bar.warp.sync r",
];
