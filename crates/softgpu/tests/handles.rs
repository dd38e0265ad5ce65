//! Handles that were destroyed, never were, or are of another kind: a code, never a crash. (A GPU's driver follows
//! them and may crash, so this is not part of the conformance suite.)

mod library;

use detshare_cuda::entry;
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr_v2, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmodule, CUresult,
    CUstream,
};
use library::softgpu;

/// Calls it and wants success.
macro_rules! ok {
    ($($call:tt)*) => {
        assert_eq!(cu!($($call)*), CUresult::CUDA_SUCCESS)
    };
}

/// Calls it and wants any error.
macro_rules! refused {
    ($($call:tt)*) => {
        assert_ne!(cu!($($call)*), CUresult::CUDA_SUCCESS)
    };
}

fn none<T>() -> *mut T {
    core::ptr::null_mut()
}

const KERNEL: &core::ffi::CStr = c".version 7.0 .target sm_70 .address_size 64 .visible .entry nothing() { ret; }";

#[test]
fn dead_foreign_and_mistaken_handles_are_refused() {
    let driver = softgpu();
    ok!(driver, cuInit(0));
    let mut context = CUcontext(none());
    ok!(driver, cuCtxCreate_v2(&raw mut context, 0, CUdevice_v1(0)));
    let (mut stream, mut event) = (CUstream(none()), CUevent(none()));
    ok!(driver, cuStreamCreate(&raw mut stream, 0));
    ok!(driver, cuEventCreate(&raw mut event, 0));
    let (mut module, mut function) = (CUmodule(none()), CUfunction(none()));
    ok!(driver, cuModuleLoadData(&raw mut module, KERNEL.as_ptr().cast()));
    ok!(driver, cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()));
    let (mut graph, mut node, mut executable) = (CUgraph(none()), CUgraphNode(none()), CUgraphExec(none()));
    ok!(driver, cuGraphCreate(&raw mut graph, 0));
    ok!(driver, cuGraphAddEmptyNode(&raw mut node, graph, core::ptr::null(), 0));
    ok!(driver, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    let mut memory = CUdeviceptr_v2(0);
    ok!(driver, cuMemAlloc_v2(&raw mut memory, 64));

    // A handle of another kind.
    refused!(driver, cuEventQuery(CUevent(stream.0.cast())));
    refused!(driver, cuStreamQuery(CUstream(event.0.cast())));
    refused!(driver, cuGraphLaunch(CUgraphExec(graph.0.cast()), stream));
    refused!(driver, cuLaunchKernel(CUfunction(module.0.cast()), 1, 1, 1, 1, 1, 1, 0, stream, none(), none()));

    // But where older programs leave what was in the register it is no context at all.
    let mut device = CUdevice_v1(-1);
    for left in [stream.0.cast(), event.0.cast(), core::ptr::without_provenance_mut(0xdead_beef)] {
        ok!(driver, cuCtxGetDevice_v2(&raw mut device, CUcontext(left)));
    }

    ok!(driver, cuStreamDestroy_v2(stream));
    ok!(driver, cuEventDestroy_v2(event));
    ok!(driver, cuModuleUnload(module));
    ok!(driver, cuGraphDestroy(graph));
    ok!(driver, cuGraphExecDestroy(executable));
    ok!(driver, cuMemFree_v2(memory));
    let own = CUstream(none());
    let mut bytes = [0_u8; 64];
    let mut count = 0;
    for _ in 0..2 {
        refused!(driver, cuStreamSynchronize(stream));
        refused!(driver, cuStreamDestroy_v2(stream));
        refused!(driver, cuEventRecord(event, own));
        refused!(driver, cuEventSynchronize(event));
        refused!(driver, cuStreamWaitEvent(own, event, 0));
        refused!(driver, cuModuleUnload(module));
        refused!(driver, cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()));
        refused!(driver, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, own, none(), none()));
        refused!(driver, cuGraphGetNodes(graph, none(), &raw mut count));
        refused!(driver, cuGraphDestroyNode(node));
        refused!(driver, cuGraphLaunch(executable, own));
        refused!(driver, cuGraphExecDestroy(executable));
        refused!(driver, cuMemFree_v2(memory));
        refused!(driver, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory, 64));
        refused!(driver, cuMemsetD8_v2(memory, 0, 64));
        // What never was a handle.
        stream = CUstream(core::ptr::without_provenance_mut(0xdead_beef));
        event = CUevent(core::ptr::without_provenance_mut(0x10));
        module = CUmodule(core::ptr::without_provenance_mut(usize::MAX));
    }
    ok!(driver, cuCtxDestroy_v2(context));
    refused!(driver, cuCtxGetDevice_v2(&raw mut device, context));
    refused!(driver, cuCtxSetCurrent(context));
    refused!(driver, cuCtxDestroy_v2(context));
    refused!(driver, cuMemAlloc_v2(&raw mut memory, 64));
}

/// A module with an instruction that the software GPU does not have, on line 5.
const UNSUPPORTED: &core::ffi::CStr = c".version 8.0
.target sm_90
.address_size 64
.visible .entry tensor() {
    tcgen05.wait::ld.sync.aligned;
    ret;
}
.visible .entry fine() { ret; }";

/// Run as a process of its own by the test below, which reads its log.
#[test]
fn unsupported_instruction() {
    let driver = softgpu();
    ok!(driver, cuInit(0));
    let mut context = CUcontext(none());
    ok!(driver, cuCtxCreate_v2(&raw mut context, 0, CUdevice_v1(0)));
    let (mut module, mut function) = (CUmodule(none()), CUfunction(none()));
    ok!(driver, cuModuleLoadData(&raw mut module, UNSUPPORTED.as_ptr().cast()));
    let own = CUstream(none());
    ok!(driver, cuModuleGetFunction(&raw mut function, module, c"tensor".as_ptr()));
    let code = cu!(driver, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, own, none(), none()));
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    ok!(driver, cuModuleGetFunction(&raw mut function, module, c"fine".as_ptr()));
    ok!(driver, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, own, none(), none()));
    ok!(driver, cuCtxSynchronize());
    ok!(driver, cuCtxDestroy_v2(context));
}

#[test]
fn the_log_names_an_unsupported_instruction_and_its_line() {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "unsupported_instruction", "--nocapture"]).env("DETSHARE_LOG", "1");
    let output = command.output().expect("this test starts again");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    assert!(log.contains("line 5") && log.contains("tcgen05") && log.contains("not supported"), "{log}");
}
