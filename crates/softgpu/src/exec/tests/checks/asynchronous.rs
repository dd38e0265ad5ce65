//! What the checker finds around what runs on its own: barriers in memory, bulk copies and products of warp groups.

use super::super::super::tensor_map::{Swizzle, TensorMap};
use super::super::super::{Finding, FindingKind};
use super::super::*;
use super::{findings_of, findings_with};

/// What is found in a block of two warps with shared memory `s` of 1 KiB (its address is in `%r99`, that of a thread's own word
/// in `%r98`), and barriers `a` for both warps and `b` for one arrival, whose addresses are in `%r97` and `%r96`.
fn findings(body: &str) -> Vec<Finding> {
    let mut from = vec![7_u32; 256];
    let parameters = [0; 2].map(|_: u64| from.as_mut_ptr().expose_provenance() as u64);
    let body = format!(
        ".shared .align 8 .b64 a; .shared .align 8 .b64 b; mov.u32 %r97, a; mov.u32 %r96, b;
         setp.eq.u32 %p9, %t, 0; setp.lt.u32 %p8, %t, 32;
         @%p9 mbarrier.init.shared.b64 [%r97], 32; @%p9 mbarrier.init.shared.b64 [%r96], 1;
         fence.proxy.async; bar.sync 0;\n{body}"
    );
    let (findings, fault) = findings_with(&body, 64, &parameters);
    assert_eq!(fault, None, "{body}");
    findings
}

#[track_caller]
fn finds(body: &str, words: &str) {
    let findings = findings(body);
    let told: Vec<_> = findings.iter().map(|finding| (finding.kind, &finding.words)).collect();
    assert!(matches!(told.as_slice(), [(_, all)] if all.contains(words)), "{body}\n{told:#?}");
}

#[track_caller]
fn finds_nothing(body: &str) {
    assert_eq!(findings(body), [], "{body}");
}

/// Waits for a barrier's phase.
fn wait(barrier: &str, parity: u32, label: &str) -> String {
    format!("{label}: mbarrier.try_wait.parity.shared.b64 %p1, [{barrier}], {parity}; @!%p1 bra {label};\n")
}

const WRITE: &str = "st.shared.u32 [%r98], %t;\n";
const ARRIVE: &str = "mbarrier.arrive.shared.b64 _, [%r97];\n";
/// The word that a thread of the other warp has.
const READ_OTHER: &str = "ld.shared.u32 %r2, [%r98+-128];\n";

/// The first warp writes and arrives, the second does something with what there is.
fn produced(produce: &str, consume: &str) -> String {
    format!("@!%p8 bra CONSUME;\n{produce} bra END;\nCONSUME:\n{consume}\nEND:")
}

#[test]
fn who_waits_for_a_phase_comes_after_those_who_arrived() {
    finds_nothing(&produced(&format!("{WRITE} {ARRIVE}"), &format!("{} {READ_OTHER}", wait("%r97", 0, "WAIT"))));
    // The state of an arrival, counted ones, and the last arrival of those who drop out.
    for arrive in [
        "@%p9 mbarrier.arrive.noComplete.shared.b64 %rd2, [%r97], 1; @!%p9 mbarrier.arrive.shared.b64 _, [%r97];
         @%p9 mbarrier.arrive.shared.b64 %rd2, [%r97], 1; @%p9 mbarrier.test_wait.shared.b64 %p2, [%r97], %rd2;",
        "bar.warp.sync -1; @%p9 mbarrier.arrive.shared.b64 _, [%r97], 32;",
        "mbarrier.arrive_drop.shared.b64 _, [%r97];",
    ] {
        let body = produced(&format!("{WRITE} {arrive}"), &format!("{} {READ_OTHER}", wait("%r97", 0, "WAIT")));
        finds_nothing(&body);
    }
}

#[test]
fn a_consumer_that_does_not_wait_is_found() {
    let race = "in 'st.shared.u32 [%r98], %t', line";
    finds(&produced(&format!("{WRITE} {ARRIVE}"), READ_OTHER), race);
    // Once is not enough: the phase may not be over.
    let look = "mbarrier.test_wait.parity.shared.b64 %p1, [%r97], 0;";
    let never = "mbarrier.test_wait.parity.shared.b64 %p1, [%r97], 1;";
    finds(&produced(&format!("{WRITE} {ARRIVE}"), &format!("{never} {READ_OTHER}")), race);
    finds_nothing(&produced(&format!("{WRITE} {ARRIVE}"), &format!("{look} @%p1 {READ_OTHER}")));
}

