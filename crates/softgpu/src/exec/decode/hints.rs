//! Hints, what only tools see, and what waits for copies that are done as soon as they are issued: nothing happens here, but
//! what nobody knows is refused as elsewhere.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::modifiers::Modifiers;
use super::operands::nth;
use crate::exec::op::Op;
use detshare_ptx::ScalarType;
use detshare_ptx::ast::Instruction;

/// An instruction with these modifiers and so many operands, which has no effect.
fn nothing(i: &Instruction, m: &mut Modifiers<'_>, modifiers: &[&str], operands: usize) -> Decoded<Op> {
    m.ignore(|modifier| modifiers.contains(&modifier));
    m.finish()?;
    if i.operands.len() == operands { Ok(Op::Nop) } else { Err(Refusal::Wrong("wrong number of operands")) }
}

pub(super) fn hint(i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
    match i.opcode.as_str() {
        // Memory, or a tensor's map.
        "prefetch" if m.take("tensormap") => nothing(i, m, &["const", "param", "param::entry"], 1),
        "prefetch" => nothing(i, m, &["global", "local", "L1", "L2", "L2::evict_last", "L2::evict_normal"], 1),
        "prefetchu" => nothing(i, m, &["L1"], 1),
        "discard" => nothing(i, m, &["global", "L2"], 2),
        "applypriority" => nothing(i, m, &["global", "L2::evict_normal"], 2),
        "pmevent" => nothing(i, m, &["mask"], 1),
        "griddepcontrol" => nothing(i, m, &["launch_dependents", "wait"], 0),
        "setmaxnreg" => nothing(i, m, &["inc", "dec", "sync", "aligned", "u32"], 1),
        _ => Err(Refusal::Unsupported),
    }
}

/// `cp.async` and `cp.async.bulk` without a copy, if it is one.
pub(super) fn copies_waited_for(i: &Instruction, m: &mut Modifiers<'_>) -> Option<Decoded<Op>> {
    let decoded = if m.take("commit_group") || m.take("wait_all") {
        nothing(i, m, &[], 0)
    } else if m.take("wait_group") {
        nothing(i, m, &["read"], 1)
    } else if m.take("prefetch") {
        let hinted = usize::from(m.rest().contains(&"L2::cache_hint"));
        let known = ["L2", "global", "L2::cache_hint"];
        match m.take("tensor") {
            true => {
                m.ignore(|modifier| matches!(modifier, "1d" | "2d" | "3d" | "4d" | "5d" | "tile"));
                nothing(i, m, &known, 1 + hinted)
            }
            false => nothing(i, m, &known, 2 + hinted),
        }
    } else {
        return None;
    };
    Some(decoded)
}

impl Builder<'_> {
    /// A policy that loads and stores then ignore.
    pub(super) fn cache_policy(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        m.ignore(|modifier| {
            matches!(
                modifier,
                "fractional"
                    | "range"
                    | "cvt"
                    | "global"
                    | "L2"
                    | "L2::evict_last"
                    | "L2::evict_normal"
                    | "L2::evict_first"
                    | "L2::evict_unchanged"
                    | "b64"
            )
        });
        m.finish()?;
        let d = self.destination(nth(i, 0)?, ScalarType::B64)?;
        Ok(Op::Move64 { d, a: self.wide_constant(0) })
    }
}
