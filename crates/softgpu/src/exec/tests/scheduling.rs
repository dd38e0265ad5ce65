//! Who runs when: nobody who can go on is kept waiting by one who cannot.

use super::*;

const STORE: &str = "mul.wide.u32 %rd40, %t, 8; add.u64 %rd40, %out, %rd40; st.global.u32 [%rd40], %r0;";

/// The address of some words that stay where they are.
fn words<const N: usize>() -> u64 {
    vec![0u64; N].leak().as_mut_ptr().expose_provenance() as u64
}

#[test]
fn a_warp_that_waits_for_memory_ends_its_turn() {
    let body =
        "SPIN: ld.volatile.global.u32 %r0, [%in]; setp.eq.u32 %p1, %r0, 0; @%p1 bra SPIN; st.global.u32 [%out], %r0;";
    let image = image(&module(body));
    let (mut out, input) = ([0u64; 1], words::<1>());
    let shape = shape([1; 3], [64, 1, 1], 0, &[out.as_mut_ptr().expose_provenance() as u64, input]);
    let mut block = block(&image.kernels["k"], &shape, [0; 3]);
    assert_eq!(block.run(SLICE), Progress::Yielded, "it has come to its loop");
    let spent = block.warp_instructions();
    assert!(spent < 200, "{spent} instructions to find out that nothing has changed");
    assert_eq!(block.run(SLICE), Progress::Idle);
    assert!(block.warp_instructions() - spent < 20, "a second look is cheaper");
    // SAFETY: leaked above, and nobody runs the block now.
    unsafe { core::ptr::with_exposed_provenance_mut::<u64>(input as usize).write(9) };
    assert_eq!(block.run(SLICE), Progress::Finished);
    assert_eq!(out, [9]);
}

/// The grid barrier as compilers make it: two blocks, each of which runs only when the other has had its turn.
#[test]
fn blocks_that_poll_take_turns() {
    let body = format!(
        "mov.u32 %r1, 1; atom.add.release.gpu.u32 %r2, [%in], %r1;
         SPIN: ld.acquire.gpu.u32 %r0, [%in]; setp.lt.u32 %p1, %r0, 128; @%p1 bra SPIN; {STORE}"
    );
    let image = image(&module(&body));
    let mut out = [0u64; 64];
    let addresses = [out.as_mut_ptr().expose_provenance() as u64, words::<1>()];
    let shape = shape([2, 1, 1], [64, 1, 1], 0, &addresses);
    let mut blocks = [0, 1].map(|index| block(&image.kernels["k"], &shape, [index, 0, 0]));
    assert!((0..3).any(|_| blocks[0].run(SLICE) == Progress::Idle), "its warps have seen each other, and now wait");
    assert_eq!(blocks[1].run(SLICE), Progress::Finished);
    assert_eq!(blocks[0].run(SLICE), Progress::Finished);
    assert_eq!(out, [128; 64]);
}

/// Two groups of lanes of one warp wait for different things, and neither keeps the other, nor the other warp.
#[test]
fn lanes_that_wait_for_each_other_go_on() {
    let body = format!(
        ".shared .align 4 .u32 a; .shared .align 4 .u32 b; setp.ne.u32 %p1, %t, 0; @%p1 bra READY; st.shared.u32 [a], 0;
         st.shared.u32 [b], 0; READY: bar.sync 0; setp.lt.u32 %p2, %t, 16; @%p2 bra FIRST; setp.lt.u32 %p3, %t, 32;
         @%p3 bra SECOND;
         mov.u32 %r1, 3; st.volatile.shared.u32 [b], %r1; mov.u32 %r0, %r1; bra DONE;
         FIRST: ld.volatile.shared.u32 %r0, [a]; setp.eq.u32 %p4, %r0, 0; @%p4 bra FIRST; bra DONE;
         SECOND: ld.volatile.shared.u32 %r0, [b]; setp.eq.u32 %p4, %r0, 0; @%p4 bra SECOND; st.volatile.shared.u32 [a], %r0;
         DONE: {STORE}"
    );
    assert_eq!(threads(&body, 64, &[]), [3; 64]);
}

/// A loop that reads the same flag every time but does something else, too, uses its slice.
#[test]
fn a_loop_that_works_does_not_count_as_waiting() {
    let body = format!(
        "mov.u32 %r0, 0; LOOP: ld.volatile.global.u32 %r1, [%in]; add.u32 %r0, %r0, 1; st.global.u32 [%out], %r0;
         setp.lt.u32 %p1, %r0, 1000; @%p1 bra LOOP; {STORE}"
    );
    let image = image(&module(&body));
    let mut out = [0u64; 1];
    let shape = shape([1; 3], [1, 1, 1], 0, &[out.as_mut_ptr().expose_provenance() as u64, words::<1>()]);
    assert_eq!(block(&image.kernels["k"], &shape, [0; 3]).run(SLICE), Progress::Finished);
    assert_eq!(out, [1000]);
}

/// A lock that is handed from warp to warp.
#[test]
fn a_lock_is_given_to_everyone() {
    let body = format!(
        ".shared .align 4 .u32 lock; .shared .align 4 .u32 count; setp.ne.u32 %p1, %t, 0; @%p1 bra READY;
         st.shared.u32 [lock], 0; st.shared.u32 [count], 0; READY: bar.sync 0;
         TAKE: atom.shared.exch.b32 %r1, [lock], 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra TAKE;
         ld.volatile.shared.u32 %r0, [count]; add.u32 %r0, %r0, 1; st.volatile.shared.u32 [count], %r0;
         membar.cta; atom.shared.exch.b32 %r1, [lock], 0; {STORE}"
    );
    let mut out = threads(&body, 256, &[]);
    out.sort_unstable();
    assert_eq!(out, (1..=256).collect::<Vec<u64>>());
}
