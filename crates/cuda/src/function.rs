//! What the table says of a function, and the rule by which `cuGetProcAddress` picks one.

use crate::generated_functions::FUNCTIONS;

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`: NULL means the legacy stream.
pub const LEGACY_STREAM: u64 = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`: NULL means the calling thread's stream.
pub const PER_THREAD_STREAM: u64 = 2;

/// One function that the driver exports.
#[derive(Debug)]
pub struct Function {
    /// The exported symbol, such as `cuMemcpyHtoD_v2_ptds`.
    pub name: &'static str,
    /// The name that `cuGetProcAddress` knows it by, such as `cuMemcpyHtoD`.
    pub base: &'static str,
    /// The CUDA version from which on `cuGetProcAddress` hands it out; 0 where it never does.
    pub since: u32,
    /// What it does with a stream.
    pub stream: StreamUse,
    /// Its parameters in order; None for the few exported functions that no public header describes.
    pub parameters: Option<&'static [Parameter]>,
}

/// One parameter of a function. All functions with known parameters return a `CUresult`.
#[derive(Debug)]
pub struct Parameter {
    /// As in the header.
    pub name: &'static str,
    /// Its Rust type, as text, with [`types`](crate::types) and `core::ffi` in scope.
    pub ty: &'static str,
    /// Its size in bytes.
    pub size: usize,
}

/// Where a function finds its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamUse {
    /// It takes none.
    NoStream,
    /// It takes none and works on the default stream all the same, as synchronous copies do.
    Implicit,
    /// The parameter with this index.
    Argument(usize),
    /// The parameters with these two indices.
    Arguments(usize, usize),
    /// Behind the pointer that is the parameter with this index; the driver may write there.
    Pointer(usize),
    /// `hStream` of the `CUlaunchConfig` that is the parameter with this index.
    LaunchConfig(usize),
    /// `hUploadStream` of the `CUDA_GRAPH_INSTANTIATE_PARAMS` that is the parameter with this index.
    InstantiateParams(usize),
}

/// Which stream NULL, or no stream at all, stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultStream {
    /// One for the whole context, ordered against all blocking streams.
    Legacy,
    /// One for each thread.
    PerThread,
}

impl Function {
    /// What NULL means where this function expects a stream.
    #[must_use]
    pub fn default_stream(&self) -> DefaultStream {
        if self.name.ends_with("_ptsz") || self.name.ends_with("_ptds") {
            DefaultStream::PerThread
        } else {
            DefaultStream::Legacy
        }
    }
}

/// Every function, sorted by name.
#[must_use]
pub fn functions() -> &'static [Function] {
    &FUNCTIONS
}

/// What `cuGetProcAddress` finds for a name, a version and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcAddress {
    /// The function with this index in [`functions`].
    Found(usize),
    /// No function has that name.
    SymbolNotFound,
    /// The function came with a later version.
    VersionNotSufficient,
}

/// The driver's own rule: of the functions with that base name, and of their per-thread variants where there
/// are any and the flags ask for them, the newest that the version allows.
#[must_use]
pub fn proc_address(name: &str, version: u32, flags: u64) -> ProcAddress {
    // A base is a prefix of its functions' names, so they stand together from here on.
    let first = FUNCTIONS.partition_point(|function| function.name < name);
    let variants = || {
        FUNCTIONS[first..]
            .iter()
            .enumerate()
            .take_while(|(_, function)| function.name.starts_with(name))
            .filter(|(_, function)| function.base == name && function.since != 0)
            .map(|(offset, function)| (first + offset, function))
    };
    let per_thread = flags & PER_THREAD_STREAM != 0
        && variants().any(|(_, function)| function.default_stream() == DefaultStream::PerThread);
    let wanted = if per_thread { DefaultStream::PerThread } else { DefaultStream::Legacy };
    let newest = variants()
        .filter(|(_, function)| function.default_stream() == wanted && function.since <= version)
        .max_by_key(|(_, function)| function.since);
    match newest {
        Some((index, _)) => ProcAddress::Found(index),
        None if variants().next().is_some() => ProcAddress::VersionNotSufficient,
        None => ProcAddress::SymbolNotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a driver answered, recorded on an H200 (driver 580.159.04, CUDA 13.0) by asking for every name
    /// at every version that brought a function: one line a name and flag, then the versions at which the
    /// answer changes.
    const RECORDED: &str = include_str!("../tests/recorded/driver-580.159.04-cuGetProcAddress.txt");
    const RECORDED_EXPORTS: &str = include_str!("../tests/recorded/driver-580.159.04-exports.txt");

    #[test]
    fn table_is_sorted_by_name() {
        assert!(FUNCTIONS.is_sorted_by(|left, right| left.name < right.name));
    }

    #[test]
    fn table_holds_exactly_what_the_driver_exports() {
        let exported: Vec<_> = RECORDED_EXPORTS.lines().collect();
        let named: Vec<_> = FUNCTIONS.iter().map(|function| function.name).collect();
        assert_eq!(named, exported);
    }

    #[test]
    fn proc_address_answers_as_the_driver_does() {
        let mut compared = 0;
        for line in RECORDED.lines() {
            let (name, rest) = line.split_once(' ').expect("a name");
            let (flags, answers) = rest.split_once(' ').expect("flags");
            let flags = flags.parse().expect("flags are a number");
            let answers: Vec<(u32, &str)> = answers
                .split(' ')
                .map(|answer| answer.split_once('=').expect("version=answer"))
                .map(|(version, answer)| (version.parse().expect("a version"), answer))
                .collect();
            for version in FUNCTIONS.iter().map(|function| function.since).chain([1, 13_000]) {
                let expected = answers.iter().rev().find(|(from, _)| *from <= version).expect("starts at 0").1;
                let answer = match proc_address(name, version, flags) {
                    ProcAddress::Found(index) => FUNCTIONS[index].name,
                    ProcAddress::SymbolNotFound => "symbol-not-found",
                    ProcAddress::VersionNotSufficient => "version-not-sufficient",
                };
                assert_eq!(answer, expected, "{name} at {version} with flags {flags}");
                compared += 1;
            }
        }
        assert!(compared > 1_000_000, "only {compared} answers compared: is the record whole?");
    }

    #[test]
    fn streams_are_where_the_header_says() {
        let stream =
            |name: &str| FUNCTIONS.iter().find(|it| it.name == name).map(|it| (it.stream, it.default_stream()));
        use DefaultStream::{Legacy, PerThread};
        assert_eq!(stream("cuLaunchKernel"), Some((StreamUse::Argument(8), Legacy)));
        assert_eq!(stream("cuLaunchKernel_ptsz"), Some((StreamUse::Argument(8), PerThread)));
        assert_eq!(stream("cuLaunchKernelEx"), Some((StreamUse::LaunchConfig(0), Legacy)));
        assert_eq!(stream("cuMemcpyHtoD_v2"), Some((StreamUse::Implicit, Legacy)));
        assert_eq!(stream("cuMemcpyHtoD_v2_ptds"), Some((StreamUse::Implicit, PerThread)));
        assert_eq!(stream("cuStreamCopyAttributes"), Some((StreamUse::Arguments(0, 1), Legacy)));
        assert_eq!(stream("cuStreamCreate"), Some((StreamUse::NoStream, Legacy)));
        assert_eq!(stream("cuGraphInstantiateWithParams"), Some((StreamUse::InstantiateParams(2), Legacy)));
        assert_eq!(stream("cuEGLStreamProducerPresentFrame"), Some((StreamUse::Pointer(2), Legacy)));
    }
}
