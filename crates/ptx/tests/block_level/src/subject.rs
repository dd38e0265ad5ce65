//! A module and its rewritten counterpart, loaded beside each other as a program would have them.

use crate::case;
use crate::gpu::Gpu;
use anyhow::{Context, Result, ensure};
use detshare_cuda::types::CUmodule;
use detshare_ptx::ast::{Item, Linkage, Module, Space};
use detshare_ptx::block_level::{Kernel, Rewritten, rewrite};

/// A variable of the original, with what it began with.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) address: u64,
    pub(crate) initial: Vec<u8>,
}

/// Both modules.
pub(crate) struct Subject {
    pub(crate) original: CUmodule,
    /// The versions, where there are any.
    pub(crate) versions: Option<CUmodule>,
    pub(crate) rewritten: Rewritten,
    /// What kernels may have written.
    pub(crate) variables: Vec<Variable>,
}

/// A module and what became of it.
pub(crate) fn rewritten(text: &str) -> Result<(Module, Rewritten)> {
    let module = detshare_ptx::parse(text).context("the module")?;
    let rewritten = rewrite(&module, text);
    if let Some(source) = &rewritten.source {
        detshare_ptx::parse(source).context("the versions do not parse")?;
    }
    for kernel in &rewritten.kernels {
        let any = case::versions(kernel).iter().any(|(_, version)| version.is_ok());
        ensure!(!any || rewritten.source.is_some(), "{} has versions, and there is no module", kernel.name);
    }
    Ok((module, rewritten))
}

impl Subject {
    /// Loads a module and its versions, changed by that function before they are loaded.
    pub(crate) fn load(gpu: &Gpu, text: &str, change: impl FnOnce(String) -> Result<String>) -> Result<Self> {
        let (module, rewritten) = rewritten(text)?;
        let original = gpu.load(text).context("the original")?;
        let mut variables = Vec::new();
        for name in global_variables(&module) {
            let (address, bytes) = gpu.variable(original, &name).with_context(|| format!("variable {name}"))?;
            variables.push(Variable { name, address, initial: gpu.read(address, bytes)? });
        }
        let versions = match &rewritten.source {
            Some(source) => Some(gpu.load(&change(source.clone())?).context("the versions")?),
            None => None,
        };
        let subject = Self { original, versions, rewritten, variables };
        subject.lend(gpu)?;
        Ok(subject)
    }

    /// Tells the versions where the original's variables are.
    fn lend(&self, gpu: &Gpu) -> Result<()> {
        let Some(versions) = self.versions else { return Ok(()) };
        for borrowed in &self.rewritten.borrowed {
            let (address, _) = gpu.variable(self.original, &borrowed.variable).context("a borrowed variable")?;
            let (slot, bytes) = gpu.variable(versions, &borrowed.slot).context("a borrowed variable's slot")?;
            ensure!(bytes == size_of_val(&address), "the slot {} has {bytes} bytes", borrowed.slot);
            gpu.write(slot, &address.to_le_bytes())?;
        }
        Ok(())
    }

    pub(crate) fn unload(self, gpu: &Gpu) -> Result<()> {
        gpu.unload(self.original)?;
        self.versions.map_or(Ok(()), |versions| gpu.unload(versions))
    }

    /// What became of a kernel.
    pub(crate) fn kernel(&self, name: &str) -> Result<&Kernel> {
        let found = self.rewritten.kernels.iter().find(|kernel| kernel.name == name);
        found.with_context(|| format!("nothing is said of kernel {name}"))
    }
}

/// The names of a module's variables in global memory.
fn global_variables(module: &Module) -> Vec<String> {
    let variables = module.items.iter().filter_map(|item| match item {
        Item::Variable(it) if it.space == Space::Global && it.linkage != Linkage::Extern => Some(it),
        _ => None,
    });
    let data = variables.filter(|it| !it.ty.name().ends_with("ref"));
    data.flat_map(|it| it.declarators.iter().map(|declared| declared.name.clone())).collect()
}
