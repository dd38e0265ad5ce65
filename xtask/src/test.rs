//! `cargo xtask test`: everything that must hold, in the order in which it fails fastest.
//!
//! What needs no quiet runs side by side ([`crate::side_by_side`]); what has bounds in time runs alone, after it.

use crate::process::{cargo, root, run, target};
use crate::side_by_side::{self, Ended, Planned};
use crate::softgpu::{self, Way};
use crate::{block_level, build, generate, gpu_bundle, header, package, ptxas, samples, tenants};
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Tests of how tenants share and learn when steps are due: what they see depends on who else has the cores. They run alone.
const WANT_QUIET: [&str; 6] =
    ["sharing::", "tenants::", "llm::", "explain::", "bench::on_the_software_gpu", "bench::at_each_level"];

/// What of a step that runs beside others has not ended by then never will.
const HANGS_AFTER_S: &str = "600";

/// Counts what was run, for the closing line.
#[derive(Default)]
struct Steps {
    passed: usize,
    skipped: Vec<String>,
}

pub(crate) fn test() -> Result<()> {
    let started = Instant::now();
    let mut steps = Steps::default();
    // What others' programs need is fetched meanwhile; where that fails, the steps that need it say why.
    let fetched = std::thread::spawn(|| drop(fetches().map(|fetch| fetch())));
    steps.run("format", || run(cargo().args(["fmt", "--all", "--check"])))?;
    steps.run_side_by_side(builds(), cores())?;
    fetched.join().expect("it does not panic");
    // Of the tests many wait.
    steps.run_side_by_side(beside_others(), cores() + 1)?;
    for step in alone() {
        steps.run_or_skip(&step)?;
    }
    println!("== done in {} s", started.elapsed().as_secs());
    for what in &steps.skipped {
        println!("skipped: {what}");
    }
    println!("steps: {} passed, 0 failed, {} skipped", steps.passed, steps.skipped.len());
    Ok(())
}

/// One step alone, with what an earlier run has built.
pub(crate) fn step(name: &str) -> Result<()> {
    let all = || builds().into_iter().chain(beside_others()).chain(alone());
    let names = || all().map(|step| step.planned.name).collect::<Vec<_>>().join("\n");
    let step = all().find(|step| step.planned.name == name);
    (step.with_context(|| format!("there is no step {name:?}; there are:\n{}", names()))?.body)()
}

/// A step in a list of them.
struct Step {
    planned: Planned,
    /// What must be had for it; without it, it is skipped.
    needs: Option<fn() -> Result<()>>,
    /// Whether those beside it have only what it leaves of the cores.
    comes_first: bool,
    body: Box<dyn Fn() -> Result<()>>,
}

impl Step {
    fn new(name: impl Into<String>, body: impl Fn() -> Result<()> + 'static) -> Self {
        Self {
            planned: Planned { name: name.into(), after: None },
            needs: None,
            comes_first: false,
            body: Box::new(body),
        }
    }

    /// One for each of the ways.
    fn each<const N: usize>(ways: [Way; N], name: &str, body: fn(Way) -> Result<()>) -> [Self; N] {
        ways.map(|way| Self::new(format!("{name}, {way:?}"), move || body(way)))
    }

    fn after(mut self, name: &'static str) -> Self {
        self.planned.after = Some(name);
        self
    }

    fn comes_first(mut self) -> Self {
        self.comes_first = true;
        self
    }

    fn needs(mut self, what: fn() -> Result<()>) -> Self {
        self.needs = Some(what);
        self
    }
}

