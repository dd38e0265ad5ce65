//! Blocks that run together.

use super::super::interface::FaultKind;
use super::*;

/// Each thread's place in `out`: eight bytes for every thread of the grid.
const STORE: &str = "mov.u32 %r90, %ctaid.x; mov.u32 %r91, %ntid.x; mad.lo.u32 %r92, %r90, %r91, %t;
     mul.wide.u32 %rd40, %r92, 8; add.u64 %rd40, %out, %rd40; st.global.u32 [%rd40], %r0;";

/// Runs all clusters of a grid with so many blocks, along the first axis.
fn try_clusters(body: &str, blocks: u32, cluster: u32, threads: u32) -> Result<Vec<u64>, Fault> {
    let image = image(&module(body));
    assert_eq!(image.kernels["k"].properties.unsupported, None, "{body}");
    let mut out = vec![0u64; (blocks * threads) as usize];
    let addresses = [out.as_mut_ptr().expose_provenance() as u64, 0];
    let plain = shape([blocks, 1, 1], [threads, 1, 1], 0, &addresses);
    let shape = Arc::new(Shape { cluster: Some([cluster, 1, 1]), ..Shape::clone(&plain) });
    for index in 0..blocks / cluster {
        run_at(&image, "k", &shape, [index, 0, 0])?;
    }
    Ok(out)
}

fn clusters(body: &str, blocks: u32, cluster: u32, threads: u32) -> Vec<u64> {
    try_clusters(body, blocks, cluster, threads).unwrap_or_else(|fault| panic!("{fault:?}\n{body}"))
}

const SYNC: &str = "barrier.cluster.arrive; barrier.cluster.wait;";

#[test]
fn blocks_read_each_other() {
    let body = format!(
        ".shared .align 4 .b8 s[256]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; mov.u32 %r3, %cluster_ctarank;
         mad.lo.u32 %r4, %r3, 100, %t; st.shared.u32 [%r2], %r4; {SYNC}
         mov.u32 %r5, %cluster_nctarank; add.u32 %r6, %r3, 1; rem.u32 %r6, %r6, %r5;
         mapa.shared::cluster.u32 %r7, %r2, %r6; ld.shared::cluster.u32 %r0, [%r7]; {SYNC} {STORE}"
    );
    let expected: Vec<u64> = (0..6 * 40).map(|at| (at / 40 % 3 + 1) % 3 * 100 + at % 40).collect();
    assert_eq!(clusters(&body, 6, 3, 40), expected);
}

/// With generic addresses, atomics, and the rank that an address belongs to.
#[test]
fn blocks_add_to_each_other() {
    let body = format!(
        ".shared .align 4 .u32 s; mov.u64 %rd1, s; cvta.shared.u64 %rd2, %rd1; st.shared.u32 [s], 0; {SYNC}
         mov.u32 %r1, 0; mapa.u64 %rd3, %rd2, %r1; atom.add.u32 %r2, [%rd3], 1; {SYNC}
         ld.u32 %r3, [%rd3]; getctarank.u64 %r4, %rd2; getctarank.u64 %r5, %rd3; isspacep.shared::cta %p1, %rd3;
         isspacep.shared::cluster %p2, %rd3; selp.u32 %r6, 10000, 0, %p1; selp.u32 %r7, 20000, 0, %p2;
         mad.lo.u32 %r0, %r4, 1000, %r3; add.u32 %r0, %r0, %r6; add.u32 %r0, %r0, %r7;
         mad.lo.u32 %r0, %r5, 500, %r0; {SYNC} {STORE}"
    );
    let expected: Vec<u64> =
        (0..4 * 8).map(|at| 20_000 + 32 + at / 8 * 1000 + if at / 8 == 0 { 10_000 } else { 0 }).collect();
    assert_eq!(clusters(&body, 4, 4, 8), expected);
}