#[test]
fn a_wait_for_the_wrong_phase_is_found() {
    // Who has arrived in a phase that is not over is not waited for.
    let consume = format!("{} {READ_OTHER}", wait("%r97", 1, "WAIT"));
    finds(&produced(&format!("{WRITE} @!%p9 {ARRIVE}"), &consume), "nothing orders the two");
    // The phase before the first one counts as over: the consumer reads what was there before.
    let before = format!("{WRITE} bar.sync 0; @%p8 bra CONSUME; {WRITE} {ARRIVE} bra END; CONSUME:");
    let read = "ld.shared.u32 %r2, [%r98+128]; END:";
    finds(&format!("{before} {} {read}", wait("%r97", 1, "WAIT")), "nothing orders the two");
    finds_nothing(&format!("{before} {} {read}", wait("%r97", 0, "WAIT")));
}

#[test]
fn what_is_written_after_the_arrival_is_not_behind_it() {
    let consume = format!("{} {READ_OTHER}", wait("%r97", 0, "WAIT"));
    finds(&produced(&format!("{ARRIVE} {WRITE}"), &consume), "nothing orders the two");
    // Nor may the place be used again before those who read it have arrived in turn.
    finds(&produced(&format!("{WRITE} {ARRIVE} st.shared.u32 [%r98], 5;"), &consume), "[%r98], 5', line");
    let back = "bar.warp.sync -1; @%p7 mbarrier.arrive.shared.b64 _, [%r96];";
    let consume = format!("setp.eq.u32 %p7, %t, 32; {consume} {back}");
    let again = format!("{} st.shared.u32 [%r98], 5;", wait("%r96", 0, "EMPTY"));
    finds_nothing(&produced(&format!("{WRITE} {ARRIVE} {again}"), &consume));
}

#[test]
fn a_ring_of_buffers_is_in_order() {
    // Eight rounds with one buffer: full is `a`, empty is `b`.
    let body = "mov.u32 %r10, 0; @!%p8 bra CONSUME;
         PRODUCE: and.b32 %r11, %r10, 1; xor.b32 %r12, %r11, 1;
         EMPTY: mbarrier.try_wait.parity.shared.b64 %p1, [%r96], %r12; @!%p1 bra EMPTY;
         add.u32 %r13, %t, %r10; st.shared.u32 [%r98], %r13; mbarrier.arrive.shared.b64 _, [%r97];
         add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 8; @%p2 bra PRODUCE; bra END;
         CONSUME: and.b32 %r11, %r10, 1; FULL: mbarrier.try_wait.parity.shared.b64 %p1, [%r97], %r11; @!%p1 bra FULL;
         ld.shared.u32 %r2, [%r98+-128]; bar.warp.sync -1;
         setp.eq.u32 %p7, %t, 32; @%p7 mbarrier.arrive.shared.b64 _, [%r96];
         add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 8; @%p2 bra CONSUME; END:";
    finds_nothing(body);
    // The buffer is handed back before it is read.
    let early = body.replace("ld.shared.u32 %r2, [%r98+-128]; bar.warp.sync -1;", "bar.warp.sync -1;").replace(
        "[%r96];\n         add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 8; @%p2 bra CONSUME;",
        "[%r96];\n         ld.shared.u32 %r2, [%r98+-128];\n         add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 8; @%p2 bra CONSUME;",
    );
    assert_ne!(early, body);
    finds(&early, "nothing orders the two");
}

