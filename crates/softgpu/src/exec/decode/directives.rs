//! What stands between the parameters of a function and its body.

use core::ops::RangeInclusive;
use detshare_ptx::ast::{Function, FunctionDirective, FunctionKind};

/// A directive, and how many numbers follow it.
type Directive = (&'static str, RangeInclusive<usize>);

/// What checks and limits of launches come from.
pub(super) const HEEDED: [Directive; 8] = [
    ("blocksareclusters", 0..=0),
    ("explicitcluster", 0..=0),
    ("maxclusterrank", 1..=1),
    ("maxnreg", 1..=1),
    ("maxntid", 1..=3),
    ("minnctapersm", 1..=1),
    ("reqnctapercluster", 1..=3),
    ("reqntid", 1..=3),
];

/// What says nothing of results, and nothing that a launch is checked by: of kernels,
pub(super) const HINTS_OF_KERNELS: [Directive; 3] =
    [("local_maxnreg", 1..=1), ("maxnctapersm", 1..=1), ("pragma", 0..=0)];

/// and of functions.
pub(super) const HINTS_OF_FUNCTIONS: [Directive; 4] =
    [("abi_preserve", 1..=1), ("abi_preserve_control", 1..=1), ("local_maxnreg", 1..=1), ("noreturn", 0..=0)];

/// The first one that is not known: it may change what a launch is, or what the function computes.
pub(super) fn unknown(kind: FunctionKind, directives: &[FunctionDirective]) -> Option<&FunctionDirective> {
    let known: [&[Directive]; 2] = match kind {
        FunctionKind::Kernel => [&HEEDED, &HINTS_OF_KERNELS],
        FunctionKind::Function => [&HINTS_OF_FUNCTIONS, &[]],
    };
    directives.iter().find(|directive| {
        let mut fitting = known.into_iter().flatten().filter(|(name, _)| *name == directive.name);
        !fitting.any(|(name, numbers)| {
            numbers.contains(&directive.arguments.len()) && (directive.strings.is_empty() || *name == "pragma")
        })
    })
}

/// Attributes count as directives do: that a function has a number of its own (`.unified`) says nothing of it.
pub(super) fn unknown_attribute(function: &Function) -> Option<&str> {
    function.attributes.iter().map(String::as_str).find(|attribute| !attribute.starts_with(".unified"))
}

/// `.blocksareclusters` without the block and the cluster that launches then do not say.
pub(super) fn incomplete(function: &Function) -> Option<&FunctionDirective> {
    let says = |name: &str| {
        let sizes = function.directives.iter().find(|directive| directive.name == name);
        sizes.is_some_and(|sizes| sizes.arguments.iter().all(|size| *size > 0))
    };
    let counts_clusters = function.directives.iter().find(|directive| directive.name == "blocksareclusters");
    counts_clusters.filter(|_| !says("reqntid") || !says("reqnctapercluster"))
}
