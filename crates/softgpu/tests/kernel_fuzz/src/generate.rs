//! Kernel `n` of a seed: always the same text and the same inputs, on every machine.
//!
//! A corpus holds answers to kernels that are made anew whenever it is replayed. What changes any kernel therefore
//! changes [`VERSION`], and a corpus of another version is refused.

mod asynchronous;
mod atomics;
mod blocks;
mod calls;
mod clusters;
mod faults;
mod memory;
mod program;
mod shared;
mod tensor;
mod warp;

use crate::kernel::{Kernel, Statement};
use crate::random::Random;
use crate::tables;
use crate::template::{CHAINED, FLAT, Filling, fill};
use crate::values::Kind;

/// Of everything that decides what a kernel is: this folder, the tables, templates, values and random numbers.
pub(crate) const VERSION: u32 = 2;

/// How a kernel of a class is made.
enum Recipe {
    /// Instructions of that table; what they compute is not read again.
    Flat(&'static [&'static str]),
    /// Instructions of that table, each on what others computed.
    Chained(&'static [&'static str]),
    /// In a way of its own.
    Own(fn(&mut Maker)),
}

use Recipe::{Chained, Flat, Own};

/// The classes. A kernel's number decides its class, so that each has its share of any run.
const CLASSES: &[(&str, Recipe)] = &[
    ("int16", Chained(tables::INT16)),
    ("int32", Chained(tables::INT32)),
    ("bits32", Chained(tables::BITS32)),
    ("int64", Chained(tables::INT64)),
    ("carry", Chained(tables::CARRY)),
    ("int_division", Flat(tables::DIVISION)),
    ("predicates", Chained(tables::PREDICATES)),
    ("comparisons", Chained(tables::COMPARISONS)),
    ("f32", Chained(tables::F32)),
    ("f32_flat", Flat(tables::F32)),
    ("f32_division", Flat(tables::F32_DIVISION)),
    ("f64", Flat(tables::F64)),
    ("f64_division", Flat(tables::F64_DIVISION)),
    ("f64_nan", Flat(tables::F64_NAN)),
    ("signs", Flat(tables::SIGNS)),
    ("f16", Chained(tables::F16)),
    ("bf16", Chained(tables::BF16)),
    ("fma_oob", Flat(tables::FMA_OOB)),
    ("cvt_integers", Chained(tables::CVT_INTEGERS)),
    ("cvt_float_to_integer", Flat(tables::CVT_FLOAT_TO_INTEGER)),
    ("cvt_integer_to_float", Flat(tables::CVT_INTEGER_TO_FLOAT)),
    ("cvt_floats", Flat(tables::CVT_FLOATS)),
    ("cvt_fp8", Flat(tables::CVT_FP8)),
    ("video_scalar", Chained(tables::VIDEO_SCALAR)),
    ("video_simd", Chained(tables::VIDEO_SIMD)),
    (APPROXIMATIONS, Own(approximations)),
    ("program", Own(program::plain)),
    ("program_large", Own(program::large)),
    ("branch_table", Own(program::tables)),
    ("exit", Own(program::exits)),
    ("call", Own(calls::direct)),
    ("call_indirect", Own(calls::indirect)),
    ("call_recursive", Own(calls::recursive)),
    ("special_registers", Own(memory::special_registers)),
    ("global_memory", Own(memory::global)),
    ("constant_memory", Own(memory::constant)),
    ("local_memory", Own(memory::local)),
    ("stack", Own(memory::stack)),
    ("shared_memory", Own(shared::exchange)),
    ("barriers", Own(shared::barriers)),
    ("shuffle", Own(warp::shuffles)),
    ("vote", Own(warp::votes)),
    ("warp_members", Own(warp::members)),
    ("atomics_global", Own(atomics::global)),
    ("atomics_shared", Own(atomics::shared)),
    ("atomics_own", Own(atomics::own)),
    ("atomics_float", Own(atomics::floats)),
    ("cp_async", Own(asynchronous::cp_async)),
    ("mbarrier", Own(asynchronous::mbarrier)),
    ("bulk_copy", Own(asynchronous::bulk)),
    ("cluster", Own(clusters::exchange)),
    ("cluster_async", Own(clusters::asynchronous)),
    ("mma_f16", Own(tensor::mma_f16)),
    ("mma_other", Own(tensor::mma_other)),
    ("mma_integer", Own(tensor::mma_integer)),
    ("mma_sparse", Own(tensor::mma_sparse)),
    ("matrix_moves", Own(tensor::moves)),
    ("wmma", Own(tensor::wmma)),
];

