//! Which products and sums the compiler joins, compared with what `detshare_ptx::joined` says of them.
//!
//! Each instruction of a module gets a line of its own, and the disassembler says of machine code which line it came
//! from: a sum that is joined has become an `fma`, another one has not, and of a product that is left out nothing is there.

use super::sources;
use crate::process::target;
use crate::pypi;
use crate::samples::{self, in_parallel};
use anyhow::{Context, Result, ensure};
use detshare_ptx::ast::{Instruction, Item, Module, Statement};
use detshare_ptx::joined::Joined;
use detshare_ptx::parse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// It reads what any release's compiler wrote.
const DISASSEMBLER: &str = "nvidia-cuda-nvdisasm==13.4.92";

/// What a driver for CUDA 13.0 takes, and the architecture of its H200.
const NEWEST_PTX: (u32, u32) = (9, 0);
const ARCHITECTURE: u32 = 90;

/// The compiler of a driver for CUDA 13.0, and the disassembler.
pub(crate) struct Tools {
    ptxas: PathBuf,
    nvdisasm: PathBuf,
}

pub(crate) fn tools() -> Result<Tools> {
    let ptxas = samples::toolkit()?.join("bin/ptxas");
    Ok(Tools { ptxas, nvdisasm: pypi::install(&[DISASSEMBLER])?.join("nvidia/cu13/bin/nvdisasm") })
}

/// What became of a module's sums.
#[derive(Default)]
struct Found {
    /// Those of which something is left in the machine code.
    sums: usize,
    joined: usize,
    /// Loops that the compiler has unrolled: it joins a sum in some of the copies, and nobody can say in which.
    both: usize,
    differ: Vec<String>,
}

/// What we say of a line's instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Sum { is_joined: bool },
    ProductLeftOut,
}

/// Compiles all modules of the tests and of the samples.
pub(crate) fn are_as_we_say(tools: &Tools) -> Result<()> {
    let out = target().join("ptxas/joins");
    std::fs::create_dir_all(&out)?;
    let found = in_parallel(sources()?, |(name, source)| {
        look_at(tools, &name, &source, &out).with_context(|| format!("module {name}"))
    })?;
    let sum = |of: fn(&Found) -> usize| found.iter().map(of).sum::<usize>();
    let differ: Vec<&str> = found.iter().flat_map(|found| &found.differ).map(String::as_str).collect();
    println!("{} sums, {} of them joined; {} otherwise", sum(|it| it.sums), sum(|it| it.joined), differ.len());
    println!("{} are joined in some copies of a loop, and not by us", sum(|it| it.both));
    ensure!(differ.is_empty(), "{}", differ.join("\n"));
    Ok(())
}

fn look_at(tools: &Tools, name: &str, source: &str, out: &Path) -> Result<Found> {
    let module = parse(source)?;
    let mut said = BTreeMap::new();
    let text = with_lines(&module, source, &mut said);
    if said.is_empty() || !is_for_architecture(&module) {
        return Ok(Found::default());
    }
    let (ptx, machine_code) = (out.join(name), out.join(name).with_extension("cubin"));
    std::fs::write(&ptx, text)?;
    let compiled = Command::new(&tools.ptxas)
        .args(["--generate-line-info", "--compile-only", "--gpu-name", &format!("sm_{ARCHITECTURE}"), "--output-file"])
        .args([&machine_code, &ptx])
        .output()?;
    // What no compiler takes is other tests' business.
    if !compiled.status.success() {
        return Ok(Found::default());
    }
    let listing =
        Command::new(&tools.nvdisasm).args(["--print-code", "--print-line-info"]).arg(&machine_code).output()?;
    ensure!(listing.status.success(), "nvdisasm: {}", String::from_utf8_lossy(&listing.stderr));
    let lines = arithmetic(&String::from_utf8_lossy(&listing.stdout));
    let mut found = Found::default();
    for (line, (instruction, said)) in said {
        let Some(became) = lines.get(&line) else { continue };
        let (right, words) = match said {
            Said::Sum { is_joined } => {
                let wanted = if is_joined { Became::Fma } else { Became::Sum };
                found.sums += 1;
                found.joined += usize::from(is_joined);
                found.both += usize::from(!is_joined && became.contains(&Became::Fma) && became.contains(&wanted));
                (became.contains(&wanted), if is_joined { "is joined" } else { "is not joined" })
            }
            Said::ProductLeftOut => (!became.contains(&Became::Product), "is left out"),
        };
        if !right {
            let at = detshare_ptx::line_column(source, instruction.span.start).0;
            let text = source.get(instruction.span.start as usize..instruction.span.end as usize).unwrap_or_default();
            found.differ.push(format!("{name}, line {at}: we say that '{text}' {words}, the compiler has {became:?}"));
        }
    }
    Ok(found)
}

