//! Where two runs of a program differ: pure functions over what was recorded.
//!
//! Processes are paired by their program and, among those of one program, by their order of start. Within a pair, what
//! left by one stream is compared in order; how streams interleave is the GPU's affair and no difference, nor is the
//! order in which threads made them. Processes
//! that let nothing leave the GPU play no part.

use super::digest::{Channel, Digest, Entry, ProcessRecord};
use crate::program::Ending;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::iter::repeat_with;

/// What can be seen of a run from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) ending: Ending,
    pub(crate) stdout: Vec<u8>,
    /// In the order of their start.
    pub(crate) processes: Vec<ProcessRecord>,
}

/// Where a run differs from the plain one; at least one of these is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    pub(crate) gpu: Option<GpuDifference>,
    pub(crate) stdout: Option<StdoutDifference>,
    pub(crate) ending: Option<EndingDifference>,
}

/// Bytes that left the GPU differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct GpuDifference {
    pub(crate) first: EntryDifference,
    /// How many entries differ or have no counterpart.
    pub(crate) different: usize,
}

/// Bytes of one process that differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct EntryDifference {
    /// Which process, counted from 1 in the order of their start in the plain run; those that only the other run has
    /// follow.
    pub(crate) process: usize,
    pub(crate) program: String,
    /// One of the runs has no such process.
    pub(crate) process_missing: bool,
    #[serde(flatten)]
    pub(crate) place: Place,
}

/// A place in a channel; one of the two sides is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    #[serde(flatten)]
    pub(crate) channel: Channel,
    pub(crate) plain: Option<Side>,
    pub(crate) other: Option<Side>,
}

/// What one run has at a place where the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Side {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) digest: Digest,
}

/// Standard output differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct StdoutDifference {
    /// The first line that differs, from 1.
    pub(crate) line: usize,
    /// The first byte that differs, from 0.
    pub(crate) byte: usize,
    /// The line's beginning in either run, or none where the output ended before.
    pub(crate) plain: Option<String>,
    pub(crate) other: Option<String>,
}

/// The program ended in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct EndingDifference {
    pub(crate) plain: Ending,
    pub(crate) other: Ending,
}

/// Where the other run differs from the plain one.
pub(crate) fn compare(plain: &Observed, other: &Observed) -> Option<Difference> {
    let difference = Difference {
        gpu: compare_processes(&plain.processes, &other.processes),
        stdout: compare_stdout(&plain.stdout, &other.stdout),
        ending: (plain.ending != other.ending).then_some(EndingDifference { plain: plain.ending, other: other.ending }),
    };
    let is_one = difference.gpu.is_some() || difference.stdout.is_some() || difference.ending.is_some();
    is_one.then_some(difference)
}

fn compare_processes(plain: &[ProcessRecord], other: &[ProcessRecord]) -> Option<GpuDifference> {
    let mut different = 0;
    let mut first = None;
    for (index, (plain, other)) in pair(plain, other).into_iter().enumerate() {
        let places = compare_entries(entries(plain), entries(other));
        different += places.len();
        let first_here = places.into_iter().min_by_key(Place::order).map(|place| EntryDifference {
            process: index + 1,
            program: plain.or(other).map_or(String::new(), |process| process.program.clone()),
            process_missing: plain.is_none() || other.is_none(),
            place,
        });
        first = first.or(first_here);
    }
    Some(GpuDifference { first: first?, different })
}

impl Place {
    /// The plain run's order; what only the other run has comes behind it.
    fn order(&self) -> (u64, u64) {
        let number = |side: Option<Side>| side.map_or(u64::MAX, |side| side.number);
        (number(self.plain), number(self.other))
    }
}

type Pair<'a> = (Option<&'a ProcessRecord>, Option<&'a ProcessRecord>);

/// Each process of the plain run with the one of the other run that did its work, then those that are left.
fn pair<'a>(plain: &'a [ProcessRecord], other: &'a [ProcessRecord]) -> Vec<Pair<'a>> {
    let has_entries = |process: &&ProcessRecord| !process.entries.is_empty();
    let mut unpaired: HashMap<&str, VecDeque<(usize, &ProcessRecord)>> = HashMap::new();
    for (index, process) in other.iter().filter(has_entries).enumerate() {
        unpaired.entry(&process.program).or_default().push_back((index, process));
    }
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for process in plain.iter().filter(has_entries) {
        let partner = unpaired.get_mut(process.program.as_str()).and_then(VecDeque::pop_front);
        pairs.push((Some(process), partner.map(|(_, partner)| partner)));
    }
    let mut left: Vec<_> = unpaired.into_values().flatten().collect();
    left.sort_by_key(|(index, _)| *index);
    pairs.extend(left.into_iter().map(|(_, process)| (None, Some(process))));
    pairs
}

