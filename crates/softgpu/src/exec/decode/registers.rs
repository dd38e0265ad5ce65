//! How many registers a thread may have, by the rules of the driver's compiler (`ptxas` for `sm_90`).

use crate::device;
use detshare_ptx::ast::{Function, Item, Module};

/// What a thread can have at most.
const MOST: u32 = 255;
/// No limit is below it.
const LOWEST_LIMIT: u32 = 24;
/// Registers are handed out to warps in portions, which are so many for a thread.
const UNIT: u32 = 8;

/// The program's own limit for all kernels of a text, as one of its lines.
const PRAGMA: &str = ".pragma \"detshare most registers ";

/// The text with a limit for its kernels. Lines keep their numbers.
pub(crate) fn with_register_limit(mut text: String, most: u32) -> String {
    text.push_str(&format!("\n{PRAGMA}{most}\";\n"));
    text
}

/// The registers of a kernel whose functions want so many.
pub(super) fn limited(module: &Module, function: &Function, wanted: u32) -> u32 {
    let limit = own_limit(function).or_else(|| limit_of_module(module)).unwrap_or(MOST);
    wanted.clamp(1, limit.clamp(LOWEST_LIMIT, MOST))
}

/// What the kernel's directives say, which counts more than what the program says.
fn own_limit(function: &Function) -> Option<u32> {
    let value = |name: &str| {
        let directive = function.directives.iter().find(|directive| directive.name == name)?;
        Some(directive.arguments.iter().fold(1, |product: u32, size| product.saturating_mul(*size)))
    };
    let for_blocks = |threads: u32, blocks: u32| {
        let threads = threads.clamp(1, device::MOST_THREADS_PER_BLOCK).next_multiple_of(device::WARP);
        // More blocks than threads fit are not asked for.
        let blocks = if threads.saturating_mul(blocks) > device::MOST_THREADS_PER_SM { 1 } else { blocks.max(1) };
        device::REGISTERS_PER_SM / (threads * blocks) / UNIT * UNIT
    };
    let threads = value("reqntid").or_else(|| value("maxntid"));
    let by_blocks = threads.zip(value("minnctapersm")).map(|(threads, blocks)| for_blocks(threads, blocks));
    match value("maxnreg").filter(|most| *most <= MOST) {
        Some(most) => Some(by_blocks.map_or(most, |by_blocks| by_blocks.min(most))),
        None => by_blocks.or_else(|| threads.map(|threads| for_blocks(threads, 1))),
    }
}

fn limit_of_module(module: &Module) -> Option<u32> {
    let mut limits = module.items.iter().filter_map(|item| match item {
        Item::Directive(directive) => directive.text.strip_prefix(PRAGMA)?.split('"').next()?.parse().ok(),
        _ => None,
    });
    limits.next_back().filter(|most| (1..=MOST).contains(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited_to(directives: &str, most: Option<u32>) -> u32 {
        let mut text = format!(".version 8.0\n.target sm_90\n.address_size 64\n.entry k() {directives} {{ ret; }}\n");
        if let Some(most) = most {
            text = with_register_limit(text, most);
        }
        let module = detshare_ptx::parse(&text).expect("PTX");
        let function = module.items.iter().find_map(|item| match item {
            Item::Function(function) => Some(function),
            _ => None,
        });
        limited(&module, function.expect("the kernel"), 1000)
    }

    /// What `ptxas` 13.0 gave to a kernel that wants more than it gets.
    #[test]
    fn directives_limit_as_the_compiler_says() {
        for (directives, registers) in [
            ("", 255),
            (".maxnreg 8", 24),
            (".maxnreg 24", 24),
            (".maxnreg 30", 30),
            (".maxnreg 300", 255),
            (".maxntid 1024", 64),
            (".maxntid 64, 16, 1", 64),
            (".reqntid 1024", 64),
            (".maxntid 1000", 64),
            (".maxntid 768", 80),
            (".maxntid 100", 255),
            (".maxntid 1024 .minnctapersm 2", 32),
            (".maxntid 1024 .minnctapersm 4", 64),
            (".maxntid 512 .minnctapersm 3", 40),
            (".maxntid 32 .minnctapersm 32", 64),
            (".maxntid 1024 .maxnreg 200", 200),
            (".maxntid 256 .maxnreg 40 .minnctapersm 8", 32),
            (".minnctapersm 4 .maxnreg 40", 40),
        ] {
            assert_eq!(limited_to(directives, None), registers, "{directives}");
        }
    }

    #[test]
    fn the_programs_limit_counts_where_the_kernel_has_none() {
        assert_eq!(limited_to("", Some(40)), 40);
        assert_eq!(limited_to("", Some(16)), 24);
        assert_eq!(limited_to("", Some(300)), 255);
        assert_eq!(limited_to(".maxnreg 64", Some(30)), 64);
        assert_eq!(limited_to(".maxntid 1024", Some(30)), 64);
    }
}
