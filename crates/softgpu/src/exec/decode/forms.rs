//! What can be run, form by form, and the listing of it: `INSTRUCTIONS.md`.
//!
//! A form is an instruction as PTX has it, with `<a|b|>` for one of several: `add<|.sat>.s32 r, r, r` is two forms.
//! Its operands are registers of a size: `b` has 8 bits, `h` 16, `r` 32, `d` 64, `q` 128, `p` is a predicate; where an
//! instruction has several they may be numbered (`r1`). Whoever makes the decoder take a new form adds it to its
//! theme's file here, or a theme with its own file to [`THEMES`], and runs the tests with `DETSHARE_BLESS=1`.
//! They decode every single form, so that nothing is listed that a kernel could not use.

mod arithmetic;
mod asynchronous;
mod bits;
mod comparison;
mod control;
mod conversion;
mod data;
mod float;
mod memory;
mod tensor;
mod video;
mod warp_wide;

use super::{directives, opcodes};
use crate::exec::interface::Placement;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// The listing's parts.
const THEMES: &[(&str, &[&str])] = &[
    ("Integer arithmetic", arithmetic::FORMS),
    ("Bits", bits::FORMS),
    ("Floating point", float::FORMS),
    ("Comparison and selection", comparison::FORMS),
    ("Video", video::FORMS),
    ("Conversion", conversion::FORMS),
    ("Moves and addresses", data::FORMS),
    ("Memory", memory::FORMS),
    ("Control", control::FORMS),
    ("Lanes of a warp together", warp_wide::FORMS),
    ("Matrices", tensor::FORMS),
    ("Clusters, asynchronous copies, the stack", asynchronous::FORMS),
];

/// Why instructions are not there.
const LACKING: &[(&str, &[&str])] = &[
    (
        "Textures and surfaces, which the driver does not have either.",
        &["istypep", "suld", "suq", "sured", "sust", "tex", "tld4", "txq"],
    ),
    (
        "Memory of several devices under one address: it takes an NVSwitch, and `cuMulticastCreate`, without which there is no \
         such address. `CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED` is 0.",
        &["multimem"],
    ),
    ("For devices after the H200 (`sm_100` and later).", &["clusterlaunchcontrol", "tcgen05"]),
];
/// What instructions that are there lack.
const LACKING_PARTS: &[&str] = &[
    "`cp.async.bulk.tensor`, `cp.async.bulk.prefetch.tensor`, `cp.reduce.async.bulk.tensor` with `.im2col`: there are no maps \
     for them (`cuTensorMapEncodeIm2col` in [FUNCTIONS.md](FUNCTIONS.md)). `.im2col::w`, `.tile::gather4` and \
     `.tile::scatter4` are for devices after the H200.",
    "`tensormap.replace.tile.interleave_layout` with anything but 0: channels in groups, for which there are no maps either \
     (`cuTensorMapEncodeTiled` refuses them). `.swizzle_atomicity` is for devices after the H200.",
];

/// What forms can name: registers of each size, some in numbers, a label, a table of labels and functions.
const AROUND: &str = "\
    .reg .b8 b; .reg .b16 h, h<9>; .reg .b32 r, r<9>; .reg .b64 d, d<9>; .reg .b128 q, q<9>; .reg .pred p, p<9>;\n\
    targets: .branchtargets label, label;\n\
    prototype: .callprototype _ ();\n";

/// All forms that a pattern stands for.
fn expand(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('<') else { return vec![pattern.to_string()] };
    let (choices, after) = rest.split_once('>').unwrap_or_else(|| panic!("'<' is left open: {pattern}"));
    let after = expand(after);
    choices.split('|').flat_map(|choice| after.iter().map(move |after| format!("{before}{choice}{after}"))).collect()
}

/// What stands before kernels that have forms in them.
const HEAD: &str = ".version 9.0\n.target sm_90a\n.address_size 64\n.func f() { ret; }\n";

/// The forms that cannot be run, of those that a pattern stands for.
fn refused(pattern: &str) -> Vec<String> {
    let forms = expand(pattern);
    let mut source = HEAD.to_string();
    for (number, form) in forms.iter().enumerate() {
        let _ = writeln!(source, ".visible .entry k{number}() {{\n{AROUND}{form};\nlabel: ret;\n}}");
    }
    let module = detshare_ptx::parse(&source).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    let mut nowhere = |_: &Placement<'_>| None;
    let image = super::decode(&[(module, &source)], &mut nowhere).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    let runs = |number: &usize| image.kernels[&format!("k{number}")].properties.unsupported.is_none();
    (0..forms.len()).filter(|number| !runs(number)).map(|number| forms[number].clone()).collect()
}

fn patterns() -> impl Iterator<Item = &'static str> {
    THEMES.iter().flat_map(|(_, forms)| forms.iter().copied())
}

fn listed_opcodes() -> BTreeSet<String> {
    patterns().flat_map(expand).map(|form| opcodes::of_text(&form).to_string()).collect()
}

fn lacking() -> BTreeSet<&'static str> {
    let listed = listed_opcodes();
    opcodes::OPCODES.iter().copied().filter(|opcode| !listed.contains(*opcode)).collect()
}

