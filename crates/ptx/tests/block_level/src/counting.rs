//! A copy of a module whose kernels count for each block how many threads began it.

use anyhow::{Context, Result};
use detshare_ptx::ast::{FunctionKind, Item, Module, Statement};

/// The variable with a word for each block, and one for threads that are in no block of the grid.
pub(crate) const COUNTS: &str = "block_level_counts";

/// The module with counters for that many blocks. What a kernel computes stays the same.
pub(crate) fn counting(module: &Module, blocks: u32) -> Result<Module> {
    let (major, minor) = module.version;
    let target = module.targets.join(", ");
    let snippet = detshare_ptx::parse(&format!(
        ".version {major}.{minor}\n.target {target}\n.address_size 64\n\
         .visible .global .align 4 .b32 {COUNTS}[{words}];\n\
         .visible .entry count()\n{{\n.reg .b32 %block_level_n, %block_level_a, %block_level_b;\n\
         .reg .b64 %block_level_p, %block_level_o;\n\
         mov.u32 %block_level_n, %ctaid.z;\nmov.u32 %block_level_a, %nctaid.y;\nmov.u32 %block_level_b, %ctaid.y;\n\
         mad.lo.u32 %block_level_n, %block_level_n, %block_level_a, %block_level_b;\n\
         mov.u32 %block_level_a, %nctaid.x;\nmov.u32 %block_level_b, %ctaid.x;\n\
         mad.lo.u32 %block_level_n, %block_level_n, %block_level_a, %block_level_b;\n\
         min.u32 %block_level_n, %block_level_n, {blocks};\n\
         mov.u64 %block_level_p, {COUNTS};\nmul.wide.u32 %block_level_o, %block_level_n, 4;\n\
         add.s64 %block_level_p, %block_level_p, %block_level_o;\nred.global.add.u32 [%block_level_p], 1;\n}}\n",
        words = blocks + 1,
    ))
    .context("the counting instructions")?;
    let mut counting = module.clone();
    let (mut counter, mut variable) = (None, None);
    for item in snippet.items {
        match item {
            Item::Function(function) => counter = function.body,
            other => variable = Some(other),
        }
    }
    let counter = counter.context("the counting instructions have no body")?;
    for item in &mut counting.items {
        if let Item::Function(function) = item
            && function.kind == FunctionKind::Kernel
            && let Some(body) = &mut function.body
        {
            body.insert(0, Statement::Block(counter.clone()));
        }
    }
    counting.items.insert(0, variable.context("the counting instructions have no variable")?);
    Ok(counting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_counts_and_functions_do_not() {
        let module = detshare_ptx::parse(
            ".version 8.0\n.target sm_80\n.address_size 64\n.func f()\n{\nret;\n}\n\
             .visible .entry a()\n{\n.reg .b32 %r;\nmov.u32 %r, %tid.x;\nret;\n}\n.visible .entry b()\n{\nret;\n}\n",
        )
        .unwrap();
        let text = counting(&module, 12).unwrap().to_string();
        assert_eq!(text.matches("red.global.add.u32").count(), 2);
        assert!(text.contains(&format!("{COUNTS}[13]")));
        detshare_ptx::parse(&text).unwrap();
    }
}
