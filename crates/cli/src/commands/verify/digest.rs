//! What the shim wrote down of a run: one file of digests for each process, and one of counts.
//!
//! A file of digests has one JSON object on each line. The first says whose it is; a later one of that shape begins
//! another program's record, for a process that became another program.
//!
//! ```text
//! {"process":4711,"started":81250000000,"program":"/usr/bin/python3"}
//! {"number":1,"kind":"copy","stream":0,"bytes":4096,"digest":"9f86d081884c7d65"}
//! {"number":2,"kind":"memory","allocation":3,"bytes":64,"digest":"2cf24dba5fb0a30e"}
//! ```
//!
//! A process that was killed may leave half a line at the end; that line is taken as not written.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

/// What the files' names end in.
pub(crate) const DIGEST_EXTENSION: &str = "digest";
pub(crate) const STATS_EXTENSION: &str = "json";

/// What one process let leave the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessRecord {
    pub(crate) process: u32,
    /// Nanoseconds since the machine's start.
    pub(crate) started: u64,
    pub(crate) program: String,
    /// In the order of their numbers.
    pub(crate) entries: Vec<Entry>,
    /// The last line was not finished.
    pub(crate) truncated: bool,
}

/// Some bytes that left the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Counts a process's entries from 1, as they were completed.
    pub(crate) number: u64,
    pub(crate) channel: Channel,
    pub(crate) bytes: u64,
    pub(crate) digest: Digest,
}

/// What bytes left the GPU by. Only within a channel is their order the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Channel {
    /// Copies on the logical stream of that number; 0 is the legacy stream.
    Copy { stream: u64 },
    /// Changes of that allocation of mapped host memory.
    Memory { allocation: u64 },
}

/// The digest of some bytes; written as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) u64);

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const DIGITS: usize = 16;
        let text = String::deserialize(deserializer)?;
        let is_hex = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = if is_hex { u64::from_str_radix(&text, 16).ok() } else { None };
        value.map(Self).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not {DIGITS} hexadecimal digits")))
    }
}

/// A file's line that says whose record follows.
#[derive(Deserialize)]
struct OwnerLine {
    process: u32,
    started: u64,
    program: String,
}

/// A file's line for an entry.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum EntryLine {
    Copy { number: u64, stream: u64, bytes: u64, digest: Digest },
    Memory { number: u64, allocation: u64, bytes: u64, digest: Digest },
}

impl From<EntryLine> for Entry {
    fn from(line: EntryLine) -> Self {
        match line {
            EntryLine::Copy { number, stream, bytes, digest } => {
                Self { number, channel: Channel::Copy { stream }, bytes, digest }
            }
            EntryLine::Memory { number, allocation, bytes, digest } => {
                Self { number, channel: Channel::Memory { allocation }, bytes, digest }
            }
        }
    }
}

/// Why what the shim wrote cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The system says no.
    #[error("cannot read {}: {source}; check that the disk is neither full nor read-only", .path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// A line in the middle makes no sense.
    #[error(
        "line {line} of {} is not a record ({what}): use the shim library that came with this command",
        .path.display()
    )]
    NotARecord { path: PathBuf, line: usize, what: String },
}

/// The records of all processes of a run, in the order of their start.
pub(crate) fn read_folder(folder: &Path) -> Result<Vec<ProcessRecord>, ReadError> {
    let mut processes = Vec::new();
    for path in files(folder, DIGEST_EXTENSION)? {
        let bytes = read(&path)?;
        processes.extend(parse(&bytes).map_err(|(line, what)| ReadError::NotARecord { path, line, what })?);
    }
    processes.sort_by_key(|process| (process.started, process.process));
    Ok(processes)
}

/// The records in one file; on failure, the line and what is wrong with it.
fn parse(bytes: &[u8]) -> Result<Vec<ProcessRecord>, (usize, String)> {
    let mut processes: Vec<ProcessRecord> = Vec::new();
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let owner = serde_json::from_slice::<OwnerLine>(line);
        let entry = serde_json::from_slice::<EntryLine>(line);
        match (owner, entry, processes.last_mut()) {
            (_, Ok(entry), Some(process)) => process.entries.push(entry.into()),
            (Ok(OwnerLine { process, started, program }), _, _) => {
                processes.push(ProcessRecord { process, started, program, entries: Vec::new(), truncated: false });
            }
            // Only the last line can lack its end.
            (_, Err(_), process) if !line.ends_with(b"\n") => {
                process.into_iter().for_each(|process| process.truncated = true);
            }
            (Err(error), _, None) | (_, Err(error), Some(_)) => return Err((index + 1, error.to_string())),
        }
    }
    // Threads may write their entries in another order than they took their numbers.
    processes.iter_mut().for_each(|process| process.entries.sort_by_key(|entry| entry.number));
    Ok(processes)
}

/// Counts of a run; what no process counted is not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) launches: Option<u64>,
    pub(crate) graph_launches: Option<u64>,
    /// Launches on another lane than the one before.
    pub(crate) moves: Option<u64>,
    /// Processes that left counts.
    pub(crate) processes: usize,
}

