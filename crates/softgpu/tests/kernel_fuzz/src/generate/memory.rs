//! Global, constant and local memory, and the registers that say who a thread is.

use super::{Maker, program};
use crate::values::Kind;

const TABLE_WORDS: usize = 256;

/// Vectors and scalars, through all caches and none.
const LOADS: [&str; 14] = [
    "ld.global(|.nc|.ca|.cg|.cs|.lu|.cv|.volatile).(b32|u32|s32|f32) $R, [%a+(0|4|20|60|100)];",
    "ld.global(|.nc|.ca|.cg).v2.(b32|u32|f32) {$R, $R}, [%a+16];",
    "ld.global(|.nc|.ca|.cg).v4.(b32|s32|f32) {$R, $R, $R, $R}, [%a+32];",
    "ld.global(|.nc|.cg).(b64|u64|s64|f64) $D, [%a+48];",
    "ld.global(|.nc).v2.(b64|u64|f64) {$D, $D}, [%a+64];",
    "ld.global(|.nc).(u8|s8) $R, [%a+$<0..15>];",
    "ld.global(|.nc).(u16|s16|b16) $H, [%a+(0|2|6|14)];",
    "ld.global.(u16|s16) $R, [%a+6];",
    "ld.global.(u8|s8|u16|s16|u32|s32) $D, [%a+8];",
    "ld.global(|.nc).v4.(b16|u16|s16) {$H, $H, $H, $H}, [%a+8];",
    "ld.global(|.nc).v4.(u8|s8|b8) {$R, $R, $R, $R}, [%a+4];",
    "ld.global.(relaxed.gpu|acquire.gpu|relaxed.cta|relaxed.sys|acquire.sys).b32 $R, [%a];",
    "ld.global.L1::(evict_last|no_allocate|evict_first).b32 $R, [%a]; ld.global.L2::128B.b32 $R, [%a+4];",
    "ldu.global.b32 $R, [%a+12];",
];

const STORES: [&str; 8] = [
    "st.global(|.wb|.cg|.cs|.wt|.volatile).(b32|u32|f32) [%a], $r;",
    "st.global.v2.(b32|f32) [%a+8], {$r, $r};",
    "st.global.v4.(b32|u32|f32) [%a+16], {$r, $r, $r, $r};",
    "st.global.(b64|u64|f64) [%a+8], $d;",
    "st.global.v2.b64 [%a+16], {$d, $d};",
    "st.global.(u8|s8|b8) [%a+$<0..31>], $r;",
    "st.global.(u16|b16) [%a+(0|2|6|14)], $h; st.global.v4.b16 [%a+8], {$h, $h, $h, $h};",
    "st.global.(relaxed.gpu|release.gpu|relaxed.cta|release.sys).b32 [%a+4], $r;",
];

/// Where each thread has 32 bytes of its own.
const OWN_BYTES: usize = 32;

pub(super) fn global(maker: &mut Maker) {
    maker.any_shape();
    maker.table(TABLE_WORDS, Kind::Int32);
    for _ in 0..4 {
        let load = maker.random.pick(&LOADS);
        // 16 bytes for each index; the rest of the table is room for what lies behind.
        let index = maker.random.pick(&["and.b32 %x, $r, 31;", "and.b32 %x, %thread, 31;"]);
        maker.add(&format!("{{ .reg .b32 %x; .reg .b64 %a; {index} mad.wide.u32 %a, %x, 16, %table; {load} }}"));
        if maker.random.percent(30) {
            maker.add("prefetch.global.(L1|L2) [%table]; (membar.gl|membar.cta|fence.acq_rel.gpu|fence.sc.cta);");
        }
    }
    let threads = maker.kernel.threads();
    for _ in 0..3 {
        let store = maker.random.pick(&STORES);
        let at = maker.scratch(threads * OWN_BYTES / 4);
        let generic = maker.random.percent(25);
        let (convert, store) = if generic {
            ("cvta.global.u64 %a, %a;", store.replace("st.global", "st"))
        } else {
            ("", store.to_string())
        };
        maker.add(&format!(
            "{{ .reg .b64 %a; mad.wide.u32 %a, %thread, {OWN_BYTES}, %scratch; add.u64 %a, %a, {at}; {convert} {store} }}"
        ));
    }
}

