//! NVIDIA's runtime inside a program: nvcc links it in unless it is told otherwise.
//!
//! That runtime asks the driver for tables that are documented nowhere. But its functions stand in the program under
//! their documented names, as long as nobody has stripped it, and nothing of the program runs before the loader has
//! initialised this library (the build sets `DF_1_INITFIRST`, so that shared libraries of the program come later too).
//! By then each function has become a jump to the one of that name in this library.
//!
//! A program without names stays as it is, and so does a library that is loaded later (`dlopen`), whose kernels are
//! registered before anybody can look at it: their first call fails as on a driver without these tables.
//!
//! Where both releases' libraries are loaded, one of them looks for programs of either release. That of a program is
//! told by a name; CUDA 11 and older are left alone.

use crate::function::{ALSO, DIRECT, RELEASE_12, RELEASE_13};
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, ReadCache, SymbolKind};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// nvcc's code calls it for each fat binary, so no runtime is without it.
const REGISTERS: &str = "__cudaRegisterFatBinary";

/// A name that came with a release and that no other one has.
const TELLS: [(u32, &str); 2] = [(12, "cudaGetDeviceProperties_v2"), (13, "cudaMemGetDefaultMemPool")];

/// `jmp *0(%rip)`, which is followed by where it goes.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const JUMP_SIZE: usize = JUMP.len() + size_of::<u64>();

/// Replaces the runtimes that what is loaded by now carries. Called by the loader, before anything that has one.
pub fn replace() {
    let Some(own) = own_path() else { return };
    let all = loaded();
    // The loader initialises one library before all others: the last of those that want it.
    let ours = TELLS.map(|(release, _)| path_beside(&own, release));
    if all.iter().rev().find(|loaded| ours.contains(&loaded.path)).is_none_or(|last| last.path != own) {
        return;
    }
    for carried in all.iter().filter_map(Carried::find) {
        let ours = path_beside(&own, carried.release);
        if let Some(library) = all.iter().find(|loaded| loaded.path == ours).and_then(Library::of) {
            carried.jump_to(&library);
        }
    }
}

/// The functions of one of our libraries, where they are. From its file: the loader's own functions must not be asked yet, as the C
/// library would have no environment after that.
struct Library(BTreeMap<String, usize>);

impl Library {
    fn of(loaded: &Loaded) -> Option<Self> {
        let file = ReadCache::new(File::open(&loaded.path).ok()?);
        let elf = ElfFile64::<Endianness, _>::parse(&file).ok()?;
        let functions = elf.dynamic_symbols().filter(|it| it.is_definition() && it.kind() == SymbolKind::Text);
        let places = functions.filter_map(|it| Some((it.name().ok()?.to_string(), loaded.at(it.address())?)));
        Some(Self(places.collect()))
    }
}

fn path_beside(own: &Path, release: u32) -> PathBuf {
    own.with_file_name(format!("libdetshare_cudart_{release}.so"))
}

