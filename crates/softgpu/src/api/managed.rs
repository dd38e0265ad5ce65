//! Managed memory: the host's and every device's at once. Nothing has to move, so advice and prefetches are kept to be
//! asked for again, and have no other effect.

use super::{location, require};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::exports::LEGACY;
use crate::graph::capture;
use crate::memory::managed::{self, Advice, Location};
use crate::memory::{self, Kind, Range, Wanted};
use crate::operation::Operation;
use crate::stream;
use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use detshare_cuda::types::{
    CUdevice, CUdeviceptr, CUdeviceptr_v2, CUmem_advise as Wish, CUmem_range_attribute as Attribute, CUmemAttach_flags,
    CUmemLocation, CUmemLocationType, CUresult, CUstream,
};

const GLOBAL: c_uint = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0;
const HOST: c_uint = CUmemAttach_flags::CU_MEM_ATTACH_HOST.0;
const SINGLE: c_uint = CUmemAttach_flags::CU_MEM_ATTACH_SINGLE.0;

pub(crate) unsafe fn cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> Outcome {
    let context = context::healthy()?;
    capture::forbid_unsafe_call()?;
    require(!address.is_null() && bytes > 0 && matches!(flags, GLOBAL | HOST))?;
    let wanted = Wanted {
        bytes: bytes as u64,
        kind: Kind::Managed,
        device: context.device,
        context: context.handle,
        align: 1,
        access: memory::ALL,
    };
    let range = memory::take(&wanted).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    context.own(range.start);
    give(address, CUdeviceptr_v2(range.start))
}

/// The managed memory that the bytes are a part of.
fn managed(address: u64, bytes: usize) -> Outcome<Range> {
    let range = memory::find(address).filter(|range| range.kind == Kind::Managed);
    let whole = |range: &Range| bytes > 0 && bytes as u64 <= range.end() - address;
    range.filter(whole).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn advise(address: u64, bytes: usize, wish: Wish, place: impl Fn() -> Outcome<Location>) -> Outcome {
    managed(address, bytes)?;
    let change: Box<dyn Fn(&mut Advice)> = match wish {
        Wish::CU_MEM_ADVISE_SET_READ_MOSTLY => Box::new(|advice| advice.read_mostly = true),
        Wish::CU_MEM_ADVISE_UNSET_READ_MOSTLY => Box::new(|advice| advice.read_mostly = false),
        Wish::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
            let place = place()?;
            Box::new(move |advice| advice.preferred = Some(place))
        }
        Wish::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => Box::new(|advice| advice.preferred = None),
        Wish::CU_MEM_ADVISE_SET_ACCESSED_BY => {
            let device = location::as_device(place()?);
            Box::new(move |advice| {
                if !advice.accessed_by.contains(&device) {
                    advice.accessed_by.push(device);
                }
            })
        }
        Wish::CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
            let device = location::as_device(place()?);
            Box::new(move |advice| advice.accessed_by.retain(|it| *it != device))
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    managed::advise(address, bytes as u64, change);
    Ok(())
}

pub(crate) unsafe fn cuMemAdvise(address: CUdeviceptr, bytes: usize, wish: Wish, device: CUdevice) -> Outcome {
    context::healthy()?;
    advise(address.0, bytes, wish, || location::of_device(device))
}

pub(crate) unsafe fn cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, wish: Wish, place: CUmemLocation) -> Outcome {
    context::healthy()?;
    advise(address.0, bytes, wish, || location::check(place))
}

fn prefetch(address: u64, bytes: usize, place: Location, stream: CUstream) -> Outcome {
    context::healthy()?;
    let stream = stream::find(stream)?;
    managed(address, bytes)?;
    managed::advise(address, bytes as u64, |advice| advice.prefetched = Some(place));
    stream.perform(Operation::Nothing)
}

pub(crate) unsafe fn cuMemPrefetchAsync(
    address: CUdeviceptr,
    bytes: usize,
    device: CUdevice,
    stream: CUstream,
) -> Outcome {
    prefetch(address.0, bytes, location::of_device(device)?, stream)
}

