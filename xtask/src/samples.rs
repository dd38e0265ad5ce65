//! `cargo xtask samples`: CUDA C++ programs of many styles, compiled by nvcc and run on the software GPU.
//!
//! Each checks itself against the CPU and writes its results; where `expected.json` has results of a GPU, they must
//! be the same. What is compiled is kept, and compiled again only when something that it was made from has changed.

use crate::process::{root, run, target};
use crate::softgpu::{self, Way};
use crate::{build, pypi};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// nvcc and what it compiles with; its PTX is what a CUDA 13.0 driver takes.
const TOOLKIT: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];

/// Seconds after which a sample is ended; they take a fraction of one where nothing else runs.
const LIMIT_S: &str = "600";

/// A line of a sample that begins so has options for nvcc.
const OPTIONS: &str = "// nvcc: ";

/// The option for programs whose parts are linked on the device's side, too.
const SEPARATELY: &str = "-rdc=true";

/// A line that begins so names another file that belongs to the sample.
const WITH: &str = "// with: ";

/// A line that begins so sets a variable for its runs.
const RUN: &str = "// run: ";

/// What is recorded of numbers went through another program's hands and may have lost the last bit of an `f64`, which an `f32` does not
/// have. This is part of the number.
const LAST_BIT: f64 = 2.0 * f64::EPSILON;

/// A sample that is compiled.
#[derive(Debug)]
pub(crate) struct Sample {
    name: String,
    program: PathBuf,
    /// For its runs.
    variable: Option<(String, String)>,
}

/// One of them by its name.
pub(crate) fn program<'a>(samples: &'a [Sample], name: &str) -> Result<&'a Path> {
    let found = samples.iter().find(|sample| sample.name == name);
    found.map(|sample| sample.program.as_path()).with_context(|| format!("there is no sample {name}"))
}

/// The names and programs of all.
pub(crate) fn programs(samples: &[Sample]) -> impl Iterator<Item = (&str, &Path)> {
    samples.iter().map(|sample| (sample.name.as_str(), sample.program.as_path()))
}

fn folder() -> PathBuf {
    root().join("workloads/samples")
}

fn expected_file() -> PathBuf {
    folder().join("expected.json")
}

/// nvcc, and that there is a compiler for the host's part.
pub(crate) fn toolkit() -> Result<PathBuf> {
    let packages = pypi::install(&TOOLKIT)?;
    let works = Command::new("c++").arg("--version").output().is_ok_and(|output| output.status.success());
    ensure!(works, "no C++ compiler: nvcc compiles the host's part with it");
    Ok(packages.join("nvidia/cu13"))
}

/// Compiles what has changed, on all cores, as people do who want the runtime as a library (`-cudart shared`).
pub(crate) fn compile(toolkit: &Path) -> Result<Vec<Sample>> {
    let runtime = link_folder(toolkit)?;
    let headers = contents(&files(&folder(), "h")?)?;
    let samples = in_parallel(files(&folder(), "cu")?, |source| {
        let name = source.file_stem().context("a sample has a name")?.to_string_lossy().into_owned();
        compile_sample(toolkit, &source, &name, &runtime, &headers).with_context(|| format!("sample {name}"))
    })?;
    Ok(samples)
}

/// A folder that has NVIDIA's runtime by the name that a linker looks for: programs are linked against it, and run on ours.
fn link_folder(toolkit: &Path) -> Result<PathBuf> {
    let folder = target().join("samples-link");
    std::fs::create_dir_all(&folder)?;
    softgpu::replace_link(&folder.join("libcudart.so"), &toolkit.join("lib/libcudart.so.13"))?;
    Ok(folder)
}

