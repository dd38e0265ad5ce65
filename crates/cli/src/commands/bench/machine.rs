//! What the figures were measured on.

use super::runner::ArmRun;
use super::scenario::Device;
use crate::commands::doctor;
use serde::Serialize;

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    /// Its GPU, or what stands in for it.
    pub(crate) gpu: Option<String>,
    /// The version of the GPU's driver.
    pub(crate) driver: Option<String>,
    pub(crate) cpu: Option<String>,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) detshare: &'static str,
}

impl Machine {
    /// As the system says it, and the tenants that were seen.
    pub(crate) fn look(device: Device, runs: &[ArmRun]) -> Self {
        let seen =
            runs.iter().flat_map(|run| &run.samples).map(|sample| sample.gpu.clone()).find(|name| !name.is_empty());
        let (gpu, driver) = match device {
            Device::Gpu => (seen.or_else(doctor::gpu_model), detshare_cuda::release::of_kernel_module()),
            Device::Soft => (Some("DetShare Software GPU".to_string()), None),
        };
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            gpu,
            driver,
            cpu: cpu_model(&cpus),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            detshare: env!("CARGO_PKG_VERSION"),
        }
    }

    /// In a line.
    pub(crate) fn in_words(&self) -> String {
        let gpu = self.gpu.as_deref().unwrap_or("an unknown GPU");
        let driver = self.driver.as_ref().map_or(String::new(), |driver| format!(" (driver {driver})"));
        let cpu = self.cpu.as_deref().unwrap_or("an unknown processor");
        format!("{gpu}{driver}; {cpu}, {} cores; Linux {}; DetShare {}", self.cores, self.kernel, self.detshare)
    }
}

fn cpu_model(text: &str) -> Option<String> {
    let (_, name) = text.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(name.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_has_a_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(cpu_model(text).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_model(""), None);
    }
}
