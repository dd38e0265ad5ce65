//! Which products and sums the driver's compiler joins.
//!
//! A `mul` and an `add` or `sub` without a rounding modifier may become one `fma`, which rounds once instead of twice.
//! PTX leaves open which do. The bits of a result depend on it, so who wants those of a GPU has to do what its driver's
//! compiler does. This is the rule of `ptxas` 13.0 for `sm_90`, learned from what it makes of small kernels and of
//! generated ones, and compared with what it makes of all kernels that nvcc writes for the samples
//! (`xtask/src/ptxas/joins.rs`). Nothing that NVIDIA publishes says it.
//!
//! * A *product* is a `mul` of `f32`, `f64`, `f16` or `bf16`, also of two halves side by side, without rounding, `.sat`
//!   and predicate. So are `div.approx` and `div.full`, whose last step is one, and `rcp.approx` without `.ftz`. A product with
//!   1 or -1 is none but a copy, and so is what is known when it is compiled.
//! * A *sum* is an `add` or `sub` without rounding, of the product's type and as much `.ftz` as it; `.sat` and a predicate
//!   do not matter.
//! * Copies and changed signs of a product (`mov`, `neg`, `cvt` to its own type) are that product, `abs` is not.
//! * A product is *open* if all that reads it are sums, and these are in its own block; one with a constant (a number, a
//!   parameter of the kernel, or constant memory at a place that is known) is so wherever they are. A block ends where control goes elsewhere or comes
//!   from elsewhere, and at what the compiler makes such of: fences, calls, exact divisions and roots, most
//!   divisions of integers, and anything with a predicate that is not plain arithmetic. Barriers, loads, stores and atomics do not
//!   end it.
//! * A sum of two products takes the one that fewer sums read, and the first where it is as many. The other one stays a
//!   product, from then on read by an `fma`, so that it is open no more. A product that several sums read is
//!   not open if one of these has another product that nothing else reads.
//! * A sum of a product with itself is left alone, and the product with it.
//!
//! What is not known, and not joined here:
//!
//! * Loops that the compiler unrolls, where one turn's product is read by the next turn's sum: it is joined in some of the copies.
//! * What the compiler computes anew elsewhere, to keep fewer registers across an exact division or a fence.
//! * What it finds out about programs that compilers before it do not leave to it: code that cannot be reached, branches round nothing,
//!   two products or sums of the same operands, magnitudes of squares, a factor of 1 in a register, products that go through a pair of
//!   registers or local memory, signs that are changed with `.ftz` and read by others too.
//!
//! ```
//! use detshare_ptx::ast::{Item, Statement};
//! use detshare_ptx::joined::Joined;
//!
//! let source = "
//!     .version 8.4
//!     .target sm_90
//!     .visible .entry turn()
//!     {
//!         .reg .f32 %f<8>;
//!         mul.f32 %f5, %f1, %f2;
//!         mul.f32 %f6, %f3, %f4;
//!         sub.f32 %f7, %f5, %f6;
//!         st.global.f32 [0], %f7;
//!     }";
//! let module = detshare_ptx::parse(source)?;
//! let [Item::Function(kernel)] = module.items.as_slice() else { panic!("one kernel") };
//! let Some([_, Statement::Instruction(first), Statement::Instruction(second), Statement::Instruction(difference), _]) =
//!     kernel.body.as_deref()
//! else {
//!     panic!("four instructions")
//! };
//! let joined = Joined::of(kernel);
//! let sum = joined.sum(difference).expect("it is joined");
//! assert_eq!((sum.product, sum.operand), (first.span.start, 0));
//! assert!(joined.is_gone(first) && !joined.is_gone(second));
//! # Ok::<(), detshare_ptx::ParseError>(())
//! ```

mod blocks;
mod kinds;
mod live;

use crate::ast::{Function, Instruction};
use blocks::{Code, Register, Step};
use kinds::{Kind, Role};
use live::Live;
use std::collections::{HashMap, HashSet};

/// What becomes of a function's products and sums. Instructions are known by where they start.
#[derive(Debug, Default)]
pub struct Joined {
    sums: HashMap<u32, Sum>,
    products: HashMap<u32, Product>,
    gone: HashSet<u32>,
}

/// A sum that is joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// Where the product starts that it is joined with.
    pub product: u32,
    /// Which of the sum's two operands, 0 or 1, holds that product.
    pub operand: usize,
    /// Whether it holds it with the other sign.
    pub negated: bool,
}

/// A product that sums are joined with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// Whether registers with its factors may be written to before the last of these sums.
    pub overwritten: bool,
}

impl Joined {
    /// What the compiler joins in a function. Nothing in one that has instructions which the parser has no shape for. In modules that are
    /// compiled for a debugger (`.target sm_90, debug`) it joins nothing anywhere.
    #[must_use]
    pub fn of(function: &Function) -> Self {
        let mut joined = Self::default();
        let Some(code) = Code::of(function) else { return joined };
        let Some(live) = Live::of(&code) else { return joined };
        let mut search = Search::new(&code, &live);
        search.find_held_everywhere();
        for chain in code.chains() {
            search.chain(&chain);
        }
        search.join(&mut joined);
        joined
    }