#[test]
fn registers_say_where_a_block_is() {
    let body = format!(
        "mov.u32 %r1, %clusterid.x; mov.u32 %r2, %nclusterid.x; mov.u32 %r3, %cluster_ctaid.x; mov.u32 %r4, %cluster_nctaid.x;
         mov.pred %p1, %is_explicit_cluster; selp.u32 %r5, 1, 0, %p1;
         mad.lo.u32 %r0, %r1, 10, %r2; mad.lo.u32 %r0, %r0, 10, %r3; mad.lo.u32 %r0, %r0, 10, %r4;
         mad.lo.u32 %r0, %r0, 10, %r5; {STORE}"
    );
    assert_eq!(clusters(&body, 4, 2, 1), [2021, 2121, 12021, 12121]);
}

/// A block that ends is not waited for, and one that arrives and ends counts once.
#[test]
fn ended_blocks_are_not_waited_for() {
    let body = format!(
        "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 1; @%p1 exit; setp.eq.u32 %p2, %r1, 2;
         barrier.cluster.arrive; @%p2 exit; barrier.cluster.wait; mov.u32 %r0, 5; {STORE}"
    );
    assert_eq!(clusters(&body, 4, 4, 1), [5, 0, 0, 5]);
}

#[test]
fn a_barrier_that_nobody_opens_is_a_deadlock() {
    let body = "setp.lt.u32 %p1, %t, 32; @%p1 bra MEET; bar.sync 0; MEET: barrier.cluster.arrive; barrier.cluster.wait;
         @%p1 bar.sync 0;";
    let fault = try_clusters(body, 2, 2, 64).expect_err("a deadlock");
    assert_eq!(fault.kind, FaultKind::Deadlock);
    assert!(fault.place.contains("barrier.cluster.wait"), "{}", fault.place);
}

#[test]
fn memory_of_blocks_that_are_not_there_is_none() {
    let body = ".shared .align 4 .u32 s; mov.u32 %r1, s; mov.u32 %r2, 2; mapa.shared::cluster.u32 %r3, %r1, %r2;
         ld.shared::cluster.u32 %r0, [%r3];";
    assert_eq!(try_clusters(body, 2, 2, 1).expect_err("no such block").kind, FaultKind::IllegalAddress);
}

/// One block waits in a loop for what another writes into its memory.
#[test]
fn a_block_waits_in_a_loop_for_another() {
    let body = format!(
        ".shared .align 4 .u32 s; mov.u32 %r1, s; mov.u32 %r2, %cluster_ctarank; st.shared.u32 [s], 0; {SYNC}
         setp.eq.u32 %p1, %r2, 1; @%p1 bra WRITE;
         SPIN: ld.acquire.cluster.shared::cta.u32 %r0, [s]; setp.eq.u32 %p2, %r0, 0; @%p2 bra SPIN; bra DONE;
         WRITE: mov.u32 %r3, 0; mapa.shared::cluster.u32 %r4, %r1, %r3; mov.u32 %r0, 7;
         st.release.cluster.shared::cluster.u32 [%r4], %r0;
         DONE: {SYNC} {STORE}"
    );
    assert_eq!(clusters(&body, 2, 2, 1), [7, 7]);
}

/// Bytes and signals for several blocks at once.
#[test]
fn copies_reach_several_blocks() {
    let body = format!(
        ".shared .align 128 .b8 s[128]; .shared .align 8 .b64 bar; .global .align 16 .u32 data[4] = {{11, 22, 33, 44}};
         mov.u32 %r1, s; mov.u32 %r2, bar; mov.u32 %r3, %cluster_ctarank;
         mbarrier.init.shared::cta.b64 [%r2], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16; {SYNC}
         setp.ne.u32 %p1, %r3, 0; @%p1 bra WAIT; mov.u64 %rd1, data; mov.u16 %rs1, 5;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1], 16, [%r2], %rs1;
         mov.u32 %r4, 1; mapa.shared::cluster.u32 %r5, %r1, %r4; mapa.shared::cluster.u32 %r6, %r2, %r4;
         st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r5], {{%r4, %r4, %r4, %r4}}, [%r6];
         WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra WAIT;
         ld.shared.u32 %r7, [s]; ld.shared.u32 %r8, [s+12]; add.u32 %r0, %r7, %r8; {SYNC} {STORE}"
    );
    assert_eq!(clusters(&body, 3, 3, 1), [55, 2, 55]);
}
