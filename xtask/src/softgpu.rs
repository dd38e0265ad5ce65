//! The software GPU's tests: the conformance suite, the instruction files, and programs that others wrote.

use crate::build;
use crate::daemon::Daemon;
use crate::noted;
use crate::process::{root, run, target};
use crate::pypi;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Numba with its own driver layer, and what it compiles with: NVVM, and NVRTC for C++ that kernels call. NVVM 12.9 refuses
/// some functions of its own libdevice.
const NUMBA: [&str; 8] = [
    "numba==0.60.0",
    "llvmlite==0.43.0",
    "numpy==2.0.2",
    "nvidia-cuda-nvcc-cu12==12.8.93",
    "nvidia-cuda-runtime-cu12==12.9.79",
    "nvidia-cuda-nvrtc-cu12==12.9.86",
    "cffi==2.0.0",
    "pycparser==2.23",
];

/// What cudarc compiles with; later ones emit PTX that is newer than a CUDA 13.0 driver takes.
const NVRTC: [&str; 1] = ["nvidia-cuda-nvrtc-cu12==12.9.86"];

/// How a program gets to the software GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Directly,
    ThroughShim,
    /// Through the shim, with another lane at every launch.
    Moving,
    /// Through the shim, with another lane at every launch, and kernels launched in parts where they can be.
    InParts,
    /// Through the shim, as a tenant among others: a daemon's policy chooses the lanes, and holds.
    AsTenant,
}

impl Way {
    /// Those that need nobody else.
    pub(crate) const ALL: [Self; 4] = [Self::Directly, Self::ThroughShim, Self::Moving, Self::InParts];

    /// The library to load as the driver.
    fn library(self, built: &Path) -> PathBuf {
        match self {
            Self::Directly => built.join(build::SOFTGPU),
            Self::ThroughShim | Self::Moving | Self::InParts | Self::AsTenant => built.join(build::SHIM),
        }
    }
}

/// A program with the software GPU behind it.
pub(crate) fn command(program: impl AsRef<OsStr>, built: &Path, way: Way) -> Command {
    let mut command = Command::new(program);
    command.env("DETSHARE_DRIVER", built.join(build::SOFTGPU)).env_remove("LD_PRELOAD");
    match way {
        Way::Moving => command.env("DETSHARE_SCHEDULE", "random:1"),
        Way::InParts => command
            .env("DETSHARE_SCHEDULE", "random:1")
            .env("DETSHARE_BLOCK_LEVEL", "random:1")
            .env("DETSHARE_STATS", stats_folder().join("%p.json")),
        Way::Directly | Way::ThroughShim | Way::AsTenant => command.env_remove("DETSHARE_SCHEDULE"),
    };
    command
}

/// Where the shim counts, where kernels are launched in parts; others count elsewhere meanwhile.
fn stats_folder() -> PathBuf {
    target().join("in-parts").join(std::process::id().to_string())
}

/// Runs programs in that way; where kernels are to be launched in parts, some must have been. Not for suites whose processes end without
/// running anything at exit, which count for nobody.
pub(crate) fn in_that_way(way: Way, programs: impl FnOnce() -> Result<()>) -> Result<()> {
    if !matches!(way, Way::InParts) {
        return programs();
    }
    let folder = stats_folder();
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    programs()?;
    let mut in_parts = 0;
    for entry in std::fs::read_dir(&folder)? {
        in_parts += launched_in_parts(&entry?.path())?;
    }
    std::fs::remove_dir_all(&folder)?;
    ensure!(in_parts > 0, "nothing was launched in parts");
    println!("{in_parts} launches in parts");
    Ok(())
}

/// How many launches were made in parts, by what the shim counted.
pub(crate) fn launched_in_parts(stats: &Path) -> Result<u64> {
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(stats)?)?;
    let count = |what: &str| stats["block_level"][what].as_u64().unwrap_or(0);
    Ok(count("sliced") + count("preemptible"))
}

/// Conformance tests that skip themselves on the software GPU, and why that is right. All that a driver has the software GPU is
/// to have too: another one that skips itself is a failure.
const SKIPPED: [(&str, &str); 0] = [];

