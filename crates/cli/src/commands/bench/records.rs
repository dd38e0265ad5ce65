//! What the shim wrote down of a program's processes, where it was told to (`DETSHARE_RECORD`).

use detshare_sim::record::{self, Edge, Launched, Line, RecordError};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// The file's name; `%p` becomes the process.
pub(crate) const FILE: &str = "%p.record";
const EXTENSION: &str = "record";

/// Why what was written down is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordsError {
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("cannot use {}: {source}", .path.display())]
    Nonsense { path: PathBuf, source: RecordError },
}

/// What of a record is of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    All,
    /// Launches, of which there may be a million, are counted and not read.
    Steps,
}

/// A step that came to its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// In seconds of the clock that all processes share. Nothing is known of the begin if the record begins in the middle of it.
    pub(crate) begun: Option<f64>,
    pub(crate) ended: f64,
    /// What it was taken for.
    pub(crate) phase: String,
}

/// Of one process.
#[derive(Debug)]
pub(crate) struct Record {
    /// Names by number.
    pub(crate) lanes: BTreeMap<usize, String>,
    pub(crate) steps: Vec<Step>,
    /// Nothing if only steps are of interest.
    pub(crate) launches: Vec<Launched>,
    launched: usize,
    /// Whether it has all up to the end of the process.
    is_whole: bool,
}

impl Record {
    /// Of the process that launched most: that is the program, and others are helpers of it. Nothing if none of them used CUDA.
    pub(crate) fn read(folder: &Path, of: Of) -> Result<Option<Self>, RecordsError> {
        let unreadable = |path: &Path, source| RecordsError::Unreadable { path: path.to_path_buf(), source };
        let mut longest: Option<Self> = None;
        let files = match folder.read_dir() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            files => files.map_err(|error| unreadable(folder, error))?,
        };
        for entry in files {
            let path = entry.map_err(|error| unreadable(folder, error))?.path();
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            let file = File::open(&path).map_err(|error| unreadable(&path, error))?;
            let record = Self::of(BufReader::new(file).lines(), of).map_err(|error| match error {
                LineError::Unreadable(error) => unreadable(&path, error),
                LineError::Nonsense(source) => RecordsError::Nonsense { path: path.clone(), source },
            })?;
            if longest.as_ref().is_none_or(|known| record.launched > known.launched) {
                longest = Some(record);
            }
        }
        Ok(longest)
    }

    fn of(lines: impl Iterator<Item = std::io::Result<String>>, of: Of) -> Result<Self, LineError> {
        let mut process = None;
        let (mut steps, mut launches, mut launched, mut begun) = (Vec::new(), Vec::new(), 0, None);
        for (index, text) in lines.enumerate() {
            let text = text?;
            if of == Of::Steps && record::is_launch(&text) {
                launched += 1;
                continue;
            }
            match record::line(index + 1, &text)? {
                Line::Process { lanes, whole, .. } => {
                    let lanes = lanes.into_iter().map(|lane| (lane.lane, lane.name)).collect::<BTreeMap<_, _>>();
                    process = Some((lanes, whole));
                }
                Line::Kernel { .. } => {}
                Line::Launch(one) => {
                    launched += 1;
                    launches.push(one);
                }
                Line::Step { at, step: Edge::Began, .. } => begun = Some(seconds(at)),
                Line::Step { at, step: Edge::Ended, phase } => {
                    steps.push(Step { begun: begun.take(), ended: seconds(at), phase: phase.unwrap_or_default() });
                }
            }
        }
        let (lanes, is_whole) = process.ok_or(RecordError::NoProcess)?;
        Ok(Self { lanes, steps, launches, launched, is_whole })
    }

    /// Until when it has what its process did.
    pub(crate) fn known_until(&self) -> f64 {
        if self.is_whole {
            return f64::INFINITY;
        }
        let last = |times: &mut dyn Iterator<Item = f64>| times.fold(f64::NEG_INFINITY, f64::max);
        let launched = last(&mut self.launches.iter().map(|launched| seconds(launched.at)));
        launched.max(last(&mut self.steps.iter().map(|step| step.ended)))
    }
}

/// Why a line is of no use.
#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
    #[error(transparent)]
    Nonsense(#[from] RecordError),
}

#[expect(clippy::cast_precision_loss, reason = "a clock since the machine's start: to the microsecond for centuries")]
pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What such lines say.
    pub(crate) fn record(text: &str) -> Record {
        Record::of(text.lines().map(|line| Ok(line.to_string())), Of::All).unwrap()
    }

    fn text(is_whole: bool, launches: usize, steps: u64) -> String {
        let first = format!("{{\"record\":1,\"pid\":7,\"name\":\"chat\",\"whole\":{is_whole},\"lanes\":[]}}\n");
        let launches = "{\"at\":5,\"launch\":\"00\",\"held\":0}\n".repeat(launches);
        let step = |number: u64| {
            let (begun, ended) = (number * 1_000_000_000, number * 1_000_000_000 + 500_000_000);
            format!(
                "{{\"at\":{begun},\"step\":\"began\"}}\n{{\"at\":{ended},\"step\":\"ended\",\"phase\":\"decode\"}}\n"
            )
        };
        first + &launches + &(1..=steps).map(step).collect::<String>()
    }

    #[test]
    fn the_program_is_the_process_that_launched_most() {
        let folder = tempfile::tempdir().unwrap();
        for of in [Of::All, Of::Steps] {
            assert!(Record::read(folder.path(), of).unwrap().is_none());
            assert!(Record::read(&folder.path().join("elsewhere"), of).unwrap().is_none());
        }
        for (file, launches, steps) in [("5.record", 3, 20), ("6.record", 9, 2), ("7.stats", 20, 20)] {
            std::fs::write(folder.path().join(file), text(true, launches, steps)).unwrap();
        }
        for (of, launches) in [(Of::All, 9), (Of::Steps, 0)] {
            let found = Record::read(folder.path(), of).unwrap().unwrap();
            assert_eq!((found.steps.len(), found.launches.len(), found.launched), (2, launches, 9));
            let first = Step { begun: Some(1.0), ended: 1.5, phase: "decode".to_string() };
            assert_eq!(found.steps[0], first);
        }
    }

    #[test]
    fn one_that_cannot_be_used_is_named_with_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let said = |file: &str, content: &[u8]| {
            std::fs::write(folder.path().join(file), content).unwrap();
            let error = Record::read(folder.path(), Of::All).unwrap_err().to_string();
            std::fs::remove_file(folder.path().join(file)).unwrap();
            error
        };
        let whole = text(true, 2, 1);
        let cut = said("5.record", &whole.as_bytes()[..whole.len() - 9]);
        assert!(cut.contains("5.record: line 5 is none of a record"), "{cut}");
        assert!(said("5.record", b"").contains("does not say which process"));
        assert!(said("5.record", b"\xff\n").starts_with("cannot read "));
        std::fs::create_dir(folder.path().join("6.record")).unwrap();
        assert!(said("7.stats", b"").starts_with("cannot read "));
    }

    #[test]
    fn what_is_cut_short_is_known_up_to_its_last_line() {
        assert!(record(&text(true, 2, 3)).known_until().is_infinite());
        assert!((record(&text(false, 2, 3)).known_until() - 3.5).abs() < 1e-9);
    }
}