fn entries(process: Option<&ProcessRecord>) -> &[Entry] {
    process.map_or(&[], |process| &process.entries)
}

/// Every place of every channel where the two do not have the same bytes.
fn compare_entries(plain: &[Entry], other: &[Entry]) -> Vec<Place> {
    let mut channels: BTreeMap<Channel, (Vec<&Entry>, Vec<&Entry>)> = BTreeMap::new();
    for entry in plain {
        channels.entry(entry.channel).or_default().0.push(entry);
    }
    for entry in other {
        channels.entry(entry.channel).or_default().1.push(entry);
    }
    match_up(&mut channels);
    let mut differences = Vec::new();
    for (channel, (plain, other)) in channels {
        let longest = plain.len().max(other.len());
        let padded = |entries: Vec<&Entry>| {
            let sides: Vec<_> = entries.into_iter().map(|entry| Some(Side::from(entry))).collect();
            sides.into_iter().chain(repeat_with(|| None)).take(longest)
        };
        let places = padded(plain).zip(padded(other));
        let differing = places.filter(|(plain, other)| plain.map(Side::content) != other.map(Side::content));
        differences.extend(differing.map(|(plain, other)| Place { channel, plain, other }));
    }
    differences
}

/// Streams are called by the order in which they were made, and threads that make some each have no order. Where the
/// same bytes left by another stream, that is the same stream.
fn match_up(channels: &mut BTreeMap<Channel, (Vec<&Entry>, Vec<&Entry>)>) {
    fn contents(entries: &[&Entry]) -> Vec<(u64, u64)> {
        entries.iter().map(|entry| Side::from(*entry).content()).collect()
    }
    let is_open = |(channel, (plain, other)): (&Channel, &(Vec<&Entry>, Vec<&Entry>))| {
        let differs = matches!(channel, Channel::Copy { .. }) && contents(plain) != contents(other);
        differs.then_some(*channel)
    };
    let mut open: Vec<Channel> = channels.iter().filter_map(is_open).collect();
    for channel in open.clone() {
        let wanted = contents(&channels[&channel].0);
        let Some(found) = open.iter().copied().find(|candidate| contents(&channels[candidate].1) == wanted) else {
            continue;
        };
        let mut take = |from: Channel| channels.get_mut(&from).map(|(_, other)| core::mem::take(other));
        let (theirs, ours) = (take(found).unwrap_or_default(), take(channel).unwrap_or_default());
        for (channel, entries) in [(found, ours), (channel, theirs)] {
            if let Some((_, other)) = channels.get_mut(&channel) {
                *other = entries;
            }
        }
        open.retain(|other| *other != channel);
    }
}

impl Side {
    /// What must be the same; the number need not.
    fn content(self) -> (u64, u64) {
        (self.bytes, self.digest.0)
    }
}

impl From<&Entry> for Side {
    fn from(entry: &Entry) -> Self {
        Self { number: entry.number, bytes: entry.bytes, digest: entry.digest }
    }
}

fn compare_stdout(plain: &[u8], other: &[u8]) -> Option<StdoutDifference> {
    if plain == other {
        return None;
    }
    let byte = plain.iter().zip(other).take_while(|(plain, other)| plain == other).count();
    let before = &plain[..byte];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    Some(StdoutDifference { line, byte, plain: line_at(plain, line_start), other: line_at(other, line_start) })
}

/// The beginning of the line that starts at that byte.
fn line_at(text: &[u8], start: usize) -> Option<String> {
    const SHOWN_CHARACTERS: usize = 60;
    let line = text[start..].split(|byte| *byte == b'\n').next()?;
    if start == text.len() {
        return None;
    }
    let line = String::from_utf8_lossy(line);
    let mut shown: String = line.chars().take(SHOWN_CHARACTERS).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    Some(shown)
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
