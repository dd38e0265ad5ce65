//! No input makes the parser panic, and whatever it takes, it prints back.

use detshare_ptx::{MAX_DEPTH, ParseErrorKind, parse};
use proptest::prelude::*;
use std::sync::LazyLock;
use std::{fs, thread};

const HEAD: &str = ".version 8.4 .target sm_90 .address_size 64 ";

/// Small files that have every kind of item and statement between them.
static SEEDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/");
    ["calls.sm_80", "data.sm_80", "hopper.sm_90a", "matmul.lineinfo", "texture.sm_86", "inline_assembly.sm_89"]
        .iter()
        .map(|name| fs::read_to_string(format!("{folder}{name}.ptx")).expect("readable"))
        .collect()
});

fn check(source: &str) -> Result<(), TestCaseError> {
    let Ok(module) = parse(source) else { return Ok(()) };
    let printed = module.to_string();
    match parse(&printed) {
        Ok(again) => prop_assert!(again.without_spans() == module.without_spans(), "changed:\n{source}\n{printed}"),
        Err(error) => prop_assert!(false, "{error} in what was printed:\n{source}\n{printed}"),
    }
    Ok(())
}

fn token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        ".entry",
        ".func",
        ".visible",
        ".extern",
        ".weak",
        ".common",
        ".global",
        ".shared",
        ".param",
        ".reg",
        ".const",
        ".align",
        ".v4",
        ".u32",
        ".f64",
        ".b8",
        ".pred",
        ".ptr",
        ".attribute",
        ".managed",
        ".maxntid",
        ".pragma",
        ".loc",
        ".file",
        ".section",
        ".debug_info",
        ".branchtargets",
        ".callprototype",
        ".calltargets",
        ".noreturn",
        "name",
        "%r1",
        "%tid",
        ".x",
        "_",
        "%",
        "generic",
        "WARP_SZ",
        "call",
        "add",
        ".s32",
        ".L2::128B",
        "function_name",
        "inlined_at",
        "0",
        "1",
        "7U",
        "0x7f",
        "0b1",
        "017",
        "0f3F800000",
        "0d7FF0000000000001",
        "1.5",
        "1e9",
        "18446744073709551615",
        "9223372036854775808",
        "\"text\"",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ";",
        ":",
        "@",
        "!",
        "?",
        "=",
        "+",
        "-",
        "*",
        "/",
        "~",
        "^",
        "&",
        "|",
        "&&",
        "||",
        "<",
        ">",
        "<=",
        ">=",
        "==",
        "!=",
        "<<",
        ">>",
        "\n",
        "// comment\n",
        "/* comment */",
    ])
}

fn soup(length: usize) -> impl Strategy<Value = String> {
    prop::collection::vec((token(), prop::sample::select(vec!["", " "])), 0..length)
        .prop_map(|tokens| tokens.iter().flat_map(|(token, gap)| [*token, *gap]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        check(&text)?;
        check(&format!("{HEAD}{text}"))?;
        check(&format!("{HEAD}.entry k() {{ {text} }}"))?;
    }

    #[test]
    fn random_tokens(tokens in soup(60)) {
        check(&tokens)?;
        check(&format!("{HEAD}{tokens}"))?;
        check(&format!("{HEAD}.entry k() {{ {tokens} }}"))?;
    }

    /// Short enough that many of them are valid.
    #[test]
    fn random_fragments(tokens in soup(8)) {
        check(&format!("{HEAD}.entry k() {{ add {tokens}; }}"))?;
        check(&format!("{HEAD}.entry k() {{ call {tokens}; }}"))?;
        check(&format!("{HEAD}.entry k() {{ {tokens}; }}"))?;
        check(&format!("{HEAD}.entry k() {tokens} {{ }}"))?;
        check(&format!("{HEAD}.global .u64 x = {tokens};"))?;
        check(&format!("{HEAD}.global {tokens} x;"))?;
        check(&format!("{HEAD}.func ({tokens}) f ({tokens});"))?;
    }

    /// Real files with a few pieces cut out, doubled or replaced.
    #[test]
    fn mutated_files(
        seed in any::<prop::sample::Index>(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..20_usize, soup(3), any::<bool>()), 1..5),
    ) {
        let mut text = seed.get(&SEEDS).clone();
        for (at, length, insertion, double) in cuts {
            let start = text.floor_char_boundary(at.index(text.len().max(1)));
            let end = text.floor_char_boundary((start + length).min(text.len()));
            let replacement = if double { text[start..end].repeat(2) } else { insertion };
            text.replace_range(start..end, &replacement);
        }
        check(&text)?;
    }
}

