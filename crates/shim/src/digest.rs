//! A running record of every byte that leaves the GPU, where `DETSHARE_DIGEST` names a file: two runs of a program can
//! be compared by it, copy by copy.
//!
//! A synchronous copy to the host, or one to plain memory, is digested when it returns. Any other is followed by a host function in
//! its stream, so what is digested is what the copy brought, whatever comes after it. Memory that kernels can write
//! on the host is looked at when the program has waited for the whole context. Copies that a program writes into a
//! graph by hand are not seen.
//!
//! One JSON object a line: the process first, then the copies in the order in which they were done.

use crate::call::is_ok;
use crate::handles::Handles;
use crate::{handed, settings};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use detshare_cuda::DefaultStream;
use detshare_cuda::types::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr, CUdeviceptr_v2, CUmemorytype, CUpointer_attribute, CUstream,
    CUstreamCaptureStatus,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ACTIVE: AtomicBool = AtomicBool::new(false);
static NEXT_STREAM: AtomicU32 = AtomicU32::new(1);
static NEXT_RECORD: AtomicU64 = AtomicU64::new(1);
static STREAMS: Handles<AtomicU32> = Handles::new();
/// What the first per-thread stream is called; the others count on.
const PER_THREAD: u32 = 1_000_000;

thread_local! {
    static PER_THREAD_NUMBER: u32 = {
        static NEXT: AtomicU32 = AtomicU32::new(PER_THREAD);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Whether there is a record.
#[inline]
pub(crate) fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Run when the settings are known.
pub(crate) fn start() {
    ACTIVE.store(settings::get().digest.is_some(), Ordering::Relaxed);
}

/// A copy that the driver has taken.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    /// As the program gave it.
    pub(crate) stream: CUstream,
    pub(crate) default: DefaultStream,
    /// Where it was put in; None if it is done already.
    pub(crate) behind: Option<CUstream>,
}

/// Rows of bytes in host memory.
#[derive(Clone, Copy)]
struct Region {
    start: *const u8,
    width: usize,
    height: usize,
    depth: usize,
    pitch: usize,
    slice: usize,
}

// SAFETY: the program's memory, which it has promised to leave there until the copy is done.
unsafe impl Send for Region {}

impl Region {
    fn row(start: *const c_void, bytes: usize) -> Self {
        Self { start: start.cast(), width: bytes, height: 1, depth: 1, pitch: 0, slice: 0 }
    }

    fn bytes(&self) -> usize {
        self.width * self.height * self.depth
    }

    fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        for slice in 0..self.depth {
            for row in 0..self.height {
                let start = self.start.wrapping_add(slice * self.slice + row * self.pitch);
                // SAFETY: the driver has written the whole of it.
                digest.add(unsafe { handed::list(start, self.width) });
            }
        }
        digest.0
    }
}

/// Not for keeping secrets: differs if a bit differs.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            self.0 = (self.0 ^ word).wrapping_mul(ODD).rotate_left(29);
        }
        for byte in words.remainder() {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(ODD).rotate_left(29);
        }
        self.0 = (self.0 ^ bytes.len() as u64).wrapping_mul(ODD);
        self.0 ^= self.0 >> 32;
    }
}

/// Bytes that were copied to the host.
///
/// # Safety
/// They are there.
pub(crate) unsafe fn row(copied: Copied, to: *const c_void, bytes: usize) {
    leave(copied, Region::row(to, bytes));
}

/// Bytes that were copied to an address, which may be the host's.
///
/// # Safety
/// They are there.
pub(crate) unsafe fn unified(copied: Copied, to: CUdeviceptr, bytes: usize) {
    if let Some(start) = on_host(to) {
        leave(copied, Region::row(start, bytes));
    }
}

/// Several copies in one call.
///
/// # Safety
/// The driver has read these lists.
pub(crate) unsafe fn batch(copied: Copied, to: *const CUdeviceptr, bytes: *const usize, count: usize) {
    // SAFETY: the caller's promise.
    let to = unsafe { handed::list(to, count) };
    // SAFETY: the caller's promise.
    let bytes = unsafe { handed::list(bytes, count) };
    for (to, bytes) in to.iter().zip(bytes) {
        // SAFETY: the caller's promise.
        unsafe { unified(copied, *to, *bytes) };
    }
}

