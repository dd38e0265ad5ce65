//! The device runtime: functions that programs take from NVIDIA's `libcudadevrt.a`. That is machine code; ours is PTX.

/// What takes the library's place.
pub(crate) const TEXT: &str = include_str!("device_runtime.ptx");

/// What a static library begins with.
const ARCHIVE: &[u8] = b"!<arch>\n";
/// The library's one object.
const OBJECT: &[u8] = b"cuda_device_runtime.o";

/// Whether these bytes are that library: the names of an archive's members are at its beginning.
pub(crate) fn is_it(bytes: &[u8]) -> bool {
    const NAMES: usize = 64 << 10;
    let names = &bytes[..bytes.len().min(NAMES)];
    names.starts_with(ARCHIVE) && names.windows(OBJECT.len()).any(|name| name == OBJECT)
}

/// Whether these texts need it: nvcc has programs linked with it that launch kernels from kernels, and a text alone says so by
/// what it calls.
pub(crate) fn is_needed(texts: &[String]) -> bool {
    texts.iter().any(|text| text.contains("__cudaCDP2")) && !texts.iter().any(|text| text.starts_with(TEXT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::Module;

    #[test]
    fn the_library_is_known_by_its_object() {
        assert!(is_it(b"!<arch>\n//    24    `\ncuda_device_runtime.o/\n"));
        assert!(!is_it(b"!<arch>\n//    24    `\nother.o/\n"));
        assert!(!is_it(b"cuda_device_runtime.o"));
        assert!(!is_it(b""));
    }

    #[test]
    fn it_comes_along_once() {
        let caller = ".extern .func (.param .b32 r) __cudaCDP2GetLastError();".to_string();
        assert!(is_needed(std::slice::from_ref(&caller)));
        assert!(!is_needed(&[caller, TEXT.to_string()]));
        assert!(!is_needed(&[".version 8.0".to_string()]));
    }

    #[test]
    fn our_functions_load() {
        let module = Module::load(&[TEXT.to_string()], None);
        assert!(module.is_ok_and(|module| {
            module.unload();
            true
        }));
    }
}
