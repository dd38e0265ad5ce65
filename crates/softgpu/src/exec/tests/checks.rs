//! What the checker finds, and what it does not.

mod asynchronous;

use super::super::{Finding, FindingKind};
use super::*;
use crate::memory;

/// What is found in a block of so many threads, with shared memory `s` of 1 KiB whose address is in `%r99`, and
/// `%r98` the address of the thread's own word there.
fn findings_with(body: &str, threads: u32, parameters: &[u64; 2]) -> (Vec<Finding>, Option<Fault>) {
    let source =
        module(&format!(".shared .align 16 .b8 s[1024]; mov.u32 %r99, s; mad.lo.u32 %r98, %t, 4, %r99;\n{body}"));
    let image = decoded(&[&source], true).unwrap_or_else(|error| panic!("{error}\n{source}"));
    findings_of(&image, &shape([1; 3], [threads, 1, 1], 0, parameters))
}

/// What is found in the first block or cluster of a kernel.
fn findings_of(image: &Image, shape: &Arc<Shape>) -> (Vec<Finding>, Option<Fault>) {
    let mut block = block(&image.kernels["k"], shape, [0; 3]);
    let mut turns = 0..1000;
    let fault = loop {
        match block.run(SLICE) {
            Progress::Finished => break None,
            Progress::Fault(fault) => break Some(fault),
            Progress::Idle => assert!(turns.next().is_some(), "the kernel waits for ever"),
            Progress::Yielded => panic!("the kernel does not end"),
        }
    };
    let mut findings = block.take_findings();
    findings.sort_by_key(|finding| finding.sites);
    (findings, fault)
}

fn findings(body: &str) -> Vec<Finding> {
    let (findings, fault) = findings_with(body, 64, &[0; 2]);
    assert_eq!(fault, None, "{body}");
    findings
}

#[track_caller]
fn finds(kind: FindingKind, body: &str) -> Finding {
    let findings = findings(body);
    assert_eq!(findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [kind], "{body}\n{findings:?}");
    findings.into_iter().next().unwrap()
}

#[track_caller]
fn finds_nothing(body: &str) {
    assert_eq!(findings(body), [], "{body}");
}

#[test]
fn reads_of_what_nobody_wrote() {
    let found = finds(FindingKind::UninitialisedShared, "ld.shared.u32 %r1, [%r98+4];");
    assert_eq!(found.count, 64);
    let words = "kernel k, block (0, 0, 0), thread (0, 0, 0) in 'ld.shared.u32 %r1, [%r98+4]', line 10";
    assert!(found.words.contains(words), "{}", found.words);
    finds(FindingKind::UninitialisedShared, "red.shared.add.u32 [%r98], 1;");
    finds(FindingKind::UninitialisedShared, "st.shared.u16 [%r98], 1; ld.shared.u32 %r1, [%r98];");
    finds_nothing("st.shared.u32 [%r98], 1; ld.shared.u32 %r1, [%r98];");
    finds_nothing("st.shared.u32 [%r98], 1; atom.shared.exch.b32 %r1, [%r98], 2; red.shared.add.u32 [%r98], 1;");
}

/// The thread's own word is written, and that of the thread 32 further on is read.
const WRITE: &str = "st.shared.u32 [%r98], %t;\n";
const READ_OTHER: &str = "xor.b32 %r1, %t, 32; mad.lo.u32 %r1, %r1, 4, %r99; ld.shared.u32 %r2, [%r1];\n";