fn is_for_architecture(module: &Module) -> bool {
    let target = module.targets.iter().find_map(|it| it.strip_prefix("sm_"));
    let oldest = target.and_then(|it| it.parse::<u32>().ok());
    oldest.is_some_and(|oldest| oldest <= ARCHITECTURE) && module.version <= NEWEST_PTX
}

/// The source with a line for each instruction, and what we say of sums and products by their lines.
fn with_lines<'m>(module: &'m Module, source: &str, said: &mut BTreeMap<usize, (&'m Instruction, Said)>) -> String {
    let mut all = Vec::new();
    for item in &module.items {
        if let Item::Function(function) = item {
            let joined = Joined::of(function);
            let mut instructions = Vec::new();
            collect(function.body.as_deref().unwrap_or_default(), &mut instructions);
            all.extend(instructions.into_iter().map(|it| {
                let said = match it.opcode.as_str() {
                    "mul" if joined.is_gone(it) => Some(Said::ProductLeftOut),
                    _ if is_sum(it) => Some(Said::Sum { is_joined: joined.sum(it).is_some() }),
                    _ => None,
                };
                (it, said)
            }));
        }
    }
    let mut text = String::new();
    let mut end = 0;
    for (line, (instruction, is_said)) in (1..).zip(all) {
        said.extend(is_said.map(|is_said| (line, (instruction, is_said))));
        let start = instruction.span.start as usize;
        text.push_str(source.get(end..start).unwrap_or_default());
        let _ = write!(text, "\n.loc 1 {line} 0\n");
        end = start;
    }
    text.push_str(source.get(end..).unwrap_or_default());
    text.push_str("\n.file 1 \"lines\"\n");
    text
}

fn collect<'m>(statements: &'m [Statement], all: &mut Vec<&'m Instruction>) {
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => all.push(instruction),
            Statement::Block(statements) => collect(statements, all),
            _ => {}
        }
    }
}

fn is_sum(instruction: &Instruction) -> bool {
    const TYPES: [&str; 6] = ["f32", "f64", "f16", "bf16", "f16x2", "bf16x2"];
    const ROUNDINGS: [&str; 4] = ["rn", "rz", "rm", "rp"];
    let has = |names: &[&str]| instruction.modifiers.iter().any(|it| names.contains(&it.as_str()));
    matches!(instruction.opcode.as_str(), "add" | "sub") && has(&TYPES) && !has(&ROUNDINGS)
}

/// What arithmetic has become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Became {
    Sum,
    Product,
    Fma,
}

/// For each line what its arithmetic has become. A line has several where the compiler has copied it.
fn arithmetic(listing: &str) -> BTreeMap<usize, Vec<Became>> {
    let mut lines: BTreeMap<usize, Vec<Became>> = BTreeMap::new();
    let mut line = 0;
    for text in listing.lines() {
        if let Some((_, rest)) = text.split_once("//## File \"lines\", line ") {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            line = digits.parse().unwrap_or(0);
        } else if let Some((_, code)) = text.split_once("*/") {
            let opcode = code.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
            let what = match opcode.split('.').next().unwrap_or_default() {
                // Halves are multiplied and added by whichever unit has time, and signs are changed by adding nothing.
                "HFMA2" if code.contains(", 1, 1, ") => Became::Sum,
                "HFMA2" | "FADD" | "HADD2" if code.contains(", -RZ") => continue,
                "FFMA" | "DFMA" | "HFMA2" => Became::Fma,
                "FADD" | "DADD" | "HADD2" => Became::Sum,
                "FMUL" | "DMUL" | "HMUL2" => Became::Product,
                _ => continue,
            };
            let became = lines.entry(line).or_default();
            if !became.contains(&what) {
                became.push(what);
            }
        }
    }
    lines
}
