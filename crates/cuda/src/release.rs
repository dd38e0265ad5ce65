//! Which release of a driver is in use: what CUDA's version number does not say.

/// Where the driver's kernel module says which one it is.
const KERNEL_MODULE: &str = "/proc/driver/nvidia/version";
/// A software GPU exports its own under this name, as a terminated text.
pub const SOFTWARE_RELEASE: &str = "detshare_softgpu_release";

/// The release of NVIDIA's kernel module, such as `580.82.07`, where one is loaded. The library in use is of the same one: others refuse
/// to work with it.
#[must_use]
pub fn of_kernel_module() -> Option<String> {
    named_in(&std::fs::read_to_string(KERNEL_MODULE).ok()?)
}

fn named_in(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains("NVRM version"))?;
    let is_release = |word: &&str| {
        word.split('.').count() >= 2 && word.split('.').all(|part| !part.is_empty() && part.parse::<u32>().is_ok())
    };
    line.split_whitespace().find(is_release).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_both_kernel_modules() {
        let closed =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jan 2 2026\nGCC version: gcc 13.3.0\n";
        assert_eq!(named_in(closed).as_deref(), Some("580.159.04"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@host)\n";
        assert_eq!(named_in(open).as_deref(), Some("570.86.15"));
        assert_eq!(named_in("GCC version: gcc 13.3.0\n"), None);
    }
}