#[test]
fn a_barrier_is_missing_between_warps() {
    let found = finds(FindingKind::SharedRace, &format!("{WRITE} bar.warp.sync -1; bar.sync 0; {READ_OTHER} {WRITE}"));
    for words in [
        "kernel k, block (0, 0, 0): thread (0, 0, 0) writes address 0x400 in 'st.shared.u32 [%r98], %t', line 12;",
        "; thread (32, 0, 0) reads it in 'ld.shared.u32 %r2, [%r1]', line 11;",
    ] {
        assert!(found.words.contains(words), "{}", found.words);
    }
    finds_nothing(&format!("{WRITE} bar.sync 0; {READ_OTHER} bar.sync 0; {WRITE}"));
    finds_nothing(&format!("{WRITE} barrier.sync 3; {READ_OTHER} bar.red.popc.u32 %r3, 0, %p1; {WRITE}"));
    // A warp's barrier is none for the block.
    let warp = findings(&format!("{WRITE} bar.sync 0; {READ_OTHER} bar.warp.sync -1; {WRITE}"));
    assert_eq!(warp.len(), 1, "{warp:?}");
}

#[test]
fn named_barriers_order_those_that_come() {
    let body = |wait: &str| {
        format!(
            "setp.lt.u32 %p1, %t, 32; @%p1 bra CONSUMER; {WRITE} bar.arrive 1, 64; bra END;
             CONSUMER: {wait} {READ_OTHER} END:"
        )
    };
    finds_nothing(&body("bar.sync 1, 64;"));
    // Only as many as come are waited for, and then it is the wrong ones.
    let early = findings(&body("bar.sync 2, 32;"));
    assert!(!early.is_empty(), "{early:?}");
}

#[test]
fn lanes_of_a_warp_are_in_order_where_they_meet() {
    let read_neighbour = "xor.b32 %r1, %t, 1; mad.lo.u32 %r1, %r1, 4, %r99; ld.shared.u32 %r2, [%r1];";
    finds_nothing(&format!("{WRITE} {read_neighbour}"));
    finds_nothing(&format!("{WRITE} bar.warp.sync -1; {read_neighbour}"));
    let apart = |between: &str| {
        format!(
            "and.b32 %r3, %t, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra EVEN;
             st.shared.u32 [%r98], %t; {between} bra END;
             EVEN: {between} ld.shared.u32 %r2, [%r98+4]; END:"
        )
    };
    let found = findings(&apart(""));
    assert!(found.iter().any(|finding| finding.kind == FindingKind::SharedRace), "{found:?}");
    finds_nothing(&apart("bar.warp.sync -1;"));
}

#[test]
fn writes_of_the_same_are_no_race() {
    finds_nothing("st.shared.u32 [%r99], 7;");
    finds(FindingKind::SharedRace, "st.shared.u32 [%r99], %t;");
    finds_nothing("mad.lo.u32 %r1, %t, -3, %r98; st.shared.u8 [%r1], %t;");
}

#[test]
fn atomics_and_volatile_accesses_do_not_race() {
    let start = "st.shared.u32 [%r98], 0; bar.sync 0;";
    finds_nothing(&format!("{start} red.shared.add.u32 [%r99], 1;"));
    finds_nothing(&format!("{start} st.volatile.shared.u32 [%r99], %t; ld.volatile.shared.u32 %r1, [%r99];"));
    // Who reads the sum without a barrier may read any part of it.
    finds(FindingKind::SharedRace, &format!("{start} red.shared.add.u32 [%r99], 1; ld.shared.u32 %r1, [%r99];"));
}

#[test]
fn a_lock_orders_those_who_take_it() {
    let lock = "LOCK: atom.shared.cas.b32 %r1, [%r99], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra LOCK;";
    let unlock = "atom.shared.exch.b32 %r1, [%r99], 0;";
    let add = "ld.shared.u32 %r2, [%r99+4]; add.u32 %r2, %r2, 1; st.shared.u32 [%r99+4], %r2;";
    finds_nothing(&format!("st.shared.u32 [%r98], 0; bar.sync 0; {lock} {add} {unlock}"));
}

/// Addresses of two allocations with a gap between them, and whether the second is freed before the kernel runs.
fn with_allocations(body: &str, freed: bool) -> Vec<Finding> {
    let first = memory::allocate(200).unwrap();
    let second = memory::allocate(200).unwrap();
    if freed {
        memory::free(second);
    }
    let (findings, fault) = findings_with(body, 1, &[first, second]);
    memory::free(first);
    if !freed {
        memory::free(second);
    }
    assert_eq!(fault, None, "{body}");
    findings
}