impl Counts {
    /// Of two processes or runs together.
    pub(crate) fn plus(self, other: Self) -> Self {
        let sum = |one: Option<u64>, two: Option<u64>| one.map_or(two, |one| Some(one + two.unwrap_or(0)));
        Self {
            launches: sum(self.launches, other.launches),
            graph_launches: sum(self.graph_launches, other.graph_launches),
            moves: sum(self.moves, other.moves),
            processes: self.processes + other.processes,
        }
    }
}

/// The counts of all processes of a run together. A process that was killed left none.
pub(crate) fn read_counts(folder: &Path) -> Result<Counts, ReadError> {
    let mut counts = Counts::default();
    for path in files(folder, STATS_EXTENSION)? {
        counts = counts.plus(parse_counts(&read(&path)?));
    }
    Ok(counts)
}

fn parse_counts(bytes: &[u8]) -> Counts {
    let stats: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    Counts {
        launches: stats["counts"]["launches"].as_u64(),
        graph_launches: stats["counts"]["graph_launches"].as_u64(),
        moves: stats["lanes"]["moves"].as_u64(),
        processes: 1,
    }
}

/// The folder's files with that extension.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, ReadError> {
    let unreadable = |source| ReadError::Unreadable { path: folder.to_path_buf(), source };
    let entries = folder.read_dir().and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(unreadable)?;
    let paths = entries.into_iter().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension() == Some(OsStr::new(extension))).collect())
}

fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    std::fs::read(path).map_err(|source| ReadError::Unreadable { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = r#"{"process":7,"started":1000,"program":"/bin/worker"}"#;
    const COPY: &str = r#"{"number":1,"kind":"copy","stream":2,"bytes":4096,"digest":"00000000000000ff"}"#;
    const MEMORY: &str = r#"{"number":2,"kind":"memory","allocation":3,"bytes":64,"digest":"fedcba9876543210"}"#;

    fn parsed(text: &str) -> Vec<ProcessRecord> {
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_whole_record() {
        let expected = ProcessRecord {
            process: 7,
            started: 1000,
            program: "/bin/worker".to_string(),
            entries: vec![
                Entry { number: 1, channel: Channel::Copy { stream: 2 }, bytes: 4096, digest: Digest(0xff) },
                Entry {
                    number: 2,
                    channel: Channel::Memory { allocation: 3 },
                    bytes: 64,
                    digest: Digest(0xfedc_ba98_7654_3210),
                },
            ],
            truncated: false,
        };
        assert_eq!(parsed(&format!("{OWNER}\n{COPY}\n{MEMORY}\n")), [expected]);
    }

    #[test]
    fn entries_are_put_in_the_order_of_their_numbers() {
        let numbers = |text: &str| parsed(text)[0].entries.iter().map(|entry| entry.number).collect::<Vec<_>>();
        assert_eq!(numbers(&format!("{OWNER}\n{MEMORY}\n{COPY}\n")), [1, 2]);
    }

    #[test]
    fn half_a_line_at_the_end_was_not_written() {
        for kept in 1..MEMORY.len() {
            let processes = parsed(&format!("{OWNER}\n{COPY}\n{}", &MEMORY[..kept]));
            assert_eq!((processes[0].entries.len(), processes[0].truncated), (1, true), "{kept} bytes");
        }
        assert_eq!(parsed(&format!("{OWNER}\n{COPY}\n{MEMORY}"))[0].entries.len(), 2);
        assert_eq!(parsed(&OWNER[..9]), []);
        assert_eq!(parsed(""), []);
    }

    #[test]
    fn a_process_that_became_another_program() {
        let processes = parsed(&format!("{OWNER}\n{COPY}\n{}\n{COPY}\n", OWNER.replace("worker", "other")));
        let programs: Vec<_> = processes.iter().map(|process| process.program.as_str()).collect();
        assert_eq!(programs, ["/bin/worker", "/bin/other"]);
        assert!(processes.iter().all(|process| process.entries.len() == 1));
    }

    #[test]
    fn a_line_that_is_no_record_is_named() {
        let line = |text: String| parse(text.as_bytes()).unwrap_err().0;
        assert_eq!(line(format!("{OWNER}\nnonsense\n{COPY}\n")), 2);
        assert_eq!(line(format!("{COPY}\n")), 1);
        assert_eq!(line(format!("{OWNER}\n{COPY}\n{}\n", COPY.replace("copy", "unheard of"))), 3);
        assert_eq!(line(format!("{OWNER}\n{}\n", COPY.replace("00ff", "0xff"))), 2);
    }

    #[test]
    fn counts_are_all_optional() {
        let full = br#"{"counts":{"launches":5,"graph_launches":2},"lanes":{"moves":4}}"#;
        let some = br#"{"counts":{"launches":1}}"#;
        let sum = parse_counts(full).plus(parse_counts(some)).plus(parse_counts(b"not json"));
        assert_eq!(sum, Counts { launches: Some(6), graph_launches: Some(2), moves: Some(4), processes: 3 });
        assert_eq!(parse_counts(b"{}").plus(Counts::default()).moves, None);
    }
}
