//! Modules, variables and what kernels say about themselves.

use super::super::decode::DecodeError;
use super::*;
use std::collections::BTreeMap;
use std::path::Path;

const HEADER: &str = ".version 8.4\n.target sm_90a\n.address_size 64\n";

fn with_header(text: &str) -> String {
    format!("{HEADER}{text}")
}

fn words(image: &Image, name: &str) -> Vec<u32> {
    let global = &image.globals[name];
    let words = usize::try_from(global.size / 4).unwrap();
    let start = core::ptr::with_exposed_provenance::<u32>(usize::try_from(global.address).unwrap());
    // SAFETY: decode was given that much memory for the variable, and nothing runs that could write to it.
    unsafe { std::slice::from_raw_parts(start, words) }.to_vec()
}

#[test]
fn variables_start_with_their_values() {
    let image = image(&with_header(
        ".visible .global .align 4 .u32 one = 7;
         .visible .global .align 4 .f32 many[4] = {0f3E800000, 0.5, 0f3F400000};
         .global .align 4 .u32 grid[2][2] = {{1, 2}, {3, 4}};
         .visible .const .align 4 .b8 bytes[] = {1, 2, 3, 4, 255, 0, 0, 1};
         .visible .global .align 8 .u64 pointer = grid+4;
         .visible .global .align 8 .b8 part[8] = {0xff(grid), 0xff00(grid)};
         .visible .global .align 16 .v4 .f32 vector = {1.0, 2.0, 3.0, 4.0};
         .visible .entry k() { ret; }",
    ));
    assert_eq!(words(&image, "one"), [7]);
    assert_eq!(words(&image, "many"), [0x3e80_0000, 0x3f00_0000, 0x3f40_0000, 0]);
    assert_eq!(words(&image, "grid"), [1, 2, 3, 4]);
    assert_eq!(words(&image, "bytes"), [0x0403_0201, 0x0100_00ff]);
    let pointer = words(&image, "pointer");
    let grid = image.globals["grid"].address;
    assert_eq!(u64::from(pointer[0]) | u64::from(pointer[1]) << 32, grid + 4);
    assert_eq!(u64::from(words(&image, "part")[0]), grid & 0xffff);
    assert_eq!(words(&image, "vector"), [1f32, 2.0, 3.0, 4.0].map(f32::to_bits));
    assert!(image.globals.contains_key("one") && image.globals.contains_key("grid"));
    assert_eq!(image.kernels["k"].properties.constant_bytes, 8);
    assert_eq!(image.kernels["k"].properties.target, 90);
}

#[test]
fn kernels_describe_themselves() {
    let image = image(&with_header(
        ".shared .align 8 .b8 used[100]; .shared .b8 other[50000]; .extern .shared .align 16 .b8 rest[];
         .func f() { .reg .b32 %r; ld.shared.u32 %r, [used]; ret; }
         .visible .entry a(.param .u8 x, .param .align 8 .b8 y[12], .param .u16 z) .maxntid 64, 2, 1 {
            .local .align 8 .b8 l[24]; .reg .b32 %r<5>; .shared .u32 mine; ld.shared.u32 %r1, [mine]; call f; ret; }
         .visible .entry b() .reqntid 32 { .reg .b64 %rd<5>; mov.u64 %rd1, rest; mov.u64 %rd2, other; ret; }
         .visible .entry c() .minnctapersm 2 { ret; }",
    ));
    let a = &image.kernels["a"].properties;
    let places: Vec<_> = a.parameters.iter().map(|parameter| (parameter.offset, parameter.size)).collect();
    assert_eq!(places, [(0, 1), (8, 12), (20, 2)]);
    assert_eq!((a.parameter_bytes, a.shared_bytes, a.local_bytes, a.most_threads), (22, 104, 24, Some(128)));
    assert_eq!(a.required_block, None);
    let b = &image.kernels["b"].properties;
    assert_eq!((b.shared_bytes, b.required_block, b.most_threads), (50_000, Some([32, 1, 1]), Some(32)));
    let c = &image.kernels["c"].properties;
    assert_eq!((c.shared_bytes, c.most_threads, c.registers), (0, None, 1));
}

