//! What lanes of a warp do together.

use super::*;

const STORE: &str = "mul.wide.u32 %rd40, %t, 8; add.u64 %rd40, %out, %rd40; st.global.u32 [%rd40], %r0;";

#[test]
fn values_are_shuffled() {
    let shuffle = |how: &str| threads(&format!("mul.lo.u32 %r1, %t, 10; shfl.sync.{how}; {STORE}"), 32, &[]);
    let from = |source: fn(u64) -> u64| (0..32).map(|t| 10 * source(t)).collect::<Vec<u64>>();
    assert_eq!(shuffle("down.b32 %r0, %r1, 4, 31, -1"), from(|t| if t + 4 > 31 { t } else { t + 4 }));
    assert_eq!(shuffle("up.b32 %r0, %r1, 4, 0, -1"), from(|t| if t < 4 { t } else { t - 4 }));
    assert_eq!(shuffle("bfly.b32 %r0, %r1, 5, 31, -1"), from(|t| t ^ 5));
    assert_eq!(shuffle("idx.b32 %r0, %r1, 7, 31, -1"), from(|_| 7));
    // In segments of eight lanes.
    assert_eq!(shuffle("idx.b32 %r0, %r1, 7, 0x181f, -1"), from(|t| t & 24 | 7));
    assert_eq!(shuffle("down.b32 %r0, %r1, 3, 0x181f, -1"), from(|t| if t % 8 + 3 > 7 { t } else { t + 3 }));
    let body = format!("shfl.sync.down.b32 %r1|%p1, %t, 4, 31, -1; selp.u32 %r0, 1, 0, %p1; {STORE}");
    assert_eq!(threads(&body, 32, &[]).iter().sum::<u64>(), 28);
}

#[test]
fn a_warp_sums_up() {
    let steps: String = [16, 8, 4, 2, 1]
        .iter()
        .map(|step| format!("shfl.sync.bfly.b32 %r2, %r0, {step}, 0x1f, 0xffffffff; add.u32 %r0, %r0, %r2;\n"))
        .collect();
    assert_eq!(threads(&format!("mov.u32 %r0, %t; {steps} {STORE}"), 32, &[]), [496; 32]);
}

#[test]
fn votes_are_counted() {
    let body = |vote: &str| format!("setp.lt.u32 %p1, %t, 4; {vote} {STORE}");
    assert_eq!(threads(&body("vote.sync.ballot.b32 %r0, %p1, -1;"), 32, &[]), [15; 32]);
    assert_eq!(threads(&body("vote.sync.any.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, %p2;"), 32, &[]), [1; 32]);
    assert_eq!(threads(&body("vote.sync.all.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, %p2;"), 32, &[]), [0; 32]);
    assert_eq!(threads(&body("vote.sync.uni.pred %p2, %p1, 3; selp.u32 %r0, 1, 0, %p2;"), 2, &[]), [1; 2]);
    assert_eq!(threads(&body("vote.ballot.b32 %r0, !%p1;"), 8, &[]), [0xf0; 8]);
}

/// As cooperative groups do it: the tiles of a warp vote at the same time, each among its own.
#[test]
fn tiles_vote_on_their_own() {
    let body = format!(
        "and.b32 %r1, %t, 24; shl.b32 %r2, 0xff, %r1; setp.eq.u32 %p1, %t, 9; vote.sync.ballot.b32 %r3, %p1, %r2;
         vote.sync.any.pred %p2, %p1, %r2; selp.u32 %r4, 1, 0, %p2; or.b32 %r0, %r3, %r4; {STORE}"
    );
    let expected: Vec<u64> = (0..32).map(|t| if t / 8 == 1 { 1 << 9 | 1 } else { 0 }).collect();
    assert_eq!(threads(&body, 32, &[]), expected);
}

#[test]
fn equal_values_find_each_other() {
    let body = format!("and.b32 %r1, %t, 1; match.any.sync.b32 %r0, %r1, -1; {STORE}");
    let expected: Vec<u64> = (0..32).map(|t| if t % 2 == 0 { 0x5555_5555 } else { 0xaaaa_aaaa }).collect();
    assert_eq!(threads(&body, 32, &[]), expected);
    let body = format!("mov.u32 %r1, 5; match.all.sync.b32 %r0|%p1, %r1, -1; @!%p1 mov.u32 %r0, 9; {STORE}");
    assert_eq!(threads(&body, 32, &[]), [0xffff_ffff; 32]);
}

#[test]
fn reductions_and_elections() {
    assert_eq!(threads(&format!("redux.sync.add.u32 %r0, %t, -1; {STORE}"), 32, &[]), [496; 32]);
    let body = format!("sub.s32 %r1, 5, %t; redux.sync.min.s32 %r0, %r1, -1; {STORE}");
    assert_eq!(threads(&body, 32, &[])[0], u64::from(-26i32 as u32));
    let body = format!("mov.u32 %r0, 0; elect.sync %r1|%p1, -1; @%p1 mov.u32 %r0, 1; {STORE}");
    assert_eq!(threads(&body, 32, &[]).iter().sum::<u64>(), 1);
}

#[test]
fn members_wait_for_each_other() {
    // The upper lanes come to the shuffle later, by another way.
    let body = format!(
        "mov.u32 %r1, %t; setp.lt.u32 %p1, %t, 16; @%p1 bra MEET; mov.u32 %r2, 0;
         WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 100; @%p2 bra WORK; add.u32 %r1, %t, %r2;
         MEET: shfl.sync.bfly.b32 %r0, %r1, 16, 31, -1; bar.warp.sync -1; {STORE}"
    );
    let expected: Vec<u64> = (0..32).map(|t| if t < 16 { t + 16 + 100 } else { t - 16 }).collect();
    assert_eq!(threads(&body, 32, &[]), expected);
}

#[test]
fn ended_members_are_not_waited_for() {
    let body = format!("setp.ge.u32 %p1, %t, 16; @%p1 exit; vote.sync.ballot.b32 %r0, 1, -1; {STORE}");
    assert_eq!(threads(&body, 32, &[])[..16], [0xffff; 16]);
    let body =
        format!("setp.ge.u32 %p1, %t, 16; @!%p1 bra MEET; exit; MEET: bar.warp.sync -1; mov.u32 %r0, 3; {STORE}");
    assert_eq!(threads(&body, 32, &[])[..16], [3; 16]);
}