/// As deep as it goes, and far deeper, on a quarter of the stack that a thread usually has.
#[test]
fn nesting_is_bounded() {
    const STACK: usize = 512 << 10;
    const FAR_TOO_DEEP: usize = 100_000;
    let check_all = || {
        let deepest = MAX_DEPTH as usize;
        for depth in [deepest - 1, deepest, deepest + 1, FAR_TOO_DEEP] {
            let nest =
                |open: &str, core: &str, close: &str| format!("{}{core}{}", open.repeat(depth), close.repeat(depth));
            let constants = [
                nest("(", "1", ")"),
                nest("-", "1", ""),
                nest("~(.u64)", "1", ""),
                nest("1||2&&3|4^5&6==7<8<<9+10*(", "1", ")"),
                nest("1?", "2", ":3"),
                nest("1?2:", "3", ""),
            ];
            let initializers = constants.iter().map(|constant| format!(".global .u64 x = {constant};"));
            let operands = constants.iter().map(|constant| format!(".entry k() {{ mov.u64 x, {constant}; }}"));
            let others = [
                format!(".global .u64 x = {};", nest("{", "1", "}")),
                format!(".entry k() {}", nest("{", "ret;", "}")),
                format!(".entry k() {{ mov.u64 x, {}; }}", nest("{", "y", "}")),
                format!(".entry k() {{ call {}; }}", nest("(", "y", ")")),
                format!(".entry k() {{ mov.u64 x, {}; }}", nest("[", "y", "]")),
                format!(".section .x {}", nest("{", "", "}")),
            ];
            for text in initializers.chain(operands).chain(others) {
                check(&format!("{HEAD}{text}")).expect("prints what it takes");
            }
        }
        let too_deep = format!("{HEAD}.entry k() {}", "{".repeat(FAR_TOO_DEEP));
        assert_eq!(parse(&too_deep).expect_err("too deep").kind, ParseErrorKind::TooDeep);
    };
    thread::Builder::new().stack_size(STACK).spawn(check_all).expect("a thread").join().expect("no overflow");
}

/// Tokens as long as a source can make them; a lexer must not need stack for each character.
#[test]
fn tokens_may_be_long() {
    const LENGTH: usize = 1 << 20;
    for (open, part, close) in [
        ("", "x", ""),
        ("", " ", ""),
        ("", "1", ""),
        ("", ".", ""),
        ("//", "é", "\n"),
        ("/*", "*", "*/"),
        (".", "a", ""),
    ] {
        check(&format!("{HEAD}{open}{}{close}", part.repeat(LENGTH))).expect("prints what it takes");
        check(&format!("{HEAD}.entry k() {{ add {open}{}{close}; }}", part.repeat(LENGTH)))
            .expect("prints what it takes");
    }
    check(&format!("{HEAD}.file 1 \"{}\"", "é".repeat(LENGTH))).expect("prints what it takes");
}

/// Many instructions that are not understood must not take time squared.
#[test]
fn raw_text_takes_linear_time() {
    const COUNT: usize = 20_000;
    check(&format!("{HEAD}.entry k() {{ {} }}", "mov.u32 s, a[1];\n".repeat(COUNT))).expect("prints what it takes");
}