#[test]
fn accesses_outside_of_allocations() {
    assert_eq!(with_allocations("st.global.u32 [%out+196], 1; ld.u32 %r1, [%in];", false), []);
    let beyond = with_allocations("st.global.u32 [%out+200], 1;", false);
    assert_eq!(beyond[0].kind, FindingKind::OutsideAllocation);
    let words = "0 bytes after the end of the allocation of 200 bytes";
    assert!(beyond[0].words.contains(words), "{}", beyond[0].words);
    let across = with_allocations("ld.global.v2.u64 {%rd1, %rd2}, [%out+192];", false);
    assert_eq!(across.len(), 1, "{across:?}");
    let after = with_allocations("atom.global.add.u32 %r1, [%in+8], 1;", true);
    let words = "byte 8 of an allocation of 200 bytes";
    assert!(after[0].words.contains(words) && after[0].words.contains("freed"), "{}", after[0].words);
}

#[test]
fn accesses_to_what_is_not_the_blocks() {
    finds(FindingKind::ReservedShared, "mov.u32 %r1, 512; st.shared.u32 [%r1], 1;");
}

#[test]
fn barriers_that_not_all_reach() {
    let (found, _) = findings_with("setp.ge.u32 %p1, %t, 40; @%p1 exit; bar.sync 0;", 64, &[0; 2]);
    assert!(found.iter().all(|finding| finding.kind == FindingKind::EndedBeforeBarrier), "{found:?}");
    assert!(found[0].words.contains("24 of 64 threads have ended"), "{}", found[0].words);
    assert!(found[0].words.contains("thread (40, 0, 0)"), "{}", found[0].words);
    let apart = "and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; B:";
    let found = finds(FindingKind::DivergentBarrier, apart);
    assert!(found.words.contains("lanes of a warp at different barriers"), "{}", found.words);
    // That is what `barrier` without `.aligned` is for.
    finds_nothing(&apart.replace("bar.sync", "barrier.sync"));
    // Lanes that take longer than others have patience for come all the same.
    finds_nothing(
        "mov.u32 %r1, 0; mul.lo.u32 %r2, %t, 1000; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r2; @%p1 bra L;
         bar.sync 0;",
    );
}

/// Each thread copies a word to its own, which runs on its own.
const COPY: &str = "mad.wide.u32 %rd1, %t, 4, %in; cp.async.ca.shared.global [%r98], [%rd1], 4;\n";

/// What is found where there is something to copy from.
fn findings_of_copies(body: &str) -> Vec<Finding> {
    let mut from = vec![7_u32; 64];
    let (findings, fault) = findings_with(body, 64, &[0, from.as_mut_ptr().expose_provenance() as u64]);
    assert_eq!(fault, None, "{body}");
    findings
}

#[track_caller]
fn copies_race(body: &str, words: &str) {
    let findings = findings_of_copies(body);
    let kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::SharedRace], "{body}\n{findings:?}");
    assert!(findings[0].words.contains(words), "{}", findings[0].words);
}

#[test]
fn copies_are_there_when_they_are_waited_for() {
    let read_own = "ld.shared.u32 %r2, [%r98];";
    for wait in ["cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"] {
        assert_eq!(findings_of_copies(&format!("{COPY} {wait} {read_own}")), [], "{wait}");
        assert_eq!(findings_of_copies(&format!("{COPY} {wait} bar.sync 0; {READ_OTHER}")), [], "{wait}");
    }
    let told = "thread (0, 0, 0) copies to address 0x400 in 'cp.async.ca.shared.global [%r98], [%rd1], 4', line 10; \
                thread (0, 0, 0) reads it in 'ld.shared.u32 %r2, [%r98]', line 11; the copy is not waited for";
    copies_race(&format!("{COPY} {read_own}"), told);
    // What is in no group is waited for by nobody.
    copies_race(&format!("{COPY} cp.async.wait_group 0; {read_own}"), "the copy is not waited for");
    copies_race(&format!("{COPY} st.shared.u32 [%r98], 1;"), "the copy is not waited for");
}

