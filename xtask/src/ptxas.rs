//! The versions of kernels that the block level writes, compiled by NVIDIA's own compiler.
//!
//! Every module of PTX that the tests of `crates/ptx` have is rewritten, and that of the samples where they can be compiled. What
//! has versions must be accepted for each architecture that its target allows. What registers cost is told, not judged: of
//! each kernel how many the original and each version need, in `ptxas/registers.txt` of the build folder. The shim has versions
//! compiled as pieces, by the driver's linker, which gives them more; with the original's as a limit they must be accepted, too, and keep to it.

pub(crate) mod joins;

use crate::process::{root, target};
use crate::pypi;
use crate::samples::{self, in_parallel};
use anyhow::{Context, Result, bail, ensure};
use detshare_ptx::ast::{Item, Module};
use detshare_ptx::block_level::{Kernel, Limit, Refusal, Version, limit_registers};
use detshare_ptx::{block_level, fatbin, parse};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The architectures, and what they are compiled by: sm_70 was dropped in CUDA 13.
const ARCHITECTURES: [(u32, Toolkit); 3] = [(70, Toolkit::Old), (80, Toolkit::New), (90, Toolkit::New)];

/// The one for which registers are counted, and the newest that the samples are for.
const COUNTED: &str = "sm_90";
const NEWEST: u32 = 90;

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
    kind: Kind,
}

/// What is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The original, whose registers are counted and which nobody has written anew.
    Original,
    Versions,
    /// The versions as the shim has them compiled.
    Limited,
}

/// What came of a compilation.
enum Compiled {
    /// The registers of each kernel.
    Taken(BTreeMap<String, u32>),
    Refused(String),
}

/// Rewrites all modules and compiles what comes of them.
pub(crate) fn accepts_versions(compilers: &Compilers) -> Result<()> {
    let out = target().join("ptxas");
    std::fs::create_dir_all(&out)?;
    let sources = sources()?;
    let mut jobs = Vec::new();
    let mut kernels: BTreeMap<String, Vec<Kernel>> = BTreeMap::new();
    for (name, source) in &sources {
        let module = parse(source).with_context(|| name.clone())?;
        let rewritten = block_level::rewrite(&module, source);
        let Some(versions) = rewritten.source else { continue };
        kernels.insert(name.clone(), rewritten.kernels);
        let module = parse(&versions).with_context(|| format!("what was written for {name}"))?;
        for (kind, text) in [(Kind::Versions, &versions), (Kind::Original, source)] {
            let is_original = kind == Kind::Original;
            let written = out.join(if is_original { format!("original-{name}") } else { name.clone() });
            std::fs::write(&written, text)?;
            let all = architectures(&module).into_iter();
            let some = all.filter(|(architecture, _)| !is_original || architecture == COUNTED);
            let job = |(architecture, toolkit)| {
                let (name, module) = (name.clone(), written.clone());
                Job { name, module, architecture, toolkit, kind }
            };
            jobs.extend(some.map(job));
        }
    }
    let count = jobs.iter().filter(|job| job.kind == Kind::Versions).count();
    let compiled = in_parallel(jobs, |job| Ok((compile(compilers, &job)?, job)))?;
    let mut refused = Vec::new();
    let mut registers: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
    for (compiled, job) in compiled {
        match compiled {
            Compiled::Taken(each) if job.architecture == COUNTED => registers.entry(job.name).or_default().extend(each),
            Compiled::Refused(why) if job.kind != Kind::Original => refused.push(why),
            // Some originals are what no compiler takes by itself, such as a piece that is to be linked.
            Compiled::Taken(_) | Compiled::Refused(_) => {}
        }
    }
    let (modules, all) = (kernels.len(), sources.len());
    println!("{modules} of {all} modules have versions; {count} compilations, {} refused", refused.len());
    println!("{}", tell_registers(&kernels, &registers, &out.join("registers.txt"))?);
    let limited = keeps_limits(compilers, &out, &kernels, &registers)?;
    println!("compiled as pieces, with the original's registers as the limit: {limited} versions");
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    Ok(())
}

/// With so many an SM is full of threads.
const FEW: u32 = 32;
const ONE_IN: usize = 8;

