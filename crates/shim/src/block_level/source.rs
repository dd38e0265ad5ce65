//! The PTX in what a program loads: text, fat binaries, and what it has linked.

use super::{cache, is_wanted, natural};
use crate::call::is_ok;
use detshare_cuda::types::{CUdevice_attribute, CUdevice_v1, CUjitInputType};
use detshare_ptx::fatbin::{self, OwnedEntry};
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the program has handed to the driver.
pub(crate) struct Origin<'a> {
    /// None where its length is not known.
    pub(crate) bytes: Option<Cow<'a, [u8]>>,
    pub(crate) is_library: bool,
    /// Whether the driver compiles it as it would without options.
    pub(crate) is_plain: bool,
}

/// Images of the linker that are remembered; programs load theirs right away.
const IMAGES: usize = 64;
/// A text that is longer takes too long to rewrite.
const MOST_TEXT: usize = 64 << 20;

/// What is linked, and what came of it.
struct Links {
    /// By the linker's handle.
    inputs: Option<HashMap<usize, Inputs>>,
    /// By their content.
    images: VecDeque<(u128, Result<String, String>)>,
}

struct Inputs {
    is_plain: bool,
    texts: Vec<Result<String, String>>,
}

static LINKS: Mutex<Links> = Mutex::new(Links { inputs: None, images: VecDeque::new() });

fn links() -> MutexGuard<'static, Links> {
    LINKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// PTX that was found, as it was.
pub(super) enum Found {
    Text(Vec<u8>),
    Entry(OwnedEntry),
}

impl Found {
    /// Its text, or why there is none. Takes its time where it has to be unpacked.
    pub(super) fn text(self) -> Result<String, String> {
        let text = match self {
            Self::Text(bytes) => String::from_utf8(bytes).map_err(|_| "it is no text".to_string())?,
            Self::Entry(entry) => entry.text().map_err(|error| error.to_string())?,
        };
        if text.len() > MOST_TEXT { Err(format!("it is too big to rewrite: {} bytes", text.len())) } else { Ok(text) }
    }
}

/// The PTX of what runs, or why there is none.
pub(super) fn find(origin: &Origin<'_>) -> Result<Found, String> {
    let Some(bytes) = origin.bytes.as_deref() else { return Err("its length is not known".to_string()) };
    if let Some(linked) = linked(bytes) {
        return linked.map(|text| Found::Text(text.into_bytes()));
    }
    if !origin.is_plain {
        return Err("it is compiled with options of its own".to_string());
    }
    find_in(bytes)
}

fn find_in(bytes: &[u8]) -> Result<Found, String> {
    if bytes.starts_with(&fatbin::MAGIC.to_le_bytes()) {
        let entries = fatbin::entries(bytes).map_err(|error| error.to_string())?;
        let entry = fatbin::ptx_of_what_runs(&entries, architecture()).map_err(|error| error.to_string())?;
        Ok(Found::Entry(entry.owned()))
    } else if bytes.starts_with(b"\x7fELF") {
        Err("it is machine code without PTX".to_string())
    } else {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(Found::Text(bytes[..end].to_vec()))
    }
}

/// The current device's, such as 90.
pub(super) fn architecture() -> u32 {
    use CUdevice_attribute as Attribute;
    of_device(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10
        + of_device(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
}

/// What the driver says of the current device; 0 where there is none.
pub(super) fn of_device(attribute: CUdevice_attribute) -> u32 {
    let (mut device, mut value) = (CUdevice_v1(0), 0);
    if is_ok(cu!(cuCtxGetDevice(&raw mut device))) {
        cu!(cuDeviceGetAttribute(&raw mut value, attribute, device));
    }
    natural(value)
}

/// What an image was linked from, if it was linked here.
fn linked(image: &[u8]) -> Option<Result<String, String>> {
    let links = links();
    if links.images.is_empty() || image.len() > MOST_TEXT {
        return None;
    }
    let number = cache::number(&[image]);
    links.images.iter().rev().find(|(known, _)| *known == number).map(|(_, text)| text.clone())
}

/// The program has made a linker.
pub(crate) fn link_created(state: usize, is_plain: bool) {
    if is_wanted() {
        links().inputs.get_or_insert_default().insert(state, Inputs { is_plain, texts: Vec::new() });
    }
}

/// The program has added to it. Without bytes it is known that there is more.
pub(crate) fn link_added(state: usize, kind: CUjitInputType, bytes: Option<&[u8]>, is_plain: bool) {
    let mut links = links();
    let Some(inputs) = links.inputs.as_mut().and_then(|inputs| inputs.get_mut(&state)) else { return };
    inputs.is_plain &= is_plain;
    inputs.texts.push(match (kind, bytes) {
        (CUjitInputType::CU_JIT_INPUT_PTX | CUjitInputType::CU_JIT_INPUT_FATBINARY, Some(bytes)) => {
            find_in(bytes).and_then(Found::text)
        }
        _ => Err("it is linked with machine code or libraries".to_string()),
    });
}

/// The linker has made an image.
pub(crate) fn link_completed(state: usize, image: &[u8]) {
    let mut links = links();
    // Whether it is may have been said since the caller looked; what came before is forgotten then, with this lock held.
    if !is_wanted() {
        return;
    }
    let Some(inputs) = links.inputs.as_ref().and_then(|inputs| inputs.get(&state)) else { return };
    let text = match inputs.texts.as_slice() {
        _ if !inputs.is_plain => Err("it is compiled with options of its own".to_string()),
        [text] => text.clone(),
        _ => Err("it is linked from several pieces".to_string()),
    };
    if links.images.len() >= IMAGES {
        links.images.pop_front();
    }
    links.images.push_back((cache::number(&[image]), text));
}

/// What was linked is not of interest. What is being linked goes when the program is done with it.
pub(super) fn forget_images() {
    links().images.clear();
}

pub(crate) fn link_destroyed(state: usize) {
    if let Some(inputs) = links().inputs.as_mut() {
        inputs.remove(&state);
    }
}
