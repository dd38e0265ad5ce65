//! A module's functions, who calls whom, and what each of them is refused for.

use super::checks::barriers::{self, Meetings, Plan};
use super::checks::layout::{self, Handed};
use super::checks::leftovers::{self, Waits};
use super::checks::sight::Sight;
use super::checks::{contraction, instructions, shared, waiting};
use super::code::Code;
use super::flow::{Effort, post_dominators};
use super::names::Names;
use super::position::Needs;
use super::refusal::{Finding, RefusalKind};
use crate::ast::{Function, FunctionKind, Item, Module, Statement};
use std::collections::{HashMap, HashSet};

/// A function with a body.
pub(super) struct Routine<'m> {
    pub(super) function: &'m Function,
    pub(super) body: &'m [Statement],
    code: Result<Code<'m>, Finding>,
    /// Where the ways from each of its blocks meet again.
    meets: Vec<Option<u32>>,
    /// Why no version may have it.
    refused: Option<Finding>,
    /// Why no preemptible version may.
    left_behind: Option<Finding>,
}

/// All functions with bodies.
pub(super) struct Program<'m> {
    names: &'m Names<'m>,
    pub(super) routines: Vec<Routine<'m>>,
    numbers: HashMap<&'m str, usize>,
    /// Whom each calls, by number.
    calls: Vec<Vec<usize>>,
    /// What each needs of its block's position, for itself and those that it calls.
    pub(super) needs: HashMap<&'m str, Needs>,
    meetings: HashMap<&'m str, Meetings>,
    /// Which ones may call themselves, directly or not.
    circular: Vec<bool>,
}

impl<'m> Program<'m> {
    pub(super) fn of(module: &'m Module, names: &'m Names<'m>) -> Self {
        let mut routines = Vec::new();
        let mut numbers = HashMap::new();
        for item in &module.items {
            if let Item::Function(function) = item
                && let Some(body) = &function.body
            {
                let mut routine = Routine::of(function, body, names);
                // Which of two with the same name is meant cannot be known.
                if let Some(first) = numbers.insert(function.name.as_str(), routines.len()) {
                    let twice = Finding::at(RefusalKind::NotUnderstood, &function.name, function.span.start);
                    let first: &mut Routine<'m> = &mut routines[first];
                    first.code = Err(twice.clone());
                    routine.code = Err(twice);
                }
                routines.push(routine);
            }
        }
        let calls = routines.iter().map(|routine| routine.callees(&numbers)).collect();
        let circular = vec![false; routines.len()];
        let (needs, meetings) = (HashMap::new(), HashMap::new());
        let mut program = Self { names, routines, numbers, calls, needs, meetings, circular };
        let order = program.callees_first();
        program.needs = program.needs();
        program.check_waiting();
        program.check_contraction();
        program.check_layout();
        order.into_iter().for_each(|index| program.find_meetings(index));
        program
    }

    /// Whatever one of those that a function calls has, it has as well.
    fn spread<T: Copy + PartialEq>(&self, own: Vec<T>, join: impl Fn(T, T) -> T) -> Vec<T> {
        let mut callers = vec![Vec::new(); self.routines.len()];
        for (caller, callees) in self.calls.iter().enumerate() {
            callees.iter().for_each(|callee| callers[*callee].push(caller));
        }
        let mut all = own;
        let mut waiting: Vec<usize> = (0..all.len()).collect();
        while let Some(callee) = waiting.pop() {
            for caller in &callers[callee] {
                let joined = join(all[*caller], all[callee]);
                if joined != all[*caller] {
                    all[*caller] = joined;
                    waiting.push(*caller);
                }
            }
        }
        all
    }

