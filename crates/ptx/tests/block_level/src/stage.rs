//! One launch with its memory, run as a whole and in parts.

use crate::gpu::{FLAGS, Gpu, Shape};
use crate::launch::{Argument, Launch};
use crate::subject::Subject;
use anyhow::{Context, Result, ensure};
use detshare_cuda::types::{CUfunction, CUmodule};
use detshare_ptx::block_level::{Division, Persistent, Slice, Version};

/// Everything that a kernel may have written, with names for messages.
pub(crate) type Contents = Vec<(String, Vec<u8>)>;

const COUNTER_BYTES: usize = 16;

/// A launch and its memory.
pub(crate) struct Stage<'s> {
    pub(crate) gpu: &'s Gpu,
    subject: &'s Subject,
    pub(crate) launch: &'s Launch,
    /// The address for each argument that is memory.
    memory: Vec<Option<u64>>,
    /// The counter of a preemptible version.
    pub(crate) next: u64,
}

/// How a preemptible version is launched once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// How many persistent blocks.
    pub(crate) width: u32,
    pub(crate) flags: [u64; FLAGS],
    pub(crate) mask: u32,
    /// What its blocks find as what others of them have seen: [`NOBODY_LOOKS`] where it is launched as it should be.
    pub(crate) seen: [u32; 2],
}

/// The words behind the counter's number: whether to give way, and whether somebody looks for it.
pub(crate) const NOBODY_LOOKS: [u32; 2] = [0, 0];
pub(crate) const SOMEBODY_LOOKS: [u32; 2] = [0, 1];
pub(crate) const GIVE_WAY: [u32; 2] = [1, 0];

impl<'s> Stage<'s> {
    pub(crate) fn new(gpu: &'s Gpu, subject: &'s Subject, launch: &'s Launch) -> Result<Self> {
        let mut memory = Vec::new();
        for argument in &launch.arguments {
            memory.push(match argument {
                Argument::Memory(initial) => Some(gpu.allocate(initial.len())?),
                Argument::Value(_) => None,
            });
        }
        Ok(Self { gpu, subject, launch, memory, next: gpu.allocate(COUNTER_BYTES)? })
    }

    pub(crate) fn leave(self) -> Result<()> {
        self.memory.into_iter().flatten().try_for_each(|address| self.gpu.free(address))?;
        self.gpu.free(self.next)
    }

    /// Memory and variables as they are before the launch.
    pub(crate) fn reset(&self) -> Result<()> {
        for (argument, address) in self.launch.arguments.iter().zip(&self.memory) {
            if let (Argument::Memory(initial), Some(address)) = (argument, address) {
                self.gpu.write(*address, initial)?;
            }
        }
        for variable in &self.subject.variables {
            self.gpu.write(variable.address, &variable.initial)?;
        }
        self.gpu.write(self.next, &[0; COUNTER_BYTES])
    }

    /// Where its blocks tell each other to give way, and behind it that they look.
    pub(crate) fn seen(&self) -> u64 {
        self.next + size_of::<u32>() as u64
    }

    /// Memory and variables as they are when all that was started is over.
    pub(crate) fn contents(&self) -> Result<Contents> {
        Ok(self.counter_and_contents()?.1)
    }

    /// The same, with the counter.
    pub(crate) fn counter_and_contents(&self) -> Result<(u32, Contents)> {
        let (mut names, mut places) = (Vec::new(), Vec::new());
        for (index, (argument, address)) in self.launch.arguments.iter().zip(&self.memory).enumerate() {
            if let (Argument::Memory(initial), Some(address)) = (argument, address) {
                names.push(format!("argument {index}"));
                places.push((*address, initial.len()));
            }
        }
        for variable in &self.subject.variables {
            names.push(variable.name.clone());
            places.push((variable.address, variable.initial.len()));
        }
        places.push((self.next, COUNTER_BYTES));
        let mut read = self.gpu.read_all(&places)?;
        let counter = read.pop().and_then(|bytes| bytes.first_chunk().copied()).map_or(0, u32::from_le_bytes);
        Ok((counter, names.into_iter().zip(read).collect()))
    }

