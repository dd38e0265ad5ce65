//! Functions.

use super::*;

fn with_functions(functions: &str, body: &str) -> String {
    module(body).replace(".visible .entry", &format!("{functions}\n.visible .entry"))
}

fn results(source: &str, threads: u32) -> Vec<u64> {
    let image = image(source);
    assert_eq!(image.kernels["k"].properties.unsupported, None);
    let mut out = vec![0u64; threads as usize];
    let shape = shape([1; 3], [threads, 1, 1], 0, &[out.as_mut_ptr().expose_provenance() as u64, 0]);
    run(&image, "k", &shape).unwrap_or_else(|fault| panic!("{fault:?}"));
    out
}

const STORE: &str = "mul.wide.u32 %rd40, %t, 8; add.u64 %rd40, %out, %rd40; st.global.u32 [%rd40], %r0;";

const CALL: &str = "{ .param .b32 a; st.param.b32 [a], %t; .param .b32 v; \
                    call.uni (v), f, (a); ld.param.b32 %r0, [v]; }";

#[test]
fn functions_take_and_return_values() {
    let function = ".func (.param .b32 v) f(.param .b32 a) { .reg .b32 %r<3>; ld.param.u32 %r1, [a]; \
                    mad.lo.u32 %r2, %r1, %r1, 1; st.param.b32 [v], %r2; ret; }";
    let source = with_functions(function, &format!("{CALL} {STORE}"));
    assert_eq!(results(&source, 40), (0..40).map(|t| t * t + 1).collect::<Vec<u64>>());
}

#[test]
fn functions_take_structures_and_registers() {
    let functions = ".func (.param .align 16 .b8 v[16]) f(.param .align 8 .b8 a[16], .param .b64 b) {
            .reg .b64 %rd<5>; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [a+8]; ld.param.u64 %rd3, [b];
            add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3; st.param.v2.b64 [v], {%rd2, %rd1}; ret; }
        .func (.reg .b32 d) g(.reg .b32 a, .reg .b32 b) { sub.u32 d, a, b; ret; }";
    let body = "{ .param .align 8 .b8 a[16]; .param .b64 b; .param .align 16 .b8 v[16];
          st.param.b64 [a], 1; st.param.b64 [a+8], 2; st.param.b64 [b], 100;
          call (v), f, (a, b); ld.param.v2.b64 {%rd1, %rd2}, [v]; }
        cvt.u32.u64 %r1, %rd1; cvt.u32.u64 %r2, %rd2; call (%r3), g, (%r1, %r2); call (%r4), g, (50, 8);
        mul.lo.u32 %r3, %r3, 1000; add.u32 %r0, %r3, %r4;";
    assert_eq!(results(&with_functions(functions, &format!("{body} {STORE}")), 1), [1042]);
}

#[test]
fn lanes_call_on_their_own() {
    let function = ".func (.param .b32 v) f(.param .b32 a) { .reg .b32 %r<5>; .reg .pred %p; ld.param.u32 %r1, [a]; \
                    setp.gt.u32 %p, %r1, 5; @%p bra BIG; mov.u32 %r2, 100; bra OUT; BIG: mov.u32 %r2, 200; \
                    OUT: activemask.b32 %r3; popc.b32 %r3, %r3; add.u32 %r2, %r2, %r3; st.param.b32 [v], %r2; ret; }";
    let body =
        format!("mov.u32 %r0, 7; and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra SKIP; {CALL} SKIP: {STORE}");
    let expected: Vec<u64> = (0..32)
        .map(|t| {
            if t % 2 == 0 {
                7
            } else if t > 5 {
                216
            } else {
                116
            }
        })
        .collect();
    assert_eq!(results(&with_functions(function, &body), 32), expected);
}

