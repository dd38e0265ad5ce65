//! The smallest kernel on which two drivers still differ.
//!
//! Statements are taken out, and control flow round statements, for as long as the two answers stay different. What is
//! left is named by edits to the generated kernel, so that a worker can make it by itself.

use crate::answer::Answer;
use crate::kernel::{Kernel, Statement};
use crate::worker::{Answered, Overseer};
use anyhow::{Context, Error, Result};
use std::fmt;
use std::str::FromStr;
use std::time::Instant;

/// One change to a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    /// Which body (0: the kernel's; then those of its functions), which statement, which of its parts, and so on.
    path: Vec<usize>,
    /// Leave the statement's part with that number in its place, or nothing.
    keep: Option<usize>,
}

impl fmt::Display for Edit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: Vec<_> = self.path.iter().map(usize::to_string).collect();
        write!(formatter, "{}", path.join("."))?;
        self.keep.map_or(Ok(()), |part| write!(formatter, "={part}"))
    }
}

impl FromStr for Edit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (path, keep) = match text.split_once('=') {
            Some((path, part)) => (path, Some(part.parse().with_context(|| format!("{text:?} is no edit"))?)),
            None => (text, None),
        };
        let path: Result<Vec<usize>, _> = path.split('.').map(str::parse).collect();
        Ok(Self { path: path.with_context(|| format!("{text:?} is no edit"))?, keep })
    }
}

/// The kernel after these edits, one after the other; an edit of what is not there changes nothing.
pub(crate) fn apply(mut kernel: Kernel, edits: &[Edit]) -> Kernel {
    for edit in edits {
        let Some((root, path)) = edit.path.split_first() else { continue };
        let body = match root {
            0 => Some(&mut kernel.body),
            function => kernel.functions.get_mut(function - 1).map(|function| &mut function.body),
        };
        if let Some(body) = body {
            edit_at(body, path, edit.keep);
        }
    }
    kernel
}

fn edit_at(body: &mut Vec<Statement>, path: &[usize], keep: Option<usize>) {
    match path {
        [at] if *at < body.len() => {
            let kept = match (&body[*at], keep) {
                (Statement::Block { parts, .. }, Some(part)) => parts.get(part).map(|(_, body)| body.clone()),
                _ => None,
            };
            body.splice(at..=at, kept.unwrap_or_default());
        }
        [at, part, rest @ ..] => {
            if let Some(Statement::Block { parts, .. }) = body.get_mut(*at)
                && let Some((_, inner)) = parts.get_mut(*part)
            {
                edit_at(inner, rest, keep);
            }
        }
        _ => {}
    }
}

/// All edits that one can try on a kernel, the large ones first.
fn candidates(kernel: &Kernel) -> Vec<Edit> {
    let mut edits = Vec::new();
    let functions = kernel.functions.iter().map(|function| &function.body);
    for (root, body) in std::iter::once(&kernel.body).chain(functions).enumerate() {
        collect(body, &[root], &mut edits);
    }
    edits.sort_by_key(|edit| edit.path.len());
    edits
}

fn collect(body: &[Statement], path: &[usize], edits: &mut Vec<Edit>) {
    // From the back, so that taking one out does not move those that are still to be tried.
    for (at, statement) in body.iter().enumerate().rev() {
        let here = [path, &[at]].concat();
        edits.push(Edit { path: here.clone(), keep: None });
        if let Statement::Block { parts, .. } = statement {
            for (part, (_, inner)) in parts.iter().enumerate() {
                edits.push(Edit { path: here.clone(), keep: Some(part) });
                collect(inner, &[&here[..], &[part]].concat(), edits);
            }
        }
    }
}

/// A kernel that is as small as it gets, and what both drivers answer.
pub(crate) struct Shrunk {
    pub(crate) kernel: Kernel,
    pub(crate) edits: Vec<Edit>,
    pub(crate) answers: [Answered; 2],
}

/// Shrinks a kernel; None where the two do not differ on it.
pub(crate) fn shrink(
    two: &mut [Overseer; 2],
    generated: &Kernel,
    number: u64,
    until: Instant,
) -> Result<Option<Shrunk>> {
    let Some(answers) = difference(two, number, &[])? else { return Ok(None) };
    let mut shrunk = Shrunk { kernel: generated.clone(), edits: Vec::new(), answers };
    let mut smaller = true;
    while smaller {
        smaller = false;
        for edit in candidates(&shrunk.kernel) {
            if Instant::now() > until {
                return Ok(Some(shrunk));
            }
            let edits = [&shrunk.edits[..], &[edit]].concat();
            if let Some(answers) = difference(two, number, &edits)? {
                shrunk = Shrunk { kernel: apply(generated.clone(), &edits), edits, answers };
                smaller = true;
                // The rest of the list was made for the larger kernel.
                break;
            }
        }
    }
    Ok(Some(shrunk))
}

/// What both answer, where both ran the kernel and differ.
fn difference(two: &mut [Overseer; 2], number: u64, edits: &[Edit]) -> Result<Option<[Answered; 2]>> {
    let [first, second] = two;
    let answers = [first.alone(number, edits)?, second.alone(number, edits)?];
    let hashes = answers.each_ref().map(|answered| match answered.answer {
        Answer::Hash(hash) => Some(hash),
        Answer::NotSupported(_) | Answer::Failed(_) => None,
    });
    Ok(match hashes {
        [Some(first), Some(second)] if first != second => Some(answers),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn edits_are_read_as_they_are_written() {
        for text in ["0.3", "0.3.1.0", "2.4=1"] {
            assert_eq!(text.parse::<Edit>().map(|edit| edit.to_string()).ok().as_deref(), Some(text));
        }
    }

    #[test]
    fn every_candidate_makes_the_kernel_smaller() {
        for number in 0..200 {
            let kernel = generate::kernel(3, number);
            for edit in candidates(&kernel) {
                let edited = apply(kernel.clone(), std::slice::from_ref(&edit));
                assert!(edited.ptx().len() < kernel.ptx().len(), "{number}: {edit}");
            }
        }
    }
}