/// The first thing of each kernel that cannot be run, in a module of four lines and this one.
fn lacking(text: &str) -> BTreeMap<String, Option<(String, u32)>> {
    let image = image(&with_header(text));
    image.kernels.iter().map(|(name, kernel)| (name.clone(), kernel.properties.unsupported.clone())).collect()
}

#[test]
fn known_directives_are_taken() {
    let lacking = lacking(
        ".func f() .noreturn { trap; } .func g() .abi_preserve 8 .abi_preserve_control 14 .local_maxnreg 32 { ret; }
         .func .attribute(.unified(1, 2)) h() { ret; }
         .visible .entry a() .maxntid 64, 2 .minnctapersm 2 .maxnctapersm 4 .maxnreg 32 .local_maxnreg 32 { call g; ret; }
         .visible .entry b() .pragma \"nounroll\"; .reqntid 32 .maxclusterrank 8 { call f; ret; }
         .visible .entry c() .explicitcluster .reqnctapercluster 2, 1, 1 .reqntid 8 .blocksareclusters {
            .reg .b64 %d; prototype: .callprototype _ () .noreturn; mov.u64 %d, h; call %d, (), prototype; ret; }",
    );
    assert!(lacking.len() == 3 && lacking.values().all(Option::is_none), "{lacking:?}");
}

/// What nobody knows may change what a launch is.
#[test]
fn unknown_directives_are_not_ignored() {
    for (directive, told) in [
        (".never_heard_of", ".never_heard_of"),
        (".never_heard_of 1, 2", ".never_heard_of 1, 2"),
        (".maxntid 32 .never_heard_of \"text\";", ".never_heard_of \"text\""),
        (".maxntid", ".maxntid"),
        (".maxnreg 32, 32", ".maxnreg 32, 32"),
        (".explicitcluster 2", ".explicitcluster 2"),
        (".noreturn", ".noreturn"),
    ] {
        let lacking =
            lacking(&format!(".visible .entry other() {{ ret; }}\n.visible .entry k()\n{directive} {{ ret; }}"));
        assert_eq!(lacking["k"], Some((told.to_string(), 6)), "{directive}");
        assert_eq!(lacking["other"], None, "{directive}");
    }
    let of_functions = lacking(
        ".func f() .maxntid 32 { ret; } .func .attribute(.never_heard_of(1)) g() { ret; }
         .visible .entry calls() { call f; ret; } .visible .entry calls_other() { call g; ret; }
         .visible .entry asks() { .reg .b64 %d; mov.u64 %d, f; prototype: .callprototype _ () .odd; call %d, (), prototype; ret; }
         .visible .entry knows() { .reg .b64 %d; mov.u64 %d, f; ret; }",
    );
    assert_eq!(of_functions["calls"], Some((".maxntid 32".to_string(), 4)));
    assert_eq!(of_functions["calls_other"], Some((".attribute(.never_heard_of(1))".to_string(), 4)));
    assert_eq!(of_functions["asks"], Some((".odd".to_string(), 6)));
    assert_eq!(of_functions["knows"], None);
}

#[test]
fn blocks_that_are_clusters_declare_both() {
    let whole = ".blocksareclusters .reqntid 16, 2 .reqnctapercluster 2, 3";
    let source = |directives: &str| with_header(&format!(".visible .entry k() {directives} {{ ret; }}"));
    for directives in [
        ".blocksareclusters",
        ".blocksareclusters .reqntid 32",
        ".reqnctapercluster 2 .blocksareclusters",
        ".blocksareclusters .maxntid 32 .reqnctapercluster 2",
        ".blocksareclusters .reqntid 32 .reqnctapercluster 0, 0, 0",
    ] {
        let error = try_image(&[&source(directives)]).map(drop).expect_err(directives);
        assert_eq!(error.to_string(), "line 4: .reqntid and .reqnctapercluster are needed: '.blocksareclusters'");
    }
    let image = image(&source(whole));
    let properties = &image.kernels["k"].properties;
    assert_eq!(properties.unsupported, None);
    let declared = [16, 2, 1];
    assert_eq!(properties.launched([5, 7, 1], [1; 3]), Some(([10, 21, 1], declared)));
    assert_eq!(properties.launched([5, 7, 1], declared), Some(([10, 21, 1], declared)));
    assert_eq!(properties.launched([1, 1 << 31, 1], declared), None);
    // What a driver refuses then.
    assert_eq!(properties.launched([1; 3], [8, 1, 1]), Some(([2, 3, 1], [8, 1, 1])));
}

