//! What the library takes of the system for what a program allocates: no more than a tenth on top at any time, and nothing
//! that is freed. `cargo test --test footprint -- --nocapture` prints it, and `DETSHARE_FOOTPRINT=FILE` writes it down.

use core::ffi::{CStr, c_void};
use core::num::NonZero;
use core::ptr::null_mut;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{
    CUDA_KERNEL_NODE_PARAMS_v2, CUcontext, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUfunction, CUgraph, CUgraphExec,
    CUgraphNode, CUmodule, CUresult, CUstream,
};
use detshare_cuda::{Driver, entry};
use std::cell::RefCell;
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Calls a function of the driver by its name, which must succeed.
macro_rules! ok {
    ($driver:expr, $function:ident($($argument:expr),*)) => {{
        let function = $driver.function(entry::$function).expect(stringify!($function));
        #[allow(clippy::macro_metavars_in_unsafe, reason = "the arguments are the test's own, a line away")]
        // SAFETY: places to write to, and memory of the test's own.
        let result = unsafe { function($($argument),*) };
        assert_eq!(result, CUresult::CUDA_SUCCESS, stringify!($function));
    }};
}

const MIB: usize = 1 << 20;
/// What is neither the program's nor the library's: stacks, the allocator, pages of code.
const SLACK: usize = 6 * MIB;
/// What a thread that runs blocks keeps for the next one; there is one for each core.
const SLACK_PER_CORE: usize = 2 * MIB;

/// What is allocated at once, and how often something is made and freed again.
const LARGE: usize = 64 * MIB;
const ROUNDS: usize = 20;

/// Bytes of this process that are in memory now, or that were at most since [`Program::forget_the_most`].
fn in_memory(line: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says how a process is");
    let line = status.lines().find_map(|text| text.strip_prefix(line)).expect("with its memory");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number") * 1024
}

/// What the program was found to take, case by case.
struct Program {
    driver: Driver,
    /// With a context and nothing else.
    base: usize,
    /// What it may take besides.
    slack: usize,
    cases: RefCell<Vec<String>>,
}

impl Program {
    fn alloc(&self, bytes: usize) -> CUdeviceptr {
        let mut memory = CUdeviceptr_v2(0);
        ok!(self.driver, cuMemAlloc_v2(&raw mut memory, bytes));
        ok!(self.driver, cuMemsetD8_v2(memory, 1, bytes));
        memory
    }

    /// What is in memory now counts as the most from now on.
    fn forget_the_most(&self) {
        std::fs::write("/proc/self/clear_refs", "5").expect("a process may forget how much memory it had");
    }

    /// Fails where there was more in memory than `wanted` and a tenth on top of the base, since the last judgement.
    fn judge(&self, what: &str, wanted: usize) {
        let (most, allowed) = (in_memory("VmHWM:"), self.base + wanted + wanted / 10 + self.slack);
        self.write_down(what, "at most", most, wanted);
        assert!(most <= allowed, "{what}: {most} bytes where {allowed} are allowed");
        self.forget_the_most();
    }

    /// The same after something was freed, whatever there was before.
    fn judge_what_is_left(&self, what: &str) {
        let (now, allowed) = (in_memory("VmRSS:"), self.base + self.slack);
        self.write_down(what, "left", now, 0);
        assert!(now <= allowed, "{what}: {now} bytes where {allowed} are allowed");
        self.forget_the_most();
    }

    fn write_down(&self, what: &str, kind: &str, bytes: usize, wanted: usize) {
        let (taken, wanted) = (bytes.saturating_sub(self.base) / 1024, wanted / 1024);
        println!("{what}: {kind} {taken} KiB for {wanted} KiB");
        self.cases.borrow_mut().push(format!(
            "{{ \"program\": \"{what}\", \"figure\": \"{kind}\", \"kib\": {taken}, \"allocated_kib\": {wanted} }}"
        ));
    }

