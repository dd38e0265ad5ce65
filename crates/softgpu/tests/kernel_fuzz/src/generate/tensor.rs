//! Tensor cores, with small whole numbers: every sum is exact, in whatever order and width it is built.

use super::{Maker, program};
use crate::kernel::Statement;
use crate::template::FLAT;
use crate::values::Kind;

/// A product: shape and types, and what registers A, B and C and D are.
struct Product {
    name: &'static str,
    a: (usize, char),
    b: (usize, char),
    c: (usize, char),
    d: (usize, char),
}

const fn product(
    name: &'static str,
    a: (usize, char),
    b: (usize, char),
    c: (usize, char),
    d: (usize, char),
) -> Product {
    Product { name, a, b, c, d }
}

const F16: [Product; 9] = [
    product("m16n8k8.row.col.f16.f16.f16.f16", (2, 'm'), (1, 'm'), (2, 'm'), (2, 'R')),
    product("m16n8k8.row.col.f32.f16.f16.f32", (2, 'm'), (1, 'm'), (4, 'q'), (4, 'R')),
    product("m16n8k16.row.col.f16.f16.f16.f16", (4, 'm'), (2, 'm'), (2, 'm'), (2, 'R')),
    product("m16n8k16.row.col.f32.f16.f16.f32", (4, 'm'), (2, 'm'), (4, 'q'), (4, 'R')),
    product("m8n8k4.(row|col).(row|col).f16.f16.f16.f16", (2, 'm'), (2, 'm'), (4, 'm'), (4, 'R')),
    product("m8n8k4.(row|col).(row|col).f32.f16.f16.f16", (2, 'm'), (2, 'm'), (4, 'm'), (8, 'R')),
    product("m8n8k4.(row|col).(row|col).f32.f16.f16.f32", (2, 'm'), (2, 'm'), (8, 'q'), (8, 'R')),
    product("m16n8k8.row.col.f32.bf16.bf16.f32", (2, 'n'), (1, 'n'), (4, 'q'), (4, 'R')),
    product("m16n8k16.row.col.f32.bf16.bf16.f32", (4, 'n'), (2, 'n'), (4, 'q'), (4, 'R')),
];

const OTHER: [Product; 10] = [
    product("m16n8k4.row.col.f32.tf32.tf32.f32", (2, 'q'), (1, 'q'), (4, 'q'), (4, 'R')),
    product("m16n8k8.row.col.f32.tf32.tf32.f32", (4, 'q'), (2, 'q'), (4, 'q'), (4, 'R')),
    product("m8n8k4.row.col.f64.f64.f64.f64", (1, 'o'), (1, 'o'), (2, 'o'), (2, 'D')),
    product("m16n8k4.row.col.f64.f64.f64.f64", (2, 'o'), (1, 'o'), (4, 'o'), (4, 'D')),
    product("m16n8k8.row.col.f64.f64.f64.f64", (4, 'o'), (2, 'o'), (4, 'o'), (4, 'D')),
    product("m16n8k16.row.col.f64.f64.f64.f64", (8, 'o'), (4, 'o'), (4, 'o'), (4, 'D')),
    product("m16n8k32.row.col.f32.e4m3.e4m3.f32", (4, 'v'), (2, 'v'), (4, 'q'), (4, 'R')),
    product("m16n8k32.row.col.f32.e5m2.e5m2.f32", (4, 'w'), (2, 'w'), (4, 'q'), (4, 'R')),
    product("m16n8k32.row.col.f32.e4m3.e5m2.f32", (4, 'v'), (2, 'w'), (4, 'q'), (4, 'R')),
    product("m16n8k32.row.col.f32.e5m2.e4m3.f32", (4, 'w'), (2, 'v'), (4, 'q'), (4, 'R')),
];