#[test]
fn a_barrier_is_behind_the_wait_and_not_before_it() {
    let wait = "cp.async.wait_group 0;";
    copies_race(
        &format!("{COPY} cp.async.commit_group; bar.sync 0; {READ_OTHER} {wait}"),
        "the copy is not waited for",
    );
    copies_race(&format!("{COPY} cp.async.commit_group; bar.sync 0; {wait} {READ_OTHER}"), "");
    // A copy to what others may still read.
    let body = format!("{WRITE} bar.sync 0; {READ_OTHER} bar.warp.sync -1; {COPY} cp.async.wait_all;");
    copies_race(&body, "nothing orders the two");
    let body = format!("{WRITE} bar.sync 0; {READ_OTHER} bar.sync 0; {COPY} cp.async.wait_all;");
    assert_eq!(findings_of_copies(&body), []);
}

#[test]
fn the_last_groups_may_be_under_way() {
    let second = "cp.async.ca.shared.global [%r98+256], [%rd1], 4; cp.async.commit_group;";
    let both = format!("{COPY} cp.async.commit_group; {second} cp.async.wait_group 1; bar.sync 0;");
    assert_eq!(findings_of_copies(&format!("{both} {READ_OTHER}")), []);
    copies_race(&format!("{both} ld.shared.u32 %r2, [%r98+256];"), "the copy is not waited for");
}

#[test]
fn copies_are_from_within_allocations() {
    let copy = "add.u64 %rd1, %out, 192; cp.async.cg.shared.global [%r99], [%rd1], 16;";
    let beyond = with_allocations(copy, false);
    assert_eq!(beyond.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [FindingKind::OutsideAllocation]);
    // Zeros take the place of the rest.
    let less = copy.replace(", 16;", ", 16, 8;");
    assert_eq!(with_allocations(&less, false), []);
}

#[test]
fn matrices_are_stored_and_loaded() {
    // Each warp has 512 bytes, and each of its lanes a row of 16 there.
    let rows = "shr.u32 %r3, %t, 5; and.b32 %r4, %t, 31; mad.lo.u32 %r5, %r3, 512, %r99; mad.lo.u32 %r6, %r4, 16, %r5;
                xor.b32 %r7, %r6, 512;";
    let store = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r6], {%t, %t, %t, %t};";
    let load = |at: &str| format!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r10, %r11, %r12, %r13}}, [{at}];");
    // `xor` leads to the other warp's only where `s` is a multiple of 1024.
    finds_nothing(&format!("{rows} {store} {} ld.shared.v4.u32 {{%r14, %r15, %r16, %r17}}, [%r6];", load("%r6")));
    finds_nothing(&format!("{rows} {store} bar.sync 0; {}", load("%r7")));
    let early = findings(&format!("{rows} {store} {}", load("%r7")));
    assert!(early.iter().any(|finding| finding.kind == FindingKind::SharedRace), "{early:?}");
    finds(FindingKind::UninitialisedShared, &format!("{rows} {}", load("%r6")));
    // One matrix has eight rows, whatever the other lanes hold.
    finds_nothing(&format!(
        "{rows} {} ld.shared.u32 %r10, [%r5+112];",
        store.replace(".x4", ".x1").replace(", %t, %t, %t}", "}")
    ));
    let whole = "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r99], {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1};";
    let (found, _) = findings_with(&format!("{whole} ld.shared.u32 %r1, [%r98+896];"), 32, &[0; 2]);
    assert_eq!(found, []);
    let both = findings(whole);
    assert_eq!(both.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [FindingKind::SharedRace], "{both:?}");
}
