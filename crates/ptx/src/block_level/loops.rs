//! The loops of a function.

use super::code::Code;
use super::flow::Effort;
use super::refusal::{Finding, RefusalKind};
use std::collections::HashMap;

/// How deep loops may be nested.
const DEEPEST: usize = 32;

/// One loop.
pub(super) struct Loop {
    pub(super) blocks: Vec<u32>,
    /// Those that it is entered through.
    pub(super) entries: Vec<u32>,
}

/// All loops, those within loops too.
///
/// A loop is a set of blocks from each of which all others can be reached. Without the edges to where it is entered
/// from outside it falls apart, and what is still such a set is a loop within.
pub(super) fn loops(code: &Code<'_>, effort: &mut Effort) -> Result<Vec<Loop>, Finding> {
    let mut search = Search::new(code);
    let mut found = Vec::new();
    let mut waiting = vec![((0..code.exit()).collect::<Vec<u32>>(), 0)];
    while let Some((blocks, depth)) = waiting.pop() {
        if depth > DEEPEST {
            return Err(Finding::whole(RefusalKind::NotUnderstood, format!("it has loops more than {DEEPEST} deep")));
        }
        effort.spend(blocks.len())?;
        for component in search.components(&blocks) {
            let entries = search.cut_entries(&component);
            waiting.push((component.clone(), depth + 1));
            found.push(Loop { blocks: component, entries });
        }
    }
    Ok(found)
}

struct Search<'c, 'm> {
    code: &'c Code<'m>,
    predecessors: Vec<Vec<u32>>,
    /// Blocks to which edges do not count any more.
    cut: Vec<bool>,
    /// Which search or component a block was last seen in.
    seen_in: Vec<u32>,
    searches: u32,
}

/// What is known of a block during one search.
#[derive(Clone, Copy, Default)]
struct Visit {
    order: u32,
    lowest: u32,
    on_stack: bool,
}

impl<'c, 'm> Search<'c, 'm> {
    fn new(code: &'c Code<'m>) -> Self {
        let count = code.blocks.len();
        let mut predecessors = vec![Vec::new(); count];
        for (index, block) in (0_u32..).zip(&code.blocks) {
            for successor in block.successors.iter().filter(|it| **it != code.exit()) {
                predecessors[*successor as usize].push(index);
            }
        }
        Self { code, predecessors, cut: vec![false; count], seen_in: vec![0; count], searches: 0 }
    }

    fn mark(&mut self, blocks: &[u32]) -> u32 {
        self.searches += 1;
        for block in blocks {
            self.seen_in[*block as usize] = self.searches;
        }
        self.searches
    }

    /// Cuts the edges to the blocks through which a component is entered, or to any one if it is not.
    fn cut_entries(&mut self, component: &[u32]) -> Vec<u32> {
        let mark = self.mark(component);
        let is_entry = |block: &&u32| {
            **block == 0 || self.predecessors[**block as usize].iter().any(|it| self.seen_in[*it as usize] != mark)
        };
        let mut entries: Vec<u32> = component.iter().filter(is_entry).copied().collect();
        // Where all its entries are cut already, or it has none, it must fall apart all the same.
        if entries.iter().all(|entry| self.cut[*entry as usize]) {
            entries.extend(component.iter().find(|block| !self.cut[**block as usize]));
        }
        for entry in &entries {
            self.cut[*entry as usize] = true;
        }
        entries
    }

    /// The sets of blocks that can reach each other within those blocks (Tarjan's algorithm without recursion).
    fn components(&mut self, blocks: &[u32]) -> Vec<Vec<u32>> {
        let mark = self.mark(blocks);
        let mut visits: HashMap<u32, Visit> = HashMap::with_capacity(blocks.len());
        let (mut order, mut stack, mut found) = (0, Vec::new(), Vec::new());
        for root in blocks {
            if visits.contains_key(root) {
                continue;
            }
            let mut path = vec![(*root, 0)];
            while let Some((block, next)) = path.last_mut() {
                let block = *block;
                if *next == 0 {
                    order += 1;
                    visits.insert(block, Visit { order, lowest: order, on_stack: true });
                    stack.push(block);
                }
                let successor = self.code.blocks[block as usize].successors.get(*next).copied();
                *next += 1;
                if let Some(successor) = successor {
                    let counts = self.seen_in.get(successor as usize) == Some(&mark) && !self.cut[successor as usize];
                    match visits.get(&successor).copied() {
                        _ if !counts => {}
                        None => path.push((successor, 0)),
                        Some(visit) if visit.on_stack => lower(&mut visits, block, visit.order),
                        Some(_) => {}
                    }
                    continue;
                }
                path.pop();
                let visit = visits.get(&block).copied().unwrap_or_default();
                if let Some((parent, _)) = path.last() {
                    lower(&mut visits, *parent, visit.lowest);
                }
                if visit.lowest == visit.order {
                    let at = stack.iter().rposition(|it| *it == block).unwrap_or_default();
                    let component = stack.split_off(at);
                    for block in &component {
                        visits.entry(*block).or_default().on_stack = false;
                    }
                    if component.len() > 1 || self.repeats_itself(block) {
                        found.push(component);
                    }
                }
            }
        }
        found
    }

    fn repeats_itself(&self, block: u32) -> bool {
        !self.cut[block as usize] && self.code.blocks[block as usize].successors.contains(&block)
    }
}

fn lower(visits: &mut HashMap<u32, Visit>, block: u32, order: u32) {
    let visit = visits.entry(block).or_default();
    visit.lowest = visit.lowest.min(order);
}
