//! The folder in which a scenario's programs lie.

use super::scenario::{Program, Scenario};
use crate::exit;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seen from the folder of the `detshare` executable; the first is where cargo builds programs.
const BESIDE: [&str; 3] = ["", "../workloads", "../share/detshare/workloads"];
/// Seen from the current folder.
const HERE: &str = "workloads";
/// What runs scripts.
const PYTHON: &str = "python3";

/// Why the programs cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkloadsError {
    #[error(
        "no {file}: looked into {}; name the folder that has it with --workloads",
        .places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Missing { file: &'static str, places: Vec<PathBuf> },
}

impl WorkloadsError {
    pub(crate) fn exit_code(&self) -> u8 {
        exit::NO_PROGRAM
    }
}

/// The folder: the one that is named, or the first that has all of the scenario's programs.
pub(crate) fn find(scenario: &Scenario, named: Option<&Path>) -> Result<PathBuf, WorkloadsError> {
    let executable = std::env::current_exe().unwrap_or_default();
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let places = match named {
        Some(named) => vec![named.to_path_buf()],
        None => BESIDE.iter().map(|place| beside.join(place)).chain([HERE.into()]).collect(),
    };
    search(scenario, places)
}

fn search(scenario: &Scenario, places: Vec<PathBuf>) -> Result<PathBuf, WorkloadsError> {
    let missing = |folder: &Path| scenario.programs.iter().find(|program| !folder.join(program.file).is_file());
    match places.iter().find(|folder| missing(folder).is_none()) {
        // Absolute, as programs may run elsewhere.
        Some(folder) => Ok(std::path::absolute(folder).unwrap_or(folder.clone())),
        None => {
            let file = places.first().and_then(|folder| missing(folder)).map_or("", |program| program.file);
            Err(WorkloadsError::Missing { file, places })
        }
    }
}

/// What is to be executed, without the program's own arguments: a script needs what runs it.
pub(crate) fn words(folder: &Path, program: &Program) -> Vec<String> {
    let file = folder.join(program.file).display().to_string();
    if program.file.ends_with(".py") { vec![PYTHON.to_string(), file] } else { vec![file] }
}

/// What would make a program somebody else's tenant, or tell the shim something else.
const FOREIGN: [&str; 3] = ["LD_PRELOAD", "CUDA_MPS_", "DETSHARE_"];
/// Where DetShare's parts are.
const KEPT: [&str; 4] = ["DETSHARE_SHIM", "DETSHARE_SOFTGPU", "DETSHARE_DAEMON", "DETSHARE_DRIVER"];

/// Takes from the command's environment what is not for a program that is measured.
pub(crate) fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if FOREIGN.iter().any(|prefix| text.starts_with(prefix)) && !KEPT.contains(&text.as_ref()) {
            command.env_remove(name);
        }
    }
}

/// A small and slow GPU: the modelled time of a kernel, not this machine's cores, is to say how long it takes, and two
/// programs are to be in each other's way.
pub(crate) const SOFT_GPU: [(&str, &str); 2] = [("DETSHARE_SOFTGPU_SMS", "32"), ("DETSHARE_SOFTGPU_SPEED", "0.0001")];

#[cfg(test)]
mod tests {
    use super::super::scenario::SCENARIOS;
    use super::*;

    #[test]
    fn the_first_folder_that_has_them_all() {
        let scenario = &SCENARIOS[0];
        let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let paths = || places.iter().map(|place| place.path().to_path_buf()).collect::<Vec<_>>();
        std::fs::write(places[0].path().join("bench_serve.py"), "").unwrap();
        let error = search(scenario, paths()).unwrap_err().to_string();
        assert!(error.starts_with("no bench_train.py: looked into ") && error.contains("--workloads"), "{error}");
        for file in ["bench_serve.py", "bench_train.py"] {
            std::fs::write(places[1].path().join(file), "").unwrap();
        }
        let found = search(scenario, paths()).unwrap();
        assert_eq!(found, places[1].path());
        assert_eq!(words(&found, &scenario.programs[0])[0], "python3");
    }
}