/// Lanes of one warp, apart from each other.
#[test]
fn lanes_wait_for_each_other_through_memory() {
    let body = |wait: &str| {
        format!(
            "@!%p8 bra END; @%p9 bra WRITE; {wait} ld.shared.u32 %r2, [%r99]; bra END;
             WRITE: st.shared.u32 [%r99], 3; mbarrier.arrive.shared.b64 _, [%r96]; END: bar.warp.sync -1;"
        )
    };
    finds_nothing(&body(&wait("%r96", 0, "WAIT")));
    // By way of another warp.
    finds_nothing(&format!(
        "@!%p8 bra OTHER; @%p9 bra WRITE; {} ld.shared.u32 %r2, [%r99]; bra END;
         WRITE: st.shared.u32 [%r99], 3; mbarrier.arrive.shared.b64 _, [%r96]; bra END;
         OTHER: {} mbarrier.arrive.shared.b64 _, [%r97]; END: bar.warp.sync -1;",
        wait("%r97", 0, "FIRST"),
        wait("%r96", 0, "SECOND"),
    ));
}

#[test]
fn barriers_are_made_before_they_are_used() {
    let made = "@%p9 mbarrier.init.shared.b64 [%r99], 64;";
    finds_nothing(&format!("{made} bar.sync 0; mbarrier.arrive.shared.b64 _, [%r99];"));
    finds(&format!("{made} mbarrier.arrive.shared.b64 _, [%r99];"), "nothing orders the two");
    let nobody = findings("mbarrier.arrive.shared.b64 _, [%r99];");
    assert_eq!(nobody.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [FindingKind::UninitialisedShared]);
    finds_nothing(&format!(
        "{made} bar.sync 0; mbarrier.arrive.shared.b64 _, [%r99]; bar.sync 0; @%p9 mbarrier.inval.shared.b64 [%r99];
         bar.sync 0; st.shared.u32 [%r98], 1;"
    ));
    finds(
        &format!("{made} bar.sync 0; mbarrier.arrive.shared.b64 _, [%r99]; @%p9 mbarrier.inval.shared.b64 [%r99];"),
        "nothing orders the two",
    );
}

/// 256 bytes to the first words of `s`, which barrier `b` counts.
const COPY: &str = "@%p9 mbarrier.arrive.expect_tx.shared.b64 _, [%r96], 256;
    @%p9 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r99], [%in], 256, [%r96];\n";
const READ: &str = "ld.shared.u32 %r2, [%r98];\n";

#[test]
fn bulk_copies_are_there_when_their_phase_is_over() {
    finds_nothing(&format!("{COPY} {} {READ}", wait("%r96", 0, "WAIT")));
    // For those who come after one who has waited, too.
    finds_nothing(&format!("{COPY} @!%p8 bra MEET; {} MEET: bar.sync 0; {READ}", wait("%r96", 0, "WAIT")));
    finds(&format!("{COPY} {READ}"), "the copy is not waited for");
    finds(&format!("{COPY} bar.sync 0; {READ}"), "thread (0, 0, 0) copies to address 0x");
    finds(&format!("{COPY} bar.sync 0; st.shared.u32 [%r98], 1;"), "the copy is not waited for");
    // Bytes that the phase did not wait for.
    let more = "@%p9 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r99+256], [%in], 16, [%r96];";
    finds(&format!("{COPY} {more} {} ld.shared.u32 %r2, [%r99+256];", wait("%r96", 0, "WAIT")), "[%r99+256]', line");
    let nobody = findings(&format!("{COPY} {} ld.shared.u32 %r2, [%r98+256];", wait("%r96", 0, "WAIT")));
    assert_eq!(nobody.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [FindingKind::UninitialisedShared]);
}

#[test]
fn a_wait_for_the_wrong_phase_of_a_copy_is_found() {
    let copy = COPY.replace("%p9", "%p7");
    let body = |parity: u32| {
        format!(
            "setp.eq.u32 %p7, %t, 32; {WRITE} fence.proxy.async; bar.sync 0; @%p8 bra CONSUME; {copy} bra END;
             CONSUME: {} {READ} END:",
            wait("%r96", parity, "WAIT")
        )
    };
    finds(&body(1), "nothing orders the two");
    finds_nothing(&body(0));
}

#[test]
fn bulk_copies_come_after_who_reads_what_was_there() {
    let (first, second) = (wait("%r96", 0, "ONE"), wait("%r96", 1, "TWO"));
    let again = |between: &str| format!("{COPY} {first} bar.sync 0; {READ} {between} {COPY} {second}");
    finds_nothing(&again("bar.sync 0;"));
    finds(&again("bar.warp.sync -1;"), "the copy is not waited for");
    finds(&format!("{COPY} {}", COPY.replace("%r96", "%r97")), "the copy is not waited for");
}

