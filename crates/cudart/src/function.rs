//! The runtime's functions as data.

/// One function of the runtime.
#[derive(Debug)]
pub struct Function {
    /// As programs of its release are linked against it.
    pub name: &'static str,
    /// What the name of the variant ends in for which NULL means the calling thread's stream; empty where there is none.
    pub per_thread: &'static str,
    /// The type that it returns.
    pub returns: &'static str,
    /// Name and type of each parameter.
    pub parameters: &'static [(&'static str, &'static str)],
}

include!("generated/functions.rs");

/// The functions that a source of `src/api` has: written out, or as one function of the driver.
pub fn written_in(source: &str) -> impl Iterator<Item = &str> {
    let beginnings = ["pub unsafe fn ", "    fn "];
    let rests = source.lines().filter_map(move |line| beginnings.iter().find_map(|begins| line.strip_prefix(begins)));
    let names = rests.filter_map(|rest| rest.split('(').next());
    names.filter(|name| name.starts_with("cuda") || name.starts_with("__cuda"))
}

const fn error(name: &'static str, parameters: &'static [(&'static str, &'static str)]) -> Function {
    Function { name, per_thread: "", returns: "cudaError_t", parameters }
}

/// In other headers, or in none: what nvcc's generated code calls to launch.
pub static ALSO: &[Function] = &[
    error("cudaProfilerStart", &[]),
    error("cudaProfilerStop", &[]),
    error("__cudaGetKernel", &[("kernel", "*mut cudaKernel_t"), ("function", "*const c_void")]),
    Function {
        name: "__cudaLaunchKernel",
        per_thread: "_ptsz",
        returns: "cudaError_t",
        parameters: &[
            ("kernel", "cudaKernel_t"),
            ("grid", "dim3"),
            ("block", "dim3"),
            ("arguments", "*mut *mut c_void"),
            ("shared", "usize"),
            ("stream", "cudaStream_t"),
        ],
    },
    error(
        "__cudaPopCallConfiguration",
        &[("grid", "*mut dim3"), ("block", "*mut dim3"), ("shared", "*mut usize"), ("stream", "*mut c_void")],
    ),
];

/// Not calls of the driver: they return something else, or what was remembered.
pub static DIRECT: &[&str] = &[
    "cudaCreateChannelDesc",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "__cudaInitModule",
    "__cudaPushCallConfiguration",
    "__cudaRegisterFatBinary",
    "__cudaRegisterFatBinaryEnd",
    "__cudaRegisterFunction",
    "__cudaRegisterHostVar",
    "__cudaRegisterManagedVar",
    "__cudaRegisterUnifiedTable",
    "__cudaRegisterVar",
    "__cudaUnregisterFatBinary",
];

/// In the headers for OpenGL, EGL and VDPAU: a program that never gets to them must still start.
pub static GRAPHICS: &[&str] = &[
    "cudaEGLStreamConsumerAcquireFrame",
    "cudaEGLStreamConsumerConnect",
    "cudaEGLStreamConsumerConnectWithFlags",
    "cudaEGLStreamConsumerDisconnect",
    "cudaEGLStreamConsumerReleaseFrame",
    "cudaEGLStreamProducerConnect",
    "cudaEGLStreamProducerDisconnect",
    "cudaEGLStreamProducerPresentFrame",
    "cudaEGLStreamProducerReturnFrame",
    "cudaEventCreateFromEGLSync",
    "cudaGLGetDevices",
    "cudaGLMapBufferObject",
    "cudaGLMapBufferObjectAsync",
    "cudaGLRegisterBufferObject",
    "cudaGLSetBufferObjectMapFlags",
    "cudaGLSetGLDevice",
    "cudaGLUnmapBufferObject",
    "cudaGLUnmapBufferObjectAsync",
    "cudaGLUnregisterBufferObject",
    "cudaGraphicsEGLRegisterImage",
    "cudaGraphicsGLRegisterBuffer",
    "cudaGraphicsGLRegisterImage",
    "cudaGraphicsResourceGetMappedEglFrame",
    "cudaGraphicsVDPAURegisterOutputSurface",
    "cudaGraphicsVDPAURegisterVideoSurface",
    "cudaVDPAUGetDevice",
    "cudaVDPAUSetVDPAUDevice",
];
