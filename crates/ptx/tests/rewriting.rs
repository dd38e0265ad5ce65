//! No module makes the rewrites panic, what they write is PTX, and their time is linear in the source.

use detshare_ptx::ast::{FunctionKind, Item};
use detshare_ptx::block_level::{RefusalKind, Rewritten, rewrite};
use detshare_ptx::parse;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// What compilers wrote, and the small sources.
static SOURCES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut sources = Vec::new();
    for folder in ["corpus", "versions"] {
        let entries = fs::read_dir(tests.join(folder)).expect("the folder is there");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
        paths.sort();
        sources.extend(paths.iter().map(|path| {
            let text = fs::read_to_string(path).expect("readable");
            text.split("\n// becomes:\n").next().unwrap_or_default().to_string()
        }));
    }
    sources
});

/// Rewrites, and checks what must hold for whatever parses.
fn check(source: &str) -> Result<Option<Rewritten>, TestCaseError> {
    let Ok(module) = parse(source) else { return Ok(None) };
    let rewritten = rewrite(&module, source);
    let is_kernel = |item: &&Item| matches!(item, Item::Function(function) if function.kind == FunctionKind::Kernel && function.body.is_some());
    prop_assert_eq!(rewritten.kernels.len(), module.items.iter().filter(is_kernel).count());
    let versions = rewritten.kernels.iter().flat_map(|kernel| [&kernel.sliced, &kernel.preemptible]);
    let mut names: Vec<&str> = versions.flatten().map(|version| version.name.as_str()).collect();
    prop_assert_eq!(rewritten.source.is_some(), !names.is_empty());
    if let Some(text) = &rewritten.source {
        let output = parse(text).map_err(|error| TestCaseError::fail(format!("{error} in\n{text}")))?;
        prop_assert_eq!(&output.to_string(), text);
        for item in output.items.iter().filter(is_kernel) {
            let Item::Function(function) = item else { continue };
            names.retain(|name| *name != function.name);
        }
        prop_assert!(names.is_empty(), "{names:?} are not there");
    }
    Ok(Some(rewritten))
}

#[test]
fn what_is_written_is_a_module() {
    let mut versions = 0;
    for source in SOURCES.iter() {
        let rewritten = check(source).expect("holds").expect("parses");
        versions += usize::from(rewritten.source.is_some());
    }
    assert!(versions > SOURCES.len() / 2, "only {versions} modules have versions");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Real files with lines cut out, doubled and exchanged: most of them still parse.
    #[test]
    fn mutated_files(
        seed in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3_u8), 1..8),
    ) {
        let mut lines: Vec<&str> = seed.get(&SOURCES).lines().collect();
        for (first, second, change) in changes {
            let (first, second) = (first.index(lines.len()), second.index(lines.len()));
            match change {
                0 => lines[first] = "",
                1 => lines[first] = lines[second],
                _ => lines.swap(first, second),
            }
        }
        check(&lines.join("\n"))?;
    }

    /// Real files with words exchanged for others of the same file.
    #[test]
    fn exchanged_words(
        seed in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..8),
    ) {
        let source = seed.get(&SOURCES);
        let mut words: Vec<&str> = source.split_inclusive([' ', '\t', '\n']).collect();
        for (first, second) in changes {
            let other = words[second.index(words.len())];
            let at = first.index(words.len());
            words[at] = other;
        }
        check(&words.concat())?;
    }
}

fn kernel(body: &str) -> String {
    format!(
        ".version 8.4 .target sm_90 .address_size 64
         .visible .entry k(.param .u64 out) {{
             .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .f32 %f<9>;
             {body}
             ret;
         }}"
    )
}

/// Shapes that take time squared if each part of them is looked at from each other one.
#[test]
fn time_is_linear_in_the_source() {
    const COUNT: usize = 5_000;
    let repeat = |line: &dyn Fn(usize) -> String| (0..COUNT).map(line).collect::<String>();
    let nested = format!(
        "{}{}",
        repeat(&|i| format!("ld.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L{i};\n")),
        repeat(&|i| format!("L{}: shfl.sync.bfly.b32 %r2, %r2, 1, 31, -1;\n", COUNT - 1 - i))
    );
    let loops = format!(
        "{}{}",
        repeat(&|i| format!("L{i}: ld.volatile.global.u32 %r1, [%rd1];\n")),
        repeat(&|i| format!("setp.eq.u32 %p1, %r2, 0; @%p1 bra L{};\n", COUNT - 1 - i))
    );
    let shapes = [
        repeat(&|_| "@%p1 bra END;\n".to_string()) + "END:",
        repeat(&|_| "@%p1 ret; bar.sync 0;\n".to_string()),
        repeat(&|i| format!("L{i}: ld.volatile.global.u32 %r1, [%rd1]; @%p1 bra L{i};\n")),
        repeat(&|i| format!("mov.f32 %f{}, %f{}; mul.f32 %f1, %f2, %f3;\n", i % 8, (i + 1) % 8)),
        repeat(&|_| "mov.u32 %r1, %ctaid.y;\n".to_string()),
        nested,
        loops,
    ];
    for shape in shapes {
        check(&kernel(&shape)).expect("holds").expect("parses");
    }
    let functions = repeat(&|i| {
        let callee = if i == 0 { String::new() } else { format!("call.uni f{};", i - 1) };
        format!(".func f{i}() {{ .reg .b32 %r; mov.u32 %r, %ctaid.x; {callee} ret; }}\n")
    });
    let source = kernel(&format!("call.uni f{};", COUNT - 1));
    let (head, rest) = source.split_once(".visible").expect("has one");
    let rewritten = check(&format!("{head}{functions}.visible{rest}")).expect("holds").expect("parses");
    assert!(rewritten.kernels[0].sliced.is_ok());
}

/// Loops within loops, without end.
#[test]
fn too_intricate_control_flow_is_refused() {
    let open: String = (0..1_000).map(|i| format!("L{i}: ld.volatile.global.u32 %r1, [%rd1];\n")).collect();
    let close: String = (0..1_000).rev().map(|i| format!("setp.eq.u32 %p1, %r2, {i}; @%p1 bra L{i};\n")).collect();
    let rewritten = check(&kernel(&(open + &close))).expect("holds").expect("parses");
    let refusal = rewritten.kernels[0].sliced.as_ref().expect_err("too deep");
    assert_eq!((refusal.kind, refusal.line), (RefusalKind::NotUnderstood, None));
}

#[test]
fn more_variables_than_slots_are_refused() {
    let variables: String = (0..8_000).map(|i| format!(".global .u32 v{i};\n")).collect();
    let uses: String = (0..8_000).map(|i| format!("st.global.u32 [v{i}], 0;\n")).collect();
    let source = kernel(&uses);
    let (head, rest) = source.split_once(".visible").expect("has one");
    let rewritten = check(&format!("{head}{variables}.visible{rest}")).expect("holds").expect("parses");
    assert_eq!(rewritten.kernels[0].sliced.as_ref().expect_err("too many").kind, RefusalKind::Variable);
    assert!(rewritten.borrowed.is_empty());
}