fn listing() -> String {
    let mut text = String::from(
        "# What the software GPU runs\n\n\
         Generated from `src/exec/decode/forms` by `DETSHARE_BLESS=1 cargo test -p detshare-softgpu forms`, which decodes \
         every form. `<a|b>` stands for one of several, or nothing where one of them is empty. Operands: `b` is a register \
         of 8 bits, `h` of 16, `r` of 32, `d` of 64, `q` of 128, `p` a predicate; where one is read, a constant may stand too.\n",
    );
    for (title, forms) in THEMES {
        let count: usize = forms.iter().map(|pattern| expand(pattern).len()).sum();
        let _ = writeln!(text, "\n## {title} ({count} forms)\n\n```text\n{}\n```", forms.join("\n"));
    }
    let named = |names: Vec<&str>| names.iter().map(|name| format!("`.{name}`")).collect::<Vec<_>>().join(" ");
    let heeded = named(directives::HEEDED.iter().map(|(name, _)| *name).collect());
    let hints = directives::HINTS_OF_KERNELS.iter().chain(&directives::HINTS_OF_FUNCTIONS);
    let hints: BTreeSet<_> = hints.map(|(name, _)| *name).collect();
    let hints = named(hints.into_iter().collect());
    let _ = writeln!(
        text,
        "\n## Directives of functions\n\nHeeded: {heeded}\n\nThey say nothing of results: {hints}\n\n\
         A kernel that has another one, or calls a function that has one, cannot be launched."
    );
    let lacking = lacking();
    let _ = writeln!(text, "\n## Not there ({})", lacking.len());
    for (reason, opcodes) in LACKING {
        let opcodes: Vec<_> = opcodes.iter().map(|opcode| format!("`{opcode}`")).collect();
        let _ = writeln!(text, "\n{reason}\n\n{}", opcodes.join(" "));
    }
    let _ = writeln!(text, "\n## Not there of what is there\n\n- {}", LACKING_PARTS.join("\n- "));
    text
}

#[test]
fn every_form_can_be_run() {
    let refused: Vec<String> = patterns().flat_map(refused).collect();
    assert!(refused.is_empty(), "listed, but refused:\n{}", refused.join("\n"));
}

/// Whether something that may be no instruction at all can be run.
fn can_be_run(text: &str) -> bool {
    let source = format!("{HEAD}.visible .entry k() {{\n{AROUND}{text};\nlabel: ret;\n}}");
    let Ok(module) = detshare_ptx::parse(&source) else { return false };
    let image = super::decode(&[(module, &source)], &mut |_: &Placement<'_>| None);
    image.is_ok_and(|image| image.kernels["k"].properties.unsupported.is_none())
}

/// One that nobody knows may change what an instruction does.
#[test]
fn unknown_modifiers_are_refused() {
    let first = |pattern| expand(pattern).swap_remove(0);
    let taken: Vec<String> = patterns()
        .map(first)
        .map(|form| {
            let opcode = opcodes::of_text(&form);
            form.replacen(opcode, &format!("{opcode}.unheard_of"), 1)
        })
        .filter(|form| can_be_run(form))
        .collect();
    assert!(taken.is_empty(), "modifiers that nobody asked for:\n{}", taken.join("\n"));
    assert!(can_be_run("prefetch.global.L1 [d]") && !can_be_run("prefetch.global.L3 [d]"));
}

#[test]
fn forms_are_listed_once() {
    let mut seen = BTreeSet::new();
    let twice: Vec<String> = patterns().flat_map(expand).filter(|form| !seen.insert(form.clone())).collect();
    assert!(twice.is_empty(), "listed twice:\n{}", twice.join("\n"));
    let unknown: Vec<_> = listed_opcodes().into_iter().filter(|opcode| !opcodes::is_known(opcode)).collect();
    assert!(unknown.is_empty(), "no opcodes of PTX: {unknown:?}");
}

#[test]
fn what_is_not_there_has_its_reason() {
    let reasons: BTreeSet<_> = LACKING.iter().flat_map(|(_, opcodes)| *opcodes).copied().collect();
    assert_eq!(reasons, lacking(), "instructions with a reason, and those that are not there");
}

#[test]
fn what_has_a_case_is_listed() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions/cases");
    let listed = listed_opcodes();
    let mut missing = BTreeSet::new();
    for case in std::fs::read_dir(cases).expect("the cases are there").flatten() {
        let text = std::fs::read_to_string(case.path()).expect("a case can be read");
        let opcodes =
            text.lines().map(opcodes::of_text).filter(|word| opcodes::is_known(word) && !listed.contains(*word));
        missing.extend(opcodes.map(str::to_string));
    }
    assert!(missing.is_empty(), "add their forms to src/exec/decode/forms: {missing:?}");
}

#[test]
fn the_listing_is_what_can_be_run() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("INSTRUCTIONS.md");
    let now = listing();
    if std::env::var_os("DETSHARE_BLESS").is_some() {
        std::fs::write(&path, &now).expect("the crate's folder can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == now, "INSTRUCTIONS.md is not up to date: run this test with DETSHARE_BLESS=1 and commit");
}

#[test]
fn patterns_expand() {
    assert_eq!(
        expand("add<|.sat>.s32 r, <r|1>"),
        ["add.s32 r, r", "add.s32 r, 1", "add.sat.s32 r, r", "add.sat.s32 r, 1"]
    );
}