/// The driver API, test by test, with what an H200's driver notes; through the shim with the same codes as without it.
pub(crate) fn conformance(built: &Path, way: Way) -> Result<()> {
    let verdicts = target().join("conformance.json");
    let daemon = Daemon::for_way(built, way)?;
    let mut program = command(built.join("conformance"), built, way);
    program.envs(daemon.as_ref().map(Daemon::variable));
    program.arg("--driver").arg(way.library(built));
    match way {
        Way::Directly => program.arg("--out").arg(&verdicts),
        Way::ThroughShim | Way::Moving | Way::InParts | Way::AsTenant => program.arg("--same-codes-as").arg(&verdicts),
    };
    in_that_way(way, || summarised(&mut program, &format!("conformance-{way:?}")))?;
    match way {
        Way::Directly => {
            let verdicts = std::fs::read_to_string(&verdicts)?;
            skipped_as_named(&verdicts, &SKIPPED)?;
            noted::as_on_an_h200(&verdicts)
        }
        Way::ThroughShim | Way::Moving | Way::InParts | Way::AsTenant => Ok(()),
    }
}

/// That no test skipped itself but those that are named, and each of these did.
fn skipped_as_named(verdicts: &str, named: &[(&str, &str)]) -> Result<()> {
    let verdicts: Value = serde_json::from_str(verdicts)?;
    let tests = verdicts["tests"].as_array().context("verdicts of tests")?;
    let skipped: BTreeMap<_, _> = tests
        .iter()
        .filter(|test| test["verdict"] == "skipped")
        .map(|test| (test["name"].as_str().unwrap_or_default(), test["detail"].as_str().unwrap_or_default()))
        .collect();
    let is_named = |name: &str| named.iter().any(|(named, _)| *named == name);
    let unnamed: Vec<_> = skipped.iter().filter(|(name, _)| !is_named(name)).collect();
    ensure!(unnamed.is_empty(), "skipped on the software GPU, without being named in SKIPPED: {unnamed:?}");
    let not_skipped: Vec<_> = named.iter().filter(|(name, _)| !skipped.contains_key(name)).collect();
    ensure!(not_skipped.is_empty(), "named in SKIPPED, and not skipped: {not_skipped:?}");
    Ok(())
}

/// The conformance suite under valgrind, and random programs over several threads with moving lanes: no access where
/// there is nothing, and nothing lost. Minutes, so not part of every test run.
pub(crate) fn leaks(built: &Path) -> Result<()> {
    conformance_under_valgrind(built, &[], "leaks")?;
    let mut order = under_valgrind(built, Way::Moving);
    order.arg(built.join("order")).args(["--programs", "1000", "--driver"]).arg(built.join(build::SHIM));
    summarised(&mut order, "leaks-order")
}

/// The tests among them that ask most of addresses, in seconds. None forks: what is lost in a child alone is known by names of functions,
/// which a library as it is shipped does not have.
pub(crate) fn leaks_of_memory(built: &Path) -> Result<()> {
    const TESTS: [&str; 5] = [
        "virtual_memory::",
        "lifetimes::memory_",
        "lifetimes::freed_by",
        "lifetimes::used_by",
        "lifetimes::registered_",
    ];
    conformance_under_valgrind(built, &TESTS, "leaks-of-memory")
}

/// The conformance tests whose name contains one of these, or all.
fn conformance_under_valgrind(built: &Path, tests: &[&str], name: &str) -> Result<()> {
    /// Two tests keep every SM busy, on one core and many times slower than without valgrind.
    const LIMIT_S: &str = "900";
    let mut suite = under_valgrind(built, Way::Directly);
    suite.arg(built.join("conformance")).args(["--limit", LIMIT_S]).args(tests);
    summarised(suite.arg("--driver").arg(built.join(build::SOFTGPU)), name)
}

fn under_valgrind(built: &Path, way: Way) -> Command {
    /// Valgrind leaves a process tens of gigabytes of addresses, which the devices share.
    const MEMORY: &str = "4GiB";
    let mut program = command("valgrind", built, way);
    program
        .args(["--quiet", "--trace-children=yes", "--leak-check=full", "--show-leak-kinds=definite"])
        .args(["--errors-for-leak-kinds=definite", "--error-exitcode=99"])
        .arg(format!("--suppressions={}", root().join("xtask/src/leaks.supp").display()))
        .env("DETSHARE_SOFTGPU_MEMORY", MEMORY);
    program
}