/// What is fetched for the steps below.
fn fetches() -> [fn() -> Result<()>; 5] {
    [
        || build::zig().map(drop),
        || samples::toolkit().map(drop),
        || ptxas::compilers().map(drop),
        || softgpu::numba().map(drop),
        || softgpu::nvrtc().map(drop),
    ]
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// All that is built. Cargo builds once at a time in each of its folders, and ends with what only one core can do: in another folder the
/// other one goes on.
fn builds() -> Vec<Step> {
    const LINTS: &str = "lints";
    const GENERATED: &str = "generated files are what the generator yields";
    const SHIPPED: &str = "build as it is shipped";
    let lints = || run(cargo().args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"]));
    let is_shipped = || build::zig().is_ok();
    vec![
        Step::new(LINTS, lints),
        Step::new(SHIPPED, || build::shipped().map(drop)).needs(|| build::zig().map(drop)),
        Step::new("tools", install_valgrind),
        Step::new(GENERATED, || generate::run(true)).after(LINTS).needs(|| header::cuda_include().map(drop)),
        Step::new("build of what tests it", move || build::for_tests(is_shipped())).after(SHIPPED),
        Step::new("build of the tests", || run(tests().arg("--no-run"))).after(GENERATED),
    ]
}

/// Steps that may run beside one another; those that take longest come first.
fn beside_others() -> Vec<Step> {
    const NVCC: &str = "samples: nvcc";
    const DIRECTLY: &str = "driver API on the software GPU, Directly";
    let ways = Way::ALL;
    let shimmed = [Way::ThroughShim, Way::Moving, Way::InParts, Way::AsTenant];
    let built = build::for_tests_folder;
    let compiled = || samples::compile(&samples::toolkit()?);
    let [zig, toolkit, compilers, numba, nvrtc] = fetches();
    let on_samples = |step: Step| step.after(NVCC).needs(toolkit);
    let on_numba = |step: Step| step.needs(numba);
    let on_nvrtc = |step: Step| step.needs(nvrtc);
    let mut steps = vec![
        // Processes in them wait for one another, and have to be there in time.
        Step::new("tests", || run(tests().arg("--").args(WANT_QUIET.iter().flat_map(|name| ["--skip", name]))))
            .comes_first(),
        Step::new(NVCC, move || compiled().map(drop)).needs(toolkit),
        Step::new("model checker", model_checker),
        Step::new("workloads, without a GPU or PyTorch", workloads),
        // The others compare with what it finds.
        Step::new(DIRECTLY, move || softgpu::conformance(&built(), Way::Directly)),
    ];
    steps
        .push(on_numba(Step::new("the same bits: Numba", move || softgpu::verify_numba(&softgpu::numba()?, &built()))));
    let on_software_gpu = "Numba on the software GPU";
    let programs = |way| softgpu::numba_programs(&softgpu::numba()?, &build::for_tests_folder(), way);
    steps.extend(Step::each(ways, on_software_gpu, programs).map(on_numba));
    let examples = |way| softgpu::numba_examples(&softgpu::numba()?, &build::for_tests_folder(), way);
    steps.extend(Step::each(ways, "examples of Numba's documentation", examples).map(on_numba));
    let checked = move || softgpu::numba_checked(&softgpu::numba()?, &built());
    steps.push(on_numba(Step::new("Numba, every kernel checked", checked)));
    let rewritten = || ptxas::accepts_versions(&ptxas::compilers()?);
    steps.push(Step::new("ptxas accepts rewritten kernels", rewritten).after(NVCC).needs(compilers));
    let joins = || ptxas::joins::are_as_we_say(&ptxas::joins::tools()?);
    let tools = || ptxas::joins::tools().map(drop);
    steps.push(Step::new("products and sums are joined as ptxas does", joins).after(NVCC).needs(tools));
    let conformance = |way| softgpu::conformance(&build::for_tests_folder(), way);
    let on_software_gpu = "driver API on the software GPU";
    steps.extend(Step::each(shimmed, on_software_gpu, conformance).map(|step| step.after(DIRECTLY)));
    steps.push(Step::new("the checker finds nothing in what is right", move || softgpu::checked(&built())));
    steps.push(Step::new("the driver's memory under valgrind", move || softgpu::leaks_of_memory(&built())));
    let order = |way| softgpu::order(&build::for_tests_folder(), way);
    steps.extend(Step::each(ways, "order on the software GPU", order));
    steps.extend(Step::each([Way::AsTenant], "order on the software GPU", order));
    steps.push(Step::new("order with graphs in segments", move || softgpu::order_in_segments(&built())));
    let instructions = |way| softgpu::instructions(&build::for_tests_folder(), way);
    steps.extend(Step::each(ways, "instructions on the software GPU", instructions));
    steps.extend([
        Step::new("matrix units round as a GPU's", move || softgpu::rounding(&built())),
        Step::new("approximations have a GPU's bits", move || softgpu::approximations(&built())),
        Step::new("generated kernels against their definition", move || softgpu::kernels_by_definition(&built())),
        Step::new("generated kernels on the software GPU", move || softgpu::kernel_fuzz(&built())),
        Step::new("kernels in parts", move || block_level::corpus(&built())),
        Step::new("kernels in parts: generated ones", move || block_level::fuzz(&built())),
        Step::new("kernels in parts: broken on purpose", move || block_level::mutants(&built())),
        Step::new("the same bits: driver API", move || softgpu::verify_driver_api(&built())),
    ]);
    steps.push(on_samples(Step::new("samples: as a person starts them", move || {
        samples::started_by_detshare(&samples::toolkit()?, &compiled()?, &built())
    })));
    let samples = |way| samples::check(&samples::compile(&samples::toolkit()?)?, &build::for_tests_folder(), way);
    steps.extend(Step::each(ways, "samples on the software GPU", samples).map(on_samples));
    let checked = move || samples::check_checked(&compiled()?, &built());
    steps.push(on_samples(Step::new("samples, every kernel checked", checked)));
    let same_bits = move || softgpu::verify_cudarc(&softgpu::nvrtc()?, &built());
    steps.push(on_nvrtc(Step::new("the same bits: cudarc", same_bits)));
    let cudarc = |way| softgpu::cudarc_programs(&softgpu::nvrtc()?, &build::for_tests_folder(), way);
    steps.extend(Step::each(ways, "cudarc and NVRTC on the software GPU", cudarc).map(on_nvrtc));
    steps.push(Step::new("package", move || package::lay_out(&built(), &target().join("package"))));
    steps.push(Step::new("GPU bundle", gpu_bundle_runs).after(NVCC).needs(zig));
    steps
}

/// Steps with bounds in time, or of how tenants share: each runs with the machine to itself.
fn alone() -> Vec<Step> {
    let built = build::for_tests_folder;
    // On a machine that others use, one that is woken late now and then is no failure; `bench --tenants` allows none.
    const CHAOS: [&str; 7] =
        ["chaos", "--rounds", "1000", "--seed", "1", "--mostly-within-ms", tenants::SURVIVORS_GO_ON_MS];
    vec![
        Step::new("tests of how tenants share", || run(tests().args(["--tests", "--"]).args(WANT_QUIET))),
        Step::new("tenants: chaos", move || softgpu::chaos(&built(), &CHAOS)),
        Step::new("tenants: a crowd", move || softgpu::chaos(&built(), &["crowd", "--waves", "1"])),
        Step::new("tenants: coming and going", move || softgpu::chaos(&built(), &["churn"])),
        Step::new("tenants: the GPU's scripts", move || tenants::scripts(&built())),
        Step::new("tenants: a page that lies", move || {
            softgpu::chaos(&built(), &["hostile", "--tenants", "6", "--liars", "1"])
        }),
        Step::new("kernels in parts beside a server", move || {
            block_level::sharing(&built(), &samples::compile(&samples::toolkit()?)?)
        })
        .needs(|| samples::toolkit().map(drop)),
        Step::new("demo", demo_without_cargo),
    ]
}

/// All tests of the workspace.
fn tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--quiet", "--workspace"]).env("DETSHARE_BUILT", build::for_tests_folder());
    command
}

impl Steps {
    fn run<T>(&mut self, name: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("== {name}");
        let started = Instant::now();
        let result = body().with_context(|| format!("failed: {name}"))?;
        println!("   {name}: {:.1} s", started.elapsed().as_secs_f64());
        self.passed += 1;
        Ok(result)
    }

    fn run_or_skip(&mut self, step: &Step) -> Result<()> {
        if self.can_run(step) { self.run(&step.planned.name, &step.body) } else { Ok(()) }
    }

    fn run_side_by_side(&mut self, steps: Vec<Step>, at_once: usize) -> Result<()> {
        let steps: Vec<_> = steps.into_iter().filter(|step| self.can_run(step)).collect();
        let gives_way = |step: &Step| !step.comes_first && steps.iter().any(|other| other.comes_first);
        let give_way: Vec<_> = steps.iter().map(gives_way).collect();
        let planned: Vec<_> = steps.into_iter().map(|step| step.planned).collect();
        println!("== {} steps, {at_once} at once", planned.len());
        let logs = target().join("steps");
        std::fs::create_dir_all(&logs)?;
        let started = Instant::now();
        let run_step = |index: usize| {
            // This program, also after another of its name was built in its place.
            let program = format!("/proc/{}/exe", std::process::id());
            let mut command = Command::new(if give_way[index] { "nice" } else { &program });
            if give_way[index] {
                command.args(["-n", "19", &program]);
            }
            command.args(["test", "--step", &planned[index].name]).env("DETSHARE_HANGS_AFTER_S", HANGS_AFTER_S);
            side_by_side::in_a_process(&mut command, &logs.join(format!("{index}.log")))
        };
        let show = |step: &Planned, ended: &Ended| {
            let verdict = if ended.passed { "" } else { "failed after " };
            print!("== {}\n{}", step.name, ended.said);
            println!("   {}: {verdict}{:.1} s", step.name, ended.took.as_secs_f64());
        };
        let (passed, failed) = side_by_side::run(&planned, at_once, run_step, show);
        println!("   all {passed} of them: {:.1} s", started.elapsed().as_secs_f64());
        self.passed += passed;
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }

    fn can_run(&mut self, step: &Step) -> bool {
        match step.needs.map_or(Ok(()), |needs| needs()) {
            Ok(()) => true,
            Err(error) => {
                self.skip(&step.planned.name, &error);
                false
            }
        }
    }

    fn skip(&mut self, name: &str, reason: &anyhow::Error) {
        self.skipped.push(format!("{name}: {reason:#}"));
    }
}

/// What of them can be tested anywhere; the rest says that it is skipped.
fn workloads() -> Result<()> {
    run(Command::new("python3").args(["-m", "unittest", "discover", "workloads/tests"]).current_dir(root()))
}

/// In a build folder of its own: the flag would rebuild everything else.
fn model_checker() -> Result<()> {
    // Names of tests are those of one package alone: others have some of the same name.
    let tests: [(&str, &[&str]); 3] = [
        ("detshare-board", &["models"]),
        ("detshare-shim", &["published", "handles", "unfinished", "freedom"]),
        ("detshare-softgpu", &["done"]),
    ];
    for (package, tests) in tests {
        run(cargo()
            .args(["test", "--quiet", "--profile", "models", "--package", package])
            .args(tests.iter().flat_map(|test| ["--test", test]))
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", target().join("loom")))?;
    }
    Ok(())
}

fn bundle() -> PathBuf {
    target().join("gpu-bundle")
}

/// Puts the bundle together and starts its script; without a GPU that counts its checks as skipped.
fn gpu_bundle_runs() -> Result<()> {
    gpu_bundle::lay_out(&build::for_tests_folder(), &bundle())?;
    run(Command::new("python3").arg("run.py").arg("--out").arg(target().join("gpu-results")).current_dir(bundle()))
}

/// As a machine without cargo runs it: from the bundle, where there is one.
fn demo_without_cargo() -> Result<()> {
    let programs = if build::zig().is_ok() { bundle().join("bin") } else { build::for_tests_folder() };
    run(Command::new(programs.join("xtask")).args(["demo", "--built"]).arg(&programs))
}

/// The memory checker that a test runs under; it is on most machines that build software.
fn install_valgrind() -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    println!("installing valgrind");
    run(Command::new("apt-get").args(["update", "-qq"]).current_dir(root()))?;
    run(Command::new("apt-get").args(["install", "-y", "-qq", "valgrind"]).current_dir(root()))
        .context("install valgrind: a test runs the shim under it")
}
