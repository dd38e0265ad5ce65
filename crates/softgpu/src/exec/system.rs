//! Calls of functions that the system brings: `vprintf`, `malloc` and the like.

use super::access::{bytes_at, from_bytes, resolve};
use super::block::Surroundings;
use super::interface::{Fault, FaultKind};
use super::lanes::{lanes_of, low};
use super::op::{LOCAL_BASE, NOTHING, Place, Runtime, Space, SystemCall, SystemFunction};
use super::program::Program;
use super::warp::{Group, Warp};
use crate::children::{self, Children};
use crate::device_runtime;
use crate::operation::Place as Pitched;
use crate::system::{BadAddress, Sink, conditional, format, text};
use core::sync::atomic::{AtomicU8, Ordering};

/// What `vprintf` returns without a format.
const NO_FORMAT: u64 = u32::MAX as u64;
/// Most characters of each part of a failed assertion.
const MOST_OF_ASSERTION: usize = 4096;

impl Warp {
    /// Runs the call for each lane in turn.
    pub(super) fn system_call(
        &mut self,
        program: &Program,
        block: &mut Surroundings,
        group: Group,
        call: &SystemCall,
        active: u32,
    ) -> Result<(), Box<Fault>> {
        for lane in lanes_of(active) {
            let arguments: Vec<u64> = call.arguments.iter().map(|place| self.value(group, *place, lane)).collect();
            let result = self.system_function(block, lane, call.function, &arguments);
            let result = result.map_err(|(kind, what)| self.fault(program, block, group, lane, kind, &what))?;
            if let Some(place) = call.result {
                self.set_value(group, place, lane, result);
            }
        }
        match call.function {
            SystemFunction::AssertFail => {
                let first = active.trailing_zeros() as usize;
                Err(self.fault(program, block, group, first, FaultKind::Assert, "failed assertion"))
            }
            _ => Ok(()),
        }
    }

    fn system_function(
        &mut self,
        block: &mut Surroundings,
        lane: usize,
        function: SystemFunction,
        arguments: &[u64],
    ) -> Result<u64, (FaultKind, String)> {
        let no_memory = |BadAddress(address)| (FaultKind::IllegalAddress, format!("no memory at {address:#x}"));
        let system = std::sync::Arc::clone(&block.shape.system);
        match (function, arguments) {
            (SystemFunction::Print, [0, _]) => Ok(NO_FORMAT),
            (SystemFunction::Print, [template, values]) => {
                let mut bytes = |address| self.byte(block, lane, address);
                let (line, count) = format(*template, *values, system.output.room(), &mut bytes).map_err(no_memory)?;
                system.output.print(Sink::Standard, line);
                Ok(count as u64)
            }
            (SystemFunction::Allocate, [bytes]) => Ok(system.heap.allocate(*bytes)),
            (SystemFunction::Free, [address]) => match system.heap.free(*address) {
                true => Ok(0),
                false => {
                    let what = format!("free of {address:#x}, which malloc did not give,");
                    Err((FaultKind::IllegalAddress, what))
                }
            },
            (SystemFunction::AssertFail, [message, file, line, function, _]) => {
                let [message, file, function] = [message, file, function].map(|address| {
                    let mut bytes = |address| self.byte(block, lane, address);
                    // A text that is not there is left out: the assertion failed all the same.
                    let found = text(&mut bytes, *address, MOST_OF_ASSERTION).unwrap_or_default();
                    String::from_utf8_lossy(&found).into_owned()
                });
                let [x, y, z] = block.index;
                let [tx, ty, tz] = block.thread(self.number, lane);
                let line = format!(
                    "{file}:{line}: {function}: block: [{x},{y},{z}], thread: [{tx},{ty},{tz}] Assertion `{message}` failed.\n"
                );
                system.output.print(Sink::Error, line.into_bytes());
                Ok(0)
            }
            (SystemFunction::SetConditional, [handle, value]) => {
                let value = low(*value);
                match conditional::set(*handle, value) {
                    true => Ok(0),
                    false => Err((FaultKind::IllegalAddress, format!("no conditional {handle:#x} of a graph"))),
                }
            }
            (SystemFunction::Runtime(function), arguments) => self.runtime_function(block, lane, function, arguments),
            _ => Err((FaultKind::InvalidProgramCounter, "call with other arguments".into())),
        }
    }