fn compile_sample(toolkit: &Path, source: &Path, name: &str, runtime: &Path, headers: &[String]) -> Result<Sample> {
    let text = std::fs::read_to_string(source)?;
    let options = options(&text);
    let parts: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix(WITH)).map(|name| folder().join(name)).collect();
    let key = key_of(&(&text, contents(&parts)?, headers, TOOLKIT, &options));
    let out = target().join("samples").join(name);
    let program = out.join(name);
    if !is_current(&out, key) {
        std::fs::create_dir_all(&out)?;
        let mut nvcc = Command::new(toolkit.join("bin/nvcc"));
        nvcc.args(&options).args(["-std=c++17", "-O2", "-cudart", "shared", "-Xcompiler"]);
        // It runs on machines with another C++ library too.
        nvcc.args(["-Wall,-static-libstdc++,-static-libgcc", "-Werror", "all-warnings"]);
        nvcc.arg("-L").arg(runtime).arg("-L").arg(toolkit.join("lib")).arg(source).args(&parts);
        nvcc.arg("-o").arg(&program);
        run(&mut nvcc)?;
        if options.iter().any(|option| option == SEPARATELY) {
            link_for_a_gpu(toolkit, source, &parts, &options, &out)?;
        }
        make_current(&out, key)?;
    }
    let variable = text.lines().find_map(|line| line.strip_prefix(RUN)?.split_once('='));
    let variable = variable.map(|(name, value)| (name.to_string(), value.to_string()));
    Ok(Sample { name: name.to_string(), program, variable })
}

/// PTX is linked when the program runs, and on the software GPU with our device runtime. Whether a GPU's driver can link it too, with
/// NVIDIA's, nvcc's linker tells here.
fn link_for_a_gpu(toolkit: &Path, source: &Path, parts: &[PathBuf], options: &[String], out: &Path) -> Result<()> {
    let mut nvcc = Command::new(toolkit.join("bin/nvcc"));
    nvcc.args(options.iter().map(|option| option.replace("-code=compute_", "-code=sm_")));
    nvcc.args(["-std=c++17", "-O2", "-dlink"]).arg("-L").arg(toolkit.join("lib")).arg(source).args(parts);
    run(nvcc.arg("-o").arg(out.join("linked.o")))
}

/// A sample's own options, and what holds where it names none: PTX for sm_90 that is not compressed.
fn options(source: &str) -> Vec<String> {
    let own = source.lines().find_map(|line| line.strip_prefix(OPTIONS)).unwrap_or_default();
    let mut options: Vec<String> = own.split_whitespace().map(str::to_string).collect();
    let names = |option: &str| options.iter().any(|it| it.starts_with(option));
    let (architecture, compression) = (names("-arch"), names("--compress-mode"));
    if !architecture {
        options.extend(["-arch=compute_90", "-code=compute_90"].map(str::to_string));
    }
    if !compression {
        options.push("--compress-mode=none".to_string());
    }
    options
}

fn key_of(made_from: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    made_from.hash(&mut hasher);
    hasher.finish()
}

fn is_current(out: &Path, key: u64) -> bool {
    std::fs::read_to_string(out.join("key")).is_ok_and(|text| text == key.to_string())
}

fn make_current(out: &Path, key: u64) -> Result<()> {
    Ok(std::fs::write(out.join("key"), key.to_string())?)
}

/// The files with that extension, by name.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut chosen: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|it| it == extension)).collect();
    chosen.sort();
    Ok(chosen)
}

fn contents(files: &[PathBuf]) -> Result<Vec<String>> {
    files.iter().map(|file| Ok(std::fs::read_to_string(file)?)).collect()
}

