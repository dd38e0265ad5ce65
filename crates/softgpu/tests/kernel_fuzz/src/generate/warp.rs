//! What the lanes of a warp do together, all of them or those that a mask names.

use super::{Maker, program};

const SHUFFLES: [&str; 7] = [
    "shfl.sync.up.b32 $R|$P, $r, $<0..31>, (0|4096|6144|7168|7680), -1;",
    "shfl.sync.(down|bfly|idx).b32 $R|$P, $r, $<0..31>, (31|4127|6175|7199|7711), -1;",
    "shfl.sync.idx.b32 $R, $r, $r, 31, -1;",
    "shfl.sync.(down|bfly).b32 $R, $r, $s, 31, -1;",
    "shfl.sync.up.b32 $R|$P, $r, $s, 0, -1;",
    "shfl.sync.bfly.b32 $R|$P, $r, 16, 31, -1; shfl.sync.bfly.b32 $R, $r, 8, 31, -1;",
    "{ .reg .b32 %a, %b, %c, %d; mov.b64 {%a, %b}, $d; shfl.sync.idx.b32 %c, %a, $<0..31>, 31, -1; \
     shfl.sync.down.b32 %d, %b, $<0..31>, 31, -1; mov.b64 $D, {%c, %d}; }",
];

const VOTES: [&str; 9] = [
    "vote.sync.(all|any|uni).pred $P, (|!)$p, -1;",
    "vote.sync.ballot.b32 $R, (|!)$p, -1;",
    "{ .reg .b32 %a; and.b32 %a, $r, (1|3|7); match.any.sync.b32 $R, %a, -1; }",
    "{ .reg .b64 %a; and.b64 %a, $d, (1|3|7); match.any.sync.b64 $R, %a, -1; }",
    "{ .reg .b32 %a; and.b32 %a, $r, (0|1); match.all.sync.b32 $R|$P, %a, -1; }",
    "{ .reg .b64 %a; and.b64 %a, $d, (0|1); match.all.sync.b64 $R|$P, %a, -1; }",
    "redux.sync.(add|min|max).(u32|s32) $R, $r, -1;",
    "redux.sync.(and|or|xor).b32 $R, $r, -1;",
    "elect.sync $R|$P, -1; bar.warp.sync -1;",
];

/// Inside a branch that the lanes of `%m` take.
const MEMBERS: [&str; 8] = [
    "vote.sync.(all|any|uni).pred $P, $p, %m;",
    "vote.sync.ballot.b32 $R, $p, %m;",
    "redux.sync.(add|min|max).(u32|s32) $R, $r, %m;",
    "redux.sync.(and|or|xor).b32 $R, $r, %m;",
    "and.b32 %a, $r, 3; match.any.sync.b32 $R, %a, %m;",
    "and.b32 %a, $r, 1; match.all.sync.b32 $R|$P, %a, %m;",
    "elect.sync $R|$P, %m; bar.warp.sync %m;",
    // From the lowest lane that takes part.
    "brev.b32 %a, %m; clz.b32 %a, %a; shfl.sync.idx.b32 $R|$P, $r, %a, 31, %m;",
];

pub(super) fn shuffles(maker: &mut Maker) {
    mixed(maker, &SHUFFLES);
}

pub(super) fn votes(maker: &mut Maker) {
    mixed(maker, &VOTES);
}

fn mixed(maker: &mut Maker, table: &[&str]) {
    maker.any_shape();
    for _ in 0..5 {
        let template = maker.random.pick(table);
        maker.add(template);
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}

pub(super) fn members(maker: &mut Maker) {
    maker.any_shape();
    for _ in 0..4 {
        let number = maker.fresh();
        let mut text = maker.fill(
            "{ .reg .pred %q; .reg .b32 %m, %a; (setp.lt.s32 %q, $r, $r|mov.pred %q, $p|setp.lt.u32 %q, %lane, $<1..31>); \
             vote.sync.ballot.b32 %m, %q, -1;",
        );
        text += &format!("\n@!%q bra OTHERS{number};\n");
        let template = maker.random.pick(&MEMBERS);
        text += &maker.fill(template);
        text += &format!("\nbra END{number};\nOTHERS{number}:\nnot.b32 %m, %m;\n");
        let template = maker.random.pick(&MEMBERS);
        text += &maker.fill(template);
        text += &format!("\nEND{number}:\n}}");
        maker.kernel.body.push(crate::kernel::Statement::Text(text));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}
