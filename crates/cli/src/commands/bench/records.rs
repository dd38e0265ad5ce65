//! What the shim wrote down of a program's processes, where it was told to (`DETSHARE_RECORD`).

use detshare_sim::record::{self, Edge, Launched, Line, RecordError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file's name; `%p` becomes the process.
pub(crate) const FILE: &str = "%p.record";
const EXTENSION: &str = "record";

/// Those of a program's processes that used CUDA, in its folder.
pub(crate) fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let files = folder.read_dir().into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
}

/// Of one process.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Names by number.
    pub(crate) lanes: BTreeMap<usize, String>,
    /// When each began and ended, in seconds of the clock that all processes share.
    pub(crate) steps: Vec<(f64, f64)>,
    pub(crate) launches: Vec<Launched>,
}

impl Record {
    /// Of the process that launched most: that is the program, and others are helpers of it.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let texts = files(folder).filter_map(|path| std::fs::read_to_string(path).ok());
        texts.filter_map(|text| Self::of(&text).ok()).max_by_key(|record| record.launches.len())
    }

    pub(crate) fn of(text: &str) -> Result<Self, RecordError> {
        let mut found = Self::default();
        let mut begun = None;
        for line in record::lines(text) {
            match line? {
                Line::Process { lanes, .. } => {
                    found.lanes = lanes.into_iter().map(|lane| (lane.lane, lane.name)).collect();
                }
                Line::Kernel { .. } => {}
                Line::Launch(launched) => found.launches.push(launched),
                Line::Step { at, step: Edge::Began } => begun = Some(seconds(at)),
                Line::Step { at, step: Edge::Ended } => {
                    found.steps.extend(begun.take().map(|begun| (begun, seconds(at))));
                }
            }
        }
        Ok(found)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a clock since the machine's start: to the microsecond for centuries")]
pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