/// Does that with each, on all cores, and returns what came of it in order; after an error no more are begun.
pub(crate) fn in_parallel<T: Send, R: Send>(all: Vec<T>, work: impl Fn(T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(all.into_iter().enumerate());
    let done = Mutex::new(BTreeMap::new());
    let worker = || {
        while let Some((index, item)) = { queue.lock().expect("no panic while it is held").next() } {
            let result = work(item);
            let failed = result.is_err();
            done.lock().expect("no panic while it is held").insert(index, result);
            if failed {
                queue.lock().expect("no panic while it is held").by_ref().for_each(drop);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(worker);
        }
    });
    done.into_inner().expect("no thread panicked").into_values().collect()
}

/// Runs them all, and compares their results with a GPU's where these are known.
pub(crate) fn check(samples: &[Sample], built: &Path, way: Way) -> Result<()> {
    softgpu::in_that_way(way, || check_with(samples, built, way, &format!("{way:?}"), None))
}

/// The same with every kernel checked, which fails if anything is found.
pub(crate) fn check_checked(samples: &[Sample], built: &Path) -> Result<()> {
    check_with(samples, built, Way::Directly, "checked", Some(softgpu::CHECKED))
}

fn check_with(samples: &[Sample], built: &Path, way: Way, name: &str, variable: Option<(&str, &str)>) -> Result<()> {
    let expected = expected()?;
    let driver = softgpu::driver_folder(built, way)?;
    let out = target().join("samples-results").join(name);
    std::fs::create_dir_all(&out)?;
    let wanted = |sample: &Sample| expected.as_ref().and_then(|all| all["samples"].get(&sample.name));
    let verdicts = in_parallel(samples.iter().collect(), |sample: &Sample| {
        let mut command = softgpu::command("timeout", built, way);
        command.env("LD_LIBRARY_PATH", &driver).envs(sample.variable.clone()).envs(variable);
        Ok((&sample.name, check_one(sample, command, &out, wanted(sample))))
    })?;
    let failures = verdicts.iter().filter_map(|(name, verdict)| Some((name, verdict.as_ref().err()?)));
    let failed = failures.inspect(|(name, error)| println!("{name}: {error:#}")).count();
    let passed = verdicts.len() - failed;
    let alone: Vec<_> =
        samples.iter().filter(|sample| wanted(sample).is_none()).map(|sample| sample.name.as_str()).collect();
    let with = samples.len() - alone.len();
    println!("{passed} samples passed, {failed} failed; {with} compared with a GPU's results");
    if !alone.is_empty() {
        println!("with the CPU's results alone, no GPU's are recorded: {}", alone.join(", "));
    }
    ensure!(failed == 0, "{failed} samples failed; their output is in {}", out.display());
    Ok(())
}

/// Runs a sample by a command that takes a limit of time first.
fn check_one(sample: &Sample, mut command: Command, out: &Path, expected: Option<&Value>) -> Result<()> {
    let results = out.join(&sample.name).with_extension("json");
    if results.exists() {
        std::fs::remove_file(&results)?;
    }
    let log = std::fs::File::create(results.with_extension("log"))?;
    command.args([LIMIT_S.as_ref(), sample.program.as_os_str(), results.as_os_str()]);
    let status = command.stdout(log.try_clone()?).stderr(log).status()?;
    ensure!(status.success(), "ended with {status}");
    let found: Value = serde_json::from_str(&std::fs::read_to_string(&results)?)?;
    expected.map_or(Ok(()), |expected| compare(&found, expected))
}

/// As a person starts a program: by `detshare run`, with nothing else set.
pub(crate) fn started_by_detshare(toolkit: &Path, samples: &[Sample], built: &Path) -> Result<()> {
    /// It needs kernels, variables and the linker.
    const PROGRAM: &str = "separate";
    let sample = samples.iter().find(|sample| sample.name == PROGRAM).context("the sample is there")?;
    let ended = on_software_gpu(built, &sample.program).output()?;
    ensure!(ended.status.success(), "{PROGRAM} ended with {}", ended.status);
    // The loader complains there if versions of names do not fit.
    ensure!(ended.stderr.is_empty(), "{PROGRAM}: {}", String::from_utf8_lossy(&ended.stderr));
    carries_its_own(toolkit, built)?;
    asks_for_too_much(toolkit, built)
}

/// Programs that carry NVIDIA's runtime, as nvcc links where nothing is said: ours takes its place, in their libraries too. Without names
/// it cannot, and the user is told what to do.
fn carries_its_own(toolkit: &Path, built: &Path) -> Result<()> {
    let library = compile_part(toolkit, "static_library", &["-shared", "-Xcompiler", "-fPIC"])?;
    let library = library.to_str().context("the build folder has a plain name")?;
    let newer = compile_part(toolkit, "static_runtime", &["-Xlinker", library])?;
    for program in [newer.clone(), compile_older_runtime()?] {
        let mut through_shim = Command::new(&program);
        let libraries = [build::SHIM, build::CUDART_12, build::CUDART_13].map(|name| built.join(name));
        through_shim.env("LD_PRELOAD", libraries.map(|library| library.display().to_string()).join(":"));
        through_shim.env("DETSHARE_DRIVER", built.join(build::SOFTGPU));
        for mut command in [on_software_gpu(built, &program), through_shim] {
            let ended = command.output()?;
            let (found, told) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
            ensure!(ended.status.success(), "{command:?} ended with {}: {found}{told}", ended.status);
            ensure!(found == "as it should be\n" && told.is_empty(), "{command:?}: {found}{told}");
        }
    }
    let stripped = newer.with_file_name("stripped");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&newer))?;
    let ended = on_software_gpu(built, &stripped).output()?;
    ensure!(!ended.status.success(), "NVIDIA's runtime works without names: then say so");
    let words = String::from_utf8_lossy(&ended.stderr);
    ensure!(words.contains("nvcc -cudart shared"), "a program with NVIDIA's runtime is not told what to do: {words}");
    Ok(())
}

