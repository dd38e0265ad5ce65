//! The driver's linker: what goes into an image that the program loads later.

use super::replace;
use crate::block_level;
use crate::boundary::guarded;
use crate::call::is_ok;
use crate::handed;
use core::ffi::{c_char, c_uint, c_void};
use detshare_cuda::types::{CUjit_option, CUjitInputType, CUlinkState};

macro_rules! linkers {
    ($create:ident $add_data:ident $add_file:ident) => {
        replace! {
            fn $create(count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void, state: *mut CUlinkState) {
                let code = cu!($create(count, options, values, state));
                if is_ok(code) && block_level::is_wanted() {
                    // SAFETY: the driver has read so many options, and their values.
                    let is_plain = unsafe { block_level::are_harmless(options, values, count) };
                    // SAFETY: the driver has written there.
                    let state = unsafe { *state };
                    guarded((), || block_level::link_created(state.0.addr(), is_plain));
                }
                code
            }
            fn $add_data(
                state: CUlinkState, kind: CUjitInputType, data: *mut c_void, size: usize, name: *const c_char,
                count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void,
            ) {
                let code = cu!($add_data(state, kind, data, size, name, count, options, values));
                if is_ok(code) && block_level::is_wanted() {
                    // SAFETY: the driver has read as many bytes,
                    let bytes = unsafe { handed::list(data.cast::<u8>(), size) };
                    // SAFETY: and so many options.
                    let is_plain = unsafe { block_level::are_harmless(options, values, count) };
                    guarded((), || block_level::link_added(state.0.addr(), kind, Some(bytes), is_plain));
                }
                code
            }
            fn $add_file(
                state: CUlinkState, kind: CUjitInputType, path: *const c_char, count: c_uint,
                options: *mut CUjit_option, values: *mut *mut c_void,
            ) {
                let code = cu!($add_file(state, kind, path, count, options, values));
                if is_ok(code) && block_level::is_wanted() {
                    guarded((), || block_level::link_added(state.0.addr(), kind, None, true));
                }
                code
            }
        }
    };
}

linkers!(cuLinkCreate cuLinkAddData cuLinkAddFile);
linkers!(cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2);

replace! {
    fn cuLinkComplete(state: CUlinkState, image: *mut *mut c_void, size: *mut usize) {
        let mut bytes = 0;
        let size = if size.is_null() { &raw mut bytes } else { size };
        let code = cu!(cuLinkComplete(state, image, size));
        if is_ok(code) && block_level::is_wanted() {
            // SAFETY: the driver has written there.
            let image = unsafe { *image };
            // SAFETY: likewise.
            let size = unsafe { *size };
            // SAFETY: the driver's image, of that size.
            let image = unsafe { core::slice::from_raw_parts(image.cast::<u8>(), size) };
            guarded((), || block_level::link_completed(state.0.addr(), image));
        }
        code
    }
    fn cuLinkDestroy(state: CUlinkState) {
        guarded((), || block_level::link_destroyed(state.0.addr()));
        cu!(cuLinkDestroy(state))
    }
}
