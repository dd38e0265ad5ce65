//! What block level does to a tenant's kernels, for people.

use crate::quantity;
use crate::table::{self, Align};
use detshare_api::{BlockLevel, MeasuredShape, RewrittenModule};

const HEADINGS: [(&str, Align); 8] = [
    ("kernel", Align::Left),
    ("blocks", Align::Right),
    ("launches", Align::Right),
    ("gave way", Align::Right),
    ("version", Align::Left),
    ("takes", Align::Right),
    ("gives way in", Align::Right),
    ("why", Align::Left),
];

/// Shapes first, then kernels that stay as they are.
pub(super) fn for_people(block_level: &BlockLevel) -> String {
    let BlockLevel { turnaround_ns, modules, shapes } = block_level;
    let mut text = if *turnaround_ns == 0 {
        "\nblock level: nobody to give way to; its kernels run as they are\n".to_string()
    } else {
        format!("\nblock level: kernels are to give way within {}\n", quantity::nanoseconds(*turnaround_ns))
    };
    if !shapes.is_empty() {
        text.push_str(&table::columns(HEADINGS, &shapes.iter().flat_map(rows).collect::<Vec<_>>()));
    }
    modules.iter().for_each(|module| describe(module, &mut text));
    text
}

/// The version that runs in the first line, and what was measured of others below.
fn rows(shape: &MeasuredShape) -> Vec<[String; HEADINGS.len()]> {
    let time = |ns: u64| if ns == 0 { "-".to_string() } else { quantity::nanoseconds(ns) };
    let kernel = table::harmless(&shape.kernel).chars().take(40).collect();
    let chosen = shape.versions.iter().find(|version| version.version == shape.chosen);
    let first = [
        kernel,
        shape.blocks.to_string(),
        shape.launches.to_string(),
        shape.preempted.to_string(),
        table::harmless(&shape.chosen),
        time(chosen.map_or(0, |version| version.took_ns)),
        time(chosen.map_or(0, |version| version.turnaround_ns)),
        table::harmless(&shape.because),
    ];
    let others = shape.versions.iter().filter(|version| version.version != shape.chosen).map(|version| {
        let mut row = [const { String::new() }; HEADINGS.len()];
        row[4] = table::harmless(&version.version);
        row[5] = time(version.took_ns);
        row[6] = time(version.turnaround_ns);
        row
    });
    std::iter::once(first).chain(others).collect()
}

fn describe(module: &RewrittenModule, text: &mut String) {
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    if let Some(reason) = &module.refused {
        line(format!("a module stays as it is: {}", table::harmless(reason)));
    }
    module.notes.iter().for_each(|note| line(format!("a module: {}", table::harmless(note))));
    for kernel in &module.kernels {
        let name = table::harmless(&kernel.name);
        let [original, versions @ ..] = kernel.registers;
        if let Some(more) = versions.into_iter().max().filter(|count| holds_fewer_blocks(original, *count)) {
            line(format!(
                "{name}: a version has {more} registers instead of {original}, so fewer of its blocks may fit"
            ));
        }
        match (&kernel.sliced, &kernel.preemptible) {
            (None, None) => {}
            (Some(reason), Some(_)) => line(format!("{name} stays as it is: {}", table::harmless(reason))),
            (None, Some(reason)) => line(format!("{name} can only be sliced: {}", table::harmless(reason))),
            (Some(reason), None) => line(format!("{name} cannot be sliced: {}", table::harmless(reason))),
        }
    }
}

/// Whether an SM may hold fewer blocks of a kernel with so many registers in place of the original's: they are given out in
/// portions, and few enough leave room for all threads anyway.
const fn holds_fewer_blocks(original: u32, count: u32) -> bool {
    const PORTION: u32 = 8;
    const FEW: u32 = 32;
    original != 0 && count > FEW && count.div_ceil(PORTION) > original.div_ceil(PORTION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use detshare_api::{MeasuredVersion, RewrittenKernel};

    #[test]
    fn the_version_that_runs_comes_first_and_refusals_last() {
        let version = |name: &str, took_ns, turnaround_ns| MeasuredVersion {
            version: name.to_string(),
            took_ns,
            measured: 3,
            turnaround_ns,
        };
        let shape = MeasuredShape {
            kernel: "matmul".to_string(),
            blocks: 4096,
            launches: 60,
            preempted: 5,
            chosen: "preemptible, 2 blocks per SM".to_string(),
            because: "the fastest that gives way in time".to_string(),
            versions: vec![
                version("original", 4_000_000, 4_000_000),
                version("preemptible, 2 blocks per SM", 4_100_000, 21_000),
            ],
        };
        let kernel = |name: &str, sliced: Option<&str>, preemptible: Option<&str>| RewrittenKernel {
            name: name.to_string(),
            registers: if name == "matmul" { [64, 64, 102] } else { [20, 24, 24] },
            sliced: sliced.map(str::to_string),
            preemptible: preemptible.map(str::to_string),
        };
        let kernels = vec![
            kernel("matmul", None, None),
            kernel("meet", Some("blocks wait for each other, line 7"), Some("x")),
            kernel("early", None, Some("threads leave early, line 9")),
        ];
        let modules = vec![
            RewrittenModule { refused: None, notes: vec!["its entry in the cache was corrupt".to_string()], kernels },
            RewrittenModule {
                refused: Some("its PTX is not\u{1b} understood".to_string()),
                notes: vec![],
                kernels: vec![],
            },
        ];
        let text = for_people(&BlockLevel { turnaround_ns: 32_000, modules, shapes: vec![shape] });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "block level: kernels are to give way within 32.0 us");
        assert!(lines[3].starts_with("matmul") && lines[3].contains("preemptible, 2 blocks per SM"), "{text}");
        assert!(lines[4].trim_start().starts_with("original"), "{text}");
        assert_eq!(lines[5], "a module: its entry in the cache was corrupt");
        assert_eq!(lines[6], "matmul: a version has 102 registers instead of 64, so fewer of its blocks may fit");
        assert_eq!(lines[7], "meet stays as it is: blocks wait for each other, line 7");
        assert_eq!(lines[8], "early can only be sliced: threads leave early, line 9");
        assert!(lines[9].starts_with("a module stays as it is: ") && !lines[8].contains('\u{1b}'), "{text}");
    }
}