    /// What the device runtime asks for.
    fn runtime_function(
        &self,
        block: &Surroundings,
        lane: usize,
        function: Runtime,
        arguments: &[u64],
    ) -> Result<u64, (FaultKind, String)> {
        let Some(children) = &block.children else {
            return Err((FaultKind::InvalidProgramCounter, "nothing can be launched here".into()));
        };
        let [x, y, z] = block.index.map(u64::from);
        let [width, height, _] = block.shape.grid.map(u64::from);
        let thread = ((z * height + y) * width + x, self.number * 32 + u32::try_from(lane).unwrap_or_default());
        let sizes = |words: &[u64]| [words[0], words[1], words[2]].map(low);
        let kernel_at = |address: u64| block.kernel.program.kernel_at(address);
        let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let place = |words: &[u64]| Pitched { address: words[0], pitch: bytes(words[1]), slice: bytes(words[2]) };
        let extent = |width: u64, height: u64, depth: u64| [width, height, depth].map(bytes);
        Ok(match (function, arguments) {
            (Runtime::Prepare, [kernel, sizes_of @ .., shared]) if sizes_of.len() == 6 => {
                children.prepare(kernel_at(*kernel), sizes(&sizes_of[..3]), sizes(&sizes_of[3..]), low(*shared))
            }
            (Runtime::Launch, [buffer, stream]) => children.launch(thread, *buffer, *stream, &block.shape).into(),
            (Runtime::Room, [bytes]) => children.room(*bytes),
            (Runtime::LaunchWith, [kernel, buffer, sizes_of @ .., shared, stream]) if sizes_of.len() == 6 => {
                let (grid, block_size) = (sizes(&sizes_of[..3]), sizes(&sizes_of[3..]));
                let prepared = children::Prepared::new(kernel_at(*kernel), grid, block_size, low(*shared));
                children.launch_with(thread, prepared, *buffer, *stream, &block.shape).into()
            }
            (Runtime::Copy, [sides @ .., width, height, depth, stream]) if sides.len() == 6 => {
                let (to, from) = (place(&sides[..3]), place(&sides[3..]));
                children.copy(thread, to, from, extent(*width, *height, *depth), *stream).into()
            }
            (Runtime::Fill, [to @ .., value, width, height, depth, stream]) if to.len() == 3 => {
                children.fill(thread, place(to), low(*value), extent(*width, *height, *depth), *stream).into()
            }
            (Runtime::Create, []) => Children::new_handle(),
            (Runtime::Record, [event, stream]) => children.record(thread, *event, *stream).into(),
            (Runtime::Wait, [stream, event]) => children.wait(thread, *stream, *event).into(),
            (Runtime::LastError, [forget]) => children.last_error(thread, *forget != 0).into(),
            (Runtime::Fail, [error]) => children.fail(thread, low(*error)).into(),
            (Runtime::ErrorText, [error, wants_name]) => device_runtime::error_text(low(*error), *wants_name != 0),
            (Runtime::Device, []) => children.device() as u64,
            (Runtime::DeviceCount, []) => crate::device::settings().devices as u64,
            (Runtime::Attribute, [number, device]) => {
                children.attribute(thread, low(*number), *device).map_or(NOTHING, u64::from)
            }
            (Runtime::Limit, [number]) => children.limit(thread, low(*number), &block.shape.system).unwrap_or(NOTHING),
            (Runtime::CachePreference, []) => block.shape.system.cache_preference.load(Ordering::Relaxed).into(),
            (Runtime::KernelAttribute, [kernel, number]) => {
                children.kernel_attribute(thread, kernel_at(*kernel), low(*number)).map_or(NOTHING, u64::from)
            }
            (Runtime::Resident, [kernel, threads, shared, flags]) => {
                let count = children.resident(thread, kernel_at(*kernel), low(*threads), *shared, low(*flags));
                count.map_or(NOTHING, u64::from)
            }
            _ => return Err((FaultKind::InvalidProgramCounter, "call with other arguments".into())),
        })
    }

    /// The byte at a generic address, as a lane sees it.
    fn byte(&mut self, block: &mut Surroundings, lane: usize, address: u64) -> Result<u8, BadAddress> {
        let (space, within) = resolve(address);
        let found = match space {
            Space::Shared => bytes_at(&mut block.shared, within, 1).map(|byte| byte[0]),
            Space::Local => bytes_at(self.local.of(lane), within, 1).map(|byte| byte[0]),
            Space::Parameters => usize::try_from(within).ok().and_then(|at| block.shape.parameters.get(at)).copied(),
            _ if (block.is_mapped)(address, 1) => {
                let place = core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or_default());
                // SAFETY: a byte of memory that kernels may access, which they do by atomic accesses only.
                Some(unsafe { AtomicU8::from_ptr(place) }.load(Ordering::Relaxed))
            }
            _ => None,
        };
        found.ok_or(BadAddress(address))
    }

    /// An argument of a call.
    fn value(&mut self, group: Group, place: Place, lane: usize) -> u64 {
        match place {
            Place::Register(register) => self.frames[group.frame].registers.read_lane(register, lane),
            Place::Memory { offset, size } => {
                self.argument_bytes(group, lane, offset, size).map_or(0, |bytes| from_bytes(bytes))
            }
        }
    }

    /// The result of a call.
    fn set_value(&mut self, group: Group, place: Place, lane: usize, value: u64) {
        match place {
            Place::Register(register) => self.frames[group.frame].registers.write_lane(register, lane, value),
            Place::Memory { offset, size } => {
                if let Some(bytes) = self.argument_bytes(group, lane, offset, size) {
                    let length = bytes.len();
                    bytes.copy_from_slice(&value.to_le_bytes()[..length]);
                }
            }
        }
    }

    /// Where the frame has an argument or result of a call.
    fn argument_bytes(&mut self, group: Group, lane: usize, offset: u32, size: u32) -> Option<&mut [u8]> {
        let base = self.frames[group.frame].registers.wide[LOCAL_BASE as usize][lane];
        bytes_at(self.local.of(lane), base + u64::from(offset), size.min(8) as usize)
    }
}
