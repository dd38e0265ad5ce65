//! The table of functions: which name `cuGetProcAddress` knows each by and from which version on, and what
//! it does with a stream.

use super::bindings::Signature;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Exported by every Linux driver, but in no public header; what they take is not known, only that they exist.
/// `cuGetProcAddress` does not know them.
const UNDOCUMENTED: [&str; 11] = [
    "cuEGLApiInit",
    "cuMemGetAttribute",
    "cuMemGetAttribute_v2",
    "cudbgApiAttach",
    "cudbgApiDetach",
    "cudbgApiInit",
    "cudbgGetAPI",
    "cudbgGetAPIVersion",
    "cudbgMain",
    "cudbgReportDriverApiError",
    "cudbgReportDriverInternalError",
];

/// In the header, but exported by the drivers of embedded boards only.
const EMBEDDED_ONLY: [&str; 1] = ["cuEventCreateFromEGLSync"];

/// Every typedef of a function pointer carries the version that introduced it.
const TYPEDEF_HEADERS: [&str; 5] =
    ["cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h", "cudaProfilerTypedefs.h"];

/// Streams that come through a pointer and go both ways.
const STREAM_BY_POINTER_PREFIX: &str = "cuEGLStream";

/// One row of the table.
pub(crate) struct Row {
    name: String,
    base: String,
    since: u32,
    stream: String,
    /// None where nothing is known of the parameters.
    params: Option<Vec<(String, String)>>,
}

pub(crate) fn build(functions: &[Signature], include: &Path) -> Result<Vec<Row>> {
    let mut signatures: BTreeMap<&str, Option<&Signature>> = UNDOCUMENTED.iter().map(|name| (*name, None)).collect();
    for function in functions {
        if !EMBEDDED_ONLY.contains(&function.name.as_str()) {
            signatures.insert(&function.name, Some(function));
        }
    }
    let versions = introduced(include)?;
    let since = since_by_name(&signatures, &versions)?;
    let synchronous = |base: &str| signatures.keys().any(|name| name.ends_with("_ptds") && split(name).base == base);
    Ok(signatures
        .iter()
        .map(|(name, signature)| {
            let base = split(name).base;
            Row {
                name: (*name).to_string(),
                base: base.to_string(),
                since: since.get(name).copied().unwrap_or(0),
                stream: signature.map_or_else(|| "NoStream".into(), |it| stream_use(it, synchronous(base))),
                params: signature.map(|it| it.params.clone()),
            }
        })
        .collect())
}

/// An exported name in its parts: `cuMemcpyHtoD_v2_ptds` is the base, the 2nd signature, per thread.
struct Name<'a> {
    base: &'a str,
    revision: u32,
    per_thread: bool,
}

fn split(name: &str) -> Name<'_> {
    let unsuffixed = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"));
    let per_thread = unsuffixed.is_some();
    let unsuffixed = unsuffixed.unwrap_or(name);
    match unsuffixed.rsplit_once("_v").and_then(|(base, digits)| Some((base, digits.parse().ok()?))) {
        Some((base, revision)) => Name { base, revision, per_thread },
        None => Name { base: unsuffixed, revision: 1, per_thread },
    }
}

/// From the typedefs: for each (base, per thread) the versions that brought a new signature, ascending.
fn introduced(include: &Path) -> Result<BTreeMap<(String, bool), Vec<u32>>> {
    let mut versions: BTreeMap<(String, bool), Vec<u32>> = BTreeMap::new();
    for header in TYPEDEF_HEADERS {
        let path = include.join(header);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.lines().map(str::trim_start).filter(|line| line.starts_with("typedef CUresult")) {
            let Some((_, rest)) = line.split_once("*PFN_") else { continue };
            let Some((typedef, _)) = rest.split_once(')') else { continue };
            let name = split(typedef);
            versions.entry((name.base.to_string(), name.per_thread)).or_default().push(name.revision);
        }
    }
    for list in versions.values_mut() {
        list.sort_unstable();
        list.dedup();
    }
    Ok(versions)
}