/// A C program with the runtime of the release before.
fn compile_older_runtime() -> Result<PathBuf> {
    let nvidia = softgpu::numba()?.join("nvidia");
    let out = target().join("samples/static_runtime_12");
    std::fs::create_dir_all(&out)?;
    let program = out.join("static_runtime_12");
    let mut compiler = Command::new("cc");
    for headers in ["cuda_runtime/include", "cuda_nvcc/include"] {
        compiler.arg("-I").arg(nvidia.join(headers));
    }
    compiler.arg(folder().join("parts/static_runtime_12.c")).arg(nvidia.join("cuda_runtime/lib/libcudart_static.a"));
    run(compiler.args(["-ldl", "-lpthread", "-lrt", "-o"]).arg(&program))?;
    Ok(program)
}

/// Kernels that call what our device runtime lacks, and what NVIDIA's lacks too: the launch fails with the code for that (of the latter
/// an H200's), and the function is named.
fn asks_for_too_much(toolkit: &Path, built: &Path) -> Result<()> {
    let lacking = [
        (
            "missing_runtime",
            "cudaErrorNotSupported",
            "a function of the device runtime that is not there: 'call.uni (retval0), cudaGraphLaunch",
        ),
        ("undefined_runtime", "cudaErrorInvalidSource", "__cudaCDP2EventRecordWithFlags"),
    ];
    for (name, code, reason) in lacking {
        let program = compile_part(toolkit, name, &[SEPARATELY, "-cudart", "shared"])?;
        let ended = on_software_gpu(built, &program).env("DETSHARE_LOG", "1").output()?;
        let (found, told) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        ensure!(found.starts_with(&format!("{code}, ")), "{name}: what a device runtime lacks ends in {found}");
        ensure!(told.contains(reason), "{name}: what a device runtime lacks is not named: {told}");
    }
    Ok(())
}

fn on_software_gpu(built: &Path, program: &Path) -> Command {
    let mut command = Command::new(built.join("detshare"));
    command.args(["run", "--device", "soft", "--"]).arg(program);
    for name in
        ["LD_LIBRARY_PATH", "LD_PRELOAD", "DETSHARE_DRIVER", "DETSHARE_LOG", "DETSHARE_SHIM", "DETSHARE_SOFTGPU"]
    {
        command.env_remove(name);
    }
    // No daemon of anybody else's.
    command.env("DETSHARE_DIR", target().join("samples-no-daemon"));
    command
}

/// A program that is no sample: it shows how something fails.
fn compile_part(toolkit: &Path, name: &str, options: &[&str]) -> Result<PathBuf> {
    let source = folder().join("parts").join(name).with_extension("cu");
    let out = target().join("samples").join(name);
    let program = out.join(name);
    let key = key_of(&(contents(std::slice::from_ref(&source))?, TOOLKIT, options));
    if !is_current(&out, key) {
        std::fs::create_dir_all(&out)?;
        let mut nvcc = Command::new(toolkit.join("bin/nvcc"));
        nvcc.args(["-arch=compute_90", "-code=compute_90"]).args(options);
        nvcc.arg("-L").arg(link_folder(toolkit)?).arg("-L").arg(toolkit.join("lib"));
        run(nvcc.arg(source).arg("-o").arg(&program))?;
        make_current(&out, key)?;
    }
    Ok(program)
}

/// The results of a GPU, if there are any.
fn expected() -> Result<Option<Value>> {
    let file = expected_file();
    if !file.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&file)?;
    Ok(Some(serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?))
}