/// From `s` to global memory.
const STORE: &str = "@%p9 cp.async.bulk.global.shared::cta.bulk_group [%out+512], [%r99], 256;\n";
const COMMIT: &str = "@%p9 cp.async.bulk.commit_group;\n";

#[test]
fn bulk_copies_read_until_they_are_waited_for() {
    let written = format!("{WRITE} fence.proxy.async; bar.sync 0; {STORE}");
    for wait in ["wait_group", "wait_group.read"] {
        let wait = format!("@%p9 cp.async.bulk.{wait} 0; bar.sync 0; {WRITE}");
        finds_nothing(&format!("{written} {COMMIT} {wait}"));
        // What is in no group is waited for by nobody.
        finds(&format!("{written} {wait}"), "that the first is done is not waited for");
    }
    finds(&format!("{written} {COMMIT} bar.sync 0; {WRITE}"), "that the first is done is not waited for");
    let other =
        "@%p9 cp.async.bulk.global.shared::cta.bulk_group [%out+256], [%r99+256], 16; @%p9 cp.async.bulk.commit_group;";
    let more = format!("@%p9 st.shared.v4.u32 [%r99+256], {{%t, %t, %t, %t}}; {written} {COMMIT} {other}");
    finds_nothing(&format!("{more} @%p9 cp.async.bulk.wait_group 1; bar.sync 0; {WRITE}"));
    finds(
        &format!("{more} @%p9 cp.async.bulk.wait_group 1; @%p9 st.shared.u32 [%r99+256], 1;"),
        "[%r99+256], 1', line",
    );
    finds_nothing(&format!("{more} @%p9 cp.async.bulk.wait_group 0; @%p9 st.shared.u32 [%r99+256], 1;"));
    let nobody = findings(&format!("@%p8 {WRITE} fence.proxy.async; bar.sync 0; {STORE}"));
    assert_eq!(nobody.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [FindingKind::UninitialisedShared]);
}

#[test]
fn what_threads_wrote_is_fenced_for_copies() {
    let missing = "no fence.proxy.async is between the two";
    finds_nothing(&format!("{WRITE} fence.proxy.async.shared::cta; bar.sync 0; {STORE}"));
    finds_nothing(&format!("{WRITE} bar.sync 0; fence.proxy.async; {STORE}"));
    finds(&format!("{WRITE} bar.sync 0; {STORE}"), missing);
    finds(&format!("fence.proxy.async; {WRITE} bar.sync 0; {STORE}"), missing);
    // What came without a thread needs none.
    finds_nothing(&format!("{COPY} {} {STORE}", wait("%r96", 0, "WAIT")));
}

/// Each thread of the first warp copies its word.
const SMALL: &str = "mad.wide.u32 %rd1, %t, 4, %in; cp.async.ca.shared.global [%r98], [%rd1], 4;\n";

#[test]
fn barriers_count_small_copies() {
    let read = format!("{} {READ_OTHER}", wait("%r97", 0, "WAIT"));
    let arrive = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r97];";
    finds_nothing(&produced(&format!("{SMALL} {arrive}"), &read));
    finds_nothing(&produced(&format!("{SMALL} {arrive} cp.async.wait_all; ld.shared.u32 %r2, [%r98];"), &read));
    let increments = "cp.async.mbarrier.arrive.shared.b64 [%r97]; mbarrier.arrive.shared.b64 _, [%r97];";
    finds_nothing(&produced(&format!("{SMALL} {increments}"), &read));
    finds(&produced(&format!("{SMALL} {arrive}"), READ_OTHER), "the copy is not waited for");
    // An arrival alone says nothing of copies.
    finds(&produced(&format!("{SMALL} {ARRIVE}"), &read), "the copy is not waited for");
    finds(&produced(&format!("{arrive} {SMALL}"), &read), "the copy is not waited for");
    // The thread itself has to wait as well.
    finds(&produced(&format!("{SMALL} {arrive} ld.shared.u32 %r2, [%r98];"), ""), "the copy is not waited for");
    // A later barrier counts earlier copies too.
    let second = format!("{arrive} bar.warp.sync -1; @%p9 cp.async.mbarrier.arrive.noinc.shared.b64 [%r96];");
    let own = "mul.lo.u32 %r3, %t, 0; add.u32 %r3, %r3, %r99; ld.shared.u32 %r2, [%r3];";
    finds_nothing(&produced(&format!("{SMALL} {second}"), &format!("{} {own}", wait("%r96", 0, "WAIT"))));
}