#[test]
fn dynamic_shared_memory_follows_the_static() {
    let source = module(
        ".shared .align 4 .b8 s[20]; st.shared.u32 [s], 1; mov.u64 %rd1, d; mov.u32 %r1, %dynamic_smem_size;
         st.shared.u64 [%rd1+8], %rd1; ld.shared.u64 %rd2, [d+8]; cvt.u64.u32 %rd3, %r1; shl.b64 %rd3, %rd3, 32;
         or.b64 %rd2, %rd2, %rd3; st.global.u64 [%out], %rd2;",
    );
    let source = source.replace(".visible .entry", ".extern .shared .align 16 .b8 d[];\n.visible .entry");
    let image = image(&source);
    let mut out = [0u64; 1];
    run(&image, "k", &shape([1; 3], [1; 3], 16, &[out.as_mut_ptr().expose_provenance() as u64, 0])).unwrap();
    assert_eq!(out, [16 << 32 | 1056]);
}

#[test]
fn modules_see_each_other() {
    let one = with_header(
        ".visible .global .u32 shared_value = 5; .global .u32 own = 1;
         .visible .func (.param .b32 v) f() { .reg .b32 %r<3>; ld.global.u32 %r1, [own]; st.param.b32 [v], %r1; ret; }
         .weak .func g() { ret; }",
    );
    let two = with_header(
        ".extern .global .u32 shared_value; .global .u32 own = 20; .extern .func (.param .b32 v) f(); .weak .func g() { ret; }
         .visible .entry k(.param .u64 out) { .reg .b32 %r<5>; .reg .b64 %rd<3>; ld.param.u64 %rd1, [out];
            { .param .b32 v; call (v), f; ld.param.b32 %r1, [v]; } ld.global.u32 %r2, [own]; ld.global.u32 %r3, [shared_value];
            add.u32 %r1, %r1, %r2; mad.lo.u32 %r1, %r3, 100, %r1; call g; st.global.u32 [%rd1], %r1; ret; }",
    );
    let image = try_image(&[&one, &two]).unwrap();
    let mut out = [0u64; 1];
    run(&image, "k", &shape([1; 3], [1; 3], 0, &[out.as_mut_ptr().expose_provenance() as u64])).unwrap();
    assert_eq!(out, [521]);
}

#[test]
fn what_is_missing_or_twice_there_is_an_error() {
    let kernel = |body: &str| {
        with_header(&format!(
            ".extern .func f(); .extern .global .u32 v; .visible .entry k() {{ .reg .b32 %r<3>; .reg .b64 %rd<3>; {body} ret; }}"
        ))
    };
    let error = |source: &str| try_image(&[source]).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(error(&kernel("call f;")), "line 4: unresolved symbol 'f'");
    assert_eq!(error(&kernel("ld.global.u32 %r1, [v];")), "line 4: unresolved symbol 'v'");
    assert_eq!(error(&kernel("mov.u32 %r1, %r7;")), "line 4: unresolved symbol '%r7'");
    assert_eq!(error(&kernel("bra NOWHERE;")), "line 4: unresolved symbol 'NOWHERE'");
    assert_eq!(error(&kernel("this is nothing;")), "line 4: unknown instruction: 'this is nothing'");
    assert!(error(&kernel("add.u32 %r1, %rd1, 1;")).contains("an operand's size"));
    assert!(error(&kernel("add.u32 %r1, 1;")).contains("wrong number of operands"));
    let function = with_header(".visible .func f() { ret; }");
    assert_eq!(try_image(&[&function, &function]).err(), Some(DecodeError::Duplicate { name: "f".into() }));
    let none = |_: &Placement<'_>| None;
    let source = with_header(".global .u32 v;");
    let modules = [(detshare_ptx::parse(&source).unwrap(), source.as_str())];
    let error = decode(&modules, &mut { none }).err();
    assert_eq!(error, Some(DecodeError::NoMemory { name: "v".into(), size: 4 }));
}

