//! How long a megabyte of PTX takes to parse, to rewrite for block level, and to load into the software GPU.
//!
//! The text is one module: a compiler's kernel, again and again under other names.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use detshare_bench::cu;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUmodule};
use serde_json::json;
use std::ffi::CString;
use std::path::PathBuf;
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
    /// Rounds; the median counts
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Fail if a megabyte takes longer to parse and rewrite than is asked for
    #[arg(long)]
    check: bool,
}

const BYTES: usize = 1_000_000;
/// Seconds that a megabyte may take until its versions are written: a program is to have them soon after its start.
const MOST_SECONDS: f64 = 1.0;
/// What NVRTC makes of two kernels.
const SOURCE: &str = include_str!("../../../crates/ptx/tests/corpus/matmul.nvrtc_sm_70.ptx");
/// Where the module's head ends.
const HEAD: &str = ".address_size 64";

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let text = text()?;
    let parse = median(arguments.rounds, || {
        let start = Instant::now();
        let module = detshare_ptx::parse(&text)?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(module.items.len() > 10, "the module has its functions");
        Ok(seconds)
    })?;
    let module = detshare_ptx::parse(&text)?;
    let rewrite = median(arguments.rounds, || {
        let start = Instant::now();
        let rewritten = detshare_ptx::block_level::rewrite(&module, &text);
        let seconds = start.elapsed().as_secs_f64();
        let is_whole = rewritten.kernels.iter().all(|kernel| kernel.sliced.is_ok() && kernel.preemptible.is_ok());
        ensure!(is_whole && rewritten.kernels.len() > 10, "all kernels have their versions");
        Ok(seconds)
    })?;
    let driver = Driver::open(&arguments.driver, Visibility::Local)?;
    cu!(driver, cuInit(0))?;
    let mut context = CUcontext(core::ptr::null_mut());
    cu!(driver, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)))?;
    cu!(driver, cuCtxSetCurrent(context))?;
    let image = CString::new(text.as_str())?;
    let load = median(arguments.rounds, || {
        let mut module = CUmodule(core::ptr::null_mut());
        let start = Instant::now();
        cu!(driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast()))?;
        let seconds = start.elapsed().as_secs_f64();
        cu!(driver, cuModuleUnload(module))?;
        Ok(seconds)
    })?;
    #[allow(clippy::cast_precision_loss, reason = "a megabyte")]
    let megabytes = text.len() as f64 / 1e6;
    let [parse_ms, rewrite_ms, load_ms] = [parse, rewrite, load].map(|seconds| seconds * 1e3);
    let summary = format!(
        "{megabytes:.2} MB of PTX: {parse_ms:.1} ms to parse, {rewrite_ms:.1} ms to rewrite, {load_ms:.1} ms to load"
    );
    println!("{summary}");
    if let Some(out) = arguments.out {
        let figures = json!({
            "summary": summary,
            "megabytes": megabytes,
            "parse_seconds": parse,
            "rewrite_seconds": rewrite,
            "load_seconds": load,
        });
        std::fs::write(out, figures.to_string())?;
    }
    let each = (parse + rewrite) / megabytes;
    ensure!(
        !arguments.check || each <= MOST_SECONDS,
        "a megabyte takes {each:.2} s, and {MOST_SECONDS} s are asked for"
    );
    Ok(())
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
