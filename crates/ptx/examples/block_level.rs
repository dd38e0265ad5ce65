//! Shows what becomes of a PTX file's kernels: `block_level FILE.ptx [OUT.ptx]`.

use detshare_ptx::{block_level, parse};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let source = std::fs::read_to_string(arguments.next().ok_or("usage: block_level FILE.ptx [OUT.ptx]")?)?;
    let started = Instant::now();
    let module = parse(&source)?;
    let rewritten = block_level::rewrite(&module, &source);
    let took = started.elapsed();
    for kernel in &rewritten.kernels {
        for (version, result) in [("sliced", &kernel.sliced), ("preemptible", &kernel.preemptible)] {
            match result {
                Ok(it) if it.whole_rows => println!("{}: {version}, with whole rows of warps", kernel.name),
                Ok(_) => println!("{}: {version}", kernel.name),
                Err(refusal) => println!("{}: not {version}: {refusal}", kernel.name),
            }
        }
    }
    println!("{} bytes parsed and rewritten in {:.1} ms", source.len(), took.as_secs_f64() * 1e3);
    match (arguments.next(), rewritten.source) {
        (Some(out), Some(text)) => Ok(std::fs::write(out, text)?),
        _ => Ok(()),
    }
}