/// Where the loader has this very library from.
fn own_path() -> Option<PathBuf> {
    // SAFETY: pointers, which may be NULL.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let here = replace as fn() as *const c_void;
    // SAFETY: any address, and a place for what is found.
    let found = unsafe { libc::dladdr(here, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's terminated name.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

/// A file that the loader has mapped.
struct Loaded {
    path: PathBuf,
    /// What is added to the file's addresses.
    base: usize,
    /// Its parts that can be run, as addresses of the process.
    code: Vec<Range<usize>>,
}

impl Loaded {
    /// Where an address of the file is.
    fn at(&self, address: u64) -> Option<usize> {
        self.base.checked_add(usize::try_from(address).ok()?)
    }
}

fn loaded() -> Vec<Loaded> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, all: *mut c_void) -> c_int {
        // SAFETY: what `loaded` gave.
        let all = unsafe { &mut *all.cast::<Vec<Loaded>>() };
        // SAFETY: the loader's.
        let info = unsafe { &*info };
        // SAFETY: the loader's terminated name.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
        let path = if name.is_empty() { b"/proc/self/exe" } else { name };
        let base = usize::try_from(info.dlpi_addr).unwrap_or(0);
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: as many headers as the loader says.
        let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let runs = |it: &&libc::Elf64_Phdr| it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_X != 0;
        let code = headers.iter().filter(runs).filter_map(|header| {
            let begin = base.checked_add(usize::try_from(header.p_vaddr).ok()?)?;
            Some(begin..begin.checked_add(usize::try_from(header.p_filesz).ok()?)?)
        });
        all.push(Loaded { path: std::ffi::OsStr::from_bytes(path).into(), base, code: code.collect() });
        0
    }
    let mut all: Vec<Loaded> = Vec::new();
    // SAFETY: the function gets the list that it expects, and the loader calls it until this returns.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all
}

/// A runtime in something that is loaded.
struct Carried {
    release: u32,
    /// Its functions: name, and where there is room for a jump.
    functions: Vec<(String, usize)>,
    code: Range<usize>,
}

impl Carried {
    /// All or nothing: functions of two runtimes know nothing of each other.
    fn find(loaded: &Loaded) -> Option<Self> {
        let file = ReadCache::new(File::open(&loaded.path).ok()?);
        let elf = ElfFile64::<Endianness, _>::parse(&file).ok()?;
        let mut begins = Vec::new();
        let mut named = Vec::new();
        for symbol in elf.symbols().filter(|it| it.is_definition() && it.kind() == SymbolKind::Text) {
            let address = loaded.at(symbol.address())?;
            begins.push(address);
            if let Some(name) = symbol.name().ok().filter(|name| name.starts_with("cuda") || name.starts_with("__cuda"))
            {
                named.push((name.to_string(), address));
            }
        }
        let at = |name: &str| named.iter().find(|(known, _)| known == name).map(|(_, address)| *address);
        let code = at(REGISTERS).and_then(|address| loaded.code.iter().find(|code| code.contains(&address)))?.clone();
        let (release, _) = TELLS.into_iter().find(|(_, name)| at(name).is_some())?;
        // A runtime as a library of its own: programs find their functions there by name.
        if elf.dynamic_symbols().any(|it| it.is_definition() && it.name() == Ok(REGISTERS)) {
            return None;
        }
        let functions: Vec<_> = named.into_iter().filter(|(name, _)| is_of_the_runtime(release, name)).collect();
        begins.sort_unstable();
        let has_room = |address: usize| {
            let next = begins[begins.partition_point(|begin| *begin <= address)..].first();
            let end = next.map_or(code.end, |next| code.end.min(*next));
            code.contains(&address) && end.saturating_sub(address) >= JUMP_SIZE
        };
        functions.iter().all(|(_, address)| has_room(*address)).then_some(Self { release, functions, code })
    }

    fn jump_to(&self, library: &Library) {
        let mut jumps = BTreeMap::new();
        for (name, from) in &self.functions {
            let Some(to) = library.0.get(name) else { return };
            // A linker may have made one of two functions that are alike.
            if jumps.insert(*from, *to).is_some_and(|other| other != *to) {
                return;
            }
        }
        let Some(pages) = pages(&self.code) else { return };
        if !protect(&pages, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) {
            return;
        }
        for (from, to) in jumps {
            let mut jump = [0; JUMP_SIZE];
            jump[..JUMP.len()].copy_from_slice(&JUMP);
            jump[JUMP.len()..].copy_from_slice(&to.to_le_bytes());
            let place = core::ptr::with_exposed_provenance_mut::<[u8; JUMP_SIZE]>(from);
            // SAFETY: a function of the program with room for it, on pages that can be written, and not called yet.
            unsafe { place.write_unaligned(jump) };
        }
        protect(&pages, libc::PROT_READ | libc::PROT_EXEC);
    }
}

/// Another function of the program may have a name that only begins like these.
fn is_of_the_runtime(release: u32, name: &str) -> bool {
    let functions = if release == 12 { RELEASE_12 } else { RELEASE_13 };
    let known = |known: &crate::function::Function| {
        name.strip_prefix(known.name).is_some_and(|rest| rest.is_empty() || rest == known.per_thread)
    };
    DIRECT.contains(&name) || functions.iter().chain(ALSO).any(known)
}

/// The whole pages that a part of the code lies on.
fn pages(code: &Range<usize>) -> Option<Range<usize>> {
    // SAFETY: a number.
    let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    Some(code.start / size * size..code.end.checked_next_multiple_of(size)?)
}

fn protect(pages: &Range<usize>, access: c_int) -> bool {
    let begin = core::ptr::with_exposed_provenance_mut(pages.start);
    // SAFETY: the code of the program stays where it is and can be read and run throughout.
    unsafe { libc::mprotect(begin, pages.len(), access) == 0 }
}
