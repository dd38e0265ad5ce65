//! How long a megabyte of PTX takes to parse, to rewrite for block level, and to load into the software GPU.
//!
//! The text is one module: a compiler's kernel, again and again under other names. With `--corpus` also what compilers made
//! of many programs, file by file: small modules with all that there is in PTX.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use detshare_bench::cu;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUmodule};
use serde_json::{Value, json};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Parser)]
#[command(about = "Seconds that a megabyte of PTX takes to parse, to rewrite and to load")]
struct Arguments {
    /// The software GPU's library
    #[arg(long)]
    driver: PathBuf,
    /// Where to write the figures as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// A folder of PTX files that are measured as well
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Fail if a megabyte takes longer to parse, or to parse and rewrite, than is asked for
    #[arg(long)]
    check: bool,
}

const BYTES: usize = 1_000_000;
/// Seconds that a megabyte may take to parse: every module that a program loads is parsed before the call returns.
const MOST_PARSE_SECONDS: f64 = 0.2;
/// Seconds that a megabyte may take until its versions are written: a program is to have them soon after its start.
const MOST_SECONDS: f64 = 1.0;
/// What NVRTC makes of two kernels.
const SOURCE: &str = include_str!("../../../crates/ptx/tests/corpus/matmul.nvrtc_sm_70.ptx");
/// Where the module's head ends.
const HEAD: &str = ".address_size 64";

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let driver = Driver::open(&arguments.driver, Visibility::Local)?;
    cu!(driver, cuInit(0))?;
    let mut context = CUcontext(core::ptr::null_mut());
    cu!(driver, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)))?;
    cu!(driver, cuCtxSetCurrent(context))?;
    let text = text()?;
    let module = detshare_ptx::parse(&text)?;
    let versions = detshare_ptx::block_level::rewrite(&module, &text);
    let is_whole = versions.kernels.iter().all(|kernel| kernel.sliced.is_ok() && kernel.preemptible.is_ok());
    ensure!(is_whole && versions.kernels.len() > 10, "all kernels have their versions");
    let megabyte = measure(&driver, arguments.rounds, &[text])?;
    let mut figures = json!({ "megabyte": megabyte });
    if let Some(corpus) = &arguments.corpus {
        figures["corpus"] = measure(&driver, arguments.rounds, &files(corpus)?)?;
    }
    if let Some(out) = arguments.out {
        std::fs::write(out, figures.to_string())?;
    }
    let of = |what: &str| figures["megabyte"][what].as_f64().context("a number");
    let parse = of("parse_seconds")? / of("megabytes")?;
    let both = parse + of("rewrite_seconds")? / of("megabytes")?;
    for (what, taken, most) in [("parse", parse, MOST_PARSE_SECONDS), ("parse and rewrite", both, MOST_SECONDS)] {
        ensure!(
            !arguments.check || taken <= most,
            "a megabyte takes {taken:.2} s to {what}, and {most} s are asked for"
        );
    }
    Ok(())
}

/// The PTX files of a folder.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut paths = std::fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    paths.sort();
    paths.iter().map(|path| Ok(std::fs::read_to_string(path)?)).collect()
}

/// Seconds that loading a module takes.
fn load(driver: &Driver, image: &CStr) -> Result<f64> {
    let mut module = CUmodule(core::ptr::null_mut());
    let start = Instant::now();
    cu!(driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast()))?;
    let seconds = start.elapsed().as_secs_f64();
    cu!(driver, cuModuleUnload(module))?;
    Ok(seconds)
}

/// What all of these texts take together, one after the other.
fn measure(driver: &Driver, rounds: usize, texts: &[String]) -> Result<Value> {
    let parse = median(rounds, || {
        let start = Instant::now();
        for text in texts {
            ensure!(!detshare_ptx::parse(text)?.items.is_empty(), "the module has its functions");
        }
        Ok(start.elapsed().as_secs_f64())
    })?;
    let modules = texts.iter().map(|text| Ok((detshare_ptx::parse(text)?, text))).collect::<Result<Vec<_>>>()?;
    let rewrite = median(rounds, || {
        let start = Instant::now();
        for (module, text) in &modules {
            core::hint::black_box(detshare_ptx::block_level::rewrite(module, text));
        }
        Ok(start.elapsed().as_secs_f64())
    })?;
    let mut images = texts.iter().map(|text| Ok(CString::new(text.as_str())?)).collect::<Result<Vec<_>>>()?;
    // Of newer compilers than a driver for CUDA 13.0, or parts of larger programs: these are not loaded.
    images.retain(|image| load(driver, image).is_ok());
    ensure!(!images.is_empty(), "nothing can be loaded");
    let load = median(rounds, || images.iter().map(|image| load(driver, image)).sum())?;
    #[allow(clippy::cast_precision_loss, reason = "some megabytes")]
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    let all = megabytes(texts.iter().map(String::len).sum());
    let loaded = megabytes(images.iter().map(|image| image.count_bytes()).sum());
    let [parse_ms, rewrite_ms, load_ms] = [parse, rewrite, load].map(|seconds| seconds * 1e3);
    let summary = format!(
        "{all:.2} MB of PTX in {} modules: {parse_ms:.1} ms to parse, {rewrite_ms:.1} ms to rewrite; {loaded:.2} MB in {}: \
         {load_ms:.1} ms to load",
        texts.len(),
        images.len()
    );
    println!("{summary}");
    Ok(json!({
        "summary": summary,
        "modules": texts.len(),
        "megabytes": all,
        "loaded_modules": images.len(),
        "loaded_megabytes": loaded,
        "parse_seconds": parse,
        "rewrite_seconds": rewrite,
        "load_seconds": load,
    }))
}

/// A module of a megabyte.
fn text() -> Result<String> {
    let (head, body) = SOURCE.split_once(HEAD).context("compilers write the address size")?;
    let names: Vec<String> = detshare_ptx::parse(SOURCE)?
        .items
        .into_iter()
        .filter_map(|item| match item {
            detshare_ptx::ast::Item::Function(function) => Some(function.name),
            detshare_ptx::ast::Item::Variable(variable) => {
                variable.declarators.into_iter().next().map(|declarator| declarator.name)
            }
            detshare_ptx::ast::Item::Directive(_) => None,
        })
        .collect();
    let mut text = format!("{head}{HEAD}\n");
    for copy in 0.. {
        if text.len() >= BYTES {
            break;
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_$".contains(&byte);
        // Word by word, so that a name within another stays.
        let mut rest = body;
        while !rest.is_empty() {
            let length = rest.bytes().take_while(|byte| is_name(*byte)).count();
            let (word, after) = rest.split_at(length.max(rest.chars().next().map_or(1, char::len_utf8)));
            text.push_str(word);
            if names.iter().any(|name| name == word) {
                text.push_str(&format!("_{copy}"));
            }
            rest = after;
        }
    }
    Ok(text)
}

fn median(rounds: usize, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut seconds = (0..rounds).map(|_| measure()).collect::<Result<Vec<_>>>()?;
    seconds.sort_by(f64::total_cmp);
    seconds.get(rounds / 2).copied().context("at least one round")
}