    /// The kernel as it was written, from fresh memory.
    pub(crate) fn original(&self) -> Result<Contents> {
        self.reset()?;
        let kernel = self.gpu.kernel(self.subject.original, &self.launch.kernel, self.launch.shared)?;
        self.gpu.start(kernel, self.shape(self.launch.grid), &self.arguments())?;
        self.contents()
    }

    /// The sliced version in slices of these sizes, from fresh memory.
    pub(crate) fn sliced(&self, version: &Version, sizes: &[u32]) -> Result<Contents> {
        let kernel = self.version(version, size_of::<Slice>())?;
        self.reset()?;
        let mut first = 0;
        for size in sizes {
            let slice = Slice { grid: self.launch.grid, first, division: Division::of(self.launch.grid) };
            let mut arguments = self.arguments();
            let mut bytes = slice.grid.map(u32::to_le_bytes).concat();
            bytes.extend(slice.first.to_le_bytes());
            bytes.extend(slice.division.words().map(u32::to_le_bytes).concat());
            arguments.push(bytes);
            self.gpu.start(kernel, self.shape([*size, 1, 1]), &arguments)?;
            first += size;
        }
        ensure!(first == self.launch.blocks(), "slices of {first} blocks");
        self.contents()
    }

    /// Starts the preemptible version from where the counter stands.
    pub(crate) fn start(&self, kernel: CUfunction, turn: Turn) -> Result<()> {
        let work = Persistent {
            grid: self.launch.grid,
            blocks: self.launch.blocks(),
            next: self.next,
            flags: turn.flags,
            mask: turn.mask,
            _pad: 0,
            division: Division::of(self.launch.grid),
        };
        self.gpu.write(self.seen(), &turn.seen.map(u32::to_le_bytes).concat())?;
        let mut bytes = work.grid.map(u32::to_le_bytes).concat();
        bytes.extend(work.blocks.to_le_bytes());
        bytes.extend(work.next.to_le_bytes());
        bytes.extend(work.flags.map(u64::to_le_bytes).concat());
        bytes.extend([work.mask, work._pad].map(u32::to_le_bytes).concat());
        bytes.extend(work.division.words().map(u32::to_le_bytes).concat());
        let mut arguments = self.arguments();
        arguments.push(bytes);
        self.gpu.start(kernel, self.shape([turn.width, 1, 1]), &arguments)
    }

    /// The kernel of a version, whose extra parameter is where it should be.
    pub(crate) fn version(&self, version: &Version, work_bytes: usize) -> Result<CUfunction> {
        let module = self.versions()?;
        let kernel = self.gpu.kernel(module, &version.name, self.launch.shared)?;
        let found = self.gpu.parameter(kernel, self.launch.arguments.len()).context("the extra parameter")?;
        let expected = (version.work_offset as usize, work_bytes);
        ensure!(found == expected, "the extra parameter's offset and size are {found:?}, not {expected:?}");
        ensure!(
            self.gpu.parameter(kernel, self.launch.arguments.len() + 1).is_err(),
            "there is more than one extra parameter"
        );
        Ok(kernel)
    }

    fn versions(&self) -> Result<CUmodule> {
        self.subject.versions.context("there is no module of versions")
    }

    fn shape(&self, grid: [u32; 3]) -> Shape {
        Shape { grid, block: self.launch.block, shared: self.launch.shared }
    }

    fn arguments(&self) -> Vec<Vec<u8>> {
        let arguments = self.launch.arguments.iter().zip(&self.memory);
        let values = arguments.map(|(argument, address)| match (argument, address) {
            (Argument::Value(bytes), _) => bytes.clone(),
            (Argument::Memory(_), address) => address.unwrap_or_default().to_le_bytes().to_vec(),
        });
        values.collect()
    }
}

/// Where two contents differ first.
pub(crate) fn difference(right: &Contents, other: &Contents) -> Option<String> {
    for ((name, right), (_, other)) in right.iter().zip(other) {
        let differ = |(one, two): (&u8, &u8)| one != two;
        let count = right.iter().zip(other).filter(|pair| differ(*pair)).count();
        if let Some(at) = right.iter().zip(other).position(differ) {
            return Some(format!(
                "{name}: byte {at} is {:#04x} instead of {:#04x}, {count} of {} bytes differ",
                other[at],
                right[at],
                right.len()
            ));
        }
    }
    None
}