/// The classes of [`many_blocks`]: those in which blocks are apart, and more of what blocks do.
const MANY_BLOCKS: &[(&str, Recipe)] = &[
    ("block_numbers", Own(blocks::numbers)),
    ("early_returns", Own(blocks::early_returns)),
    ("parts_of_blocks", Own(blocks::parts)),
    ("rounds", Own(blocks::rounds)),
    ("functions", Own(blocks::functions)),
    ("variables", Own(blocks::variables)),
    ("early_returns_2", Own(blocks::early_returns)),
    ("rounds_2", Own(blocks::rounds)),
    ("program", Own(program::plain)),
    ("program_large", Own(program::large)),
    ("branch_table", Own(program::tables)),
    ("exit", Own(program::exits)),
    ("call", Own(calls::direct)),
    ("call_indirect", Own(calls::indirect)),
    ("call_recursive", Own(calls::recursive)),
    ("special_registers", Own(memory::special_registers)),
    ("global_memory", Own(memory::global)),
    ("constant_memory", Own(memory::constant)),
    ("local_memory", Own(memory::local)),
    ("shared_memory", Own(shared::exchange)),
    ("barriers", Own(shared::barriers)),
    ("shuffle", Own(warp::shuffles)),
    ("vote", Own(warp::votes)),
    ("warp_members", Own(warp::members)),
    ("atomics_global", Own(atomics::global)),
    ("atomics_shared", Own(atomics::shared)),
    ("atomics_own", Own(atomics::own)),
    ("cp_async", Own(asynchronous::cp_async)),
    ("mbarrier", Own(asynchronous::mbarrier)),
    ("bulk_copy", Own(asynchronous::bulk)),
    ("cluster", Own(clusters::exchange)),
    ("f32", Chained(tables::F32)),
    ("f64", Flat(tables::F64)),
    ("f16", Chained(tables::F16)),
    ("mma_f16", Own(tensor::mma_f16)),
    ("wmma", Own(tensor::wmma)),
];

/// How many kernels it takes until each class was there once.
pub(crate) const ROUND: u64 = CLASSES.len() as u64;

/// The class of the kernel with that number.
pub(crate) fn class(number: u64) -> &'static str {
    let (class, _) = &CLASSES[place(number)];
    if *class == APPROXIMATIONS { approximation(number / ROUND).0 } else { class }
}

/// Stands for those of [`tables::APPROXIMATIONS`] in turn.
const APPROXIMATIONS: &str = "approximations";

fn place(number: u64) -> usize {
    usize::try_from(number % ROUND).unwrap_or_default()
}

fn approximation(turn: u64) -> (&'static str, &'static [&'static str]) {
    let which = turn % tables::APPROXIMATIONS.len() as u64;
    tables::APPROXIMATIONS[usize::try_from(which).unwrap_or_default()]
}

/// The kernel with that number.
pub(crate) fn kernel(seed: u64, number: u64) -> Kernel {
    make(seed, number, (class(number), &CLASSES[place(number)].1), number / ROUND, false)
}

/// Why a GPU's answer to the kernel with that number may be another than the PTX ISA's.
pub(crate) fn known_fault(seed: u64, number: u64) -> Option<&'static str> {
    faults::left_in(&kernel(seed, number))
}

/// The kernel with that number among those that have several blocks.
pub(crate) fn many_blocks(seed: u64, number: u64) -> Kernel {
    let round = MANY_BLOCKS.len() as u64;
    let (class, recipe) = &MANY_BLOCKS[usize::try_from(number % round).unwrap_or_default()];
    make(seed, number, (class, recipe), number / round, true)
}

