//! Where two outputs of one kernel differ, in words.

use crate::kernel::{COLUMN, Kernel};
use std::fmt::Write;

/// How many differing values are listed.
const LISTED: usize = 6;

/// The differing values, each with the registers that its thread began with.
pub(crate) fn describe(kernel: &Kernel, names: [&str; 2], words: [&[u32]; 2]) -> String {
    let outputs = kernel.outputs();
    let row = outputs.len() * COLUMN / 4;
    let rows = row * kernel.threads();
    let mut lines = Vec::new();
    for at in (0..rows).step_by(2) {
        let [one, other] = words.map(|words| value(words, at));
        if one != other {
            let (thread, name) = (at / row, &outputs[at % row / 2].name);
            let mut line = format!("thread {thread} {name}: {} {one:#x}, {} {other:#x}\n", names[0], names[1]);
            for input in kernel.registers() {
                let _ = write!(line, " {}={:#x}", input.name, kernel.initial(&input, thread));
            }
            lines.push(line);
        }
    }
    for (at, (one, other)) in words[0].iter().zip(words[1]).enumerate().skip(rows) {
        if one != other {
            lines.push(format!("scratch word {}: {} {one:#x}, {} {other:#x}", at - rows, names[0], names[1]));
        }
    }
    let count = lines.len();
    lines.truncate(LISTED);
    format!("{}\n{count} values differ\n", lines.join("\n"))
}

fn value(words: &[u32], at: usize) -> u64 {
    let word = |at: usize| u64::from(words.get(at).copied().unwrap_or_default());
    word(at) | word(at + 1) << 32
}