/// Exact results have the same checksum. The others are within a bound of the CPU's; a GPU's are those that are recorded.
fn compare(found: &Value, expected: &Value) -> Result<()> {
    let (Some(found), Some(expected)) = (found.as_array(), expected.as_array()) else {
        bail!("no results of a GPU for it: run bench/gpu/samples.py there");
    };
    ensure!(found.len() == expected.len(), "{} results instead of {}", found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let name = &expected["name"];
        for field in ["name", "count", "checksum"] {
            ensure!(found[field] == expected[field], "{name}: {field} {} instead of {}", found[field], expected[field]);
        }
        let bounds = [found, expected].map(|result| result["bound"].as_f64().unwrap_or(0.0));
        ensure!(
            (bounds[0] - bounds[1]).abs() <= bounds[1] * 1e-9,
            "{name}: bound {} instead of {}",
            bounds[0],
            bounds[1]
        );
        let numbers = |result: &Value| {
            result["values"].as_array().map_or(Vec::new(), |all| all.iter().filter_map(Value::as_f64).collect())
        };
        let (found, expected): (Vec<f64>, Vec<f64>) = (numbers(found), numbers(expected));
        ensure!(found.len() == expected.len(), "{name}: another number of values");
        for (found, expected) in found.iter().zip(&expected) {
            let same = (found - expected).abs() <= LAST_BIT * expected.abs();
            ensure!(same, "{name}: {found} instead of {expected}");
        }
    }
    Ok(())
}

/// Takes over what `bench/gpu/samples.py` wrote on a GPU machine. Samples that failed there have no results.
pub(crate) fn bless(results: &Path) -> Result<()> {
    let text = std::fs::read_to_string(results).with_context(|| format!("cannot read {}", results.display()))?;
    let results: Value = serde_json::from_str(&text)?;
    ensure!(results["gpu"].is_string(), "these results are of no GPU");
    let kept: BTreeMap<_, _> = ["gpu", "driver_version", "samples"].map(|key| (key, &results[key])).into();
    std::fs::write(expected_file(), format!("{:#}\n", serde_json::to_value(kept)?))?;
    println!("{}: results of {}", expected_file().display(), results["gpu"]);
    for failed in results["failed"].as_array().into_iter().flatten() {
        println!("without results: {}", failed.as_str().unwrap_or_default());
    }
    Ok(())
}

/// Puts the compiled samples into a folder.
pub(crate) fn copy_to(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for sample in compile(&toolkit()?)? {
        std::fs::copy(&sample.program, folder.join(&sample.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_of_a_sample_replace_the_usual_ones() {
        assert_eq!(options("// Nothing.\n"), ["-arch=compute_90", "-code=compute_90", "--compress-mode=none"]);
        let own = "// First.\n// nvcc: -arch=compute_80 -code=compute_80\n";
        assert_eq!(options(own), ["-arch=compute_80", "-code=compute_80", "--compress-mode=none"]);
        let own = "// nvcc: --compress-mode=size\n";
        assert_eq!(options(own), ["--compress-mode=size", "-arch=compute_90", "-code=compute_90"]);
    }

    #[test]
    fn exact_results_are_compared_by_checksum_and_others_by_value() {
        let exact = |checksum: &str| json!([{"name": "a", "count": 3, "checksum": checksum}]);
        assert!(compare(&exact("1f"), &exact("1f")).is_ok());
        assert!(compare(&exact("1e"), &exact("1f")).is_err());
        let near = |value: f64| json!([{"name": "b", "count": 1, "bound": 0.01, "values": [value]}]);
        assert!(compare(&near(100.0), &near(100.0)).is_ok());
        assert!(compare(&near(0.1), &near(0.1_f64.next_up())).is_ok());
        // However wide the bound, another `f32` is another number.
        assert!(compare(&near(100.0), &near(f64::from(100_f32.next_up()))).is_err());
        assert!(compare(&near(0.0), &near(f64::MIN_POSITIVE)).is_err());
        assert!(compare(&near(1.0), &exact("1f")).is_err());
        assert!(compare(&near(1.0), &Value::Null).is_err());
    }

    #[test]
    fn work_in_parallel_keeps_its_order_and_its_first_error() {
        assert_eq!(in_parallel((0..50).collect(), |i: i32| Ok(i * 2)).ok(), Some((0..50).map(|i| i * 2).collect()));
        assert!(in_parallel((0..50).collect(), |i: i32| if i == 7 { bail!("seven") } else { Ok(()) }).is_err());
    }
}
