//! What ends a kernel.

use super::super::interface::FaultKind;
use super::*;

fn fault(body: &str) -> Fault {
    match try_threads(body, 64, &[0; 8]) {
        Ok(_) => panic!("no fault\n{body}"),
        Err(fault) => fault,
    }
}

/// What is told of a fault in a block that is not the first, and in a thread of its second warp.
#[track_caller]
fn is_told(body: &str, kind: FaultKind, what: &str) {
    let body = format!("setp.ne.u32 %p1, %t, 35; @%p1 ret;\n{body}");
    let image = image(&module(&body));
    let fault = run_at(&image, "k", &shape([1, 3, 2], [64, 1, 1], 0, &[0, 0]), [0, 2, 1]).unwrap_err();
    assert_eq!(fault.kind, kind, "{}", fault.place);
    let place = format!("kernel k, block (0, 2, 1), thread (35, 0, 0): {what}");
    assert!(fault.place.starts_with(&place), "{}\nand not\n{place}", fault.place);
}

#[test]
fn every_fault_says_where() {
    is_told("trap;", FaultKind::Trap, "trap in 'trap', line 10");
    is_told("nanosleep.u32 0;\nbrkpt;", FaultKind::Trap, "trap in 'brkpt', line 11");
    is_told("bar.sync 16;", FaultKind::Trap, "barrier 16 of 16 in 'bar.sync 16', line 10");
    is_told(
        "mov.u64 %rd1, 5; p: .callprototype _ ();\ncall %rd1, (), p;",
        FaultKind::InvalidProgramCounter,
        "call of 0x5, which is no such function, in 'call %rd1, (), p', line 11",
    );
    is_told(
        "mov.u32 %r1, 5; T: .branchtargets L;\nbrx.idx %r1, T; L:",
        FaultKind::InvalidProgramCounter,
        "branch to entry 5 of 1 in 'brx.idx %r1, T', line 11",
    );
    is_told(
        ".shared .align 16 .b8 s[32]; mov.u32 %r1, s;\n\
         st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r1+16];",
        FaultKind::IllegalInstruction,
        "no clusters in this launch in 'st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r1+16]', line 11",
    );
    is_told(
        "ld.global.u32 %r1, [2];",
        FaultKind::MisalignedAddress,
        "misaligned address 0x2 in 'ld.global.u32 %r1, [2]', line 10",
    );
}

#[test]
fn accesses_stay_within_shared_memory() {
    let within = fault(".shared .align 4 .b8 s[64]; mov.u32 %r1, s; ld.shared.u32 %r2, [%r1+64];");
    assert_eq!(within.kind, FaultKind::IllegalAddress);
    assert!(within.place.contains("kernel k, block (0, 0, 0), thread (0, 0, 0)"), "{}", within.place);
    assert!(
        within.place.contains("ld.shared.u32 %r2, [%r1+64]") && within.place.contains("line 9"),
        "{}",
        within.place
    );
    assert_eq!(fault("mov.u64 %rd1, 0x8000000000002000; st.u32 [%rd1], 1;").kind, FaultKind::IllegalAddress);
    assert_eq!(fault(".local .b32 l; st.local.u32 [l+16], 1;").kind, FaultKind::IllegalAddress);
    assert_eq!(fault("mov.u64 %rd1, 0xA000000000000000; st.u32 [%rd1], 1;").kind, FaultKind::IllegalAddress);
    let local = ".local .b32 l; mov.u64 %rd1, l; cvta.local.u64 %rd1, %rd1; atom.add.u32 %r1, [%rd1], 1;";
    assert_eq!(fault(local).kind, FaultKind::IllegalAddress);
    let third = fault("setp.eq.u32 %p1, %t, 35; mov.u32 %r1, 1999; @%p1 st.shared.u32 [%r1], 1;");
    assert_eq!(third.kind, FaultKind::MisalignedAddress);
    assert!(third.place.contains("thread (35, 0, 0)"), "{}", third.place);
}

#[test]
fn accesses_are_aligned() {
    assert_eq!(fault("ld.global.u32 %r1, [%in+2];").kind, FaultKind::MisalignedAddress);
    assert_eq!(fault("ld.global.v2.u64 {%rd1, %rd2}, [%in+4];").kind, FaultKind::MisalignedAddress);
    assert_eq!(fault("atom.global.add.u64 %rd1, [%in+4], 1;").kind, FaultKind::MisalignedAddress);
}