/// A box of 4 by 2 words, at once in both directions.
#[test]
fn boxes_of_tensors_are_waited_for() {
    #[repr(align(128))]
    struct Aligned<T>(T);
    let mut tensor = Aligned([1u32; 24]);
    let map = TensorMap {
        address: tensor.0.as_mut_ptr().expose_provenance() as u64,
        element: 2,
        rounds: false,
        dimensions: 2,
        swizzle: Swizzle::None,
        fill_nan: false,
        sizes: [6, 3, 1, 1, 1],
        strides: [32, 0, 0, 0],
        extent: [4, 2, 1, 1, 1],
        steps: [1; 5],
    };
    let mut map = Aligned(map.to_bytes());
    let parameters = [0, map.0.as_mut_ptr().expose_provenance() as u64];
    let found = |wait: &str, then: &str| {
        let body = format!(
            ".shared .align 128 .b8 tile[128]; .shared .align 8 .b64 bar; mov.u32 %r1, tile; mov.u32 %r2, bar;
             mbarrier.init.shared.b64 [%r2], 1; mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], 32; mov.u32 %r3, 0;
             cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%in, {{%r3, %r3}}], [%r2];
             {wait} {then}"
        );
        let (findings, fault) = findings_with(&body, 1, &parameters);
        assert_eq!(fault, None, "{body}");
        findings
    };
    let wait = "WAIT: mbarrier.try_wait.shared.b64 %p1, [%r2], %rd1; @!%p1 bra WAIT;";
    let read = "ld.shared.u32 %r4, [%r1+28];";
    assert_eq!(found(wait, read), []);
    let early = found("", read);
    assert!(early.len() == 1 && early[0].words.contains("the copy is not waited for"), "{early:?}");
    assert_eq!(found(wait, "ld.shared.u32 %r4, [%r1+32];").len(), 1, "nobody wrote it");
    let store =
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%in, {%r3, %r3}], [%r1]; cp.async.bulk.commit_group;";
    let overwrite = "st.shared.u32 [%r1+16], 1;";
    assert_eq!(found(wait, &format!("{store} cp.async.bulk.wait_group.read 0; {overwrite}")), []);
    let early = found(wait, &format!("{store} {overwrite}"));
    assert!(early.len() == 1 && early[0].words.contains("that the first is done is not waited for"), "{early:?}");
    let unfenced = found(wait, &format!("{overwrite} {store}"));
    assert!(unfenced.len() == 1 && unfenced[0].words.contains("no fence.proxy.async"), "{unfenced:?}");
}

/// A of 64 by 16 halves and B of 16 by 8, multiplied by the first four warps of a block with a fifth.
fn products(write: &str, before: &str, then: &str, fifth: &str) -> Vec<Finding> {
    let body = format!(
        ".shared .align 1024 .b8 m[4096]; .shared .align 8 .b64 bar; mov.u32 %r2, m; mad.lo.u32 %r3, %t, 16, %r2; mov.u32 %r96, bar;
         setp.eq.u32 %p9, %t, 0; @%p9 mbarrier.init.shared.b64 [%r96], 4; bar.sync 0;
         setp.lt.u32 %p2, %t, 128; shr.u32 %r4, %r2, 4; cvt.u64.u32 %rd1, %r4; or.b64 %rd1, %rd1, 0x0000000800400000;
         add.u64 %rd2, %rd1, 128; setp.ne.u32 %p3, %t, %t; mov.u32 %r1, 0; and.b32 %r5, %t, 31; setp.eq.u32 %p4, %r5, 0;
         {write} bar.sync 0; @!%p2 bra FIFTH; {before}
         wgmma.fence.sync.aligned;
         wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd1, %rd2, %p3, 1, 1, 0, 0;
         wgmma.commit_group.sync.aligned;
         {then} bra END;
         FIFTH: {fifth} END:"
    );
    let (findings, fault) = findings_with(&body, 160, &[0; 2]);
    assert_eq!(fault, None, "{body}");
    findings
}

