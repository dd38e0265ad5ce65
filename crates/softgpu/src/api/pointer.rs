//! What pointers point to.

use super::{as_pointer, device, require};
use crate::boundary::Outcome;
use crate::memory::{self, Kind, Range, physical};
use core::ffi::{c_int, c_uint, c_void};
use detshare_cuda::types::{
    CUcontext, CUdeviceptr, CUmemAllocationHandleType, CUmemorytype, CUpointer_attribute as Attribute, CUresult,
};

/// `CU_DEVICE_INVALID`.
pub(super) const NO_DEVICE: c_int = -2;
/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE`.
const READ_AND_WRITE: c_uint = 3;

/// The value of an attribute, as wide as the manual says.
enum Value {
    Word(c_uint),
    Wide(u64),
    /// There is none, and what was there stays.
    Untouched,
}

impl Value {
    /// Writes it where the program wants it.
    unsafe fn write(self, place: *mut c_void) {
        match self {
            Self::Word(value) => place.cast::<c_uint>().write(value),
            Self::Wide(value) => place.cast::<u64>().write(value),
            Self::Untouched => {}
        }
    }
}

pub(crate) unsafe fn cuPointerGetAttribute(data: *mut c_void, attribute: Attribute, pointer: CUdeviceptr) -> Outcome {
    require(!data.is_null())?;
    let range = memory::find(pointer.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    value(attribute, pointer.0, &range)?.write(data);
    Ok(())
}

pub(crate) unsafe fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *mut Attribute,
    data: *mut *mut c_void,
    pointer: CUdeviceptr,
) -> Outcome {
    require(count > 0 && !attributes.is_null() && !data.is_null())?;
    let range = memory::find(pointer.0);
    for index in 0..count as usize {
        let (attribute, place) = (*attributes.add(index), *data.add(index));
        require(!place.is_null())?;
        // What the driver does not know, and what does not apply, has zero for its value, and no size.
        let nothing = of_nothing(attribute)?;
        range.and_then(|range| value(attribute, pointer.0, &range).ok()).unwrap_or(nothing).write(place);
    }
    Ok(())
}

/// The value for what is no memory that the driver knows.
fn of_nothing(attribute: Attribute) -> Outcome<Value> {
    Ok(match attribute {
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Word(NO_DEVICE.cast_unsigned()),
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        | Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED
        | Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | Attribute::CU_POINTER_ATTRIBUTE_MAPPED
        | Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
        | Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Value::Word(0),
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Untouched,
        Attribute(number) if (1..=Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE.0).contains(&number) => {
            Value::Wide(0)
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

fn value(attribute: Attribute, address: u64, range: &Range) -> Outcome<Value> {
    let flag = |holds: bool| Value::Word(c_uint::from(holds));
    Ok(match attribute {
        Attribute::CU_POINTER_ATTRIBUTE_CONTEXT => Value::Wide(CUcontext(as_pointer(range.context)).0.addr() as u64),
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Word(memory_type(address, range).0),
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Value::Wide(address),
        Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER => {
            require(range.is_host() || range.kind == Kind::Managed)?;
            Value::Wide(address)
        }
        // Tokens for drivers of network cards.
        Attribute::CU_POINTER_ATTRIBUTE_P2P_TOKENS => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => flag(range.synchronous),
        Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID => Value::Wide(range.id),
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => flag(range.kind == Kind::Managed),
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
            Value::Word(device::handle_of(range.device).0.cast_unsigned())
        }
        Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => flag(range.kind == Kind::Device),
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
            Value::Wide(range.start)
        }
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE | Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => {
            Value::Wide(range.size)
        }
        Attribute::CU_POINTER_ATTRIBUTE_MAPPED => flag(true),
        Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => Value::Wide(handle_types(address, range)),
        Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => flag(false),
        Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Value::Word(access(address, range)),
        Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
            Value::Wide(crate::pool::of(range.start).or_else(|| crate::pool::of(address)).unwrap_or(0) as u64)
        }
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
            Value::Wide(physical::at(address).map_or(range.id, |physical| physical.id))
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

fn memory_type(address: u64, range: &Range) -> CUmemorytype {
    let of_host = physical::at(address).is_some_and(|it| !super::location::is_device(it.properties.location));
    if range.is_host() || of_host { CUmemorytype::CU_MEMORYTYPE_HOST } else { CUmemorytype::CU_MEMORYTYPE_DEVICE }
}

fn handle_types(address: u64, range: &Range) -> u64 {
    match range.kind {
        Kind::Mapped => physical::at(address).map_or(0, |physical| physical.properties.handle_types.into()),
        Kind::Pool(pool) => super::pool::handle_types(pool),
        _ => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE.0.into(),
    }
}

/// What the current context's device may do there.
fn access(address: u64, range: &Range) -> c_uint {
    let device = crate::context::top().map_or(0, |context| context.device);
    match range.kind {
        Kind::Mapped => physical::access_at(address, physical::Accessor::Device(device)).map_or(0, c_uint::from),
        _ if range.access & memory::access::bit(device) != 0 => READ_AND_WRITE,
        _ => 0,
    }
}

/// Copies of device memory are synchronous here as soon as the program can tell, so the attribute is only kept.
pub(crate) unsafe fn cuPointerSetAttribute(
    value: *const c_void,
    attribute: Attribute,
    pointer: CUdeviceptr,
) -> Outcome {
    require(!value.is_null() && attribute == Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)?;
    let range = memory::find(pointer.0).filter(|range| !range.is_host() && range.kind != Kind::Mapped);
    let range = range.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let wanted = *value.cast::<c_uint>() != 0;
    memory::change(range.start, |range| range.synchronous = wanted);
    Ok(())
}