/// Rows.
///
/// # Safety
/// The driver has read it.
pub(crate) unsafe fn rows(copied: Copied, copy: *const CUDA_MEMCPY2D) {
    // SAFETY: the caller's promise.
    let copy = unsafe { &*copy };
    if let Some(start) = place(copy.dstMemoryType, copy.dstHost, copy.dstDevice) {
        let start = start.cast::<u8>().wrapping_add(copy.dstY * copy.dstPitch + copy.dstXInBytes);
        let (width, height, pitch) = (copy.WidthInBytes, copy.Height, copy.dstPitch);
        leave(copied, Region { start, width, height, depth: 1, pitch, slice: 0 });
    }
}

/// Slices of rows.
///
/// # Safety
/// The driver has read it.
pub(crate) unsafe fn slices(copied: Copied, copy: *const CUDA_MEMCPY3D) {
    // SAFETY: the caller's promise.
    let copy = unsafe { &*copy };
    if let Some(start) = place(copy.dstMemoryType, copy.dstHost, copy.dstDevice) {
        let slice = copy.dstPitch * copy.dstHeight;
        let offset = copy.dstZ * slice + copy.dstY * copy.dstPitch + copy.dstXInBytes;
        let start = start.cast::<u8>().wrapping_add(offset);
        let (width, height, depth, pitch) = (copy.WidthInBytes, copy.Height, copy.Depth, copy.dstPitch);
        leave(copied, Region { start, width, height, depth, pitch, slice });
    }
}

fn place(kind: CUmemorytype, host: *mut c_void, unified: CUdeviceptr) -> Option<*const c_void> {
    match kind {
        CUmemorytype::CU_MEMORYTYPE_HOST => Some(host.cast_const()),
        CUmemorytype::CU_MEMORYTYPE_UNIFIED => on_host(unified),
        _ => None,
    }
}

/// The address as the host's, if it is.
fn on_host(address: CUdeviceptr) -> Option<*const c_void> {
    let host = known_as(address).is_none_or(|kind| kind == CUmemorytype::CU_MEMORYTYPE_HOST);
    let address = usize::try_from(address.0).ok()?;
    (host && address != 0).then_some(core::ptr::with_exposed_provenance(address))
}

/// What the driver knows an address as: pinned memory is known to it, plain memory is not.
fn known_as(address: CUdeviceptr) -> Option<CUmemorytype> {
    let mut kind = CUmemorytype(0);
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    is_ok(cu!(cuPointerGetAttribute((&raw mut kind).cast(), attribute, address))).then_some(kind)
}

/// A stream was made: it is called by its number in the order of making.
pub(crate) fn stream_made(stream: CUstream) {
    if active() {
        let number = NEXT_STREAM.fetch_add(1, Ordering::Relaxed);
        STREAMS.insert(stream.0.addr(), |place| place.store(number, Ordering::Relaxed));
    }
}

fn number_of(stream: CUstream, default: DefaultStream) -> u32 {
    match (stream.0.addr(), default) {
        (0, DefaultStream::Legacy) | (1, _) => 0,
        (0, DefaultStream::PerThread) | (2, _) => PER_THREAD_NUMBER.try_with(|number| *number).unwrap_or(PER_THREAD),
        (handle, _) => STREAMS.find(handle).map_or(u32::MAX, |number| number.load(Ordering::Relaxed)),
    }
}

/// A copy on its way.
struct Pending {
    region: Region,
    stream: u32,
    /// It is part of a graph and may come again.
    kept: bool,
}

fn leave(copied: Copied, region: Region) {
    let stream = number_of(copied.stream, copied.default);
    let Some(behind) = copied.behind else { return write(region, stream) };
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    cu!(cuStreamIsCapturing(behind, &raw mut status));
    let kept = status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // A copy to plain memory is done when the call returns, and a program may count on that.
    if !kept && known_as(CUdeviceptr_v2(region.start.expose_provenance() as u64)).is_none() {
        return write(region, stream);
    }
    let pending = Box::into_raw(Box::new(Pending { region, stream, kept }));
    let code = match copied.default {
        DefaultStream::Legacy => cu!(cuLaunchHostFunc(behind, Some(arrived), pending.cast())),
        DefaultStream::PerThread => cu!(cuLaunchHostFunc_ptsz(behind, Some(arrived), pending.cast())),
    };
    if !is_ok(code) {
        // SAFETY: made above, and the driver has not taken it.
        drop(unsafe { Box::from_raw(pending) });
    }
}