    /// The sum, if it is joined.
    #[must_use]
    pub fn sum(&self, instruction: &Instruction) -> Option<Sum> {
        self.sums.get(&instruction.span.start).copied()
    }

    /// The product, if sums are joined with it.
    #[must_use]
    pub fn product(&self, instruction: &Instruction) -> Option<Product> {
        self.products.get(&instruction.span.start).copied()
    }

    /// Whether nobody reads what the instruction writes any more, because all who did are joined.
    #[must_use]
    pub fn is_gone(&self, instruction: &Instruction) -> bool {
        self.gone.contains(&instruction.span.start)
    }
}

/// The number of a product within its function.
type Value = usize;

/// A product that is found.
struct Found {
    instruction: u32,
    kind: Kind,
    /// How often each factor's register had been written to in the product's block.
    factors: Vec<(Register, u32)>,
    /// Whether sums in all blocks may be joined with it.
    is_everywhere: bool,
    /// Where the instructions start that copy it.
    copies: Vec<u32>,
    /// The sums that read it, by their numbers.
    sums: Vec<usize>,
    /// Whether something else reads it.
    is_read: bool,
    /// Whether something reads it that does not keep sums from being joined.
    is_kept: bool,
    overwritten: bool,
    /// How many sums are joined with it.
    joined: usize,
}

/// A sum that is found.
struct Summing {
    instruction: u32,
    /// The products that its operands are, and whether with the other sign.
    operands: [Option<(Value, bool)>; 2],
}

/// What is found in a function.
struct Search<'c, 'm> {
    code: &'c Code<'m>,
    live: &'c Live,
    found: Vec<Found>,
    sums: Vec<Summing>,
    /// What registers hold from where they are written to, which happens in one place.
    everywhere: HashMap<Register, (Value, bool)>,
    /// What the others hold, within a block or several that always follow each other, and how often they were written to there.
    here: HashMap<Register, (Value, bool)>,
    written: HashMap<Register, u32>,
}

impl Found {
    fn new(step: &Step<'_>, kind: Kind, factors: Vec<(Register, u32)>, is_everywhere: bool) -> Self {
        let (copies, sums) = (Vec::new(), Vec::new());
        let instruction = step.instruction.span.start;
        Self {
            instruction,
            kind,
            factors,
            is_everywhere,
            copies,
            sums,
            is_read: false,
            is_kept: false,
            overwritten: false,
            joined: 0,
        }
    }
}

impl<'c, 'm> Search<'c, 'm> {
    fn new(code: &'c Code<'m>, live: &'c Live) -> Self {
        let (found, sums) = (Vec::new(), Vec::new());
        let (everywhere, here, written) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { code, live, found, sums, everywhere, here, written }
    }

    /// Products with a constant, and their copies.
    fn find_held_everywhere(&mut self) {
        let code = self.code;
        for step in code.steps() {
            let [register] = step.results.as_slice() else { continue };
            if !code.is_written_once(*register) {
                continue;
            }
            match step.role {
                Role::Product(kind) if code.has_constant_factor(step) => {
                    let factors = step.sources.iter().map(|register| (*register, 0)).collect();
                    self.everywhere.insert(*register, (self.found.len(), false));
                    self.found.push(Found::new(step, kind, factors, true));
                }
                Role::Copy { negates, flushes } => {
                    if let Some((value, negated)) = self.copied(step, flushes) {
                        self.found[value].copies.push(step.instruction.span.start);
                        self.everywhere.insert(*register, (value, negated != negates));
                    }
                }
                _ => {}
            }
        }
        for (register, (value, _)) in &self.everywhere {
            self.found[*value].is_read |= code.returned.contains(register);
        }
    }

    fn chain(&mut self, chain: &[usize]) {
        self.here.clear();
        self.written.clear();
        for block in chain {
            self.block(*block);
        }
        if let Some(last) = chain.last() {
            self.leave(*last);
        }
    }

    fn block(&mut self, block: usize) {
        let code = self.code;
        for step in code.steps_of(block) {
            match step.role {
                Role::Sum(kind) => self.sum(step, kind),
                Role::Copy { negates, flushes } => self.copy(step, negates, flushes),
                Role::Product(kind) => {
                    self.read_all(step);
                    let factors = step.sources.iter().map(|register| (*register, self.times_written(*register)));
                    let factors = factors.collect();
                    self.write_all(step);
                    if let [register] = step.results.as_slice()
                        && !self.everywhere.contains_key(register)
                    {
                        self.here.insert(*register, (self.found.len(), false));
                        self.found.push(Found::new(step, kind, factors, false));
                    }
                }
                Role::Other => {
                    self.read_all(step);
                    self.write_all(step);
                }
            }
        }
    }

