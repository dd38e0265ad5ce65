//! Which words are instructions.

/// All opcodes of PTX 9.0 in alphabetical order, whether they can be run or not: a module with any other word is
/// no PTX.
pub(super) const OPCODES: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "addc",
    "alloca",
    "and",
    "applypriority",
    "atom",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "bra",
    "brev",
    "brkpt",
    "brx",
    "call",
    "clusterlaunchcontrol",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cp",
    "createpolicy",
    "cvt",
    "cvta",
    "discard",
    "div",
    "dp2a",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "fns",
    "getctarank",
    "griddepcontrol",
    "isspacep",
    "istypep",
    "ld",
    "ldmatrix",
    "ldu",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "mapa",
    "match",
    "max",
    "mbarrier",
    "membar",
    "min",
    "mma",
    "mov",
    "movmatrix",
    "mul",
    "mul24",
    "multimem",
    "nanosleep",
    "neg",
    "not",
    "or",
    "pmevent",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "red",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setmaxnreg",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "st",
    "stackrestore",
    "stacksave",
    "stmatrix",
    "sub",
    "subc",
    "suld",
    "suq",
    "sured",
    "sust",
    "szext",
    "tanh",
    "tcgen05",
    "tensormap",
    "testp",
    "tex",
    "tld4",
    "trap",
    "txq",
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vavrg2",
    "vavrg4",
    "vmad",
    "vmax",
    "vmax2",
    "vmax4",
    "vmin",
    "vmin2",
    "vmin4",
    "vote",
    "vset",
    "vset2",
    "vset4",
    "vshl",
    "vshr",
    "vsub",
    "vsub2",
    "vsub4",
    "wgmma",
    "wmma",
    "xor",
];

/// Whether PTX has such an instruction.
pub(super) fn is_known(opcode: &str) -> bool {
    OPCODES.binary_search(&opcode).is_ok()
}

/// The opcode of an instruction's text.
pub(super) fn of_text(text: &str) -> &str {
    let text = text.trim_start();
    let without_guard = match text.strip_prefix('@') {
        Some(guarded) => {
            let guarded = guarded.trim_start().trim_start_matches('!').trim_start();
            guarded.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start())
        }
        None => text,
    };
    without_guard.split(|next: char| !next.is_ascii_alphanumeric() && next != '_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_in_order() {
        assert!(OPCODES.is_sorted());
        assert!(is_known("ld") && is_known("xor") && !is_known("this"));
    }

    #[test]
    fn guards_are_passed_over() {
        assert_eq!(of_text("@!%p1 tex.2d.v4 {a};"), "tex");
        assert_eq!(of_text("this is nothing;"), "this");
        assert_eq!(of_text("@%p"), "");
    }
}