/// Every instruction, file by file.
pub(crate) fn instructions(built: &Path, way: Way) -> Result<()> {
    let cases = root().join("crates/softgpu/tests/instructions/cases");
    let mut program = command(built.join("instructions"), built, way);
    program.arg("--driver").arg(way.library(built)).arg(cases);
    summarised(&mut program, &format!("instructions-{way:?}"))
}

/// A GPU's answers to sums of matrix units, whose results tell how it rounds.
pub(crate) fn rounding_answers() -> PathBuf {
    root().join("crates/softgpu/tests/instructions/h200.rounding")
}

/// Sums of matrix units, with the answers of a GPU.
pub(crate) fn rounding(built: &Path) -> Result<()> {
    let mut program = command(built.join("instructions"), built, Way::Directly);
    program.arg("--driver").arg(built.join(build::SOFTGPU)).arg("--rounding-as").arg(rounding_answers());
    summarised(&mut program, "rounding")
}

/// Digests of what a GPU's approximations give over whole ranges of inputs.
pub(crate) fn approximation_digests() -> PathBuf {
    root().join("crates/softgpu/tests/instructions/h200.approximations")
}

/// Approximations of every float of those ranges, with the results of a GPU.
pub(crate) fn approximations(built: &Path) -> Result<()> {
    let mut program = command(built.join("instructions"), built, Way::Directly);
    program.arg("--driver").arg(built.join(build::SOFTGPU)).arg("--approximations-as").arg(approximation_digests());
    summarised(&mut program, "approximations")
}

/// A GPU's answers to generated kernels.
pub(crate) fn kernel_corpus() -> PathBuf {
    root().join("crates/softgpu/tests/kernel_fuzz/h200.corpus")
}

/// Generated kernels, as far as their definition can be computed by other means.
pub(crate) fn kernels_by_definition(built: &Path) -> Result<()> {
    let mut program = command(built.join("kernel_fuzz"), built, Way::Directly);
    program.args(["duel", "--count", "6000", "--driver", "reference", "--other"]).arg(built.join(build::SOFTGPU));
    summarised(program.arg("--out").arg(target().join("kernel_fuzz")), "kernel_fuzz-definition")
}

/// Generated kernels, with the answers of a GPU.
pub(crate) fn kernel_fuzz(built: &Path) -> Result<()> {
    // One of the kernels has a fault of the driver's compiler.
    let limits = ["--not-supported-at-most", "0", "--explained-at-most", "1"];
    let mut program = command(built.join("kernel_fuzz"), built, Way::Directly);
    summarised(
        program
            .args(["replay", "--all"])
            .args(limits)
            .arg("--driver")
            .arg(built.join(build::SOFTGPU))
            .arg(kernel_corpus()),
        "kernel_fuzz",
    )
}

/// Tenants and their daemon, disturbed in that way.
pub(crate) fn chaos(built: &Path, arguments: &[&str]) -> Result<()> {
    let mut program = Command::new(built.join("chaos"));
    program.args(arguments);
    for (flag, name) in [
        ("--detshared", "detshared"),
        ("--shim", build::SHIM),
        ("--softgpu", build::SOFTGPU),
        ("--steps-program", "steps"),
    ] {
        program.arg(flag).arg(built.join(name));
    }
    if arguments.first() == Some(&"chaos") {
        program.arg("--cli").arg(built.join("detshare"));
    }
    run(&mut program)
}

/// Runs a suite that prints a line for each of its many tests, and keeps all that it and its processes say in a log; shows the tests that
/// failed, and the closing line. Of one that fails, the end of the log is shown: it says why.
pub(crate) fn summarised(program: &mut Command, name: &str) -> Result<()> {
    let log = target().join(format!("{name}.log"));
    let file = std::fs::File::create(&log)?;
    let result = run(program.stdout(file.try_clone()?).stderr(file)).with_context(|| format!("see {}", log.display()));
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    println!("{}", summary(&text, result.is_ok()));
    result
}