/// A kernel of that class, before which there were so many.
fn make(seed: u64, number: u64, (class, recipe): (&'static str, &Recipe), turn: u64, many_blocks: bool) -> Kernel {
    let random = Random::new(seed).part(number);
    let mut maker = Maker {
        labels: 0,
        filling: CHAINED,
        kernel: Kernel {
            name: format!("k{number}"),
            class,
            grid: [1; 3],
            block: [64, 1, 1],
            cluster: 1,
            outside: String::new(),
            functions: Vec::new(),
            declarations: String::new(),
            body: Vec::new(),
            scratch_words: 0,
            table: None,
            data: random.part(1),
        },
        random: random.part(2),
        turn,
        many_blocks,
    };
    if many_blocks {
        maker.many_blocks();
    }
    match recipe {
        Flat(table) => maker.straight(table, FLAT),
        Chained(table) => maker.straight(table, CHAINED),
        Own(make) => make(&mut maker),
    }
    faults::take_out(&mut maker.kernel);
    maker.kernel
}

fn approximations(maker: &mut Maker) {
    let (_, table) = approximation(maker.turn);
    maker.straight(table, FLAT);
}

/// A kernel in the making.
struct Maker {
    random: Random,
    filling: Filling,
    labels: u32,
    /// How many kernels of this class came before.
    turn: u64,
    /// Whether there are to be several blocks, wherever a kernel can have them.
    many_blocks: bool,
    kernel: Kernel,
}

impl Maker {
    /// Instructions of a table, one after the other.
    fn straight(&mut self, table: &[&str], filling: Filling) {
        self.filling = filling;
        for _ in 0..6 + self.random.below(7) {
            let template = self.random.pick(table);
            self.add(template);
        }
    }

    /// The template, filled in.
    fn fill(&mut self, template: &str) -> String {
        fill(template, &mut self.random, self.filling)
    }

    fn statement(&mut self, template: &str) -> Statement {
        Statement::Text(self.fill(template))
    }

    fn add(&mut self, template: &str) {
        let statement = self.statement(template);
        self.kernel.body.push(statement);
    }

    /// A number that labels and registers of control flow end with, another each time.
    fn fresh(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    /// Words for all threads; where they begin, in bytes from `%scratch`.
    fn scratch(&mut self, words: usize) -> usize {
        // Whole vectors, so that any access is aligned.
        let at = self.kernel.scratch_words.next_multiple_of(4);
        self.kernel.scratch_words = at + words;
        at * 4
    }

    /// Words that all threads can read.
    fn table(&mut self, words: usize, kind: Kind) {
        self.kernel.table = Some((words, kind));
    }

    fn declare(&mut self, text: &str) {
        self.kernel.declarations.push_str(text);
        self.kernel.declarations.push('\n');
    }

    fn threads(&self) -> u32 {
        self.kernel.block.iter().product()
    }

    /// Blocks of 32, 64 or 128 threads, and one to three of them.
    fn any_shape(&mut self) {
        self.kernel.block = [self.random.pick(&[32, 64, 128]), 1, 1];
        if self.many_blocks {
            return self.many_blocks();
        }
        self.kernel.grid = [self.random.pick(&[1, 1, 2, 3]), 1, 1];
    }

    /// A grid of one to three dimensions.
    fn many_blocks(&mut self) {
        let axis = |random: &mut Random| 1 + random.below(4);
        self.kernel.grid = match self.random.below(3) {
            0 => [2 + self.random.below(14), 1, 1],
            1 => [axis(&mut self.random), 1 + axis(&mut self.random), 1],
            _ => [axis(&mut self.random), axis(&mut self.random), 1 + self.random.below(3)],
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::check;
    use crate::random::hash_words;

    /// A corpus stays valid only as long as the kernels stay the same. Where this fails although no kernel should
    /// have changed, something is not frozen that has to be; otherwise raise [`VERSION`].
    #[test]
    fn kernels_are_what_they_were() {
        let checks = |seed| (0..ROUND * 4).map(|number| check(&kernel(seed, number))).collect::<Vec<_>>();
        let hashes = [1, 7].map(|seed| hash_words(&checks(seed)));
        assert_eq!((VERSION, hashes), (2, [1_485_858_380_680_509_961, 16_982_899_978_504_625_392]));
    }

    #[test]
    fn every_class_has_its_turn() {
        let approximations = tables::APPROXIMATIONS.len() as u64;
        let mut seen: Vec<_> = (0..ROUND * approximations).map(class).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len() as u64, ROUND - 1 + approximations);
        assert!((0..ROUND).all(|number| kernel(1, number).class == class(number)));
    }
}
