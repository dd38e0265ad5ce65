//! The versions of kernels that the block level writes, compiled by NVIDIA's own compiler.
//!
//! Every module of PTX that the tests of `crates/ptx` have is rewritten, and what has versions must be accepted for
//! each architecture that its target allows.

use crate::process::{root, target};
use crate::pypi;
use crate::samples::in_parallel;
use anyhow::{Context, Result, ensure};
use detshare_ptx::ast::Module;
use detshare_ptx::{block_level, parse};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The architectures, and what they are compiled by: sm_70 was dropped in CUDA 13.
const ARCHITECTURES: [(u32, Toolkit); 3] = [(70, Toolkit::Old), (80, Toolkit::New), (90, Toolkit::New)];

/// What stands below a source in `tests/versions`.
const BELOW: &str = "\n// becomes:\n";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Toolkit {
    Old,
    New,
}

impl Toolkit {
    fn package(self) -> &'static str {
        match self {
            Self::Old => "nvidia-cuda-nvcc-cu12==12.9.86",
            Self::New => "nvidia-cuda-nvcc==13.4.92",
        }
    }

    fn program(self) -> Result<PathBuf> {
        let within = match self {
            Self::Old => "nvidia/cuda_nvcc/bin/ptxas",
            Self::New => "nvidia/cu13/bin/ptxas",
        };
        Ok(pypi::install(&[self.package()])?.join(within))
    }

    /// The newest PTX that it takes.
    fn newest(self) -> (u32, u32) {
        match self {
            Self::Old => (8, 8),
            Self::New => (9, 4),
        }
    }
}

/// Both compilers.
pub(crate) struct Compilers {
    old: PathBuf,
    new: PathBuf,
}

pub(crate) fn compilers() -> Result<Compilers> {
    Ok(Compilers { old: Toolkit::Old.program()?, new: Toolkit::New.program()? })
}

/// One module for one architecture.
struct Job {
    name: String,
    module: PathBuf,
    architecture: String,
    toolkit: Toolkit,
}

/// Rewrites all modules and compiles what comes of them.
pub(crate) fn accepts_versions(compilers: &Compilers) -> Result<()> {
    let out = target().join("ptxas");
    std::fs::create_dir_all(&out)?;
    let tests = root().join("crates/ptx/tests");
    let mut files = Vec::new();
    collect(&tests, &mut files)?;
    files.sort();
    let mut jobs = Vec::new();
    let mut modules = 0;
    for file in &files {
        let name = file.strip_prefix(&tests)?.to_string_lossy().replace('/', "-");
        let text = std::fs::read_to_string(file)?;
        let source = text.split(BELOW).next().unwrap_or_default();
        let module = parse(source).with_context(|| name.clone())?;
        if let Some(versions) = block_level::rewrite(&module, source).source {
            modules += 1;
            let written = out.join(&name);
            std::fs::write(&written, &versions)?;
            let versions = parse(&versions).with_context(|| format!("what was written for {name}"))?;
            let architectures = architectures(&versions);
            jobs.extend(architectures.into_iter().map(|(architecture, toolkit)| Job {
                name: name.clone(),
                module: written.clone(),
                architecture,
                toolkit,
            }));
        }
    }
    let count = jobs.len();
    let refused: Vec<String> = in_parallel(jobs, |job| compile(compilers, &job))?.into_iter().flatten().collect();
    println!("{modules} of {} modules have versions; {count} compilations, {} refused", files.len(), refused.len());
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    Ok(())
}

/// All files of PTX below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            files.push(path);
        }
    }
    Ok(())
}

/// What a module can be compiled for. A target with a letter is for itself alone.
fn architectures(module: &Module) -> Vec<(String, Toolkit)> {
    let Some(target) = module.targets.iter().find_map(|it| it.strip_prefix("sm_")) else { return Vec::new() };
    let Ok(oldest) = target.parse::<u32>() else { return vec![(format!("sm_{target}"), Toolkit::New)] };
    ARCHITECTURES
        .into_iter()
        .filter(|(number, toolkit)| *number >= oldest && module.version <= toolkit.newest())
        .map(|(number, toolkit)| (format!("sm_{number}"), toolkit))
        .collect()
}

/// What it says, if it does not accept it.
fn compile(compilers: &Compilers, job: &Job) -> Result<Option<String>> {
    let ptxas = match job.toolkit {
        Toolkit::Old => &compilers.old,
        Toolkit::New => &compilers.new,
    };
    let result = Command::new(ptxas)
        .args(["--gpu-name", &job.architecture, "--output-file", "/dev/null"])
        .arg(&job.module)
        .output()
        .with_context(|| format!("cannot start {}", ptxas.display()))?;
    let said = String::from_utf8_lossy(&result.stderr);
    Ok((!result.status.success()).then(|| format!("{} for {}: {said}", job.name, job.architecture)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(head: &str) -> Vec<String> {
        architectures(&parse(head).expect("parses")).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn modules_are_compiled_for_what_their_target_allows() {
        assert_eq!(names(".version 7.0 .target sm_52"), ["sm_70", "sm_80", "sm_90"]);
        assert_eq!(names(".version 9.4 .target sm_75"), ["sm_80", "sm_90"]);
        assert_eq!(names(".version 8.4 .target sm_89, debug"), ["sm_90"]);
        assert_eq!(names(".version 8.4 .target sm_90a"), ["sm_90a"]);
        assert_eq!(names(".version 8.4 .target sm_120"), [""; 0]);
    }
}