/// What is shown of a log.
fn summary(log: &str, passed: bool) -> String {
    /// Enough for what a suite tells of the one that failed last.
    const SHOWN_OF_FAILURE: usize = 80;
    let lines: Vec<_> = log.lines().collect();
    let end = if passed { 1 } else { SHOWN_OF_FAILURE };
    let (before, end) = lines.split_at(lines.len().saturating_sub(end));
    let mut shown: Vec<_> = before.iter().copied().filter(|line| line.contains("... failed")).collect();
    if !passed && !before.is_empty() {
        shown.push("[...]");
    }
    shown.extend(end);
    if shown.is_empty() { "no test was run".to_string() } else { shown.join("\n") }
}

/// Numba and its compiler, laid out as the CUDA toolkit that it looks for.
pub(crate) fn numba() -> Result<PathBuf> {
    let packages = pypi::install(&NUMBA)?;
    let home = packages.join("cuda-home");
    let links = [
        ("nvvm/lib64/libnvvm.so.4", "nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so"),
        ("nvvm/libdevice", "nvidia/cuda_nvcc/nvvm/libdevice"),
        ("lib64/libcudart.so.12", "nvidia/cuda_runtime/lib/libcudart.so.12"),
        ("lib64/libcudadevrt.a", "nvidia/cuda_runtime/lib/libcudadevrt.a"),
        ("lib64/libnvrtc.so.12", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"),
        ("lib64/libnvrtc-builtins.so.12.9", "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9"),
    ];
    for (link, target) in links {
        let link = home.join(link);
        std::fs::create_dir_all(link.parent().context("a link lies in a folder")?)?;
        replace_link(&link, &packages.join(target))?;
    }
    Ok(packages)
}

/// Numba's programs, which know nothing of us.
pub(crate) fn numba_programs(packages: &Path, built: &Path, way: Way) -> Result<()> {
    let mut programs = command("python3", built, way);
    numba_environment(programs.args(NUMBA_PROGRAMS), packages).env("NUMBA_CUDA_DRIVER", way.library(built));
    in_that_way(way, || run(&mut programs))
}

/// The same with every kernel checked, which fails if anything is found.
pub(crate) fn numba_checked(packages: &Path, built: &Path) -> Result<()> {
    let mut program = command("python3", built, Way::Directly);
    numba_environment(program.args(NUMBA_PROGRAMS), packages).envs([CHECKED]);
    run(program.env("NUMBA_CUDA_DRIVER", Way::Directly.library(built)))
}

/// The examples of Numba's documentation, as the package itself has them as tests. All of them: one that finds something
/// missing skips itself.
pub(crate) fn numba_examples(packages: &Path, built: &Path, way: Way) -> Result<()> {
    const EXAMPLES: [&str; 10] = [
        "cg",
        "cpu_gpu_compat",
        "ffi",
        "laplace",
        "matmul",
        "montecarlo",
        "reduction",
        "sessionize",
        "ufunc",
        "vecadd",
    ];
    /// It draws 450 million numbers, which takes longer than all the others, and has one kernel: once is enough.
    const LONG: &str = "random";
    let names = EXAMPLES.into_iter().chain(Some(LONG).filter(|_| matches!(way, Way::Directly)));
    let modules: Vec<_> = names.map(|name| format!("numba.cuda.tests.doc_examples.test_{name}")).collect();
    // `ffi` has two.
    let count = modules.len() + 1;
    let mut program = command("python3", built, way);
    program.args(["-W", "ignore", "-m", "unittest"]).args(modules);
    numba_environment(&mut program, packages).env("NUMBA_CUDA_DRIVER", way.library(built));
    let output = program.output().with_context(|| format!("cannot start {program:?}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "Numba's examples ended with {}:\n{told}", output.status);
    all_ran(&told, count).with_context(|| format!("Numba's examples:\n{told}"))
}

/// That Python's unittest says so many tests ran, and none was skipped.
fn all_ran(told: &str, count: usize) -> Result<()> {
    let ran = told.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<usize>().ok());
    ensure!(ran == Some(count), "{ran:?} tests ran instead of {count}");
    // With skipped ones it says "OK (skipped=…)".
    ensure!(told.lines().next_back() == Some("OK"), "not all of them did what they are for");
    Ok(())
}

/// Without the warnings of an old Numba.
const NUMBA_PROGRAMS: [&str; 3] = ["-W", "ignore", "crates/softgpu/tests/numba/programs.py"];

pub(crate) fn numba_environment<'c>(command: &'c mut Command, packages: &Path) -> &'c mut Command {
    command.current_dir(root()).env("PYTHONPATH", packages).env("CUDA_HOME", packages.join("cuda-home"))
}