#[test]
fn products_read_until_they_are_waited_for() {
    let write =
        "@%p2 st.shared.v4.b32 [%r3], {%r1, %r1, %r1, %r1}; @%p2 st.shared.v4.b32 [%r3+2048], {%r1, %r1, %r1, %r1};
        fence.proxy.async;";
    let done = "wgmma.wait_group.sync.aligned 0; @%p4 mbarrier.arrive.shared.b64 _, [%r96];";
    let again = format!("{} st.shared.u32 [%r2+512], 1; st.shared.u32 [%r2+2048], 1;", wait("%r96", 0, "WAIT"));
    assert_eq!(products(write, "", done, &again), []);
    // One of the four may tell that it is over.
    let one = "wgmma.wait_group.sync.aligned 0; @%p9 mbarrier.arrive.shared.b64 _, [%r96], 4;";
    assert_eq!(products(write, "", one, &again), []);
    // Nobody goes on before the last of them has come.
    let late = "setp.lt.u32 %p5, %t, 32; @%p5 bra GO; mov.u32 %r6, 0;
        LATE: add.u32 %r6, %r6, 1; setp.lt.u32 %p6, %r6, 20000; @%p6 bra LATE; GO:";
    assert_eq!(products(write, late, one, &again), []);
    for early in [
        "@%p4 mbarrier.arrive.shared.b64 _, [%r96];",
        "wgmma.wait_group.sync.aligned 1; @%p4 mbarrier.arrive.shared.b64 _, [%r96];",
    ] {
        let found = products(write, "", early, &again);
        assert!(!found.is_empty() && found.iter().all(|finding| finding.kind == FindingKind::SharedRace), "{found:?}");
        assert!(found[0].words.contains("in 'wgmma.mma_async"), "{}", found[0].words);
    }
    let unfenced = products(&write.replace("fence.proxy.async;", ""), "", done, "");
    assert!(unfenced.iter().any(|finding| finding.words.contains("no fence.proxy.async")), "{unfenced:?}");
    for before in ["", late] {
        let half = write.replace("@%p2 st.shared.v4.b32 [%r3+2048], {%r1, %r1, %r1, %r1};", "");
        let half = products(&half, before, done, "");
        assert!(
            half.iter().all(|finding| finding.kind == FindingKind::UninitialisedShared) && half.len() == 1,
            "{half:?}"
        );
    }
}

/// Two blocks of 32 threads with shared memory `s`, each with a barrier `bar` for so many arrivals; `%r4` is the place of the
/// thread's word and `%r6` the barrier in the other block.
fn clustered(arrivals: u32, body: &str) -> Vec<Finding> {
    let source = module(&format!(
        ".shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar; mov.u32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1;
         mov.u32 %r99, s; mad.lo.u32 %r98, %t, 4, %r99; mov.u32 %r97, bar;
         mapa.shared::cluster.u32 %r4, %r98, %r2; mapa.shared::cluster.u32 %r6, %r97, %r2; setp.eq.u32 %p9, %t, 0;
         mapa.shared::cluster.u32 %r5, %r99, %r2;
         setp.eq.u32 %p8, %r1, 0; @%p9 mbarrier.init.shared.b64 [%r97], {arrivals}; fence.mbarrier_init.release.cluster;
         barrier.cluster.arrive.relaxed; barrier.cluster.wait;\n{body}"
    ));
    let mut from = vec![7_u32; 256];
    let parameters = [0; 2].map(|_: u64| from.as_mut_ptr().expose_provenance() as u64);
    let image = decoded(&[&source], true).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let shape = Shape { cluster: Some([2, 1, 1]), ..Shape::clone(&shape([2, 1, 1], [32, 1, 1], 0, &parameters)) };
    let (findings, fault) = findings_of(&image, &Arc::new(shape));
    assert_eq!(fault, None, "{source}");
    findings
}

