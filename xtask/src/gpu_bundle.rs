//! `cargo xtask gpu-bundle DIR`: all that a GPU machine without Rust needs to check DetShare.

use crate::build;
use crate::process::root;
use anyhow::{Context, Result};
use std::path::Path;

const PROGRAMS: [&str; 4] = ["surface", "call_cost", "vector_add", build::STUB_DRIVER];

/// The programs' checks; `run.py` fills in what stands in braces.
const CHECKS: &str = r#"[
 {"name": "surface_exports", "timeout_s": 60,
  "command": ["bin/surface", "--shim", "{shim}", "--driver", "{driver}", "--out", "{out}", "exports"]},
 {"name": "surface_answers", "timeout_s": 120,
  "command": ["bin/surface", "--shim", "{shim}", "--driver", "{driver}", "--out", "{out}", "answers"]},
 {"name": "vector_add", "timeout_s": 60, "command": ["bin/vector_add"]},
 {"name": "vector_add_shim", "timeout_s": 60, "command": ["env", "LD_PRELOAD={shim}", "bin/vector_add"]},
 {"name": "cost_forward", "timeout_s": 60,
  "command": ["bin/call_cost", "forward", "--shim", "{shim}", "--driver", "{stub}", "--out", "{out}", "--calls", "10000",
              "--added-at-most", "15"]},
 {"name": "cost_observed", "timeout_s": 60,
  "command": ["bin/call_cost", "observed", "--shim", "{shim}", "--driver", "{stub}", "--out", "{out}", "--calls", "10000",
              "--added-at-most", "15"]},
 {"name": "cost_launch", "timeout_s": 120,
  "command": ["bin/call_cost", "launch", "--shim", "{shim}", "--driver", "{driver}", "--out", "{out}", "--batches", "2000",
              "--ratio-at-most", "1.02"]},
 {"name": "cost_launch_again", "timeout_s": 120,
  "command": ["bin/call_cost", "launch", "--shim", "{shim}", "--driver", "{driver}", "--out", "{out}", "--batches", "2000",
              "--ratio-at-most", "1.02"]}
]
"#;

pub(crate) fn run(folder: &Path) -> Result<()> {
    let built = build::portable()?;
    for inner in ["lib", "bin", "workloads"] {
        let inner = folder.join(inner);
        std::fs::create_dir_all(&inner).with_context(|| format!("cannot make {}", inner.display()))?;
    }
    for name in [build::SHIM, "libcuda.so.1"] {
        std::fs::copy(built.join(build::SHIM), folder.join("lib").join(name))?;
    }
    for name in PROGRAMS {
        std::fs::copy(built.join(name), folder.join("bin").join(name))?;
    }
    std::fs::write(folder.join("bin/checks.json"), CHECKS)?;
    std::fs::copy(root().join("bench/gpu/run.py"), folder.join("run.py"))?;
    for entry in std::fs::read_dir(root().join("workloads"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "py") {
            std::fs::copy(&path, folder.join("workloads").join(path.file_name().context("a file has a name")?))?;
        }
    }
    println!("{}: run it on the GPU machine by `python3 run.py`", folder.display());
    Ok(())
}