/// The n-th signature of a base came with the n-th version that brought one.
fn since_by_name<'a>(
    signatures: &BTreeMap<&'a str, Option<&Signature>>,
    versions: &BTreeMap<(String, bool), Vec<u32>>,
) -> Result<BTreeMap<&'a str, u32>> {
    let mut groups: BTreeMap<(String, bool), Vec<(u32, &'a str)>> = BTreeMap::new();
    for (name, signature) in signatures {
        if signature.is_some() {
            let parts = split(name);
            groups.entry((parts.base.to_string(), parts.per_thread)).or_default().push((parts.revision, name));
        }
    }
    let mut since = BTreeMap::new();
    for (group, mut names) in groups {
        names.sort_unstable();
        let list = versions.get(&group).map_or(&[][..], Vec::as_slice);
        if list.len() != names.len() {
            bail!("{group:?} has the names {names:?} but the versions {list:?}");
        }
        since.extend(names.iter().zip(list).map(|((_, name), version)| (*name, *version)));
    }
    Ok(since)
}

fn stream_use(signature: &Signature, synchronous: bool) -> String {
    let of_type = |ty: &str| signature.params.iter().position(|param| param.1 == ty);
    let streams: Vec<usize> = signature
        .params
        .iter()
        .enumerate()
        .filter(|(_, param)| param.1 == "CUstream")
        .map(|(index, _)| index)
        .collect();
    if let [stream] = streams[..] {
        return format!("Argument({stream})");
    }
    if let [first, second] = streams[..] {
        return format!("Arguments({first}, {second})");
    }
    if let Some(pointer) = of_type("*mut CUstream")
        && signature.name.starts_with(STREAM_BY_POINTER_PREFIX)
    {
        return format!("Pointer({pointer})");
    }
    if let Some(config) = of_type("*const CUlaunchConfig") {
        return format!("LaunchConfig({config})");
    }
    if let Some(params) = of_type("*mut CUDA_GRAPH_INSTANTIATE_PARAMS") {
        return format!("InstantiateParams({params})");
    }
    if synchronous { "Implicit".into() } else { "NoStream".into() }
}

const MARK: &str = "// @generated by `cargo xtask generate` from CUDA's headers: do not edit.\n\n";

/// `functions.rs`: the table as data.
pub(crate) fn functions(table: &[Row]) -> String {
    let mut text = format!("{MARK}{FUNCTIONS_HEAD}pub(crate) static FUNCTIONS: [Function; {}] = [\n", table.len());
    for row in table {
        let params = row.params.as_ref().map_or_else(
            || "None".to_string(),
            |params| {
                let list: Vec<_> = params.iter().map(|(name, ty)| format!("p::<{ty}>({name:?}, {ty:?})")).collect();
                format!("Some(&[{}])", list.join(", "))
            },
        );
        writeln!(text, "    f({:?}, {:?}, {}, {}, {params}),", row.name, row.base, row.since, row.stream)
            .expect("a string takes any text");
    }
    text.push_str("];\n");
    text
}

const FUNCTIONS_HEAD: &str = "\
use crate::function::{Function, Parameter, StreamUse, StreamUse::*};
use crate::types::*;
use core::ffi::*;

const fn p<T>(name: &'static str, ty: &'static str) -> Parameter {
    Parameter { name, ty, size: size_of::<T>() }
}

const fn f(
    name: &'static str,
    base: &'static str,
    since: u32,
    stream: StreamUse,
    parameters: Option<&'static [Parameter]>,
) -> Function {
    Function { name, base, since, stream, parameters }
}

";

/// `entries.rs`: the position of each function in the table, with its type.
pub(crate) fn entries(table: &[Row]) -> String {
    let mut text = format!("{MARK}use crate::entry::Entry;\nuse crate::types::*;\nuse core::ffi::*;\n\n");
    for (index, row) in table.iter().enumerate() {
        let ty = row.params.as_ref().map_or_else(
            || "()".to_string(),
            |params| {
                let list: Vec<_> = params.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
                format!("unsafe extern \"C\" fn({}) -> CUresult", list.join(", "))
            },
        );
        writeln!(text, "pub const {}: Entry<{ty}> = Entry::at({index});", row.name).expect("a string takes any text");
    }
    text
}

/// `results.rs`: the name of each result code.
pub(crate) fn results(results: &[(String, String)]) -> String {
    let mut text =
        format!("{MARK}use core::ffi::CStr;\n\npub(crate) static RESULTS: [(u32, &CStr); {}] = [\n", results.len());
    for (name, value) in results {
        writeln!(text, "    ({value}, c{name:?}),").expect("a string takes any text");
    }
    text.push_str("];\n");
    text
}