/// Random programs, judged by a model of what CUDA promises about their order.
pub(crate) fn order(built: &Path, way: Way) -> Result<()> {
    let daemon = Daemon::for_way(built, way)?;
    let mut program = command(built.join("order"), built, way);
    program.envs(daemon.as_ref().map(Daemon::variable));
    // A launch in parts is several, and each is waited for.
    let programs = if matches!(way, Way::InParts) { "3000" } else { "10000" };
    program.args(["--programs", programs, "--driver"]).arg(way.library(built));
    summarised(&mut program, &format!("order-{way:?}"))
}

/// The same with graphs launched in segments.
pub(crate) fn order_in_segments(built: &Path) -> Result<()> {
    let mut program = command(built.join("order"), built, Way::Moving);
    program.env("DETSHARE_SEGMENT", "2").args(["--programs", "3000", "--seed", "2", "--driver"]);
    summarised(program.arg(built.join(build::SHIM)), "order-in-segments")
}

/// A program plainly and with another lane at every launch: byte for byte the same.
fn verified(built: &Path, program: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut detshare = command(built.join("detshare"), built, Way::Directly);
    detshare.args(["verify", "--"]).args(program).stderr(std::process::Stdio::null());
    detshare
}

/// Driver-API programs.
pub(crate) fn verify_driver_api(built: &Path) -> Result<()> {
    run(&mut verified(built, [built.join("vector_add")]))?;
    run(&mut verified(built, [built.join("managed_probe")]))
}

/// Numba's programs. In each run warps take turns in another order: a program that lets something leave the GPU that depends on it
/// then differs from itself at once, rather than from a moved run one day when the machine is busy.
pub(crate) fn verify_numba(packages: &Path, built: &Path) -> Result<()> {
    const IN_ANOTHER_ORDER: [&str; 4] = ["sh", "-c", "DETSHARE_SOFTGPU_ORDER=$$ exec \"$@\"", "sh"];
    let mut detshare = verified(built, IN_ANOTHER_ORDER.into_iter().chain(["python3"]).chain(NUMBA_PROGRAMS));
    run(numba_environment(&mut detshare, packages).env("NUMBA_CUDA_DRIVER", built.join(build::SHIM)))
}

/// Has every kernel checked, and ended if anything is found.
pub(crate) const CHECKED: (&str, &str) = ("DETSHARE_SOFTGPU_CHECK", "fail");

/// The same programs with every kernel checked, which fail if anything is found. (Those that are to fault do so first.)
pub(crate) fn checked(built: &Path) -> Result<()> {
    let cases = root().join("crates/softgpu/tests/instructions/cases");
    for (suite, arguments) in [("instructions", vec![cases]), ("conformance", Vec::new())] {
        let mut program = command(built.join(suite), built, Way::Directly);
        program.envs([CHECKED]).arg("--driver").arg(built.join(build::SOFTGPU)).args(arguments);
        summarised(&mut program, &format!("checked-{suite}"))?;
    }
    Ok(())
}

/// Programs on cudarc.
pub(crate) fn verify_cudarc(nvrtc: &Path, built: &Path) -> Result<()> {
    let path = cudarc_libraries(nvrtc, built, Way::ThroughShim)?;
    run(verified(built, [built.join("cudarc_programs")]).env("LD_LIBRARY_PATH", path))
}

/// NVRTC, for cudarc.
pub(crate) fn nvrtc() -> Result<PathBuf> {
    pypi::install(&NVRTC)
}