const INTEGER: [Product; 10] = [
    product("m8n8k16.row.col(|.satfinite).s32.(u8|s8).(u8|s8).s32", (1, 'r'), (1, 'r'), (2, 'r'), (2, 'R')),
    product("m16n8k16.row.col(|.satfinite).s32.(u8|s8).(u8|s8).s32", (2, 'r'), (1, 'r'), (4, 'r'), (4, 'R')),
    product("m16n8k32.row.col(|.satfinite).s32.(u8|s8).(u8|s8).s32", (4, 'r'), (2, 'r'), (4, 'r'), (4, 'R')),
    product("m8n8k32.row.col(|.satfinite).s32.(u4|s4).(u4|s4).s32", (1, 'r'), (1, 'r'), (2, 'r'), (2, 'R')),
    product("m16n8k32.row.col(|.satfinite).s32.(u4|s4).(u4|s4).s32", (2, 'r'), (1, 'r'), (4, 'r'), (4, 'R')),
    product("m16n8k64.row.col(|.satfinite).s32.(u4|s4).(u4|s4).s32", (4, 'r'), (2, 'r'), (4, 'r'), (4, 'R')),
    product("m8n8k128.row.col.s32.b1.b1.s32.(xor|and).popc", (1, 'r'), (1, 'r'), (2, 'r'), (2, 'R')),
    product("m16n8k128.row.col.s32.b1.b1.s32.(xor|and).popc", (2, 'r'), (1, 'r'), (4, 'r'), (4, 'R')),
    product("m16n8k256.row.col.s32.b1.b1.s32.(xor|and).popc", (4, 'r'), (2, 'r'), (4, 'r'), (4, 'R')),
    product("m16n8k32.row.col(|.satfinite).s32.(u8|s8).(u8|s8).s32", (4, 'r'), (2, 'r'), (4, 'i'), (4, 'R')),
];

const SPARSE: [Product; 8] = [
    product("m16n8k16.row.col.f32.f16.f16.f32", (2, 'm'), (2, 'm'), (4, 'q'), (4, 'R')),
    product("m16n8k32.row.col.f32.f16.f16.f32", (4, 'm'), (4, 'm'), (4, 'q'), (4, 'R')),
    product("m16n8k16.row.col.f16.f16.f16.f16", (2, 'm'), (2, 'm'), (2, 'm'), (2, 'R')),
    product("m16n8k32.row.col.f16.f16.f16.f16", (4, 'm'), (4, 'm'), (2, 'm'), (2, 'R')),
    product("m16n8k16.row.col.f32.bf16.bf16.f32", (2, 'n'), (2, 'n'), (4, 'q'), (4, 'R')),
    product("m16n8k32.row.col.f32.bf16.bf16.f32", (4, 'n'), (4, 'n'), (4, 'q'), (4, 'R')),
    product("m16n8k32.row.col.s32.(u8|s8).(u8|s8).s32", (2, 'r'), (2, 'r'), (4, 'r'), (4, 'R')),
    product("m16n8k64.row.col.s32.(u8|s8).(u8|s8).s32", (4, 'r'), (4, 'r'), (4, 'r'), (4, 'R')),
];

/// The registers of D, A, B and C, as blanks.
fn operands(product: &Product) -> String {
    let list = |(count, letter): (usize, char)| {
        let blanks: Vec<_> = (0..count).map(|_| format!("${letter}")).collect();
        format!("{{{}}}", blanks.join(", "))
    };
    [product.d, product.a, product.b, product.c].map(list).join(", ")
}

fn products(maker: &mut Maker, table: &'static [Product]) {
    maker.filling = FLAT;
    maker.kernel.block = [maker.random.pick(&[32, 64]), 1, 1];
    for _ in 0..2 {
        let product = &table[maker.random.index(table.len())];
        maker.add(&format!("mma.sync.aligned.{} {};", product.name, operands(product)));
    }
}

pub(super) fn mma_f16(maker: &mut Maker) {
    products(maker, &F16);
}

pub(super) fn mma_other(maker: &mut Maker) {
    products(maker, &OTHER);
}

pub(super) fn mma_integer(maker: &mut Maker) {
    products(maker, &INTEGER);
}

/// With metadata that names two different columns of four.
pub(super) fn mma_sparse(maker: &mut Maker) {
    maker.filling = FLAT;
    maker.kernel.block = [32, 1, 1];
    for _ in 0..2 {
        let product = &SPARSE[maker.random.index(SPARSE.len())];
        // 01 00, 10 00, 11 00, 10 01, 11 01, 11 10: the lower index first.
        let metadata = (0..8).fold(0u32, |all, _| all << 4 | maker.random.pick(&[4, 8, 12, 9, 13, 14]));
        // How many threads of four hold metadata depends on the columns that one register's bits name.
        let selector = match product.name {
            name if name.contains("k64.") => "0",
            name if name.contains("k16.") => "(0|1|2|3)",
            _ => "(0|1)",
        };
        maker.add(&format!(
            "{{ .reg .b32 %e; mov.b32 %e, {metadata}; mma.sp::ordered_metadata.sync.aligned.{} {}, %e, {selector}; }}",
            product.name,
            operands(product)
        ));
    }
}

