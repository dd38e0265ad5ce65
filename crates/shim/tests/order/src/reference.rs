//! The one allowed result of a program: its steps done one after the other, as they stand.
//!
//! That this is the only one is the generator's promise: two steps whose order shows are ordered by the driver's
//! rules, in the order in which they stand.

use crate::program::{Cell, Op, PINNED_CELLS, Program, Work};

/// The words that a program works on.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) device: Vec<u32>,
    pub(crate) pinned: Vec<u32>,
    pub(crate) pool: Vec<u32>,
}

/// What must be seen.
pub(crate) struct Expected {
    /// For each step that reads: the value.
    pub(crate) reads: Vec<Option<u32>>,
    /// The cells at the end.
    pub(crate) memory: Memory,
}

/// A graph's node as an executable graph has it.
#[derive(Clone)]
struct Node {
    work: Work,
    enabled: bool,
}

impl Memory {
    /// As the cells are before a program: all different.
    pub(crate) fn initial(program: &Program) -> Self {
        let words = |count: usize, start: u32| (start..).step_by(7).take(count).collect();
        Self {
            device: words(program.device_cells, 1000),
            pinned: words(PINNED_CELLS, 5000),
            pool: vec![0; program.pool_cells],
        }
    }

    fn at(&mut self, cell: Cell) -> &mut u32 {
        match cell {
            Cell::Device(index) => &mut self.device[index],
            Cell::Pinned(index) => &mut self.pinned[index],
            Cell::Pool(index) => &mut self.pool[index],
        }
    }

    fn update(&mut self, cell: Cell, factor: u32, add: u32) {
        let word = self.at(cell);
        *word = word.wrapping_mul(factor).wrapping_add(add);
    }

    fn run(&mut self, work: Work) {
        match work {
            Work::Step { cell, add, .. } => self.update(cell, 3, add),
            Work::Mix { from, to, .. } => {
                let add = *self.at(from);
                self.update(to, 5, add);
            }
            Work::Copy { from, to } => *self.at(to) = *self.at(from),
            Work::Set { cell, value } => *self.at(cell) = value,
            Work::Host { cell, add } => self.update(cell, 7, add),
        }
    }
}

/// Runs the program here.
pub(crate) fn expected(program: &Program) -> Expected {
    let mut memory = Memory::initial(program);
    let mut executables: Vec<Vec<Node>> = vec![Vec::new(); program.execs];
    let mut reads = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        let mut read = None;
        match step.op {
            Op::Run { work, .. } => memory.run(work),
            Op::ReadBack { cell, .. } | Op::HostCheck { cell } => read = Some(*memory.at(cell)),
            Op::WriteIn { cell, value, .. } => *memory.at(cell) = value,
            Op::HostStep { cell, add } => memory.run(Work::Host { cell, add }),
            Op::Instantiate { graph, exec } => {
                let nodes = program.graphs[graph].iter();
                executables[exec] = nodes.map(|node| Node { work: node.work, enabled: true }).collect();
            }
            Op::Update { exec, graph } => {
                let nodes = executables[exec].iter_mut().zip(&program.graphs[graph]);
                nodes.for_each(|(node, like)| node.work = like.work);
            }
            Op::SetParameters { exec, node, work } => executables[exec][node].work = work,
            Op::SetEnabled { exec, node, enabled } => executables[exec][node].enabled = enabled,
            Op::GraphLaunch { exec, .. } => {
                executables[exec].iter().filter(|node| node.enabled).for_each(|node| memory.run(node.work));
            }
            _ => (),
        }
        reads.push(read);
    }
    Expected { reads, memory }
}