/// Programs on the cudarc crate, which knows nothing of us either; it looks for the driver by both names.
pub(crate) fn cudarc_programs(nvrtc: &Path, built: &Path, way: Way) -> Result<()> {
    let path = cudarc_libraries(nvrtc, built, way)?;
    let mut programs = command(built.join("cudarc_programs"), built, way);
    programs.env("LD_LIBRARY_PATH", path);
    in_that_way(way, || summarised(&mut programs, &format!("cudarc-{way:?}")))
}

/// Where cudarc finds the driver and NVRTC.
fn cudarc_libraries(nvrtc: &Path, built: &Path, way: Way) -> Result<OsString> {
    Ok(std::env::join_paths([driver_folder(built, way)?, nvrtc.join("nvidia/cuda_nvrtc/lib")])?)
}

/// A folder for the loader's search path that has the driver by both of its names, and the runtimes by theirs.
pub(crate) fn driver_folder(built: &Path, way: Way) -> Result<PathBuf> {
    let folder = target().join("driver").join(format!("{way:?}"));
    std::fs::create_dir_all(&folder)?;
    let driver = way.library(built);
    for (name, library) in [
        ("libcuda.so", driver.clone()),
        ("libcuda.so.1", driver),
        ("libcudart.so.12", built.join(build::CUDART_12)),
        ("libcudart.so.13", built.join(build::CUDART_13)),
    ] {
        replace_link(&folder.join(name), &library)?;
    }
    Ok(folder)
}

/// Makes a link that leads there, whatever was there before; who uses it meanwhile finds the old one or the new one.
pub(crate) fn replace_link(link: &Path, to: &Path) -> Result<()> {
    if std::fs::read_link(link).is_ok_and(|found| found == to) {
        return Ok(());
    }
    let new = link.with_extension(format!("new-{}", std::process::id()));
    std::os::unix::fs::symlink(to, &new)?;
    Ok(std::fs::rename(new, link)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_why_its_suite_failed() {
        let tests: String = (0..100).map(|test| format!("test {test} ... ok\n")).collect();
        let log = format!("first ... failed: here\n{tests}a difference\n101 tests, 1 failed");
        assert_eq!(summary(&log, true), "first ... failed: here\n101 tests, 1 failed");
        let shown = summary(&log, false);
        assert!(shown.starts_with("first ... failed: here\n[...]\ntest 22 ... ok\n"), "{shown}");
        assert!(shown.ends_with("test 99 ... ok\na difference\n101 tests, 1 failed"), "{shown}");
        assert_eq!(summary("a difference\n1 different", false), "a difference\n1 different");
        assert_eq!(summary("", false), "no test was run");
    }

    #[test]
    fn a_conformance_test_that_skips_itself_is_named() {
        let told = |verdict: &str| {
            let tests = serde_json::json!([
                { "name": "ipc::events", "verdict": "ok", "detail": "" },
                { "name": "ipc::memory", "verdict": verdict, "detail": "one device" },
            ]);
            serde_json::json!({ "tests": tests }).to_string()
        };
        let named = [("ipc::memory", "it wants two devices")];
        assert!(skipped_as_named(&told("ok"), &[]).is_ok());
        assert!(skipped_as_named(&told("skipped"), &named).is_ok());
        let unnamed = skipped_as_named(&told("skipped"), &[]).unwrap_err().to_string();
        assert!(unnamed.contains(r#"("ipc::memory", "one device")"#) && !unnamed.contains("events"), "{unnamed}");
        assert!(skipped_as_named(&told("ok"), &named).unwrap_err().to_string().contains("ipc::memory"));
        assert!(skipped_as_named("{}", &[]).is_err());
    }

    #[test]
    fn tests_that_were_skipped_or_not_found_are_noticed() {
        let told = |count: usize, end: &str| format!("..s\n-----\nRan {count} tests in 3.141s\n\n{end}\n");
        assert!(all_ran(&told(12, "OK"), 12).is_ok());
        assert!(all_ran(&told(12, "OK (skipped=1)"), 12).is_err());
        assert!(all_ran(&told(11, "OK"), 12).is_err());
        assert!(all_ran("", 12).is_err());
    }
}
