//! Copies that run beside their thread, and the barriers in shared memory that tell when they are done.

use super::{Maker, program, shared};
use crate::values::Kind;

const TABLE_WORDS: usize = 1024;

/// Groups of copies from global to shared memory.
pub(super) fn cp_async(maker: &mut Maker) {
    maker.any_shape();
    maker.table(TABLE_WORDS, Kind::Int32);
    let bytes = maker.threads() * 16;
    maker.declare(&format!(".shared .align 16 .b8 area[{bytes}];"));
    for _ in 0..3 {
        let addresses = shared::addresses(maker, "area");
        let copy = maker.random.pick(&[
            "cp.async.ca.shared.global [%a], [%g], 4; cp.async.ca.shared.global [%a+8], [%g+8], 8;",
            "cp.async.(ca|cg).shared.global [%a], [%g], 16;",
            "cp.async.cg.shared.global.L2::(64B|128B|256B) [%a], [%g], 16;",
            "cp.async.ca.shared.global [%a], [%g], 16, (0|4|8|12|16);",
            "cp.async.ca.shared.global [%a], [%g], 8, (0|4|8); cp.async.ca.shared.global [%a+8], [%g+8], 8;",
            "cp.async.ca.shared::cta.global [%a], [%g], 16, %n0;",
        ]);
        let number = maker.fresh();
        let copy = copy.replace("%n0", &format!("%n{number}"));
        let wait = maker.random.pick(&[
            "cp.async.wait_all;",
            "cp.async.commit_group; cp.async.wait_group 0;",
            "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 0;",
            "cp.async.commit_group; cp.async.wait_group 1; cp.async.wait_all;",
        ]);
        maker.add(&format!(
            "and.b32 %n{number}, $r, 12;\n{{ {addresses} .reg .b32 %x; .reg .b64 %g; and.b32 %x, $r, 127; \
             mad.wide.u32 %g, %x, 16, %table;\nst.shared.v4.b32 [%a], {{$r, $r, $r, $r}};\n{copy}\n{wait}\nbar.sync 0;\n\
             ld.shared.v4.b32 {{$R, $R, $R, $R}}, [%b]; bar.sync 0; }}"
        ));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}

/// Sets up a barrier for so many arrivals; all threads see it afterwards.
fn set_up(arrivals: u32) -> String {
    format!(
        ".reg .b32 %m; .reg .pred %first, %done; mov.u32 %m, arrivals; setp.eq.u32 %first, %tid0, 0;\n\
         @%first mbarrier.init.shared.b64 [%m], {arrivals};\nbar.sync 0;"
    )
}

/// All threads are through with it.
const TAKE_DOWN: &str = "bar.sync 0;\n@%first mbarrier.inval.shared.b64 [%m];\nbar.sync 0;";

/// Waits until the phase of that parity is over.
fn wait(maker: &mut Maker, parity: u32) -> String {
    let number = maker.fresh();
    let ask = maker.random.pick(&["test_wait", "try_wait"]);
    format!("WAIT{number}:\nmbarrier.{ask}.parity.shared.b64 %done, [%m], {parity};\n@!%done bra WAIT{number};")
}

pub(super) fn mbarrier(maker: &mut Maker) {
    maker.any_shape();
    let threads = maker.threads();
    maker.declare(&format!(".shared .align 16 .b8 area[{}];\n.shared .align 8 .b64 arrivals;", threads * 16));
    maker.table(TABLE_WORDS, Kind::Int32);
    for _ in 0..2 {
        let addresses = shared::addresses(maker, "area");
        let number = maker.fresh();
        let by_state = format!(
            "mbarrier.arrive.shared.b64 %state, [%m];\nWAIT{number}:\nmbarrier.(test_wait|try_wait).shared.b64 %done, [%m], %state;\n\
             @!%done bra WAIT{number};"
        );
        let phases = [
            (threads, by_state),
            (threads, format!("mbarrier.arrive.release.cta.shared::cta.b64 _, [%m];\n{}", wait(maker, 0))),
            (threads * 3, format!("mbarrier.arrive.shared.b64 %state, [%m], 3;\n{}", wait(maker, 0))),
            (
                threads * 2,
                format!(
                    "mbarrier.arrive.noComplete.shared.b64 %state, [%m], 1; mbarrier.pending_count.b64 %pending, %state;\n\
                     mbarrier.arrive.shared.b64 %state, [%m];\n{}",
                    wait(maker, 0)
                ),
            ),
            (threads, format!("mbarrier.arrive_drop.shared.b64 %state, [%m];\n{}", wait(maker, 0))),
            (
                threads,
                format!(
                    "{{ .reg .b64 %g; mad.wide.u32 %g, %tid0, 16, %table; cp.async.ca.shared.global [%a+4], [%g], 4; \
                     cp.async.mbarrier.arrive.noinc.shared.b64 [%m]; }}\n{}",
                    wait(maker, 0)
                ),
            ),
            (
                threads,
                format!(
                    "mbarrier.arrive.shared.b64 %state, [%m];\n{}\nst.shared.b32 [%a+8], $r;\n\
                     mbarrier.arrive.shared.b64 %state, [%m];\n{}",
                    wait(maker, 0),
                    wait(maker, 1)
                ),
            ),
        ];
        let which = maker.random.index(phases.len());
        let (arrivals, phase) = &phases[which];
        maker.add(&format!(
            "{{ {addresses} .reg .b64 %state; .reg .b32 %pending;\n{}\nst.shared.v4.b32 [%a], {{$r, $r, $r, $r}};\n{phase}\n\
             ld.shared.v4.b32 {{$R, $R, $R, $R}}, [%b];\n{TAKE_DOWN} }}",
            set_up(*arrivals)
        ));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}

/// Bulk copies in both directions, and the reducing one.
pub(super) fn bulk(maker: &mut Maker) {
    maker.any_shape();
    // Each block's place in the output is that of its number in one dimension.
    maker.kernel.grid = [maker.kernel.grid.iter().product(), 1, 1];
    let threads = maker.threads();
    let bytes = threads * 16;
    maker.table(TABLE_WORDS * 2, Kind::Int32);
    maker.declare(&format!(".shared .align 128 .b8 area[{bytes}];\n.shared .align 8 .b64 arrivals;"));
    let addresses = shared::addresses(maker, "area");
    let from = maker.random.below(16) * 16;
    let wait = wait(maker, 0);
    maker.add(&format!(
        "{{ {addresses} .reg .b64 %g, %state;\n{}\nadd.u64 %g, %table, {from};\n\
         @%first mbarrier.arrive.expect_tx.shared.b64 %state, [%m], {bytes};\n\
         @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%g], {bytes}, [%m];\n\
         {wait}\nld.shared.v4.b32 {{$R, $R, $R, $R}}, [%b];\n{TAKE_DOWN} }}",
        set_up(1)
    ));
    let arithmetic = program::arithmetic(maker);
    maker.kernel.body.push(arithmetic);
    let blocks = maker.kernel.grid[0] as usize;
    let at = maker.scratch(blocks * bytes as usize / 4);
    let copy = maker.random.pick(&[
        "cp.async.bulk.global.shared::cta.bulk_group [%g], [%s], BYTES;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.(add.u32|min.u32|max.u32|inc.u32|dec.u32|and.b32|or.b32|xor.b32) [%g], [%s], BYTES;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.(add|min|max).(s32|u64) [%g], [%s], BYTES;",
    ]);
    let copy = copy.replace("BYTES", &bytes.to_string());
    let copy = maker.fill(&copy);
    let addresses = shared::addresses(maker, "area");
    maker.add(&format!(
        "{{ {addresses} .reg .b64 %g; .reg .b32 %x; .reg .pred %first; setp.eq.u32 %first, %tid0, 0; mov.u32 %x, %ctaid.x; \
         mad.wide.u32 %g, %x, {bytes}, %scratch; add.u64 %g, %g, {at};\n\
         st.shared.v4.b32 [%a], {{$r, $r, $r, $r}};\nfence.proxy.async.shared::cta;\nbar.sync 0;\n@!%first bra END;\n{copy}\n\
         cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\nbar.sync 0; }}"
    ));
}