/// Compiles versions as the shim does, for the architecture for which registers are counted; returns how many there are.
fn keeps_limits(
    compilers: &Compilers,
    out: &Path,
    kernels: &BTreeMap<String, Vec<Kernel>>,
    registers: &BTreeMap<String, BTreeMap<String, u32>>,
) -> Result<usize> {
    let (mut jobs, mut limits) = (Vec::new(), BTreeMap::new());
    for (number, (name, kernels)) in kernels.iter().enumerate() {
        let Some(counted) = registers.get(name) else { continue };
        let mut most: Vec<Limit> = kernels.iter().flat_map(|kernel| limits_of(kernel, counted)).collect();
        let text = limit_registers(&std::fs::read_to_string(out.join(name))?, &most)?;
        // Those that call functions have none.
        let limited = parse(&text)?;
        most.retain(|(kernel, _)| has_limit(&limited, kernel));
        // Of modules in which all have few one in so many is enough.
        if most.iter().all(|(_, most)| *most == FEW) && !number.is_multiple_of(ONE_IN) {
            continue;
        }
        let module = out.join(format!("limited-{name}"));
        std::fs::write(&module, text)?;
        let (architecture, toolkit) = (COUNTED.to_string(), Toolkit::New);
        jobs.push(Job { name: name.clone(), module, architecture, toolkit, kind: Kind::Limited });
        limits.insert(name.clone(), most);
    }
    let mut count = 0;
    for (compiled, job) in in_parallel(jobs, |job| Ok((compile(compilers, &job)?, job)))? {
        match compiled {
            Compiled::Taken(each) => {
                for (kernel, most) in limits.get(&job.name).into_iter().flatten() {
                    let found = each.get(kernel).copied().unwrap_or_default();
                    ensure!(found <= *most, "{}: {kernel} has {found} registers and may have {most}", job.name);
                    count += 1;
                }
            }
            Compiled::Refused(why) => bail!("{why}"),
        }
    }
    Ok(count)
}

fn has_limit(module: &Module, kernel: &str) -> bool {
    module.items.iter().any(|item| match item {
        Item::Function(function) => {
            function.name == kernel && function.directives.iter().any(|it| it.name == "maxnreg")
        }
        _ => false,
    })
}

/// As the shim has it: as many of its blocks are to fit on an SM as of the original's.
fn limits_of(kernel: &Kernel, counted: &BTreeMap<String, u32>) -> Vec<Limit> {
    const PORTION: u32 = 8;
    let Some(original) = counted.get(&kernel.name) else { return Vec::new() };
    let most = original.next_multiple_of(PORTION).max(FEW);
    let versions = [&kernel.sliced, &kernel.preemptible].into_iter().filter_map(|version| version.as_ref().ok());
    versions.map(|version| (version.name.clone(), most)).collect()
}

/// All modules, by name.
fn sources() -> Result<Vec<(String, String)>> {
    let tests = root().join("crates/ptx/tests");
    let mut files = Vec::new();
    collect(&tests, &mut files)?;
    files.sort();
    let mut sources = Vec::new();
    for file in &files {
        let name = file.strip_prefix(&tests)?.to_string_lossy().replace('/', "-");
        let text = std::fs::read_to_string(file)?;
        sources.push((name, text.split(BELOW).next().unwrap_or_default().to_string()));
    }
    let Ok(toolkit) = samples::toolkit() else {
        println!("without the samples: they cannot be compiled here");
        return Ok(sources);
    };
    let compiled = samples::compile(&toolkit)?;
    for (name, program) in samples::programs(&compiled) {
        let texts = texts_of(&std::fs::read(program)?).into_iter().enumerate();
        sources.extend(texts.map(|(number, text)| (format!("samples-{name}-{number}.ptx"), text)));
    }
    Ok(sources)
}

/// The PTX of all fat binaries in a program.
fn texts_of(program: &[u8]) -> Vec<String> {
    let magic = fatbin::MAGIC.to_le_bytes();
    let at = (0..program.len()).step_by(align_of::<u64>()).filter(|at| program[*at..].starts_with(&magic));
    at.filter_map(|at| {
        let header = program[at..].first_chunk()?;
        let end = at.checked_add(fatbin::length(header)?)?;
        let entries = fatbin::entries(program.get(at..end)?).ok()?;
        fatbin::best_ptx(&entries, NEWEST)?.text().ok()
    })
    .collect()
}