/// Matrices between shared memory and registers.
pub(super) fn moves(maker: &mut Maker) {
    maker.kernel.block = [maker.random.pick(&[32, 64]), 1, 1];
    let threads = maker.threads();
    maker.declare(&format!(".shared .align 16 .b8 area[{}];", threads * 16));
    for _ in 0..3 {
        let step = maker.random.pick(&[
            "st.shared.v4.b32 [%a], {$r, $r, $r, $r};\nbar.sync 0;\n\
             ldmatrix.sync.aligned.m8n8.x4(|.trans).shared.b16 {$R, $R, $R, $R}, [%b];",
            "st.shared.v4.b32 [%a], {$r, $r, $r, $r};\nbar.sync 0;\n\
             ldmatrix.sync.aligned.m8n8.x2(|.trans).shared.b16 {$R, $R}, [%b];",
            "st.shared.v4.b32 [%a], {$r, $r, $r, $r};\nbar.sync 0;\n\
             ldmatrix.sync.aligned.m8n8.x1(|.trans).shared.b16 {$R}, [%b];",
            "st.shared.v4.b32 [%a], {$r, $r, $r, $r};\nbar.sync 0;\n\
             stmatrix.sync.aligned.m8n8.x4(|.trans).shared.b16 [%a], {$r, $r, $r, $r};\nbar.sync 0;\n\
             ld.shared.v4.b32 {$R, $R, $R, $R}, [%b];",
            "st.shared.v4.b32 [%a], {$r, $r, $r, $r};\nbar.sync 0;\n\
             stmatrix.sync.aligned.m8n8.x2(|.trans).shared.b16 [%a], {$r, $r};\nbar.sync 0;\n\
             stmatrix.sync.aligned.m8n8.x1(|.trans).shared.b16 [%b], {$r};\nbar.sync 0;\n\
             ld.shared.v4.b32 {$R, $R, $R, $R}, [%b];",
            "movmatrix.sync.aligned.m8n8.trans.b16 $R, $r; movmatrix.sync.aligned.m8n8.trans.b16 $R, $r;",
        ]);
        // Rows in an order of their own, within the warp's part.
        let swap = maker.random.below(32);
        maker.add(&format!(
            "{{ .reg .b32 %a, %b, %s; mov.u32 %s, area; mad.lo.u32 %a, %tid0, 16, %s; xor.b32 %b, %tid0, {swap}; \
             mad.lo.u32 %b, %b, 16, %s;\n{step}\nbar.sync 0; }}"
        ));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}

/// The operands of one kind of `wmma`: shape, type of A and B, registers of A and B, types and registers of C and D.
struct Fragments {
    shape: &'static str,
    of: &'static str,
    a: usize,
    b: usize,
    to: &'static str,
    c: usize,
    kind: Kind,
    /// Of an element of A and B, and of C and D.
    bytes: (usize, usize),
}

const WMMA: [Fragments; 14] = [
    fragments("m16n16k16", "f16", (8, 8), "f16", 4, Kind::SmallF16x2, (2, 2)),
    fragments("m16n16k16", "f16", (8, 8), "f32", 8, Kind::SmallF16x2, (2, 4)),
    fragments("m8n32k16", "f16", (8, 8), "f32", 8, Kind::SmallF16x2, (2, 4)),
    fragments("m32n8k16", "f16", (8, 8), "f16", 4, Kind::SmallF16x2, (2, 2)),
    fragments("m16n16k16", "bf16", (4, 4), "f32", 8, Kind::SmallBf16x2, (2, 4)),
    fragments("m8n32k16", "bf16", (2, 8), "f32", 8, Kind::SmallBf16x2, (2, 4)),
    fragments("m32n8k16", "bf16", (8, 2), "f32", 8, Kind::SmallBf16x2, (2, 4)),
    fragments("m16n16k8", "tf32", (4, 4), "f32", 8, Kind::SmallF32, (4, 4)),
    fragments("m16n16k16", "u8", (2, 2), "s32", 8, Kind::Int32, (1, 4)),
    fragments("m16n16k16", "s8", (2, 2), "s32", 8, Kind::Int32, (1, 4)),
    fragments("m8n32k16", "s8", (1, 4), "s32", 8, Kind::Int32, (1, 4)),
    fragments("m32n8k16", "u8", (4, 1), "s32", 8, Kind::Int32, (1, 4)),
    fragments("m8n8k4", "f64", (1, 1), "f64", 2, Kind::SmallF64, (8, 8)),
    fragments("m16n16k16", "f16", (8, 8), "f32", 8, Kind::SmallF16x2, (2, 4)),
];

const fn fragments(
    shape: &'static str,
    of: &'static str,
    (a, b): (usize, usize),
    to: &'static str,
    c: usize,
    kind: Kind,
    bytes: (usize, usize),
) -> Fragments {
    Fragments { shape, of, a, b, to, c, kind, bytes }
}

/// The three sizes in a shape's name.
fn sizes(shape: &str) -> [usize; 3] {
    let mut numbers = shape.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    [0; 3].map(|_| numbers.next().unwrap_or(8))
}

/// Loads of all fragments from memory, the product, and a store.
pub(super) fn wmma(maker: &mut Maker) {
    maker.filling = FLAT;
    maker.kernel.block = [32, 1, 1];
    let which = &WMMA[maker.random.index(WMMA.len())];
    let Fragments { shape, of, to, .. } = which;
    let [m, n, k] = sizes(shape);
    let (layout_a, layout_b, layout_d) = (layout(maker), layout(maker), layout(maker));
    let stride = |layout: &str, rows: usize, columns: usize| if layout == "row" { columns } else { rows };
    let (stride_a, stride_b, stride_d) = (stride(layout_a, m, k), stride(layout_b, k, n), stride(layout_d, m, n));
    let words = |elements: usize, bytes: usize| elements * bytes / 4;
    let offset_b = m * k * which.bytes.0;
    maker.table(words(m * k + k * n, which.bytes.0), which.kind);
    let at = maker.scratch(words(m * n, which.bytes.1));
    let wide = *to == "f64";
    let registers = |name: &str, count: usize| (0..count).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", ");
    let (ra, rb) = (registers("fa", which.a), registers("fb", which.b));
    let (rc, rd) = (registers("fc", which.c), registers("fd", which.c));
    let ty = if wide { ".b64" } else { ".b32" };
    let c: Vec<String> = (0..which.c).map(|i| format!("mov{ty} %fc{i}, {};", accumulator(to))).collect();
    let types = match *of {
        "f16" => format!("{to}.{to}"),
        _ => format!("{to}.{of}.{of}.{to}"),
    };
    let text = format!(
        "{{ .reg {ty} {ra}, {rb}, {rc}, {rd};\n{}\n\
         wmma.load.a.sync.aligned.{layout_a}.{shape}.global.{of} {{{ra}}}, [%table], {stride_a};\n\
         wmma.load.b.sync.aligned.{layout_b}.{shape}.global.{of} {{{rb}}}, [%table+{offset_b}], {stride_b};\n\
         wmma.mma.sync.aligned.{layout_a}.{layout_b}.{shape}.{types} {{{rd}}}, {{{ra}}}, {{{rb}}}, {{{rc}}};\n\
         wmma.store.d.sync.aligned.{layout_d}.{shape}.global.{to} [%scratch+{at}], {{{rd}}}, {stride_d}; }}",
        c.join(" ")
    );
    maker.kernel.body.push(Statement::Text(text));
    let arithmetic = program::arithmetic(maker);
    maker.kernel.body.push(arithmetic);
}

fn layout(maker: &mut Maker) -> &'static str {
    maker.random.pick(&["row", "col"])
}

/// The same everywhere: where the elements of a fragment are is nobody's business.
fn accumulator(to: &str) -> &'static str {
    match to {
        "f16" => "0x40004000",
        "f32" => "0f40400000",
        "f64" => "0d4008000000000000",
        _ => "77",
    }
}
