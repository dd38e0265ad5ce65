//! The GPU, its driver and MPS.

use super::Finding;
use crate::part;
use detshare_cuda::driver::{self, Search};
use detshare_cuda::release;
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};

/// A folder for each GPU, with what the kernel's driver knows of it.
const KERNEL_GPUS: &str = "/proc/driver/nvidia/gpus";
const CONTROL_DEVICE: &str = "/dev/nvidiactl";
const MPS_CONTROL: &str = "nvidia-cuda-mps-control";
/// Where MPS has its pipes if nobody says otherwise.
const DEFAULT_PIPES: &str = "/tmp/nvidia-mps";
/// The first driver with green contexts, which partitions are made of.
const FIRST_WITH_PARTITIONS: u32 = 550;

/// The first GPU's name, as the driver's kernel module says it.
pub(crate) fn model() -> Option<String> {
    let mut gpus: Vec<_> = Path::new(KERNEL_GPUS).read_dir().ok()?.filter_map(Result::ok).collect();
    gpus.sort_by_key(std::fs::DirEntry::path);
    let first = std::fs::read_to_string(gpus.first()?.path().join("information")).ok()?;
    Some(first.lines().find_map(|line| line.strip_prefix("Model:"))?.trim().to_string())
}

/// What is known of the GPU without using it.
#[derive(Debug)]
pub(super) struct Gpu {
    /// The driver's library, found as the shim finds it.
    library: Result<PathBuf, driver::DriverError>,
    /// The driver's version, as its kernel module says it.
    version: Option<String>,
    devices: Vec<PathBuf>,
    has_softgpu: bool,
}

impl Gpu {
    pub(super) fn look() -> Self {
        let filled = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let search = Search { named: filled("DETSHARE_DRIVER"), library_path: filled("LD_LIBRARY_PATH") };
        Self {
            library: driver::find(&search),
            version: release::of_kernel_module(),
            devices: devices(Path::new("/dev")),
            has_softgpu: part::SOFTGPU.find().is_ok(),
        }
    }

    fn is_there(&self) -> bool {
        self.version.is_some() || !self.devices.is_empty()
    }

    pub(super) fn driver(&self) -> Finding {
        const CHECK: &str = "CUDA driver";
        let version = self.version.as_deref();
        match &self.library {
            Ok(path) => {
                let version =
                    version.map_or("no NVIDIA kernel driver".to_string(), |version| format!("version {version}"));
                Finding::ok(CHECK, format!("{}, {version}", path.display()))
            }
            Err(error) if version.is_some() => {
                Finding::problem(CHECK, "the kernel's part is there, the library is not", error.to_string())
            }
            Err(driver::DriverError::NotFound(_)) if self.has_softgpu => Finding::warning(
                CHECK,
                "none",
                "install NVIDIA's driver to use a GPU; `detshare run --device soft` works without",
            ),
            Err(error) => Finding::problem(CHECK, "none", error.to_string()),
        }
    }

    pub(super) fn devices(&self) -> Finding {
        const CHECK: &str = "GPU devices";
        if self.devices.is_empty() {
            return match self.version {
                None => Finding::ok(CHECK, "none on this machine"),
                Some(_) => Finding::problem(
                    CHECK,
                    "the driver is there, but no /dev/nvidia0",
                    "in a container, start it with the GPUs (docker run --gpus all)",
                ),
            };
        }
        let control = Path::new(CONTROL_DEVICE).to_path_buf();
        let all = self.devices.iter().chain(std::iter::once(&control));
        match all.into_iter().find(|device| access(device.as_path(), Access::READ_OK | Access::WRITE_OK).is_err()) {
            None => Finding::ok(CHECK, names(&self.devices)),
            Some(closed) => Finding::problem(
                CHECK,
                format!("{} cannot be opened", closed.display()),
                "ask for access to it, often by membership in a group such as video",
            ),
        }
    }

    pub(super) fn partitions(&self) -> Finding {
        partitions(self.version.as_deref())
    }

