//! Launches: where a logical stream is bound to a lane.

use super::replace;
use crate::block_level::Arguments;
use crate::coroutine::active;
use crate::entries::counter;
use crate::kernel::Shape;
use crate::stats::count;
use crate::{bind, handed};
use core::ffi::{c_uint, c_void};
use detshare_cuda::DefaultStream;
use detshare_cuda::types::{CUDA_LAUNCH_PARAMS, CUfunction, CUlaunchConfig, CUresult, CUstream};

macro_rules! launches {
    ($default:ident: $kernel:ident $kernel_ex:ident $cooperative:ident) => {
        replace! {
            fn $kernel(
                function: CUfunction, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
                shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void,
            ) {
                /// Apart, so that a launch with nothing to decide needs no frame of its own.
                #[inline(never)]
                extern "C" fn decide(
                    function: CUfunction, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
                    shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void,
                ) -> CUresult {
                    let call =
                        |stream| cu!($kernel(function, x, y, z, bx, by, bz, shared, stream, parameters, extra));
                    let shape = Shape::new([x, y, z], [bx, by, bz], shared);
                    let arguments = Some(Arguments { parameters, extra });
                    bind::launch(stream, DefaultStream::$default, function, &shape, arguments, call)
                }
                count(counter::$kernel);
                if !active() {
                    return cu!($kernel(function, x, y, z, bx, by, bz, shared, stream, parameters, extra));
                }
                decide(function, x, y, z, bx, by, bz, shared, stream, parameters, extra)
            }
            fn $cooperative(
                function: CUfunction, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
                shared: c_uint, stream: CUstream, parameters: *mut *mut c_void,
            ) {
                count(counter::$cooperative);
                let call = |stream| cu!($cooperative(function, x, y, z, bx, by, bz, shared, stream, parameters));
                if !active() {
                    return call(stream);
                }
                let shape = Shape { cooperative: true, ..Shape::new([x, y, z], [bx, by, bz], shared) };
                bind::launch(stream, DefaultStream::$default, function, &shape, None, call)
            }
            fn $kernel_ex(
                config: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void,
                extra: *mut *mut c_void,
            ) {
                count(counter::$kernel_ex);
                if !active() || config.is_null() {
                    return cu!($kernel_ex(config, function, parameters, extra));
                }
                // SAFETY: the caller's promise that it is one, which it leaves alone during the call.
                let config = unsafe { &*config };
                // SAFETY: as above.
                let shape = unsafe { Shape::of(config) };
                let call = |stream| {
                    if stream == config.hStream {
                        return cu!($kernel_ex(config, function, parameters, extra));
                    }
                    let bound = CUlaunchConfig { hStream: stream, ..*config };
                    cu!($kernel_ex(&raw const bound, function, parameters, extra))
                };
                let arguments = Some(Arguments { parameters, extra });
                bind::launch(config.hStream, DefaultStream::$default, function, &shape, arguments, call)
            }
        }
    };
}

launches!(Legacy: cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel);
launches!(PerThread: cuLaunchKernel_ptsz cuLaunchKernelEx_ptsz cuLaunchCooperativeKernel_ptsz);

replace! {
    /// One launch on several devices: at home on each.
    fn cuLaunchCooperativeKernelMultiDevice(launches: *mut CUDA_LAUNCH_PARAMS, devices: c_uint, flags: c_uint) {
        count(counter::cuLaunchCooperativeKernelMultiDevice);
        let bound: Vec<_> = if active() && !launches.is_null() {
            // SAFETY: the caller's promise that there are so many.
            let launches = unsafe { handed::list(launches, devices as usize) };
            launches.iter().map(|launch| bind::launch_at_home(launch.hStream, DefaultStream::Legacy)).collect()
        } else {
            Vec::new()
        };
        let code = cu!(cuLaunchCooperativeKernelMultiDevice(launches, devices, flags));
        drop(bound);
        code
    }
}