    fn load(&self, image: &CStr) -> CUmodule {
        let mut module = CUmodule(null_mut());
        ok!(self.driver, cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
        module
    }

    fn function(&self, module: CUmodule, name: &CStr) -> CUfunction {
        let mut function = CUfunction(null_mut());
        ok!(self.driver, cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
        function
    }
}

fn open() -> Driver {
    let folder = std::env::var_os("DETSHARE_BUILT")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release"), PathBuf::from);
    let path = folder.join("libdetshare_softgpu.so").canonicalize();
    let path = path.expect("run the tests by `cargo xtask test`, which builds the library");
    Driver::open(&path, Visibility::Local).expect("the software GPU is a driver")
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux lists a process's threads").count()
}

#[test]
fn a_program_pays_for_what_it_allocates() {
    let before = threads();
    let driver = open();
    ok!(driver, cuInit(0));
    // Programs look whether there is a GPU and then use none: threads come with the first kernel or copy.
    assert_eq!(threads(), before, "threads of a driver that nothing was asked of");
    let mut context = CUcontext(null_mut());
    ok!(driver, cuCtxCreate_v2(&raw mut context, 0, CUdevice_v1(0)));
    let base = in_memory("VmRSS:");
    let slack = SLACK + SLACK_PER_CORE * std::thread::available_parallelism().map_or(1, NonZero::get);
    let program = Program { driver, base, slack, cases: RefCell::new(Vec::new()) };
    large_ones(&program);
    small_ones(&program);
    memory_of_other_kinds(&program);
    kernels(&program);
    modules(&program);
    graphs(&program);
    // What is left alive goes with its context.
    program.alloc(LARGE);
    program.judge("memory that is left alive", LARGE);
    ok!(program.driver, cuCtxDestroy_v2(context));
    program.judge_what_is_left("the context destroyed");
    if let Some(file) = std::env::var_os("DETSHARE_FOOTPRINT") {
        let cases = program.cases.borrow().join(",\n");
        std::fs::write(file, format!("{{ \"slack_kib\": {}, \"cases\": [\n{cases}\n] }}\n", program.slack / 1024))
            .expect("figures are written");
    }
}

/// Whole and gone; what is not touched takes nothing.
fn large_ones(program: &Program) {
    let driver = &program.driver;
    let large: Vec<_> = (0..8).map(|_| program.alloc(32 * MIB)).collect();
    program.judge("8 of 32 MiB", 256 * MIB);
    for memory in large {
        ok!(driver, cuMemFree_v2(memory));
    }
    program.judge_what_is_left("8 of 32 MiB freed");
    let mut untouched = CUdeviceptr_v2(0);
    ok!(driver, cuMemAlloc_v2(&raw mut untouched, 100 << 30));
    program.judge("100 GiB that nobody touches", 0);
    ok!(driver, cuMemFree_v2(untouched));
}

/// Every other one freed again and again: nothing grows.
fn small_ones(program: &Program) {
    for round in 0..5 {
        let size = |index: usize| 512 * (1 + (index * 7 + round) % 40);
        let small: Vec<_> = (0..2_000).map(|index| program.alloc(size(index))).collect();
        program.judge("2,000 small ones", (0..2_000).map(size).sum());
        let (even, odd): (Vec<_>, Vec<_>) = small.into_iter().enumerate().partition(|(index, _)| index % 2 == 0);
        for (_, memory) in even.into_iter().chain(odd) {
            ok!(program.driver, cuMemFree_v2(memory));
        }
    }
    program.judge_what_is_left("2,000 small ones freed");
}

/// In a stream's order, pinned, and managed.
fn memory_of_other_kinds(program: &Program) {
    let driver = &program.driver;
    let stream = CUstream(null_mut());
    let first = program.alloc(1);
    for _ in 0..50 {
        let mut memory = CUdeviceptr_v2(0);
        ok!(driver, cuMemAllocAsync(&raw mut memory, 8 * MIB, stream));
        ok!(driver, cuMemsetD8Async(memory, 1, 8 * MIB, stream));
        ok!(driver, cuMemFreeAsync(memory, stream));
        let mut host = null_mut();
        ok!(driver, cuMemHostAlloc(&raw mut host, 4 * MIB, 0));
        ok!(driver, cuMemcpyDtoH_v2(host, first, 1));
        ok!(driver, cuMemFreeHost(host));
        ok!(driver, cuMemAllocManaged(&raw mut memory, 4 * MIB, 1));
        ok!(driver, cuMemsetD8_v2(memory, 1, 4 * MIB));
        ok!(driver, cuMemFree_v2(memory));
    }
    ok!(driver, cuCtxSynchronize());
    program.judge("50 rounds of pool, pinned and managed memory", 16 * MIB);
    ok!(driver, cuMemFree_v2(first));
    program.judge_what_is_left("50 rounds of pool, pinned and managed memory, freed");
}

/// Every thread fills 4 KiB of its own and its part of 48 KiB of the block's, and adds a number that it finds there.
const KERNEL: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 data)
{
    .shared .align 4 .b8 block_memory[49152];
    .local .align 4 .b8 own_memory[4096];
    .reg .pred %more;
    .reg .b32 %block, %size, %thread, %i, %value, %offset;
    .reg .b64 %data, %at, %own;
    ld.param.u64 %data, [data];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u64 %own, own_memory;
    mov.u32 %i, 4096;
OWN:
    sub.u32 %i, %i, 4;
    cvt.u64.u32 %at, %i;
    add.u64 %at, %at, %own;
    st.local.u32 [%at], %thread;
    setp.ne.u32 %more, %i, 0;
    @%more bra OWN;
    mul.lo.u32 %i, %thread, 4;
    mov.u32 %offset, block_memory;
    add.u32 %offset, %offset, %i;
BLOCK:
    st.shared.u32 [%offset], %thread;
    add.u32 %offset, %offset, 512;
    add.u32 %i, %i, 512;
    setp.lt.u32 %more, %i, 49152;
    @%more bra BLOCK;
    bar.sync 0;
    ld.local.u32 %value, [%own];
    mad.lo.u32 %i, %block, %size, %thread;
    mul.wide.u32 %at, %i, 4;
    add.u64 %data, %data, %at;
    st.global.u32 [%data], %value;
    ret;
}
.visible .entry empty()
{
    ret;
}
";
const THREADS: u32 = 128;

/// Blocks that have memory of their own; they are more than run at once, and it is not a matter of how many they are.
fn kernels(program: &Program) {
    let driver = &program.driver;
    let module = program.load(KERNEL);
    let fill = program.function(module, c"fill");
    let mut data = program.alloc(LARGE);
    for blocks in [16, 256] {
        let mut parameters: [*mut c_void; 1] = [(&raw mut data).cast()];
        let (stream, none) = (CUstream(null_mut()), null_mut());
        for _ in 0..2 {
            let parameters = parameters.as_mut_ptr();
            ok!(driver, cuLaunchKernel(fill, blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, none));
        }
        ok!(driver, cuCtxSynchronize());
        let mut last = 0_u32;
        let at = CUdeviceptr_v2(data.0 + u64::from(blocks * THREADS - 1) * 4);
        ok!(driver, cuMemcpyDtoH_v2((&raw mut last).cast(), at, 4));
        assert_eq!(last, THREADS - 1, "the last thread's own memory");
        program.judge(&format!("{blocks} blocks with 48 KiB each and 4 KiB a thread"), LARGE);
    }
    ok!(driver, cuMemFree_v2(data));
    ok!(driver, cuModuleUnload(module));
    program.judge_what_is_left("kernels' memory freed");
}

/// Modules with variables, several at once and one after the other.
fn modules(program: &Program) {
    let driver = &program.driver;
    let image = format!("{}\n.visible .global .align 4 .b8 variable[{}];\n", KERNEL.to_str().expect("text"), 4 * MIB);
    let image = CString::new(image).expect("text");
    for _ in 0..ROUNDS {
        let modules: Vec<_> = (0..8).map(|_| program.load(&image)).collect();
        for module in modules {
            let (mut variable, mut bytes) = (CUdeviceptr_v2(0), 0);
            ok!(driver, cuModuleGetGlobal_v2(&raw mut variable, &raw mut bytes, module, c"variable".as_ptr()));
            ok!(driver, cuMemsetD8_v2(variable, 1, bytes));
            ok!(driver, cuModuleUnload(module));
        }
    }
    program.judge("8 modules with 4 MiB each, 20 times", 32 * MIB);
    program.judge_what_is_left("modules unloaded");
}

/// Graphs of kernels, launched, and graphs that allocate.
fn graphs(program: &Program) {
    let driver = &program.driver;
    let module = program.load(KERNEL);
    let empty = program.function(module, c"empty");
    let stream = CUstream(null_mut());
    for _ in 0..ROUNDS {
        let mut graph = CUgraph(null_mut());
        ok!(driver, cuGraphCreate(&raw mut graph, 0));
        // SAFETY: integers and pointers, for which zero is a value.
        let mut kernel: CUDA_KERNEL_NODE_PARAMS_v2 = unsafe { core::mem::zeroed() };
        (kernel.func, kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ) = (empty, 1, 1, 1);
        (kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ) = (THREADS, 1, 1);
        let mut last = CUgraphNode(null_mut());
        for index in 0..200 {
            let before = last;
            let count = usize::from(index > 0);
            let parameters = &raw const kernel;
            ok!(driver, cuGraphAddKernelNode_v2(&raw mut last, graph, &raw const before, count, parameters));
        }
        let mut executable = CUgraphExec(null_mut());
        ok!(driver, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
        for _ in 0..10 {
            ok!(driver, cuGraphLaunch(executable, stream));
        }
        ok!(driver, cuStreamSynchronize(stream));
        ok!(driver, cuGraphExecDestroy(executable));
        ok!(driver, cuGraphDestroy(graph));
    }
    program.judge("graphs of 200 kernels, 20 times", 0);
    ok!(driver, cuModuleUnload(module));
    program.judge_what_is_left("graphs destroyed");
}
