//! Lanes that go different ways, and barriers.

use super::*;

const STORE: &str = "mul.wide.u32 %rd40, %t, 8; add.u64 %rd40, %out, %rd40; st.global.u32 [%rd40], %r0;";

#[test]
fn both_sides_of_a_branch_run() {
    let body = format!(
        "and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra EVEN;
         mul.lo.u32 %r0, %t, 3; bra.uni JOIN;
         EVEN: add.u32 %r0, %t, 1000;
         JOIN: add.u32 %r0, %r0, 1; {STORE}"
    );
    let expected: Vec<u64> = (0..50).map(|t| if t % 2 == 0 { t + 1001 } else { 3 * t + 1 }).collect();
    assert_eq!(threads(&body, 50, &[]), expected);
}

#[test]
fn loops_run_as_often_as_each_lane_says() {
    let body = format!(
        "mov.u32 %r0, 0; mov.u32 %r1, 0;
         LOOP: setp.ge.u32 %p1, %r1, %t; @%p1 bra DONE; add.u32 %r0, %r0, %r1; add.u32 %r1, %r1, 1; bra LOOP;
         DONE: {STORE}"
    );
    let expected: Vec<u64> = (0..64u64).map(|t| t * t.saturating_sub(1) / 2).collect();
    assert_eq!(threads(&body, 64, &[]), expected);
}

#[test]
fn lanes_are_together_again_after_a_branch() {
    let body = format!(
        "and.b32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 0; @%p1 bra A; add.u32 %r2, %t, 1; bra B; A: add.u32 %r2, %t, 2;
         B: activemask.b32 %r0; {STORE}"
    );
    assert_eq!(threads(&body, 32, &[]), [0xffff_ffff; 32]);
}

#[test]
fn lanes_branch_by_a_table() {
    let body = format!(
        "and.b32 %r1, %t, 3; T: .branchtargets L0, L1, L2, L3; brx.idx %r1, T;
         L0: mov.u32 %r0, 10; bra E; L1: mov.u32 %r0, 11; bra E; L2: mov.u32 %r0, 12; bra E; L3: mov.u32 %r0, 13;
         E: {STORE}"
    );
    assert_eq!(threads(&body, 8, &[]), [10, 11, 12, 13, 10, 11, 12, 13]);
}

/// Compilers name labels within braces alike.
#[test]
fn labels_belong_to_their_braces() {
    let body = format!(
        "mov.u32 %r0, 0;
         {{ L: add.u32 %r0, %r0, 1; setp.lt.u32 %p1, %r0, 5; @%p1 bra L; }}
         {{ .reg .b32 %r0; mov.u32 %r0, 77; }}
         {{ L: add.u32 %r0, %r0, 10; setp.lt.u32 %p1, %r0, 50; @%p1 bra L; }} {STORE}"
    );
    assert_eq!(threads(&body, 1, &[]), [55]);
}

#[test]
fn a_lane_that_spins_lets_the_others_run() {
    // Every lane takes a lock of its own warp's other lanes.
    let body = format!(
        "TAKE: atom.global.cas.b32 %r1, [%in], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TAKE;
         ld.volatile.global.u32 %r2, [%in+4]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%in+4], %r2;
         membar.gl; atom.global.exch.b32 %r3, [%in], 0; mov.u32 %r0, %r2; {STORE}"
    );
    let mut out = threads(&body, 96, &[0, 0]);
    out.sort_unstable();
    assert_eq!(out, (1..=96).collect::<Vec<u64>>());
}

#[test]
fn a_lane_waits_for_one_behind_it() {
    // Lane 0 spins at a lower address than where the others are to set its flag.
    let body = format!(
        "setp.ne.u32 %p1, %t, 0; @%p1 bra SET;
         SPIN: ld.volatile.global.u32 %r0, [%in]; setp.eq.u32 %p2, %r0, 0; @%p2 bra SPIN; bra DONE;
         SET: mov.u32 %r0, 5; st.volatile.global.u32 [%in], %r0;
         DONE: {STORE}"
    );
    assert_eq!(threads(&body, 32, &[0]), [5; 32]);
}