    /// What is held when the last block ends may be read elsewhere.
    fn leave(&mut self, last: usize) {
        for (register, (value, _)) in &self.here {
            if self.live.after(last, *register) {
                self.found[*value].is_read = true;
            }
        }
    }

    fn times_written(&self, register: Register) -> u32 {
        self.written.get(&register).copied().unwrap_or(0)
    }

    fn held(&self, register: Register) -> Option<(Value, bool)> {
        self.here.get(&register).or_else(|| self.everywhere.get(&register)).copied()
    }

    fn read(&mut self, register: Register) {
        if let Some((value, _)) = self.held(register) {
            self.found[value].is_read = true;
        }
    }

    fn read_all(&mut self, step: &Step<'_>) {
        step.sources.iter().for_each(|register| self.read(*register));
    }

    /// Where the instruction has a predicate, what was there may still be there.
    fn write_all(&mut self, step: &Step<'_>) {
        for register in &step.results {
            if step.instruction.predicate.is_some() {
                self.read(*register);
            }
            self.here.remove(register);
            *self.written.entry(*register).or_insert(0) += 1;
        }
    }

    /// The product that is copied.
    fn copied(&self, step: &Step<'_>, flushes: bool) -> Option<(Value, bool)> {
        let [source] = step.sources.as_slice() else { return None };
        self.held(*source).filter(|(value, _)| self.found[*value].kind.flushes() || !flushes)
    }

    fn copy(&mut self, step: &Step<'_>, negates: bool, flushes: bool) {
        let is_everywhere = step.results.iter().any(|register| self.everywhere.contains_key(register));
        let copied = self.copied(step, flushes).filter(|_| !is_everywhere);
        if copied.is_none() && !is_everywhere {
            self.read_all(step);
        }
        self.write_all(step);
        if let (Some((value, negated)), [register]) = (copied, step.results.as_slice()) {
            self.found[value].copies.push(step.instruction.span.start);
            self.here.insert(*register, (value, negated != negates));
        }
    }

    fn sum(&mut self, step: &Step<'_>, kind: Kind) {
        let mut operands = step.operands().map(|register| register.and_then(|register| self.held(register)));
        // What is taken away with the other sign is a sum with zero first, where subnormal numbers are.
        if step.instruction.opcode == "sub"
            && kind.flushes()
            && let Some((value, _)) = operands[1].take_if(|(_, negated)| *negated)
        {
            self.found[value].is_kept = true;
        }
        let number = self.sums.len();
        let twice = matches!(operands, [Some((first, _)), Some((second, _))] if first == second);
        for (value, _) in operands.into_iter().flatten() {
            let found = &self.found[value];
            let overwritten = found.factors.iter().any(|(register, times)| match found.is_everywhere {
                true => !self.code.is_set_at_start(*register),
                false => self.times_written(*register) != *times,
            });
            let found = &mut self.found[value];
            found.overwritten |= overwritten;
            // What reads a product before it stands there reads that of another turn.
            if twice || found.kind != kind || step.instruction.span.start < found.instruction {
                found.is_read = true;
            } else {
                found.sums.push(number);
            }
        }
        self.sums.push(Summing { instruction: step.instruction.span.start, operands });
        self.write_all(step);
    }

    /// Whether a product is read by one sum and nothing else.
    fn is_single(&self, value: Value) -> bool {
        !self.found[value].is_read && self.found[value].sums.len() == 1
    }

    /// Whether all that reads a product are sums, which leave it to them.
    fn is_open(&self, value: Value) -> bool {
        let found = &self.found[value];
        let goes_to_other = |sum: &usize| {
            let others = self.sums[*sum].operands.into_iter().flatten().filter(|(other, _)| *other != value);
            others.into_iter().any(|(other, _)| self.is_single(other))
        };
        !found.is_read && (found.sums.len() == 1 || !found.sums.iter().any(goes_to_other))
    }

    fn join(mut self, joined: &mut Joined) {
        let mut open: Vec<bool> = (0..self.found.len()).map(|value| self.is_open(value)).collect();
        for sum in &self.sums {
            let readers = |operand: usize| {
                let (value, _) = sum.operands[operand].filter(|(value, _)| open[*value])?;
                Some(self.found[value].sums.len())
            };
            let operand = match (readers(0), readers(1)) {
                (Some(first), Some(second)) if second < first => 1,
                (Some(_), _) => 0,
                (None, Some(_)) => 1,
                (None, None) => continue,
            };
            let Some((value, negated)) = sum.operands[operand] else { continue };
            if let Some((other, _)) = sum.operands[1 - operand] {
                open[other] = false;
            }
            let found = &mut self.found[value];
            found.joined += 1;
            joined.sums.insert(sum.instruction, Sum { product: found.instruction, operand, negated });
            joined.products.insert(found.instruction, Product { overwritten: found.overwritten });
        }
        let all = |found: &&Found| found.joined > 0 && found.joined == found.sums.len() && !found.is_kept;
        for found in self.found.iter().filter(all) {
            joined.gone.insert(found.instruction);
            joined.gone.extend(&found.copies);
        }
    }
}