    fn needs(&self) -> HashMap<&'m str, Needs> {
        let own = self.routines.iter().map(|routine| routine.steps().map(Needs::of).fold(Needs::default(), Needs::and));
        let all = self.spread(own.collect(), Needs::and);
        self.routines.iter().map(|routine| routine.function.name.as_str()).zip(all).collect()
    }

    fn check_waiting(&mut self) {
        let own = self.routines.iter().map(|it| it.code.as_ref().map(Sight::of_function).unwrap_or_default());
        let all = self.spread(own.collect(), Sight::with_called);
        let names = self.routines.iter().map(|routine| routine.function.name.as_str());
        let sights: HashMap<&'m str, Sight> = names.zip(all).collect();
        for (routine, is_circular) in self.routines.iter_mut().zip(&self.circular) {
            if let Ok(code) = &routine.code
                && routine.refused.is_none()
            {
                let function = routine.function;
                // A function that calls itself is a loop, whose end is not looked at.
                let sight = sights.get(function.name.as_str()).copied().unwrap_or_default();
                let looks_again = *is_circular && sight.sees_others(false);
                routine.refused = match looks_again {
                    true => Some(Finding::at(RefusalKind::WaitsForBlocks, &function.name, function.span.start)),
                    false => waiting::check(code, &routine.meets, &sights, &mut Effort::new(code)).err(),
                };
            }
        }
    }

    fn check_contraction(&mut self) {
        let (mut from_others, mut found) = (0, true);
        // A product may go from function to function.
        while core::mem::take(&mut found) {
            let mut handed_on = from_others;
            for routine in self.routines.iter_mut().filter(|routine| routine.refused.is_none()) {
                if let Ok(code) = &routine.code {
                    match contraction::check(code, from_others) {
                        Ok(types) => handed_on |= types,
                        Err(finding) => routine.refused = Some(finding),
                    }
                }
            }
            found = handed_on != from_others;
            from_others = handed_on;
        }
    }

    fn check_layout(&mut self) {
        let mut handed = Handed::default();
        loop {
            let mut handed_on = handed.clone();
            for routine in self.routines.iter_mut().filter(|it| it.refused.is_none() && it.left_behind.is_none()) {
                if let Ok(code) = &routine.code {
                    match layout::check(code, self.names, &handed, &mut Effort::new(code)) {
                        Ok(on) => handed_on.extend(on),
                        Err(finding) => routine.left_behind = Some(finding),
                    }
                }
            }
            if handed_on == handed {
                return;
            }
            handed = handed_on;
        }
    }

    /// Callees before their callers, but for circles, whose members are noted down.
    fn callees_first(&mut self) -> Vec<usize> {
        let mut state = vec![State::New; self.routines.len()];
        let mut order = Vec::new();
        for start in 0..self.routines.len() {
            let mut path = vec![(start, 0)];
            while let Some((at, next)) = path.last_mut() {
                if *next == 0 && state[*at] != State::New {
                    path.pop();
                    continue;
                }
                state[*at] = State::Open;
                let (at, callee) = (*at, self.calls[*at].get(*next).copied());
                *next += 1;
                match callee {
                    Some(callee) if state[callee] == State::Open => {
                        let from = path.iter().position(|(it, _)| *it == callee).unwrap_or_default();
                        path[from..].iter().for_each(|(it, _)| self.circular[*it] = true);
                    }
                    Some(callee) => path.push((callee, 0)),
                    None => {
                        path.pop();
                        state[at] = State::Done;
                        order.push(at);
                    }
                }
            }
        }
        order
    }

    /// Where a function's threads meet, once that is known of those that it calls.
    fn find_meetings(&mut self, index: usize) {
        let routine = &mut self.routines[index];
        let Ok(code) = &routine.code else { return };
        match barriers::meetings(code, &routine.meets, &self.meetings, &mut Effort::new(code)) {
            Ok(meetings) if meetings.is_empty() => {}
            Ok(meetings) => {
                self.meetings.insert(&routine.function.name, meetings);
            }
            Err(finding) => routine.left_behind = routine.left_behind.take().or(Some(finding)),
        }
    }

    /// A function and all that it calls, itself first.
    pub(super) fn reachable(&self, index: usize) -> Vec<usize> {
        let mut found = vec![index];
        let mut seen = HashSet::from([index]);
        let mut at = 0;
        while let Some(next) = found.get(at) {
            at += 1;
            let new: Vec<usize> = self.calls[*next].iter().copied().filter(|callee| seen.insert(*callee)).collect();
            found.extend(new);
        }
        found
    }

    /// Whether any version of a kernel may be made.
    pub(super) fn check(&self, reachable: &[usize]) -> Result<(), Finding> {
        for routine in reachable.iter().map(|index| &self.routines[*index]) {
            if let Err(finding) = &routine.code {
                return Err(finding.clone());
            }
            if let Some(finding) = &routine.refused {
                return Err(finding.clone());
            }
        }
        Ok(())
    }

    /// Whether a sliced version of a kernel may be made: each call of a function that calls itself would need more of a stack that
    /// the program made as large as the original needs it.
    pub(super) fn check_sliced(&self, reachable: &[usize]) -> Result<(), Finding> {
        self.refuse_recursion(reachable, |name| self.needs.get(name).is_some_and(|needs| !needs.is_empty()))
    }

    /// That none of them, as far as they count, calls itself.
    fn refuse_recursion(&self, reachable: &[usize], counts: impl Fn(&str) -> bool) -> Result<(), Finding> {
        let circular = reachable.iter().filter(|index| self.circular[**index]);
        match circular.map(|index| self.routines[*index].function).find(|function| counts(&function.name)) {
            Some(function) => Err(Finding::at(RefusalKind::Recursion, &function.name, function.span.start)),
            None => Ok(()),
        }
    }

    /// Whether a preemptible version of a kernel may be made, and how.
    pub(super) fn check_preemptible(&self, reachable: &[usize], can_park: bool) -> Result<(Plan, Waits), Finding> {
        let all = || reachable.iter().map(|index| &self.routines[*index]);
        if let Some(finding) = all().find_map(|routine| routine.left_behind.as_ref()) {
            return Err(finding.clone());
        }
        // Compilers take a warp that calls a function together for one that returns together. Threads that go to different depths
        // need not, and the persistent block's loop goes on with what the compiler keeps once for the whole warp.
        self.refuse_recursion(reachable, |_| true)?;
        let codes = || all().filter_map(|routine| routine.code.as_ref().ok());
        shared::check_size(codes(), self.names)?;
        let waits = codes().map(leftovers::waits).fold(Waits::default(), Waits::and);
        let kernel = all().next().map(|routine| routine.function.name.as_str()).unwrap_or_default();
        let plan = self.meetings.get(kernel).cloned().unwrap_or_default().plan(can_park)?;
        Ok((plan, waits))
    }

    /// The numbers of the kernels.
    pub(super) fn kernels(&self) -> impl Iterator<Item = usize> {
        let kinds = self.routines.iter().map(|routine| routine.function.kind);
        kinds.enumerate().filter(|(_, kind)| *kind == FunctionKind::Kernel).map(|(index, _)| index)
    }

    /// The number of a function with a body.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }
}

/// Whether a function has been looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

impl<'m> Routine<'m> {
    fn of(function: &'m Function, body: &'m [Statement], names: &'m Names<'m>) -> Self {
        let mut routine = Self {
            function,
            body,
            code: Code::of(function, body, names),
            meets: Vec::new(),
            refused: None,
            left_behind: None,
        };
        if let Ok(code) = &routine.code {
            match post_dominators(code, &mut Effort::new(code)) {
                Ok(meets) => {
                    routine.meets = meets;
                    routine.refused = instructions::check(code, names).err();
                    routine.left_behind = leftovers::check(code).and_then(|()| shared::check(code, names)).err();
                }
                Err(finding) => routine.code = Err(finding),
            }
        }
        routine
    }

    fn steps(&self) -> impl Iterator<Item = &'m crate::ast::Instruction> {
        self.code.iter().flat_map(|code| code.steps.iter().map(|step| step.instruction))
    }

    fn callees(&self, numbers: &HashMap<&str, usize>) -> Vec<usize> {
        let mut all: Vec<usize> =
            self.code.iter().flat_map(Code::calls).filter_map(|(callee, _)| numbers.get(callee).copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
