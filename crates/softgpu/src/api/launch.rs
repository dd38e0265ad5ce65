//! Launches.

use super::{cluster, require};
use crate::boundary::{Outcome, log};
use crate::context::{self, Context};
use crate::device;
use crate::exec::interface::{self, Shape, Workspace};
use crate::module::{self, Function};
use crate::operation::{Attributes, Bound, KernelLaunch, Operation};
use crate::stream::{self, Stream};
use core::ffi::{c_uint, c_void};
use detshare_cuda::types::{CUfunction, CUlaunchAttributeID as Attribute, CUlaunchConfig, CUresult, CUstream};
use std::sync::Arc;

/// The words of `extra`: a pointer to the parameters, their size, the end.
pub(super) const BUFFER_POINTER: usize = 1;
pub(super) const BUFFER_SIZE: usize = 2;

/// What a program wants launched, as it says it.
pub(super) struct Wanted {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) dynamic_shared: u32,
    pub(super) parameters: *mut *mut c_void,
    pub(super) extra: *mut *mut c_void,
}

/// How the blocks of a launch belong together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bonds {
    /// Blocks in a cluster, where the launch says.
    pub(super) cluster: Option<[u32; 3]>,
    /// All blocks are resident at once and can wait for each other.
    pub(super) cooperative: bool,
}