/// Run in the stream behind the copy.
unsafe extern "C" fn arrived(pending: *mut c_void) {
    crate::boundary::guarded((), || {
        let pending = pending.cast::<Pending>();
        // SAFETY: made by `leave`, and freed below at the earliest.
        let &Pending { region, stream, kept } = unsafe { &*pending };
        write(region, stream);
        if !kept {
            // SAFETY: made from a box by `leave`; the driver calls this once outside of graphs.
            drop(unsafe { Box::from_raw(pending) });
        }
    });
}

fn write(region: Region, stream: u32) {
    let (bytes, digest) = (region.bytes(), region.digest());
    line(|number| {
        format!(
            "{{\"number\":{number},\"kind\":\"copy\",\"stream\":{stream},\"bytes\":{bytes},\"digest\":\"{digest:016x}\"}}"
        )
    });
}

/// Host memory that kernels can write, by address: size, number, and the last digest.
static MAPPED: Mutex<BTreeMap<usize, (usize, u32, u64)>> = Mutex::new(BTreeMap::new());

fn mapped() -> MutexGuard<'static, BTreeMap<usize, (usize, u32, u64)>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// There is new memory that both sides can write.
pub(crate) fn memory_made(address: usize, bytes: usize) {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    if active() && address != 0 && bytes > 0 {
        let first = Region::row(core::ptr::with_exposed_provenance(address), bytes).digest();
        mapped().insert(address, (bytes, NEXT.fetch_add(1, Ordering::Relaxed), first));
    }
}

/// Memory that both sides can write is about to go.
pub(crate) fn memory_gone(address: usize) {
    if active() {
        mapped().remove(&address);
    }
}

/// A context may be about to go, and its memory with it: none of it is looked at any more.
pub(crate) fn context_goes() {
    if active() {
        mapped().clear();
    }
}

/// The GPU has done everything: what it has changed in the host's memory can be seen.
pub(crate) fn all_is_done() {
    if !active() {
        return;
    }
    for (address, (bytes, allocation, last)) in mapped().iter_mut() {
        let digest = Region::row(core::ptr::with_exposed_provenance(*address), *bytes).digest();
        if core::mem::replace(last, digest) != digest {
            line(|number| {
                format!(
                    "{{\"number\":{number},\"kind\":\"memory\",\"allocation\":{allocation},\"bytes\":{bytes},\
                     \"digest\":\"{digest:016x}\"}}"
                )
            });
        }
    }
}

/// The file of this process.
struct Record {
    process: u32,
    file: Option<File>,
}

static RECORD: Mutex<Record> = Mutex::new(Record { process: 0, file: None });

/// The record of this process; its first line says who it is.
fn record() -> MutexGuard<'static, Record> {
    let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if record.process != process {
        NEXT_RECORD.store(1, Ordering::Relaxed);
        *record = Record { process, file: settings::get().digest.as_deref().and_then(open) };
    }
    record
}

/// The driver is open: from here on there is a record, even if nothing leaves the GPU.
pub(crate) fn driver_is_open() {
    if active() {
        drop(record());
    }
}

/// In a forked child. Where the driver was open it is of no use there, and another thread may have been writing.
pub(crate) fn forked() {
    if crate::resolve::opened().is_some() {
        ACTIVE.store(false, Ordering::Relaxed);
    }
}

fn line(text: impl FnOnce(u64) -> String) {
    let mut record = record();
    let Some(file) = &mut record.file else { return };
    let number = NEXT_RECORD.fetch_add(1, Ordering::Relaxed);
    // A full disk shows as a record that ends early.
    let _ = file.write_all((text(number) + "\n").as_bytes());
}

/// Adds to what is there: a process that becomes another program goes on in the same file.
fn open(path: &OsStr) -> Option<File> {
    let path = crate::stats::file_for_this_process(path, settings::get().process);
    let mut file = File::options().create(true).append(true).open(path).ok()?;
    let program = crate::stats::json(&std::env::current_exe().unwrap_or_default().to_string_lossy());
    let (process, started) = (std::process::id(), started());
    let first = format!("{{\"process\":{process},\"started\":{started},\"program\":{program}}}\n");
    file.write_all(first.as_bytes()).ok()?;
    Some(file)
}

/// When this process began, in nanoseconds since the machine did; 0 if that cannot be found out.
fn started() -> u64 {
    /// The kernel counts in hundredths of a second here.
    const NANOSECONDS: u64 = 10_000_000;
    /// Counted from behind the program's name, which may contain anything.
    const FIELD: usize = 19;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().nth(FIELD).and_then(|field| field.parse::<u64>().ok());
    ticks.unwrap_or(0) * NANOSECONDS
}