/// Nothing below the first page, as on any machine.
fn nothing_low(address: u64, _bytes: u64) -> bool {
    address >= 4096
}

#[test]
fn accesses_stay_where_memory_is() {
    let image = image(&module("mov.u64 %rd1, 64; st.global.u32 [%rd1], 1;"));
    let shape = shape([1; 3], [32, 1, 1], 0, &[0, 0]);
    let mut block = Cluster::with_memory(&image.kernels["k"], &shape, [0; 3], |_| 0, nothing_low);
    let Progress::Fault(fault) = block.run(SLICE) else { panic!("no fault") };
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert!(fault.place.contains("0x40"), "{}", fault.place);
}

#[test]
fn traps_and_assertions() {
    assert_eq!(fault("setp.eq.u32 %p1, %t, 3; @%p1 trap;").kind, FaultKind::Trap);
    assert_eq!(fault("brkpt;").kind, FaultKind::Trap);
    assert_eq!(fault("bar.sync 16;").kind, FaultKind::Trap);
}

#[test]
fn a_barrier_that_nobody_else_comes_to() {
    let alone = fault("setp.lt.u32 %p1, %t, 32; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 1; B:");
    assert_eq!(alone.kind, FaultKind::Deadlock);
}

#[test]
fn the_stack_has_an_end() {
    let function = ".func f() { call f; ret; }\n.visible .entry";
    let image = image(&module("call f;").replace(".visible .entry", function));
    let fault = run(&image, "k", &shape([1; 3], [1; 3], 0, &[0, 0])).unwrap_err();
    assert_eq!(fault.kind, FaultKind::StackOverflow);
    assert!(fault.place.contains("of function f"), "{}", fault.place);
}

#[test]
fn calls_of_nothing() {
    let body = "mov.u64 %rd1, 5; p: .callprototype _ (); call %rd1, (), p;";
    assert_eq!(fault(body).kind, FaultKind::InvalidProgramCounter);
    let body = "mov.u32 %r1, 5; T: .branchtargets L; brx.idx %r1, T; L:";
    assert_eq!(fault(body).kind, FaultKind::InvalidProgramCounter);
}

#[test]
fn a_fault_says_what_is_near() {
    let start = memory_of(300);
    let image = image(&module("st.global.u32 [%out+65536], 1;"));
    let shape = shape([1; 3], [1, 1, 1], 0, &[start, 0]);
    let mut block = Cluster::new(&image.kernels["k"], &shape, [0; 3], |_| 0);
    let Progress::Fault(fault) = block.run(SLICE) else { panic!("no fault") };
    assert!(fault.place.contains("65236 bytes after the end of the allocation of 300 bytes"), "{}", fault.place);
    assert!(fault.place.contains(&format!("no memory at {:#x}", start + 65536)), "{}", fault.place);
    let shared = self::fault("mov.u64 %rd1, 0x8000000000002000; st.u32 [%rd1], 1;");
    assert!(shared.place.contains("0x8000000000002000") && shared.place.contains("ends at 0x400"), "{}", shared.place);
}

/// Device memory with nothing behind it.
fn memory_of(bytes: u64) -> u64 {
    let address = crate::memory::allocate(bytes).unwrap();
    assert!(!crate::memory::access::is_mapped(address + 65536, 4), "other tests take little");
    address
}

#[test]
fn a_fault_names_the_line_that_it_was_compiled_from() {
    let source = module(
        ".loc 2 7 3\nmov.u64 %rd1, 3;\n.loc 1 41 9, function_name $L__info_string0, inlined_at 2 12 5\n\
         st.global.u32 [%rd1], 1;",
    );
    let source = format!("{source}\n.file 1 \"/src/helper.cuh\"\n.file 2 \"/src/main.cu\", 17, 99\n");
    let fault = run(&image(&source), "k", &shape([1; 3], [1; 3], 0, &[0, 0])).unwrap_err();
    assert!(fault.place.contains("(/src/helper.cuh:41, inlined at /src/main.cu:12)"), "{}", fault.place);
}

#[test]
fn a_deadlock_names_where_all_wait() {
    let alone = fault("setp.lt.u32 %p1, %t, 16; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 1; B:");
    assert!(alone.place.contains("16 from thread (0, 0, 0) on at 'bar.sync 1', line 9"), "{}", alone.place);
    assert!(alone.place.contains("48 from thread (16, 0, 0) on at 'bar.sync 0', line 9"), "{}", alone.place);
}
