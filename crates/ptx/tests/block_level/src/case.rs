//! One file of the corpus: PTX below a few lines that say how to launch its kernels and which can be rewritten.
//!
//! ```text
//! // Early returns before a barrier.
//! // launch: gather <<<4x3, 64, 0>>> (zero 4096, bits 4096, u32 =7)
//! // refused: gather preemptible EarlyExit
//! .version 7.0
//! ```
//!
//! A kernel may be launched in several ways; [`Launch`] says how to write one. What is not `refused` has both versions,
//! the sliced and the preemptible one. A kernel without a launch is refused both; only that is checked.

use crate::launch::Launch;
use anyhow::{Context, Result, ensure};
use detshare_ptx::block_level::{Kernel, Refusal, Rewritten, Version};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const LAUNCH: &str = "// launch: ";
const REFUSED: &str = "// refused: ";

/// The versions that a kernel may have.
pub(crate) const VERSIONS: [&str; 2] = ["sliced", "preemptible"];

/// A file.
pub(crate) struct Case {
    /// The file's name without its ending.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) launches: Vec<Launch>,
    /// Kernel and version, and the kind of refusal.
    pub(crate) refused: BTreeMap<(String, String), String>,
}

impl Case {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(path, text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(path: &Path, text: String) -> Result<Self> {
        let (mut launches, mut refused) = (Vec::new(), BTreeMap::new());
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("//")).collect();
        ensure!(header.first().is_some_and(|line| !is_key(line)), "the first line has no title");
        for line in &header {
            if let Some(launch) = line.strip_prefix(LAUNCH) {
                launches.push(Launch::parse(launch).with_context(|| format!("{launch:?}"))?);
            } else if let Some(text) = line.strip_prefix(REFUSED) {
                let words: Vec<&str> = text.split_whitespace().collect();
                let [kernel, version, kind] = words[..] else { anyhow::bail!("{text:?} is no refusal") };
                ensure!(VERSIONS.contains(&version), "there are no {version} versions");
                let before = refused.insert((kernel.to_string(), version.to_string()), kind.to_string());
                ensure!(before.is_none(), "{kernel} {version} is refused twice");
            }
        }
        let name = path.file_stem().context("no name")?.to_string_lossy().into_owned();
        Ok(Self { name, path: path.into(), text, launches, refused })
    }

    /// How the file's kernels were judged otherwise than it says.
    pub(crate) fn wrong_verdicts(&self, rewritten: &Rewritten) -> Vec<String> {
        let found = refusals(rewritten);
        let mut wrong = Vec::new();
        for ((kernel, version), (kind, why)) in &found {
            match self.refused.get(&(kernel.clone(), version.clone())) {
                Some(expected) if expected == kind => {}
                Some(expected) => wrong.push(format!("{kernel} {version} refused as {kind}, not {expected}: {why}")),
                None => wrong.push(format!("{kernel} {version} refused as {kind}: {why}")),
            }
        }
        let taken = self.refused.iter().filter(|(key, _)| !found.contains_key(key));
        wrong.extend(taken.map(|((kernel, version), kind)| format!("{kernel} {version} not refused as {kind}")));
        for kernel in &rewritten.kernels {
            let launched = self.launches.iter().any(|launch| launch.kernel == kernel.name);
            if !launched && (kernel.sliced.is_ok() || kernel.preemptible.is_ok()) {
                wrong.push(format!("{} is not launched", kernel.name));
            }
        }
        wrong
    }

    /// The file's text with the verdicts that there are.
    pub(crate) fn with_verdicts(&self, rewritten: &Rewritten) -> String {
        let mut text = String::new();
        let mut pending = true;
        for line in self.text.lines() {
            if line.starts_with(REFUSED) {
                continue;
            }
            if pending && !line.starts_with("//") {
                pending = false;
                for ((kernel, version), (kind, _)) in refusals(rewritten) {
                    let _ = writeln!(text, "{REFUSED}{kernel} {version} {kind}");
                }
            }
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

fn is_key(line: &str) -> bool {
    line.starts_with(LAUNCH) || line.starts_with(REFUSED)
}

/// Kernel and version, the kind of refusal, and what it says.
fn refusals(rewritten: &Rewritten) -> BTreeMap<(String, String), (String, String)> {
    let mut refusals = BTreeMap::new();
    for kernel in &rewritten.kernels {
        for (name, version) in versions(kernel) {
            if let Err(refusal) = version {
                let place = (kernel.name.clone(), name.to_string());
                refusals.insert(place, (format!("{:?}", refusal.kind), refusal.to_string()));
            }
        }
    }
    refusals
}

pub(crate) fn versions(kernel: &Kernel) -> [(&'static str, &Result<Version, Refusal>); 2] {
    [(VERSIONS[0], &kernel.sliced), (VERSIONS[1], &kernel.preemptible)]
}

/// The files of a folder and the folders in it, by name; those whose name contains one of the filters.
pub(crate) fn cases(folder: &Path, filters: &[String]) -> Result<Vec<Case>> {
    let mut paths = Vec::new();
    list(folder, &mut paths)?;
    paths.sort();
    let wanted = |path: &PathBuf| {
        let name = path.strip_prefix(folder).unwrap_or(path).to_string_lossy();
        filters.is_empty() || filters.iter().any(|part| name.contains(part))
    };
    let cases: Result<Vec<Case>> = paths.iter().filter(|path| wanted(path)).map(|path| Case::read(path)).collect();
    let cases = cases?;
    ensure!(!cases.is_empty(), "{} has no such file", folder.display());
    Ok(cases)
}

fn list(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let cannot_list = || format!("cannot list {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(cannot_list)? {
        let path = entry.with_context(cannot_list)?.path();
        if path.is_dir() {
            list(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// Title.\n// launch: a <<<2, 32>>> (zero 4)\n// refused: a sliced Cluster\n.version 7.0\n";

    #[test]
    fn a_file_says_how_to_launch_it_and_what_is_refused() {
        let case = Case::parse(Path::new("x/one.ptx"), TEXT.into()).unwrap();
        assert_eq!((case.name.as_str(), case.launches.len()), ("one", 1));
        assert_eq!(case.refused[&("a".into(), "sliced".into())], "Cluster");
        for broken in ["// launch: a\n", "// Title.\n// refused: a\n", "// T.\n// refused: a whole Cluster\n"] {
            assert!(Case::parse(Path::new("one.ptx"), broken.into()).is_err(), "{broken}");
        }
    }

    #[test]
    fn verdicts_are_compared_and_written() {
        let case = Case::parse(Path::new("one.ptx"), TEXT.into()).unwrap();
        let none = Rewritten { source: None, borrowed: Vec::new(), kernels: Vec::new() };
        assert_eq!(case.wrong_verdicts(&none), ["a sliced not refused as Cluster"]);
        assert_eq!(case.with_verdicts(&none), TEXT.replace("// refused: a sliced Cluster\n", ""));
    }
}