impl Bonds {
    /// What launch attributes ask for.
    pub(super) fn of(attributes: &Attributes) -> Self {
        let word = |value: &[u8; 64], at: usize| {
            value.get(4 * at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let cluster = attributes.get(&Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.0);
        let cooperative = attributes.get(&Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0);
        Self {
            cluster: cluster.map(|value| [0, 1, 2].map(|axis| word(value, axis))),
            cooperative: cooperative.is_some_and(|value| word(value, 0) != 0),
        }
    }
}

/// Checks the launch as a driver does and takes a copy of its arguments.
pub(super) unsafe fn shape(
    function: &Function,
    wanted: &Wanted,
    context: &Context,
    bonds: Bonds,
) -> Outcome<Arc<Shape>> {
    let properties = &function.kernel.properties;
    let launched = properties.launched(wanted.grid, wanted.block);
    let (grid, block) = launched.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let within = |size: [u32; 3], most: [u32; 3]| size.iter().zip(most).all(|(size, most)| (1..=most).contains(size));
    require(within(grid, device::MOST_GRID) && within(block, device::MOST_BLOCK))?;
    let threads: u32 = block.iter().product();
    require(threads <= device::MOST_THREADS_PER_BLOCK)?;
    require(properties.most_threads.is_none_or(|most| threads <= most))?;
    require(properties.required_block.is_none_or(|required| required == block))?;
    let most_shared = function.attributes.lock().expect("no panic while it is held").most_dynamic_shared;
    require(i32::try_from(wanted.dynamic_shared).is_ok_and(|shared| shared <= most_shared))?;
    if let Some((instruction, line)) = &properties.unsupported {
        log(format_args!("{}: line {line}: {instruction} is not supported", properties.name));
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    context.system.expect(properties.system);
    Ok(Arc::new(Shape {
        grid,
        block,
        dynamic_shared: wanted.dynamic_shared,
        parameters: parameters(function, wanted)?,
        grid_id: interface::new_grid_id(),
        sm_count: device::settings().sms,
        system: Arc::clone(&context.system),
        cluster: cluster::checked(function, grid, bonds.cluster)?,
        workspace: if bonds.cooperative { Some(workspace()?) } else { None },
    }))
}

/// Has the blocks of a launch belong together as its attributes now say.
pub(super) fn rebind(launch: &mut KernelLaunch) -> Outcome {
    let bonds = Bonds::of(&launch.attributes);
    let cluster = cluster::checked(&launch.function, launch.shape.grid, bonds.cluster)?;
    let workspace = match &launch.shape.workspace {
        None if bonds.cooperative => Some(workspace()?),
        there => there.clone().filter(|_| bonds.cooperative),
    };
    launch.shape = Arc::new(Shape { cluster, workspace, ..Shape::clone(&launch.shape) });
    Ok(())
}

fn workspace() -> Outcome<Arc<Workspace>> {
    Workspace::new().map(Arc::new).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

unsafe fn parameters(function: &Function, wanted: &Wanted) -> Outcome<Arc<[u8]>> {
    let properties = &function.kernel.properties;
    let mut buffer = vec![0_u8; properties.parameter_bytes];
    if properties.parameters.is_empty() {
        return Ok(buffer.into());
    }
    if !wanted.parameters.is_null() {
        require(wanted.extra.is_null())?;
        for (index, parameter) in properties.parameters.iter().enumerate() {
            let value = *wanted.parameters.add(index);
            require(!value.is_null())?;
            core::ptr::copy_nonoverlapping(value.cast(), buffer[parameter.offset..].as_mut_ptr(), parameter.size);
        }
        return Ok(buffer.into());
    }
    let (pointer, size) = packed(wanted.extra)?;
    // A buffer that is too short is taken all the same, as a driver does.
    require(size > 0)?;
    core::ptr::copy_nonoverlapping(pointer, buffer.as_mut_ptr(), size.min(buffer.len()));
    Ok(buffer.into())
}

/// Parameters that come as one buffer.
unsafe fn packed(mut extra: *mut *mut c_void) -> Outcome<(*const u8, usize)> {
    require(!extra.is_null())?;
    let (mut pointer, mut size) = (core::ptr::null::<u8>(), 0);
    while !(*extra).is_null() {
        let value = *extra.add(1);
        match (*extra).addr() {
            BUFFER_POINTER => pointer = value.cast_const().cast(),
            BUFFER_SIZE => size = *value.cast::<usize>(),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        extra = extra.add(2);
    }
    require(!pointer.is_null())?;
    Ok((pointer, size))
}

/// A cooperative grid must be resident as a whole.
fn check_cooperative(function: &Function, shape: &Shape, stream: &Stream) -> Outcome {
    let threads = shape.block.iter().product();
    let per_sm = super::occupancy::blocks_per_sm(function, threads, shape.dynamic_shared);
    let blocks: u64 = shape.grid.iter().map(|count| u64::from(*count)).product();
    if blocks > u64::from(per_sm) * stream.context.lane.sms().len() as u64 {
        return Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

/// The priority that launch attributes ask for.
pub(super) fn priority(attributes: &Attributes) -> Option<i32> {
    let value = attributes.get(&Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY.0)?;
    value.first_chunk().map(|bytes| i32::from_le_bytes(*bytes))
}

/// What a cooperative launch has without a list of attributes.
fn cooperative_only() -> Attributes {
    let mut value = [0; 64];
    value[0] = 1;
    Attributes::from([(Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0, value)])
}

pub(super) unsafe fn launch(
    function: CUfunction,
    stream: CUstream,
    wanted: &Wanted,
    attributes: Attributes,
) -> Outcome {
    context::healthy()?;
    let function = module::find_launchable(function)?;
    let stream = stream::find(stream)?;
    let bonds = Bonds::of(&attributes);
    let shape = shape(&function, wanted, &stream.context, bonds)?;
    if bonds.cooperative {
        check_cooperative(&function, &shape, &stream)?;
    }
    let bound = Bound::to(&stream.context);
    let priority = priority(&attributes);
    stream.perform(Operation::Kernel(KernelLaunch { function, shape, bound, priority, attributes }))
}

pub(crate) unsafe fn cuLaunchKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic_shared: c_uint,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Outcome {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    launch(function, stream, &Wanted { grid, block, dynamic_shared, parameters, extra }, Attributes::new())
}

pub(crate) unsafe fn cuLaunchCooperativeKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic_shared: c_uint,
    stream: CUstream,
    parameters: *mut *mut c_void,
) -> Outcome {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let wanted = Wanted { grid, block, dynamic_shared, parameters, extra: core::ptr::null_mut() };
    launch(function, stream, &wanted, cooperative_only())
}

pub(crate) unsafe fn cuLaunchKernelEx(
    default: CUstream,
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Outcome {
    require(!config.is_null())?;
    let config = &*config;
    // Those that are neither clusters nor cooperation are hints on caches, policies and overlap: what they promise holds
    // without them.
    let mut attributes = Attributes::new();
    for index in 0..config.numAttrs as usize {
        let attribute = &*config.attrs.add(index);
        require(attribute.id.0 < Attribute::CU_LAUNCH_ATTRIBUTE_MAX.0)?;
        attributes.insert(attribute.id.0, (&raw const attribute.value).cast::<[u8; 64]>().read());
    }
    let stream = if config.hStream.0.is_null() { default } else { config.hStream };
    let wanted = Wanted {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        dynamic_shared: config.sharedMemBytes,
        parameters,
        extra,
    };
    launch(function, stream, &wanted, attributes)
}