pub(super) fn constant(maker: &mut Maker) {
    let name = maker.kernel.name.clone();
    let words: Vec<_> = (0..32).map(|_| format!("{}", Kind::Int32.value(&mut maker.random))).collect();
    maker.kernel.outside = format!(
        ".const .align 16 .b32 {name}_c[32] = {{{}}};\n.global .align 16 .b32 {name}_g[32] = {{{}}};\n\
         .global .align 8 .u64 {name}_p[2] = {{{name}_g, generic({name}_g)+8}};\n",
        words.join(", "),
        words.iter().rev().cloned().collect::<Vec<_>>().join(", ")
    );
    for _ in 0..5 {
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
        let access = maker.random.pick(&[
            "mov.u64 %a, NAME_c; add.u64 %a, %a, %b; ld.const.(b32|u32|f32) $R, [%a];",
            "ld.const.v4.b32 {$R, $R, $R, $R}, [NAME_c+16]; ld.const.b64 $D, [NAME_c+8];",
            "ld.const.(u8|s8|u16|s16) $R, [NAME_c+(0|2|18|62)];",
            "mov.u64 %a, NAME_c; cvta.const.u64 %a, %a; add.u64 %a, %a, %b; ld.b32 $R, [%a];",
            "mov.u64 %a, NAME_g; add.u64 %a, %a, %b; ld.global.b32 $R, [%a]; ld.global.v2.b32 {$R, $R}, [NAME_g+8];",
            "ld.global.u64 %a, [NAME_p+8]; ld.b32 $R, [%a];",
        ]);
        let access = access.replace("NAME", &name);
        maker.add(&format!(
            "{{ .reg .b32 %x; .reg .b64 %a, %b; and.b32 %x, $r, 31; mul.wide.u32 %b, %x, 4; {access} }}"
        ));
    }
}

pub(super) fn local(maker: &mut Maker) {
    maker.declare(".local .align 16 .b8 frame[128];");
    for word in 0..4 {
        maker.add(&format!("st.local.v4.b32 [frame+{}], {{$r, $r, $r, $r}};", word * 16));
        maker.add(&format!("st.local.v2.b64 [frame+{}], {{$d, $d}};", 64 + word * 16));
    }
    for _ in 0..5 {
        let access = maker.random.pick(&[
            "st.local.(b32|u32|f32) [%a], $r;",
            "ld.local.(b32|s32|f32) $R, [%a];",
            "st.local.(b64|f64) [%b], $d; ld.local.b64 $D, [frame+8];",
            "ld.local.v2.b32 {$R, $R}, [%b];",
            "st.local.(u8|b8) [%a+1], $r; ld.local.(u8|s8) $R, [%a+$<0..3>];",
            "cvta.local.u64 %b, %b; ld.b32 $R, [%b]; st.b32 [%b+4], $r;",
            "ld.local.v4.b32 {$R, $R, $R, $R}, [frame+32]; st.local.b16 [%a+2], $h;",
        ]);
        maker.add(&format!(
            "{{ .reg .b32 %x; .reg .b64 %a, %b, %l; mov.u64 %l, frame; and.b32 %x, $r, 31; mad.wide.u32 %a, %x, 4, %l; \
             and.b32 %x, $r, 15; mad.wide.u32 %b, %x, 8, %l; {access} }}"
        ));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
    maker.add("ld.local.v4.b32 {$R, $R, $R, $R}, [frame]; ld.local.v2.b64 {$D, $D}, [frame+112];");
}

/// Memory on the stack whose size is found while running.
pub(super) fn stack(maker: &mut Maker) {
    for _ in 0..3 {
        maker.add(
            "{ .reg .b64 %a, %b, %l, %s; .reg .b32 %x; stacksave.u64 %s; and.b32 %x, $r, 7; add.u32 %x, %x, 1; \
             mul.wide.u32 %l, %x, 16; alloca.u64 %a, %l, 16; st.local.v4.b32 [%a], {$r, $r, $r, $r}; \
             add.u64 %b, %a, %l; st.local.b64 [%b+-8], $d; ld.local.v2.b32 {$R, $R}, [%a+8]; \
             ld.local.b32 $R, [%b+-4]; stackrestore.u64 %s; }",
        );
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}

pub(super) fn special_registers(maker: &mut Maker) {
    maker.kernel.block = maker.random.pick(&[[32, 2, 1], [8, 4, 2], [5, 3, 2], [16, 2, 4], [33, 1, 1]]);
    maker.kernel.grid = maker.random.pick(&[[1, 1, 1], [2, 1, 1], [2, 2, 1], [1, 2, 2]]);
    for _ in 0..8 {
        let register = maker.random.pick(&[
            "(tid|ntid|ctaid|nctaid).(x|y|z)",
            "(laneid|lanemask_eq|lanemask_le|lanemask_lt|lanemask_ge|lanemask_gt)",
            "(clusterid|nclusterid|cluster_ctaid|cluster_nctaid).(x|y|z)",
            "(cluster_ctarank|cluster_nctarank)",
        ]);
        maker.add(&format!("mov.u32 $R, %{register};"));
    }
    maker.add("mov.u32 $R, WARP_SZ; { .reg .pred %q; mov.pred %q, %is_explicit_cluster; selp.b32 $R, 1, 2, %q; }");
    maker.add("{ .reg .b16 %x; .reg .b32 %y; mov.u32 %y, %tid.x; cvt.u16.u32 %x, %y; mov.b16 $H, %x; }");
    let arithmetic = program::arithmetic(maker);
    maker.kernel.body.push(arithmetic);
}