#[test]
fn warps_meet_at_a_barrier() {
    let body = format!(
        ".shared .align 4 .b8 s[1024]; mov.u32 %r1, s; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %t;
         bar.sync 0; mov.u32 %r4, %ntid.x; sub.u32 %r5, %r4, %t; sub.u32 %r5, %r5, 1; shl.b32 %r5, %r5, 2;
         add.u32 %r6, %r1, %r5; ld.shared.u32 %r0, [%r6]; {STORE}"
    );
    assert_eq!(threads(&body, 200, &[]), (0..200).rev().collect::<Vec<u64>>());
}

#[test]
fn ended_threads_are_not_waited_for() {
    let body = format!("setp.lt.u32 %p1, %t, 40; @%p1 exit; barrier.sync 3; mov.u32 %r0, 1; {STORE}");
    assert_eq!(threads(&body, 96, &[]).iter().sum::<u64>(), 56);
}

#[test]
fn producers_and_consumers_meet_by_number() {
    let body = format!(
        ".shared .align 4 .u32 s; setp.ge.u32 %p1, %t, 32; @%p1 bra CONSUME;
         st.shared.u32 [s], 9; bar.arrive 1, 64; bra DONE;
         CONSUME: mov.u32 %r7, 1; bar.sync %r7, 64; ld.shared.u32 %r0, [s]; DONE: {STORE}"
    );
    assert_eq!(threads(&body, 64, &[])[32..], [9; 32]);
}

#[test]
fn barriers_reduce() {
    let body = format!(
        "setp.lt.u32 %p1, %t, 40; bar.red.popc.u32 %r1, 0, %p1; bar.red.or.pred %p2, 0, %p1; bar.red.and.pred %p3, 0, !%p1;
         selp.u32 %r2, 1000, 0, %p2; selp.u32 %r3, 2000, 0, %p3; add.u32 %r0, %r1, %r2; add.u32 %r0, %r0, %r3; {STORE}"
    );
    assert_eq!(threads(&body, 64, &[]), [1040; 64]);
}

/// Whole warps may come to it anywhere; of one warp, all have to be at the same instruction.
#[test]
fn a_reduction_tells_nothing_to_a_warp_at_several_instructions() {
    let body = |apart: &str| {
        format!(
            "mov.u32 %r0, 7; setp.eq.u32 %p1, %t, %t; {apart} @%p2 bra ELSEWHERE;
             barrier.red.popc.u32 %r0, 0, %p1; bra DONE;
             ELSEWHERE: barrier.red.popc.u32 %r0, 0, %p1; DONE: {STORE}"
        )
    };
    assert_eq!(threads(&body("setp.lt.u32 %p2, %t, 32;"), 64, &[]), [64; 64]);
    let mut expected = [64; 64];
    expected[..32].fill(7);
    assert_eq!(threads(&body("setp.lt.u32 %p2, %t, 20;"), 64, &[]), expected);
}

#[test]
fn sleeping_lets_others_run() {
    let image = image(&module("nanosleep.u32 200000; st.global.u32 [%out], 1;"));
    let mut out = [0u64; 1];
    let shape = shape([1; 3], [32, 1, 1], 0, &[out.as_mut_ptr().expose_provenance() as u64, 0]);
    let mut block = block(&image.kernels["k"], &shape, [0; 3]);
    assert_eq!(block.run(SLICE), Progress::Idle);
    while block.run(SLICE) == Progress::Idle {}
    assert_eq!(out, [1]);
}

#[test]
fn a_slice_ends_in_time() {
    let image = image(&module("LOOP: add.u32 %r1, %r1, 1; bra LOOP;"));
    let shape = shape([1; 3], [64, 1, 1], 0, &[0, 0]);
    let mut block = block(&image.kernels["k"], &shape, [0; 3]);
    for round in 1..=3 {
        assert_eq!(block.run(1000), Progress::Yielded);
        assert_eq!(block.warp_instructions(), round * 1000);
    }
}