const CLUSTER: &str = "barrier.cluster.arrive; barrier.cluster.wait;";

#[test]
fn blocks_of_a_cluster_are_ordered_by_their_barrier() {
    let read = "ld.shared::cluster.u32 %r10, [%r4];";
    assert_eq!(clustered(1, &format!("{WRITE} {CLUSTER} {read} {CLUSTER} {WRITE}")), []);
    assert_eq!(
        clustered(1, &format!("{WRITE} {CLUSTER} atom.shared::cluster.add.u32 %r10, [%r4], 1; {CLUSTER} {READ}")),
        []
    );
    let early = clustered(1, &format!("{WRITE} {CLUSTER} {read} {WRITE}"));
    assert_eq!(early.len(), 1, "{early:?}");
    let words =
        "block (1, 0, 0): thread (0, 0, 0) of block (0, 0, 0) writes address 0x400 of block (0, 0, 0) in 'st.shared";
    assert!(early[0].words.contains(words), "{}", early[0].words);
    assert!(early[0].words.contains("; thread (0, 0, 0) reads it in 'ld.shared::cluster"), "{}", early[0].words);
    let nobody = clustered(1, &format!("@%p8 {WRITE} {CLUSTER} {read}"));
    assert_eq!(nobody.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [FindingKind::UninitialisedShared]);
    assert!(nobody[0].words.contains("address 0x400 of block (1, 0, 0)"), "{}", nobody[0].words);
    // A barrier of the block is none for the cluster.
    assert!(!clustered(1, &format!("{WRITE} bar.sync 0; {read} {CLUSTER}")).is_empty());
}

#[test]
fn barriers_in_memory_order_blocks_of_a_cluster() {
    let wait = wait("%r97", 0, "WAIT");
    let write = "st.shared::cluster.u32 [%r4], %t;";
    let arrive = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];";
    assert_eq!(clustered(32, &format!("{write} {arrive} {wait} {READ} {CLUSTER}")), []);
    let early = clustered(32, &format!("{write} {arrive} {READ} {CLUSTER}"));
    assert!(
        !early.is_empty() && early.iter().all(|finding| finding.kind != FindingKind::OutsideAllocation),
        "{early:?}"
    );
}

#[test]
fn stores_and_copies_to_other_blocks_are_waited_for() {
    let wait = wait("%r97", 0, "WAIT");
    let expect = |bytes: u32| format!("@%p9 mbarrier.arrive.expect_tx.shared.b64 _, [%r97], {bytes};");
    let store = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r4], %t, [%r6];";
    assert_eq!(clustered(1, &format!("{} {store} {wait} {READ} {CLUSTER}", expect(128))), []);
    assert!(!clustered(1, &format!("{} {store} {CLUSTER} {READ}", expect(128))).is_empty());
    let add = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r5], %t, [%r6];";
    let zero = format!("@%p9 st.shared.u32 [%r99], 0; {CLUSTER}");
    assert_eq!(clustered(1, &format!("{zero} {} {add} {wait} ld.shared.u32 %r10, [%r99]; {CLUSTER}", expect(128))), []);
    // To both blocks, from the first.
    let multicast = "mov.u16 %rs1, 3; and.pred %p7, %p8, %p9;
        @%p7 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r99], [%in], 128, [%r97], %rs1;";
    assert_eq!(clustered(1, &format!("{} {multicast} {wait} {READ} {CLUSTER}", expect(128))), []);
    assert!(!clustered(1, &format!("{} {multicast} {CLUSTER} {READ}", expect(128))).is_empty());
    // From one block to the other; the place it is read from is free once the other has it.
    let copy =
        "@%p9 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5+128], [%r99], 128, [%r6];";
    let start = format!("{WRITE} fence.proxy.async; bar.warp.sync -1; {} {copy}", expect(128));
    assert_eq!(clustered(1, &format!("{start} {wait} ld.shared.u32 %r10, [%r98+128]; {CLUSTER} {WRITE}")), []);
    assert!(!clustered(1, &format!("{start} {WRITE} {wait} {CLUSTER}")).is_empty());
}