pub(crate) unsafe fn cuMemPrefetchAsync_v2(
    address: CUdeviceptr,
    bytes: usize,
    place: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Outcome {
    require(flags == 0)?;
    prefetch(address.0, bytes, location::check(place)?, stream)
}

/// The parts of managed memory that a program lists.
unsafe fn parts(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize) -> Outcome<Vec<(u64, usize)>> {
    require(!addresses.is_null() && !sizes.is_null() && count > 0)?;
    let all: Vec<_> = (0..count).map(|index| ((*addresses.add(index)).0, *sizes.add(index))).collect();
    all.iter().try_for_each(|(address, bytes)| managed(*address, *bytes).map(|_| ()))?;
    Ok(all)
}

/// For each part the location that it goes to: the list says from which part on each location holds.
unsafe fn locations(
    places: *mut CUmemLocation,
    firsts: *mut usize,
    place_count: usize,
    count: usize,
) -> Outcome<Vec<Location>> {
    require(!places.is_null() && !firsts.is_null() && (1..=count).contains(&place_count) && *firsts == 0)?;
    let mut all = Vec::with_capacity(count);
    for index in 0..place_count {
        let end = if index + 1 < place_count { *firsts.add(index + 1) } else { count };
        require(end > *firsts.add(index) && end <= count)?;
        all.resize(end, location::check(*places.add(index))?);
    }
    Ok(all)
}

pub(crate) unsafe fn cuMemPrefetchBatchAsync(
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    places: *mut CUmemLocation,
    firsts: *mut usize,
    place_count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Outcome {
    require(flags == 0 && stream != LEGACY)?;
    let parts = parts(addresses, sizes, count)?;
    for ((address, bytes), place) in parts.into_iter().zip(locations(places, firsts, place_count, count)?) {
        prefetch(address, bytes, place, stream)?;
    }
    Ok(())
}

pub(crate) unsafe fn cuMemDiscardBatchAsync(
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Outcome {
    context::healthy()?;
    require(flags == 0 && stream != LEGACY)?;
    let parts = parts(addresses, sizes, count)?;
    let parts = parts.into_iter().map(|(address, bytes)| (address, bytes as u64)).collect();
    stream::find(stream)?.perform(Operation::Discard(parts))
}

pub(crate) unsafe fn cuMemDiscardAndPrefetchBatchAsync(
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    places: *mut CUmemLocation,
    firsts: *mut usize,
    place_count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Outcome {
    require(flags == 0 && stream != LEGACY)?;
    parts(addresses, sizes, count)?;
    locations(places, firsts, place_count, count)?;
    cuMemDiscardBatchAsync(addresses, sizes, count, flags, stream)?;
    cuMemPrefetchBatchAsync(addresses, sizes, count, places, firsts, place_count, flags, stream)
}

pub(crate) unsafe fn cuMemRangeGetAttribute(
    data: *mut c_void,
    size: usize,
    attribute: Attribute,
    address: CUdeviceptr,
    bytes: usize,
) -> Outcome {
    managed(address.0, bytes)?;
    give_attribute(data, size, attribute, &managed::advice_on(address.0, bytes as u64))
}

pub(crate) unsafe fn cuMemRangeGetAttributes(
    data: *mut *mut c_void,
    sizes: *mut usize,
    attributes: *mut Attribute,
    count: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> Outcome {
    require(!data.is_null() && !sizes.is_null() && !attributes.is_null() && count > 0)?;
    managed(address.0, bytes)?;
    let advice = managed::advice_on(address.0, bytes as u64);
    (0..count)
        .try_for_each(|index| give_attribute(*data.add(index), *sizes.add(index), *attributes.add(index), &advice))
}

/// What all pages have in common; the value for "nothing" where they differ.
unsafe fn give_attribute(data: *mut c_void, size: usize, attribute: Attribute, pages: &[Advice]) -> Outcome {
    require(!data.is_null())?;
    let common = |of: fn(&Advice) -> Option<Location>| {
        let first = pages.first().and_then(of);
        first.filter(|_| pages.iter().all(|page| of(page) == first))
    };
    let device = |place: Option<Location>| place.map_or(super::pointer::NO_DEVICE, location::as_device);
    let kind = |place: Option<Location>| {
        place.map_or(CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID.0, |place| place.kind).cast_signed()
    };
    let preferred = common(|page| page.preferred);
    let prefetched = common(|page| page.prefetched);
    let value = match attribute {
        Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => c_int::from(pages.iter().all(|page| page.read_mostly)),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => device(preferred),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => device(prefetched),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => kind(preferred),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => preferred.map_or(0, |place| place.id),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => kind(prefetched),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => prefetched.map_or(0, |place| place.id),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
            require(size > 0 && size.is_multiple_of(size_of::<c_int>()))?;
            let first = pages.first().map(|page| page.accessed_by.as_slice()).unwrap_or_default();
            let by_all = |device: &&i32| pages.iter().all(|page| page.accessed_by.contains(device));
            let devices = first.iter().filter(by_all).copied().chain(std::iter::repeat(super::pointer::NO_DEVICE));
            for (index, device) in devices.take(size / size_of::<c_int>()).enumerate() {
                data.cast::<c_int>().add(index).write(device);
            }
            return Ok(());
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    require(size == size_of::<c_int>())?;
    data.cast::<c_int>().write(value);
    Ok(())
}

/// Every device may use managed memory at any time here, so whom it is attached to makes no difference.
pub(crate) unsafe fn cuStreamAttachMemAsync(
    stream: CUstream,
    address: CUdeviceptr,
    length: usize,
    flags: c_uint,
) -> Outcome {
    context::healthy()?;
    let found = stream::find(stream)?;
    require(matches!(flags, GLOBAL | HOST | SINGLE) && (flags != SINGLE || stream != LEGACY))?;
    let range = memory::find(address.0).filter(|range| range.kind == Kind::Managed && range.start == address.0);
    let range = range.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(length == 0 || length as u64 == range.size)?;
    found.perform(Operation::Nothing)
}