/// Writes down what registers the kernels and their versions need; returns a summary.
fn tell_registers(
    kernels: &BTreeMap<String, Vec<Kernel>>,
    registers: &BTreeMap<String, BTreeMap<String, u32>>,
    file: &Path,
) -> Result<String> {
    let mut text = format!("registers for {COUNTED}: of the original, sliced, preemptible\n");
    let mut more: [Vec<i64>; 2] = Default::default();
    for (module, kernels) in kernels {
        let Some(counted) = registers.get(module) else { continue };
        for kernel in kernels {
            let Some(original) = counted.get(&kernel.name) else { continue };
            let of = |version: &Result<Version, Refusal>| version.as_ref().ok().and_then(|it| counted.get(&it.name));
            let found = [of(&kernel.sliced), of(&kernel.preemptible)];
            for (more, version) in more.iter_mut().zip(found) {
                more.extend(version.map(|count| i64::from(*count) - i64::from(*original)));
            }
            let shown = found.map(|count| count.map_or("-".to_string(), ToString::to_string));
            writeln!(text, "{original:4} {:>4} {:>4}  {module} {}", shown[0], shown[1], kernel.name)?;
        }
    }
    std::fs::write(file, text)?;
    let summary = ["sliced", "preemptible"].into_iter().zip(&mut more).map(|(name, more)| {
        more.sort_unstable();
        let at = |part: usize| more.get(more.len() * part / 100).copied().unwrap_or_default();
        let most = more.last().copied().unwrap_or_default();
        format!("{name} kernels: {}, registers more: median {}, p95 {}, at most {most}", more.len(), at(50), at(95))
    });
    Ok(summary.collect::<Vec<_>>().join("; "))
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

fn compile(compilers: &Compilers, job: &Job) -> Result<Compiled> {
    let ptxas = match job.toolkit {
        Toolkit::Old => &compilers.old,
        Toolkit::New => &compilers.new,
    };
    let result = Command::new(ptxas)
        .args((job.kind == Kind::Limited).then_some("--compile-only"))
        .args(["--verbose", "--gpu-name", &job.architecture, "--output-file", "/dev/null"])
        .arg(&job.module)
        .output()
        .with_context(|| format!("cannot start {}", ptxas.display()))?;
    let said = String::from_utf8_lossy(&result.stderr);
    Ok(match result.status.success() {
        true => Compiled::Taken(registers_of(&said)),
        false => Compiled::Refused(format!("{} for {}: {said}", job.name, job.architecture)),
    })
}

/// How many registers each kernel needs, by what the compiler says of it.
fn registers_of(said: &str) -> BTreeMap<String, u32> {
    let (mut kernel, mut found) = (None, BTreeMap::new());
    for line in said.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            kernel = rest.split('\'').next();
        } else if let Some((_, rest)) = line.split_once("Used ")
            && let (Some(name), Some(count)) = (kernel.take(), rest.split(' ').next().and_then(|it| it.parse().ok()))
        {
            found.insert(name.to_string(), count);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(head: &str) -> Vec<String> {
        architectures(&parse(head).expect("parses")).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn registers_are_those_of_each_kernel() {
        let said = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Used 8 registers";
        assert_eq!(registers_of(said), BTreeMap::from([("one".to_string(), 24), ("two".to_string(), 8)]));
    }

    #[test]
    fn texts_are_found_in_programs() {
        let mut fat_binary = fatbin::link(&[".version 8.0".to_string()]);
        // As compilers write it: its kind is PTX, and it is for an architecture.
        fat_binary[fatbin::HEADER] = 1;
        fat_binary[fatbin::HEADER + 1] = 0;
        fat_binary[fatbin::HEADER + 28] = 80;
        let mut program = [vec![1; 24], fat_binary].concat();
        assert_eq!(texts_of(&program), [".version 8.0"]);
        // What begins like one need not be one.
        program[24 + 8] = 0xff;
        assert_eq!(texts_of(&program), [""; 0]);
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
