//! What block level does to a tenant's kernels.

use serde::{Deserialize, Serialize};

/// Of each kernel whether it was rewritten, and of each shape that was launched which version runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockLevel {
    /// Within what time kernels are to give way; 0 while there is nobody to give way to.
    pub turnaround_ns: u64,
    /// The modules and libraries that the program has loaded.
    pub modules: Vec<RewrittenModule>,
    /// Kernels in the shapes in which they were launched.
    pub shapes: Vec<MeasuredShape>,
}

/// One module or library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewrittenModule {
    /// Why nothing of it was rewritten.
    #[serde(default)]
    pub refused: Option<String>,
    /// What went wrong without harm.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Its kernels.
    #[serde(default)]
    pub kernels: Vec<RewrittenKernel>,
}

/// One kernel; of each version it says why there is none, and null where there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewrittenKernel {
    /// Its name.
    pub name: String,
    /// A thread's registers, in the original, the sliced and the preemptible version; 0 is unknown.
    #[serde(default)]
    pub registers: [u32; 3],
    /// The version that runs slices of the grid.
    #[serde(default)]
    pub sliced: Option<String>,
    /// The version that can stop between two blocks.
    #[serde(default)]
    pub preemptible: Option<String>,
}

/// A kernel in one shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredShape {
    /// The kernel's name.
    pub kernel: String,
    /// Blocks of its grid.
    pub blocks: u64,
    /// How often it was launched.
    pub launches: u64,
    /// How often it gave way in the middle.
    pub preempted: u64,
    /// The version that runs.
    pub chosen: String,
    /// Why.
    pub because: String,
    /// What was measured.
    pub versions: Vec<MeasuredVersion>,
}

/// One version in one shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredVersion {
    /// Which one.
    pub version: String,
    /// What all blocks together take.
    pub took_ns: u64,
    /// How often that was measured.
    pub measured: u32,
    /// How long it takes to give way, measured or by its blocks.
    pub turnaround_ns: u64,
}