#[test]
fn a_kernel_says_what_it_cannot_run() {
    let image = image(&with_header(
        ".func f() { .reg .f32 %f<5>; .reg .b64 %t; \n tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%t, {%f1, %f2}]; ret; }
         .visible .entry direct() { call f; ret; }
         .visible .entry none() { .reg .b64 %rd; mov.u64 %rd, f; ret; }
         .visible .entry print() { .reg .b64 %rd; { .param .b64 a; .param .b64 b; .param .b32 v;
            call (v), vprintf, (a, b); } ret; }
         .func p() { .reg .b64 %rd; { .param .b64 a; .param .b64 b; .param .b32 v; call (v), vprintf, (a, b); } ret; }
         .visible .entry through() { call p; ret; }",
    ));
    let unsupported = |name: &str| image.kernels[name].properties.unsupported.clone();
    let (text, line) = unsupported("direct").unwrap();
    assert!(text.starts_with("tex.2d.v4.f32.f32") && !text.ends_with(';'), "{text}");
    assert_eq!(line, 5);
    assert_eq!(unsupported("none"), None);
    assert_eq!(unsupported("print"), None);
    let prints = |name: &str| image.kernels[name].properties.system.prints;
    assert!(prints("print") && prints("through") && !prints("direct"), "what a kernel calls prints for it");
}

#[test]
fn what_the_device_runtime_lacks_is_refused_with_its_line() {
    let calls = |name: &str| {
        let source =
            with_header(&format!(".visible .entry k() {{\n {{ .param .b32 r; call (r),\n {name}\n; }} ret; }}"));
        try_image(&[&source]).err()
    };
    let Some(DecodeError::NotSupported { text, line, reason }) = calls("cudaGraphLaunch") else {
        panic!("it was decoded")
    };
    assert!(
        text == "call (r), cudaGraphLaunch" && line == 5 && reason.contains("device runtime"),
        "{line}: {text}: {reason}"
    );
    // What a device of compute capability 9.0 does not have, or NVIDIA's library, is a name as any other.
    for name in ["cudaDeviceSynchronize", "cudaGetParameterBufferV2", "__cudaCDP2EventRecordWithFlags", "cudaNothing"] {
        let unresolved =
            matches!(calls(name), Some(DecodeError::Unresolved { name: found, line: Some(5) }) if found == name);
        assert!(unresolved, "{name} is not said to be unresolved");
    }
}

/// A module with what another one says is elsewhere: the corpus has files of programs in several parts.
fn elsewhere(text: &str) -> String {
    let declared = text.split(".extern ").skip(1).filter_map(|rest| rest.split(';').next());
    let wanted = declared.filter(|declaration| declaration.contains("elsewhere"));
    let defined = wanted.map(|declaration| {
        let end = if declaration.starts_with(".func") { "{ ret; }" } else { ";" };
        format!(".visible {declaration} {end}\n")
    });
    with_header(&defined.collect::<String>())
}

/// What nvcc, NVRTC and Numba made of ordinary programs; each file's kernels that cannot be run, and the first of what they need.
#[test]
fn what_compilers_make_can_be_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ptx/tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).expect("it is there").map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    let mut refused = BTreeMap::new();
    let mut kernels = 0;
    for path in &files {
        let text = std::fs::read_to_string(path).expect("PTX is text");
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let image = try_image(&[&text, &elsewhere(&text)]).unwrap_or_else(|error| panic!("{name}: {error}"));
        kernels += image.kernels.len();
        for kernel in image.kernels.values() {
            if let Some((instruction, _)) = &kernel.properties.unsupported {
                let opcode = instruction.split_whitespace().next().unwrap_or_default();
                refused.insert(name.clone(), opcode.to_string());
            }
        }
    }
    assert!(kernels > files.len(), "{kernels} kernels in {} files", files.len());
    // Textures are left out.
    let exceptions = [("texture.sm_86.ptx", "tex.2d.v4.f32.f32")];
    let exceptions = exceptions.map(|(file, opcode)| (file.to_string(), opcode.to_string()));
    assert_eq!(refused, BTreeMap::from(exceptions));
}
