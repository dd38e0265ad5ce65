//! A kernel's parameters, as the program gave them and as a version takes them.

use super::as_value;
use super::cache::Layout;
use crate::kernel::Shape;
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{CUfunction, CUresult, CUstream};

/// The kernel's parameters as the program gave them.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    pub(crate) parameters: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
}

/// A kernel's parameters one behind the other, with room for one more.
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// Where the extra one lies.
    offset: usize,
}

impl Packed {
    /// None if the program did not give what the kernel takes.
    pub(super) fn new(arguments: Arguments, layout: &Layout, offset: u32, extra: usize) -> Option<Self> {
        let offset = usize::try_from(offset).ok()?;
        let size = usize::try_from(layout.size).ok().filter(|size| *size <= offset)?;
        let mut bytes = vec![0_u8; offset + extra];
        let Arguments { parameters, extra } = arguments;
        if !extra.is_null() {
            if !parameters.is_null() {
                return None;
            }
            // SAFETY: the program's promise: a list that ends.
            let given = unsafe { buffer(extra) }?;
            bytes[..size].copy_from_slice(given.get(..size)?);
            return Some(Self { bytes, offset });
        }
        if parameters.is_null() && !layout.parameters.is_empty() {
            return None;
        }
        for (number, (begin, length)) in layout.parameters.iter().enumerate() {
            let (begin, length) = (usize::try_from(*begin).ok()?, usize::try_from(*length).ok()?);
            // SAFETY: the program's promise: a pointer to each parameter.
            let from = unsafe { parameters.add(number) };
            // SAFETY: likewise.
            let from = unsafe { *from }.cast::<u8>();
            if from.is_null() {
                return None;
            }
            // SAFETY: likewise, of its size.
            let given = unsafe { core::slice::from_raw_parts(from, length) };
            bytes.get_mut(begin..begin + length)?.copy_from_slice(given);
        }
        Some(Self { bytes, offset })
    }

    /// Sets the extra one, which is plain data.
    pub(super) fn set<T: Copy>(&mut self, work: &T) {
        // SAFETY: plain data without padding, of so many bytes.
        let work = unsafe { core::slice::from_raw_parts(core::ptr::from_ref(work).cast::<u8>(), size_of::<T>()) };
        if let Some(place) = self.bytes.get_mut(self.offset..self.offset + work.len()) {
            place.copy_from_slice(work);
        }
    }

    pub(super) fn launch(&self, function: CUfunction, blocks: u32, shape: &Shape, at: CUstream) -> CUresult {
        let mut size = self.bytes.len();
        let mut extra = [
            as_value(BUFFER_POINTER),
            self.bytes.as_ptr().cast_mut().cast::<c_void>(),
            as_value(BUFFER_SIZE),
            (&raw mut size).cast::<c_void>(),
            null_mut(),
        ];
        let [x, y, z]: [c_uint; 3] = shape.block;
        cu!(cuLaunchKernel(function, blocks, 1, 1, x, y, z, shape.shared, at, null_mut(), extra.as_mut_ptr()))
    }
}

/// What stands in the list of `extra`, until its end.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// All parameters as the program packed them.
///
/// # Safety
/// A list as the driver takes it.
unsafe fn buffer<'a>(extra: *mut *mut c_void) -> Option<&'a [u8]> {
    let (mut pointer, mut size, mut at) = (core::ptr::null::<u8>(), None, 0);
    loop {
        // SAFETY: not past its end, which is a NULL.
        let place = unsafe { extra.add(at) };
        // SAFETY: likewise.
        let what = unsafe { *place }.addr();
        if what == 0 {
            break;
        }
        // SAFETY: each has a value behind it.
        let behind = unsafe { place.add(1) };
        // SAFETY: likewise.
        let value = unsafe { *behind };
        match what {
            BUFFER_POINTER => pointer = value.cast::<u8>().cast_const(),
            // SAFETY: a pointer to the size.
            BUFFER_SIZE if !value.is_null() => size = Some(unsafe { *value.cast::<usize>() }),
            _ => return None,
        }
        at += 2;
    }
    // SAFETY: the program's buffer has that size.
    (!pointer.is_null()).then(|| unsafe { core::slice::from_raw_parts(pointer, size.unwrap_or(0)) })
}
