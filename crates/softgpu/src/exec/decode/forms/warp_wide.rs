//! What the lanes of a warp do together.

pub(super) const FORMS: &[&str] = &[
    "activemask.b32 r",
    "shfl.sync<.up|.down|.bfly|.idx>.b32 r, r, r, r, r",
    "shfl.sync<.up|.down|.bfly|.idx>.b32 r|p, r, r, r, r",
    "vote.sync<.all|.any|.uni>.pred p, <p|!p>, r",
    "vote.sync.ballot.b32 r, <p|!p>, r",
    "match.any.sync.b32 r, r, r",
    "match.any.sync.b64 r, d, r",
    "match.all.sync.b32 r, r, r",
    "match.all.sync.b64 r, d, r",
    "match.all.sync.b32 r|p, r, r",
    "match.all.sync.b64 r|p, d, r",
    "redux.sync<.add|.min|.max><.u32|.s32> r, r, r",
    "redux.sync<.and|.or|.xor>.b32 r, r, r",
    "elect.sync <r|_>|p, r",
];
