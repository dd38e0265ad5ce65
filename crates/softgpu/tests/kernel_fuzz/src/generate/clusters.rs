//! Clusters: blocks that read and write each other's shared memory.

use super::{Maker, program, shared};

/// All threads of the cluster.
const BARRIERS: [&str; 4] = [
    "barrier.cluster.arrive; barrier.cluster.wait;",
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;",
    "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;",
];

/// Two to four blocks a cluster, one or two clusters.
fn shape(maker: &mut Maker) {
    maker.kernel.block = [maker.random.pick(&[32, 64]), 1, 1];
    maker.kernel.cluster = maker.random.pick(&[2, 4]);
    maker.kernel.grid = [maker.kernel.cluster * maker.random.pick(&[1, 2]), 1, 1];
    let bytes = maker.threads() * 16;
    maker.declare(&format!(".shared .align 128 .b8 area[{bytes}];\n.shared .align 8 .b64 arrivals;"));
}

fn barrier(maker: &mut Maker) -> String {
    maker.random.pick(&BARRIERS).into()
}

/// `%rank` is another block of the cluster, the same for all threads of a block.
fn other(maker: &mut Maker) -> String {
    let step = maker.random.below(maker.kernel.cluster);
    let mask = maker.kernel.cluster - 1;
    format!(
        ".reg .b32 %rank, %far; mov.u32 %rank, %cluster_ctarank; add.u32 %rank, %rank, {step}; and.b32 %rank, %rank, {mask};"
    )
}

pub(super) fn exchange(maker: &mut Maker) {
    shape(maker);
    for _ in 0..2 {
        let (first, second, third) = (barrier(maker), barrier(maker), barrier(maker));
        let (addresses, other) = (shared::addresses(maker, "area"), other(maker));
        let access = maker.random.pick(&[
            // Everyone reads another's.
            "st.shared.v4.b32 [%a], {$r, $r, $r, $r};\nSYNC\nmapa.shared::cluster.u32 %far, %b, %rank; \
             ld.shared::cluster.(b32|u32) $R, [%far]; ld.shared::cluster.v2.b32 {$R, $R}, [%far+8];",
            // Everyone writes into another's.
            "mapa.shared::cluster.u32 %far, %a, %rank; st.shared::cluster.b32 [%far], $r; st.shared::cluster.b64 [%far+8], $d;\n\
             SYNC\nld.shared.b32 $R, [%b]; ld.shared.b64 $D, [%b+8];",
            // Everyone adds to another's.
            "st.shared.b32 [%a], 0;\nSYNC\nmapa.shared::cluster.u32 %far, %b, %rank; \
             red.relaxed.cluster.shared::cluster.add.u32 [%far], $r;\nSYNC\nld.shared.b32 $R, [%a];",
            "st.shared.b32 [%a], $r;\nSYNC\nmapa.shared::cluster.u32 %far, %b, %rank; \
             atom.shared::cluster.(min|max).s32 %far, [%far], $r;\nSYNC\nld.shared.b32 $R, [%a];",
            // By generic addresses, and whose they are.
            "st.shared.b32 [%a], $r;\nSYNC\n{ .reg .b64 %g; cvt.u64.u32 %g, %b; cvta.shared.u64 %g, %g; mapa.u64 %g, %g, %rank; \
             ld.b32 $R, [%g]; getctarank.u64 $R, %g; }",
            "mapa.shared::cluster.u32 %far, %b, %rank; getctarank.shared::cluster.u32 $R, %far; st.shared.b32 [%a], $r;\n\
             SYNC\nld.shared.b32 $R, [%b];",
        ]);
        let access = access.replace("SYNC", &second);
        maker.add(&format!("{{ {addresses} {other}\n{first}\n{access}\n{third} }}"));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
    maker.add(
        "mov.u32 $R, %(cluster_ctarank|cluster_nctarank|clusterid.x|nclusterid.x|cluster_ctaid.x|cluster_nctaid.x);",
    );
}

/// Stores and copies into another block's shared memory, which its own barrier counts.
pub(super) fn asynchronous(maker: &mut Maker) {
    shape(maker);
    let threads = maker.threads();
    let bytes = threads * 16;
    let (first, last) = (barrier(maker), barrier(maker));
    let (addresses, other) = (shared::addresses(maker, "area"), other(maker));
    let number = maker.fresh();
    let access = maker.random.pick(&[
        (
            16,
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%far], {$r, $r, $r, $r}, [%farm];",
        ),
        (8, "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%far], $d, [%farm];"),
        (4, "st.async.shared::cluster.mbarrier::complete_tx::bytes.(u32|s32) [%far], $r, [%farm];"),
        (
            4,
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.(add.u32|min.s32|max.u32|xor.b32|inc.u32) \
             [%far], $r, [%farm];",
        ),
    ]);
    let expected = access.0 * threads;
    maker.add(&format!(
        "{{ {addresses} {other} .reg .b32 %m, %farm; .reg .b64 %state; .reg .pred %first, %done; mov.u32 %m, arrivals; \
         setp.eq.u32 %first, %tid0, 0;\nst.shared.v4.b32 [%a], {{$r, $r, $r, $r}};\n@%first mbarrier.init.shared.b64 [%m], 1;\n\
         fence.mbarrier_init.release.cluster;\nbar.sync 0;\n@%first mbarrier.arrive.expect_tx.shared.b64 %state, [%m], {expected};\n\
         {first}\nmapa.shared::cluster.u32 %far, %a, %rank; mapa.shared::cluster.u32 %farm, %m, %rank;\n{}\n\
         WAIT{number}:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%m], 0;\n@!%done bra WAIT{number};\n\
         ld.shared.v4.b32 {{$R, $R, $R, $R}}, [%b];\n{last} }}",
        access.1
    ));
    let arithmetic = program::arithmetic(maker);
    maker.kernel.body.push(arithmetic);
    let addresses = shared::addresses(maker, "area");
    let other = self::other(maker);
    let (first, last) = (barrier(maker), barrier(maker));
    let number = maker.fresh();
    // A whole area from block to block.
    maker.add(&format!(
        "{{ {addresses} {other} .reg .b32 %m, %farm; .reg .b64 %state; .reg .pred %first, %done; mov.u32 %m, arrivals; \
         setp.eq.u32 %first, %tid0, 0;\n@%first mbarrier.inval.shared.b64 [%m];\nbar.sync 0;\n\
         @%first mbarrier.init.shared.b64 [%m], 1;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n\
         @%first mbarrier.arrive.expect_tx.shared.b64 %state, [%m], {half};\nst.shared.v4.b32 [%a], {{$r, $r, $r, $r}};\n\
         fence.proxy.async;\n{first}\nmapa.shared::cluster.u32 %far, %s, %rank; add.u32 %far, %far, {half}; \
         mapa.shared::cluster.u32 %farm, %m, %rank;\n\
         @%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%far], [%s], {half}, [%farm];\n\
         WAIT{number}:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%m], 0;\n@!%done bra WAIT{number};\n\
         ld.shared.v4.b32 {{$R, $R, $R, $R}}, [%b];\n{last} }}",
        half = bytes / 2
    ));
}
