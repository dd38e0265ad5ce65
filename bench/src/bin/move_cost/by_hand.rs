//! What a program would do itself with the bare driver to run on parts of the GPU: the driver's own share of the cost.

use crate::case::Case;
use crate::sides::{Kernel, succeeds};
use anyhow::{Context, Result, ensure};
use core::ptr::null_mut;
use detshare_bench::cu;
use detshare_bench::figures::Side;
use detshare_bench::machine::sms;
use detshare_cuda::types::{
    CUDA_KERNEL_NODE_PARAMS, CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUevent,
    CUevent_flags, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUgreenCtx, CUgreenCtxCreate_flags, CUresult,
    CUstream, CUstream_flags,
};
use detshare_cuda::{Driver, entry};

/// The widths of the shim's splits.
const LADDER: [u32; 5] = [16, 32, 48, 64, 96];
/// The least that can be left over.
const GRANULE: u32 = 8;
/// One event that is recorded anew while it is still waited for costs the driver more than several in turn.
const EVENTS: usize = 8;

/// A set of SMs.
pub(crate) struct Green {
    pub(crate) context: CUcontext,
    pub(crate) stream: CUstream,
}

/// Where a case goes besides the whole GPU: both sides of every split, as the shim has them, or the front of one.
pub(crate) fn others(driver: &Driver, device: CUdevice, case: Case, width: u32) -> Result<Vec<Green>> {
    if case.is_around() {
        return ladder(driver, device);
    }
    let [front, _] = split(driver, device, width)?;
    Ok(vec![front])
}

/// Both sides of every split, as the shim has them.
fn ladder(driver: &Driver, device: CUdevice) -> Result<Vec<Green>> {
    let sms = sms(driver, device)?;
    let mut all = Vec::new();
    for width in LADDER.into_iter().filter(|width| width + GRANULE <= sms) {
        all.extend(split(driver, device, width)?);
    }
    Ok(all)
}

/// Both sides of the split at that many SMs.
pub(crate) fn split(driver: &Driver, device: CUdevice, width: u32) -> Result<[Green; 2]> {
    // SAFETY: numbers and bytes, all of which may be zero.
    let none = || unsafe { core::mem::zeroed::<CUdevResource>() };
    let (mut whole, mut front, mut rest, mut groups) = (none(), none(), none(), 1);
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    cu!(driver, cuDeviceGetDevResource(device, &raw mut whole, kind))?;
    let (from, rest_at) = (&raw const whole, &raw mut rest);
    cu!(driver, cuDevSmResourceSplitByCount(&raw mut front, &raw mut groups, from, rest_at, 0, width))?;
    ensure!(groups == 1, "no split at {width} SMs");
    Ok([green(driver, device, front)?, green(driver, device, rest)?])
}

fn green(driver: &Driver, device: CUdevice, mut resource: CUdevResource) -> Result<Green> {
    let mut description = CUdevResourceDesc(null_mut());
    cu!(driver, cuDevResourceGenerateDesc(&raw mut description, &raw mut resource, 1))?;
    let mut green = CUgreenCtx(null_mut());
    let flags = CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
    cu!(driver, cuGreenCtxCreate(&raw mut green, description, device, flags))?;
    let (mut context, mut stream) = (CUcontext(null_mut()), CUstream(null_mut()));
    cu!(driver, cuCtxFromGreenCtx(&raw mut context, green))?;
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
    cu!(driver, cuGreenCtxStreamCreate(&raw mut stream, green, flags, 0))?;
    Ok(Green { context, stream })
}

type Record = unsafe extern "C" fn(CUevent, CUstream) -> CUresult;
type WaitFor = unsafe extern "C" fn(CUstream, CUevent, u32) -> CUresult;
type Synchronise = unsafe extern "C" fn(CUstream) -> CUresult;

/// Goes from one stream to the next at each launch: an event recorded there and waited for here.
pub(crate) struct Mover {
    record: Record,
    wait_for: WaitFor,
    synchronise: Synchronise,
    kernel: Kernel,
    streams: Vec<CUstream>,
    at: usize,
    events: Vec<CUevent>,
    next_event: usize,
}

impl Mover {
    pub(crate) fn new(driver: &Driver, kernel: Kernel, streams: Vec<CUstream>) -> Result<Self> {
        let mut events = vec![CUevent(null_mut()); EVENTS];
        for event in &mut events {
            cu!(driver, cuEventCreate(event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0))?;
        }
        Ok(Self {
            record: driver.function(entry::cuEventRecord).context("cuEventRecord")?,
            wait_for: driver.function(entry::cuStreamWaitEvent).context("cuStreamWaitEvent")?,
            synchronise: driver.function(entry::cuStreamSynchronize).context("cuStreamSynchronize")?,
            kernel,
            streams,
            at: 0,
            events,
            next_event: 0,
        })
    }
}

impl Side for Mover {
    fn launch(&mut self, times: u32) {
        for _ in 0..times {
            let event = self.events[self.next_event];
            self.next_event = (self.next_event + 1) % EVENTS;
            // SAFETY: an event and a stream, both alive.
            succeeds(unsafe { (self.record)(event, self.streams[self.at]) });
            self.at = (self.at + 1) % self.streams.len();
            // SAFETY: as above.
            succeeds(unsafe { (self.wait_for)(self.streams[self.at], event, 0) });
            self.kernel.launch(self.streams[self.at]);
        }
    }

    fn wait(&mut self) {
        // Each stream waits for the one before: the last one ends last.
        // SAFETY: a stream that is alive.
        succeeds(unsafe { (self.synchronise)(self.streams[self.at]) });
    }
}

/// An executable copy of a graph whose kernels run in that context.
pub(crate) fn copy_into(driver: &Driver, graph: CUgraph, context: CUcontext) -> Result<CUgraphExec> {
    let mut clone = CUgraph(null_mut());
    cu!(driver, cuGraphClone(&raw mut clone, graph))?;
    let mut count = 0;
    cu!(driver, cuGraphGetNodes(clone, null_mut(), &raw mut count))?;
    let mut nodes = vec![CUgraphNode(null_mut()); count];
    cu!(driver, cuGraphGetNodes(clone, nodes.as_mut_ptr(), &raw mut count))?;
    let mut before = CUcontext(null_mut());
    cu!(driver, cuCtxGetCurrent(&raw mut before))?;
    cu!(driver, cuCtxSetCurrent(context))?;
    for node in nodes {
        // SAFETY: numbers and pointers, all of which may be zero; the driver fills it in.
        let mut parameters: CUDA_KERNEL_NODE_PARAMS = unsafe { core::mem::zeroed() };
        cu!(driver, cuGraphKernelNodeGetParams_v2(node, &raw mut parameters))?;
        // A kernel of a library is bound by naming the context, and only without a function; one of a module goes
        // where the calling thread is.
        parameters.ctx = CUcontext(null_mut());
        if !parameters.kern.0.is_null() {
            parameters.func = CUfunction(null_mut());
            parameters.ctx = context;
        }
        cu!(driver, cuGraphKernelNodeSetParams_v2(node, &raw const parameters))?;
    }
    cu!(driver, cuCtxSetCurrent(before))?;
    let mut executable = CUgraphExec(null_mut());
    cu!(driver, cuGraphInstantiateWithFlags(&raw mut executable, clone, 0))?;
    Ok(executable)
}