#[test]
fn functions_call_themselves() {
    let function = ".func (.param .b32 v) f(.param .b32 n) { .reg .b32 %r<8>; .reg .pred %p; .local .align 4 .b32 kept;
        ld.param.u32 %r1, [n]; st.local.u32 [kept], %r1; setp.lt.u32 %p, %r1, 2; @%p bra SMALL;
        sub.u32 %r2, %r1, 1; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), f, (a); ld.param.b32 %r3, [b]; }
        ld.local.u32 %r4, [kept];
        sub.u32 %r4, %r4, 2; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r4; call (b), f, (a); ld.param.b32 %r5, [b]; }
        add.u32 %r6, %r3, %r5; st.param.b32 [v], %r6; ret;
        SMALL: st.param.b32 [v], %r1; ret; }";
    let mut fibonacci = vec![0u64, 1];
    for at in 2..14 {
        fibonacci.push(fibonacci[at - 1] + fibonacci[at - 2]);
    }
    assert_eq!(results(&with_functions(function, &format!("{CALL} {STORE}")), 14), fibonacci);
}

/// As deep as a list is long that a function follows.
#[test]
fn calls_nest_deeply() {
    let function = ".func (.param .b32 v) f(.param .b32 n) { .reg .b32 %r<8>; .reg .pred %p; ld.param.u32 %r1, [n];
        setp.eq.u32 %p, %r1, 0; mov.u32 %r3, 0; @%p bra DONE; sub.u32 %r2, %r1, 1;
        { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), f, (a); ld.param.b32 %r3, [b]; }
        add.u32 %r3, %r3, %r1; DONE: st.param.b32 [v], %r3; ret; }";
    let body = "mad.lo.u32 %r5, %t, 500, 2000; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r5; call (b), f, (a);
        ld.param.b32 %r0, [b]; }";
    let expected: Vec<u64> = [2000, 2500, 3000].map(|n: u64| n * (n + 1) / 2).to_vec();
    assert_eq!(results(&with_functions(function, &format!("{body} {STORE}")), 3), expected);
}

#[test]
fn addresses_of_parameters_are_local() {
    let function = ".func (.param .b32 v) f(.param .align 4 .b8 a[8]) { .reg .b32 %r<3>; .reg .b64 %rd<5>;
        mov.b64 %rd1, a; cvta.local.u64 %rd2, %rd1; ld.u32 %r1, [%rd2+4]; st.param.b32 [v], %r1; ret; }";
    let body =
        "{ .param .align 4 .b8 a[8]; .param .b32 v; st.param.b32 [a+4], 31; call (v), f, (a); ld.param.b32 %r0, [v]; }";
    assert_eq!(results(&with_functions(function, &format!("{body} {STORE}")), 1), [31]);
}

#[test]
fn functions_are_called_by_address() {
    let functions = ".func (.param .b32 v) one(.param .b32 a) { .reg .b32 %r<3>; ld.param.u32 %r1, [a]; add.u32 %r1, %r1, 1; st.param.b32 [v], %r1; ret; }
        .func (.param .b32 v) two(.param .b32 a) { .reg .b32 %r<3>; ld.param.u32 %r1, [a]; mul.lo.u32 %r1, %r1, 2; st.param.b32 [v], %r1; ret; }
        .global .align 8 .u64 table[2] = {one, two};";
    let body = "and.b32 %r1, %t, 1; mul.wide.u32 %rd1, %r1, 8; mov.u64 %rd2, table; add.u64 %rd1, %rd1, %rd2; ld.global.u64 %rd3, [%rd1];
        proto: .callprototype (.param .b32 _) _ (.param .b32 _);
        { .param .b32 a; .param .b32 v; st.param.b32 [a], %t; call (v), %rd3, (a), proto; ld.param.b32 %r0, [v]; }";
    let expected: Vec<u64> = (0..32).map(|t| if t % 2 == 0 { t + 1 } else { t * 2 }).collect();
    assert_eq!(results(&with_functions(functions, &format!("{body} {STORE}")), 32), expected);
}

#[test]
fn barriers_work_within_functions() {
    let function = ".func f() { bar.sync 0; ret; }";
    let body = format!(
        ".shared .align 4 .b32 s; setp.eq.u32 %p1, %t, 70; @%p1 st.shared.u32 [s], 12; call f; ld.shared.u32 %r0, [s]; {STORE}"
    );
    assert_eq!(results(&with_functions(function, &body), 96), [12; 96]);
}
