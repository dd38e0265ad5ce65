//! What is known of kernels, in a table that one process writes and others read: what each takes on each width.
//!
//! A kernel's place follows from its identity; a few places further on if that is taken, and nowhere if all of those are:
//! then it is not in the table. A record is never taken away, and its words are read one by one: whoever reads while one is
//! written finds some old and some new, and any of them is a measurement. What a number stands for must therefore never
//! change: a table that outlives those whose kernels are in it gets further widths, for each model of GPU, and loses none.

use crate::entry::MOST_SMS;
use crate::layout::{KERNEL_MODELS, KERNEL_NAME_WORDS, KERNEL_WIDTHS, KERNELS, KernelRecord, KernelTable};
use crate::sync::{Ordering, acquired};

/// Places that are looked at.
const PLACES: usize = 16;
/// A kernel takes no longer than the words can say, some 4 s.
const LONGEST_NS: u64 = u32::MAX as u64;

/// A kernel and what it takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelNote {
    /// Tells it from others; not 0.
    pub identity: u64,
    /// What it is called, as far as there is room.
    pub name: String,
    /// Width, nanoseconds, and how often that was measured.
    pub widths: Vec<(u32, u64, u32)>,
}

/// The number of the model whose kernels are in a table with those of no other.
pub(crate) const ONLY_MODEL: usize = 0;

/// For a table of one model, before anything is written to it.
pub(crate) fn set_widths(table: &KernelTable, widths: &[u32]) {
    for (index, place) in table.widths[ONLY_MODEL].iter().enumerate() {
        place.store(widths.get(index).copied().unwrap_or(0), Ordering::Relaxed);
    }
}

/// The number of a width of that model, which it gets if it has none; nothing where there is no room. One thread at a time.
pub(crate) fn number_of(table: &KernelTable, model: usize, width: u32) -> Option<usize> {
    let mut places = table.widths.get(model).filter(|_| (1..=MOST_SMS).contains(&width))?.iter();
    let index = places.position(|place| [0, width].contains(&place.load(Ordering::Relaxed)))?;
    table.widths[model][index].store(width, Ordering::Relaxed);
    Some(index)
}

/// Where something is written in a table: the model's number, and that of the width among the model's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) model: usize,
    pub(crate) width: usize,
}

/// Writes down what a kernel takes. One thread at a time.
pub(crate) fn write(table: &KernelTable, identity: u64, name: &str, column: Column, ns: u64, measured: u32) {
    let Column { model, width } = column;
    let Some(record) = find(table, identity).or_else(|| begin(table, identity, name, model)) else { return };
    if model_of(record) != model {
        return;
    }
    if let (Some(place), Some(count)) = (record.ns.get(width), record.measured.get(width)) {
        place.store(u32::try_from(ns.min(LONGEST_NS)).unwrap_or(u32::MAX), Ordering::Relaxed);
        count.store(measured, Ordering::Relaxed);
    }
}

fn begin<'a>(table: &'a KernelTable, identity: u64, name: &str, model: usize) -> Option<&'a KernelRecord> {
    let record = places(table, identity).find(|record| record.identity.load(Ordering::Relaxed) == 0)?;
    let mut bytes = [0; KERNEL_NAME_WORDS * 8];
    let mut end = name.len().min(bytes.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
    for (word, chunk) in record.name.iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    record.model.store(u32::try_from(model).unwrap_or(u32::MAX), Ordering::Relaxed);
    // Pairs with the acquire in `find`: who finds it finds its name and its model.
    record.identity.store(identity, Ordering::Release);
    Some(record)
}

/// The kernel with this identity.
pub(crate) fn read(table: &KernelTable, identity: u64) -> Option<KernelNote> {
    find(table, identity).map(|record| note(table, identity, record))
}

/// All of them.
pub(crate) fn read_all(table: &KernelTable) -> Vec<KernelNote> {
    let records = table.records.iter().map(|record| (acquired(record.identity.load(Ordering::Relaxed)), record));
    // One in a place where nobody would look for it was not written by this code.
    let is_in_place =
        |identity: u64, record: &KernelRecord| find(table, identity).is_some_and(|found| core::ptr::eq(found, record));
    let in_place = records.filter(|(identity, record)| is_in_place(*identity, record));
    in_place.map(|(identity, record)| note(table, identity, record)).collect()
}

/// In range, whatever stands there.
fn model_of(record: &KernelRecord) -> usize {
    let model = usize::try_from(record.model.load(Ordering::Relaxed)).unwrap_or(ONLY_MODEL);
    if model < KERNEL_MODELS { model } else { ONLY_MODEL }
}

fn note(table: &KernelTable, identity: u64, record: &KernelRecord) -> KernelNote {
    let bytes: Vec<u8> = record.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let printable = |character: char| if character.is_control() { '?' } else { character };
    let name = String::from_utf8_lossy(&bytes[..end]).chars().map(printable).collect();
    let widths = &table.widths[model_of(record)];
    let of = |index: usize| {
        let [width, ns, measured] =
            [&widths[index], &record.ns[index], &record.measured[index]].map(|word| word.load(Ordering::Relaxed));
        (width, u64::from(ns), measured)
    };
    let is_known =
        |(width, ns, measured): &(u32, u64, u32)| (1..=MOST_SMS).contains(width) && *ns != 0 && *measured != 0;
    KernelNote { identity, name, widths: (0..KERNEL_WIDTHS).map(of).filter(is_known).collect() }
}

fn find(table: &KernelTable, identity: u64) -> Option<&KernelRecord> {
    let is_it = |record: &&KernelRecord| acquired(record.identity.load(Ordering::Relaxed)) == identity;
    places(table, identity).find(is_it).filter(|_| identity != 0)
}

fn places(table: &KernelTable, identity: u64) -> impl Iterator<Item = &KernelRecord> {
    let first = usize::try_from(identity % KERNELS as u64).unwrap_or(0);
    (first..first + PLACES).map(|place| &table.records[place % KERNELS])
}