    pub(super) fn mps_control(&self) -> Finding {
        const CHECK: &str = "MPS";
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(MPS_CONTROL)).find(|file| file.is_file());
        match found {
            Some(found) => Finding::ok(CHECK, found.display().to_string()),
            None if !self.is_there() => Finding::ok(CHECK, "not needed without a GPU"),
            None => Finding::warning(
                CHECK,
                format!("no {MPS_CONTROL} on PATH: no partitions, and best-effort tenants take turns"),
                "install it with NVIDIA's driver, or add its folder to PATH of the daemon",
            ),
        }
    }

    /// One that is not the daemon's, for programs that were not told otherwise.
    pub(super) fn other_mps(&self) -> Finding {
        const CHECK: &str = "another MPS";
        match mps_process(Path::new(DEFAULT_PIPES)) {
            None => Finding::ok(CHECK, format!("none in {DEFAULT_PIPES}")),
            Some(pid) => Finding::warning(
                CHECK,
                format!("one runs in {DEFAULT_PIPES} (pid {pid}), which the daemon does not know"),
                "a GPU has one MPS server at a time: end it with `echo quit | nvidia-cuda-mps-control`",
            ),
        }
    }
}

fn partitions(version: Option<&str>) -> Finding {
    const CHECK: &str = "partitions";
    let Some(version) = version else { return Finding::ok(CHECK, "no NVIDIA driver; the software GPU has them") };
    match version.split('.').next().and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if major >= FIRST_WITH_PARTITIONS => Finding::ok(CHECK, format!("driver {version} has them")),
        _ => Finding::problem(
            CHECK,
            format!("driver {version} has no green contexts"),
            format!("install version {FIRST_WITH_PARTITIONS} or newer"),
        ),
    }
}

fn names(devices: &[PathBuf]) -> String {
    devices.iter().map(|device| device.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// `nvidia0`, `nvidia1` and so on.
fn devices(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("nvidia")?.parse::<u32>().ok();
    let mut devices: Vec<_> = entries.filter_map(|path| Some((number(&path)?, path))).collect();
    devices.sort_unstable();
    devices.into_iter().map(|(_, path)| path).collect()
}

/// The control daemon of that pipe folder, if it lives.
fn mps_process(pipes: &Path) -> Option<u32> {
    let pid: u32 = std::fs::read_to_string(pipes.join(format!("{MPS_CONTROL}.pid"))).ok()?.trim().parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    // The kernel keeps 15 characters of a name; the number may be somebody else's by now.
    name.trim().starts_with("nvidia-cuda-mps").then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn partitions_need_a_driver_that_has_them() {
        assert_eq!(partitions(Some("550.54.14")).verdict, Verdict::Ok);
        assert_eq!(partitions(Some("535.183.01")).verdict, Verdict::Problem);
        assert_eq!(partitions(None).verdict, Verdict::Ok);
    }

    #[test]
    fn devices_are_counted_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = devices(folder.path());
        assert_eq!(found, ["nvidia2", "nvidia10"].map(|name| folder.path().join(name)));
    }

    #[test]
    fn an_mps_that_has_ended_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mps_process(folder.path()), None);
        let us = std::process::id().to_string();
        std::fs::write(folder.path().join("nvidia-cuda-mps-control.pid"), us).unwrap();
        assert_eq!(mps_process(folder.path()), None, "the number is ours");
    }

    fn gpu(library: Result<PathBuf, driver::DriverError>, version: Option<&str>, has_softgpu: bool) -> Gpu {
        Gpu { library, version: version.map(String::from), devices: Vec::new(), has_softgpu }
    }

    #[test]
    fn no_driver_is_bad_where_nothing_stands_in() {
        let none = || Err(driver::DriverError::NotFound("/usr/lib".to_string()));
        assert_eq!(gpu(none(), None, true).driver().verdict, Verdict::Warning);
        assert_eq!(gpu(none(), None, false).driver().verdict, Verdict::Problem);
        assert_eq!(gpu(none(), Some("580.1"), true).driver().verdict, Verdict::Problem);
        assert_eq!(gpu(Ok("/usr/lib/libcuda.so.1".into()), Some("580.1"), false).driver().verdict, Verdict::Ok);
        assert_eq!(gpu(none(), Some("580.1"), true).devices().verdict, Verdict::Problem);
    }
}
