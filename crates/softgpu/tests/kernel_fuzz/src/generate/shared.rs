//! Shared memory and the block's barriers. Between two barriers no two threads touch the same bytes, unless all read.

use super::{Maker, program};

/// Bytes of shared memory for each thread.
const SLOT: u32 = 16;

/// What is written to a thread's own slot, and what is read from another's.
const EXCHANGES: [(&str, &str); 9] = [
    ("st.shared(|.volatile).(b32|u32|f32) [%a], $r;", "ld.shared(|.volatile).(b32|s32|f32) $R, [%b];"),
    ("st.shared.(b64|f64) [%a], $d;", "ld.shared.(b64|u64|f64) $D, [%b];"),
    ("st.shared.v2.b32 [%a], {$r, $r};", "ld.shared.b64 $D, [%b];"),
    ("st.shared.v4.(b32|f32) [%a], {$r, $r, $r, $r};", "ld.shared.v2.(b64|u64) {$D, $D}, [%b];"),
    ("st.shared.v2.b64 [%a], {$d, $d};", "ld.shared.v4.b32 {$R, $R, $R, $R}, [%b];"),
    ("st.shared.b32 [%a], $r;", "ld.shared.(u8|s8) $R, [%b+$<0..3>];"),
    ("st.shared.b64 [%a], $d;", "ld.shared.(u16|s16) $R, [%b+(0|2|4|6)]; ld.shared.v4.b16 {$H, $H, $H, $H}, [%b];"),
    ("st.shared.v4.b16 [%a], {$h, $h, $h, $h};", "ld.shared.(b16|u16|s16) $H, [%b+4];"),
    ("st.shared.v4.b8 [%a], {$r, $r, $r, $r};", "ld.shared.b32 $R, [%b];"),
];

/// Barriers of all threads, for a block of `T`.
const BARRIERS: [&str; 8] = [
    "bar.sync 0;",
    "barrier.sync 0;",
    "barrier.sync.aligned 0;",
    "bar.sync $<1..15>, T;",
    "barrier.sync $<1..15>, T;",
    "bar.cta.sync 0;",
    "barrier.cta.sync.aligned $<1..15>, T;",
    "bar.red.popc.u32 $R, 0, $p;",
];

fn barrier(maker: &mut Maker) -> String {
    let threads = maker.threads().to_string();
    let barrier = maker.random.pick(&BARRIERS).replace('T', &threads);
    maker.fill(&barrier)
}

/// `%a` is the thread's own slot, `%b` another's.
pub(super) fn addresses(maker: &mut Maker, variable: &str) -> String {
    let threads = maker.threads();
    let odd = maker.random.below(16) * 2 + 1;
    let other = match maker.random.below(3) {
        0 => format!("mad.lo.u32 %b, %tid0, {odd}, {}; and.b32 %b, %b, {};", maker.random.below(threads), threads - 1),
        1 => format!("xor.b32 %b, %tid0, {};", maker.random.below(threads)),
        // Several threads read the same.
        _ => maker.fill(&format!("and.b32 %b, $r, {};", threads - 1)),
    };
    format!(
        ".reg .b32 %a, %b, %s; mov.u32 %s, {variable}; mad.lo.u32 %a, %tid0, {SLOT}, %s; {other} \
         mad.lo.u32 %b, %b, {SLOT}, %s;"
    )
}

pub(super) fn exchange(maker: &mut Maker) {
    maker.any_shape();
    let bytes = maker.threads() * SLOT;
    let variable = format!("{}_shared", maker.kernel.name);
    let inside = maker.random.percent(50);
    let declaration = format!(".shared .align 16 .b8 {variable}[{bytes}];\n");
    if inside {
        maker.kernel.declarations = declaration;
    } else {
        maker.kernel.outside = declaration;
    }
    for _ in 0..3 {
        let (write, read) = maker.random.pick(&EXCHANGES);
        let addresses = addresses(maker, &variable);
        let (write, read) = (maker.fill(write), maker.fill(read));
        let (write, read) = if maker.random.percent(25) { generic(&write, &read) } else { (write, read) };
        let (first, second) = (barrier(maker), barrier(maker));
        let text = format!("{{ {addresses}\n{write}\n{first}\n{read}\n{second} }}");
        maker.kernel.body.push(crate::kernel::Statement::Text(text));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}

/// The same through generic addresses.
fn generic(write: &str, read: &str) -> (String, String) {
    let convert = "{ .reg .b64 %g; cvt.u64.u32 %g, REGISTER; cvta.shared.u64 %g, %g; ACCESS }";
    let rewrite = |access: &str, register: &str| {
        let access = access.replace(".shared", "").replace(&format!("[{register}"), "[%g");
        convert.replace("REGISTER", register).replace("ACCESS", &access)
    };
    (rewrite(write, "%a"), rewrite(read, "%b"))
}

/// Reductions over the block, and warps that only arrive.
pub(super) fn barriers(maker: &mut Maker) {
    maker.any_shape();
    let threads = maker.threads();
    maker.declare(&format!(".shared .align 16 .b8 area[{}];", threads * SLOT));
    for _ in 0..3 {
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
        let reduction = maker.random.pick(&[
            "bar.red.(and|or).pred $P, 0, (|!)$p;",
            "bar.red.popc.u32 $R, 0, (|!)$p;",
            "barrier.red.popc.aligned.u32 $R, $<1..7>, T, $p;",
            "barrier.red.(and|or).pred $P, $<1..7>, T, $p;",
            "barrier.cta.red.popc.aligned.u32 $R, 2, T, $p;",
        ]);
        maker.add(&reduction.replace('T', &threads.to_string()));
        let addresses = addresses(maker, "area");
        let number = maker.fresh();
        // Every thread writes; the first half only arrives, the second waits for it and reads what it wrote.
        maker.add(&format!(
            "{{ {addresses} st.shared.b32 [%a], $r; setp.lt.u32 %c{number}, %tid0, {half};\n\
             @%c{number} bar.arrive 9, {threads};\n@%c{number} bra END{number};\nbar.sync 9, {threads};\n\
             and.b32 %b, %tid0, {mask}; mad.lo.u32 %b, %b, {SLOT}, %s; ld.shared.b32 $R, [%b];\nEND{number}:\nbar.sync 0; }}",
            half = if threads == 32 { 0 } else { threads / 2 },
            mask = threads / 2 - 1,
        ));
    }
}
