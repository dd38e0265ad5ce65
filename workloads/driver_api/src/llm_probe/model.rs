//! The model: four layers of integers, each of which mixes a token with all tokens before it. What a token becomes depends on
//! every launch before it and on their order.

use crate::requests::Shape;
use anyhow::{Result, ensure};
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr_v2, CUevent, CUevent_flags, CUfunction, CUgraph, CUgraphExec, CUmodule,
    CUstream, CUstream_flags, CUstreamCaptureMode,
};
use detshare_workloads::{Library, cu};

/// Tokens are numbers below this.
pub(crate) const VOCABULARY: u32 = 50_257;
const LAYERS: u32 = 4;
/// Words of a token: one for each thread of a block.
const WIDTH: u32 = 32;
/// Tokens of a prompt that a kernel reads at once.
const CHUNK: usize = 4;

/// A block is one place: a token of a row. `feed` takes it from where `sample` has put the row's last one, `embed` makes its words, `project` adds them to what the row remembers in a layer,
/// `attend` mixes them with all that it remembers there, and `sample` makes a token of them.
const KERNELS: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry feed(.param .u64 places, .param .u64 tokens)
{
    .reg .pred %other;
    .reg .b32 %block, %thread, %row, %token;
    .reg .b64 %places, %tokens, %offset;
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %other, %thread, 0;
    @%other bra END;
    ld.param.u64 %places, [places];
    ld.param.u64 %tokens, [tokens];
    mov.u32 %block, %ctaid.x;
    mul.wide.u32 %offset, %block, 16;
    add.u64 %places, %places, %offset;
    ld.global.u32 %row, [%places];
    mul.wide.u32 %offset, %row, 4;
    add.u64 %tokens, %tokens, %offset;
    ld.global.u32 %token, [%tokens];
    st.global.u32 [%places+8], %token;
END:
    ret;
}
.visible .entry embed(.param .u64 places, .param .u64 hidden)
{
    .reg .b32 %block, %thread, %i, %position, %token, %x, %high;
    .reg .b64 %places, %hidden, %offset;
    ld.param.u64 %places, [places];
    ld.param.u64 %hidden, [hidden];
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %block, 16;
    add.u64 %places, %places, %offset;
    ld.global.u32 %position, [%places+4];
    ld.global.u32 %token, [%places+8];
    mad.lo.u32 %x, %token, 1664525, %thread;
    mad.lo.u32 %x, %x, 22695477, %position;
    shr.u32 %high, %x, 16;
    xor.b32 %x, %x, %high;
    mad.lo.u32 %i, %block, 32, %thread;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %hidden, %hidden, %offset;
    st.global.u32 [%hidden], %x;
    ret;
}
.visible .entry project(.param .u64 places, .param .u64 hidden, .param .u64 cache, .param .u32 layer, .param .u32 context)
{
    .reg .pred %more;
    .reg .b32 %block, %thread, %i, %row, %position, %layer, %context, %left, %salt, %x, %high;
    .reg .b64 %places, %hidden, %cache, %offset;
    ld.param.u64 %places, [places];
    ld.param.u64 %hidden, [hidden];
    ld.param.u64 %cache, [cache];
    ld.param.u32 %layer, [layer];
    ld.param.u32 %context, [context];
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %block, 16;
    add.u64 %places, %places, %offset;
    ld.global.u32 %row, [%places];
    ld.global.u32 %position, [%places+4];
    mad.lo.u32 %i, %block, 32, %thread;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %hidden, %hidden, %offset;
    ld.global.u32 %x, [%hidden];
    mad.lo.u32 %salt, %layer, 2, 1;
    mov.u32 %left, 64;
AGAIN:
    mad.lo.u32 %x, %x, 1664525, %salt;
    shr.u32 %high, %x, 15;
    xor.b32 %x, %x, %high;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;
    st.global.u32 [%hidden], %x;
    mad.lo.u32 %i, %row, 4, %layer;
    mad.lo.u32 %i, %i, %context, %position;
    mad.lo.u32 %i, %i, 32, %thread;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %cache, %cache, %offset;
    st.global.u32 [%cache], %x;
    ret;
}
.visible .entry attend(.param .u64 places, .param .u64 hidden, .param .u64 cache, .param .u32 layer, .param .u32 context)
{
    .reg .pred %more;
    .reg .b32 %block, %thread, %i, %row, %position, %layer, %context, %at, %x, %known, %high;
    .reg .b64 %places, %hidden, %cache, %offset, %word;
    ld.param.u64 %places, [places];
    ld.param.u64 %hidden, [hidden];
    ld.param.u64 %cache, [cache];
    ld.param.u32 %layer, [layer];
    ld.param.u32 %context, [context];
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %block, 16;
    add.u64 %places, %places, %offset;
    ld.global.u32 %row, [%places];
    ld.global.u32 %position, [%places+4];
    mad.lo.u32 %i, %block, 32, %thread;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %hidden, %hidden, %offset;
    ld.global.u32 %x, [%hidden];
    mad.lo.u32 %i, %row, 4, %layer;
    mul.lo.u32 %i, %i, %context;
    mul.wide.u32 %offset, %i, 128;
    add.u64 %cache, %cache, %offset;
    mov.u32 %at, 0;
AGAIN:
    add.u32 %i, %thread, %at;
    and.b32 %i, %i, 31;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %word, %cache, %offset;
    ld.global.u32 %known, [%word];
    xor.b32 %x, %x, %known;
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    shr.u32 %high, %x, 15;
    xor.b32 %x, %x, %high;
    add.u64 %cache, %cache, 128;
    add.u32 %at, %at, 1;
    setp.le.u32 %more, %at, %position;
    @%more bra AGAIN;
    st.global.u32 [%hidden], %x;
    ret;
}
.visible .entry sample(.param .u64 places, .param .u64 hidden, .param .u64 tokens)
{
    .reg .pred %more, %other;
    .reg .b32 %block, %thread, %row, %left, %x, %word, %high;
    .reg .b64 %places, %hidden, %tokens, %offset;
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %other, %thread, 0;
    @%other bra END;
    ld.param.u64 %places, [places];
    ld.param.u64 %hidden, [hidden];
    ld.param.u64 %tokens, [tokens];
    mov.u32 %block, %ctaid.x;
    mul.wide.u32 %offset, %block, 16;
    add.u64 %places, %places, %offset;
    ld.global.u32 %row, [%places];
    mul.wide.u32 %offset, %block, 128;
    add.u64 %hidden, %hidden, %offset;
    mov.u32 %x, 0;
    mov.u32 %left, 32;
AGAIN:
    ld.global.u32 %word, [%hidden];
    xor.b32 %x, %x, %word;
    mad.lo.u32 %x, %x, 1664525, 1013904223;
    shr.u32 %high, %x, 15;
    xor.b32 %x, %x, %high;
    add.u64 %hidden, %hidden, 4;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;
    rem.u32 %x, %x, 50257;
    mul.wide.u32 %offset, %row, 4;
    add.u64 %tokens, %tokens, %offset;
    st.global.u32 [%tokens], %x;
END:
    ret;
}
";

/// What a block works on, as the kernels read it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) row: u32,
    pub(crate) position: u32,
    pub(crate) token: u32,
    /// Keeps places 16 bytes apart.
    pub(crate) unused: u32,
}

/// Steps that can be under way at once.
pub(crate) const SLOTS: usize = 2;

/// Memory of the device, and as much for each slot that is pinned on the host, for copies that nobody waits for.
struct Mirrored<T> {
    device: CUdeviceptr_v2,
    hosts: [*mut T; SLOTS],
    count: usize,
}

impl<T: Copy> Mirrored<T> {
    fn new(library: &Library, count: usize) -> Result<Self> {
        let (mut device, mut hosts) = (CUdeviceptr_v2(0), [null_mut::<c_void>(); SLOTS]);
        cu!(library, cuMemAlloc_v2(&raw mut device, count * size_of::<T>()))?;
        for host in &mut hosts {
            cu!(library, cuMemHostAlloc(host, count * size_of::<T>(), 0))?;
        }
        Ok(Self { device, hosts: hosts.map(<*mut c_void>::cast), count })
    }

    /// Copies values to the device; those that the slot had must have arrived.
    fn upload(&self, library: &Library, stream: CUstream, slot: usize, values: &[T]) -> Result<()> {
        ensure!(values.len() <= self.count, "there is no room for {} values", values.len());
        let host = self.hosts[slot];
        // SAFETY: the driver's memory for as many values, which nothing else points into.
        unsafe { core::ptr::copy_nonoverlapping(values.as_ptr(), host, values.len()) };
        cu!(library, cuMemcpyHtoDAsync_v2(self.device, host.cast(), size_of_val(values), stream))
    }

    /// Has what the device has then brought to the slot.
    fn download(&self, library: &Library, stream: CUstream, slot: usize) -> Result<()> {
        cu!(library, cuMemcpyDtoHAsync_v2(self.hosts[slot].cast(), self.device, self.count * size_of::<T>(), stream))
    }

    /// What was brought; that was waited for.
    fn values(&self, slot: usize) -> Vec<T> {
        // SAFETY: the driver's memory for as many values, all of which the copy has written.
        unsafe { core::slice::from_raw_parts(self.hosts[slot], self.count) }.to_vec()
    }

    fn end(self, library: &Library) -> Result<()> {
        cu!(library, cuMemFree_v2(self.device))?;
        self.hosts.into_iter().try_for_each(|host| cu!(library, cuMemFreeHost(host.cast())))
    }
}

pub(crate) struct Model {
    library: Library,
    device: CUdevice_v1,
    module: CUmodule,
    feed: CUfunction,
    embed: CUfunction,
    project: CUfunction,
    attend: CUfunction,
    sample: CUfunction,
    stream: CUstream,
    /// When the tokens of a slot's step are there.
    events: [CUevent; SLOTS],
    places: Mirrored<Place>,
    /// The words of each place.
    hidden: CUdeviceptr_v2,
    /// The words of each layer and position that rows remember.
    cache: CUdeviceptr_v2,
    /// The last token of each row.
    tokens: Mirrored<u32>,
    /// The most positions of a row.
    context: u32,
    /// A decode step for each number of rows, from one on.
    graphs: Vec<CUgraphExec>,
}

impl Model {
    pub(crate) fn new(rows: u32, shape: &Shape) -> Result<Self> {
        let library = Library::open()?;
        cu!(library, cuInit(0))?;
        let (mut device, mut context) = (CUdevice_v1(0), CUcontext(null_mut()));
        cu!(library, cuDeviceGet(&raw mut device, 0))?;
        cu!(library, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        cu!(library, cuCtxSetCurrent(context))?;
        let mut module = CUmodule(null_mut());
        cu!(library, cuModuleLoadData(&raw mut module, KERNELS.as_ptr().cast()))?;
        let kernel = |name: &CStr| {
            let mut kernel = CUfunction(null_mut());
            cu!(library, cuModuleGetFunction(&raw mut kernel, module, name.as_ptr()))?;
            Ok::<_, anyhow::Error>(kernel)
        };
        let [feed, embed, project, attend, sample] =
            [kernel(c"feed")?, kernel(c"embed")?, kernel(c"project")?, kernel(c"attend")?, kernel(c"sample")?];
        let mut stream = CUstream(null_mut());
        cu!(library, cuStreamCreate(&raw mut stream, CUstream_flags::CU_STREAM_NON_BLOCKING.0))?;
        let mut events = [CUevent(null_mut()); SLOTS];
        for event in &mut events {
            cu!(library, cuEventCreate(event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0))?;
        }
        let context = shape.longest_prompt + shape.longest_output;
        let most_places = rows.max(shape.longest_prompt);
        let (mut hidden, mut cache) = (CUdeviceptr_v2(0), CUdeviceptr_v2(0));
        cu!(library, cuMemAlloc_v2(&raw mut hidden, bytes(&[most_places, WIDTH])))?;
        cu!(library, cuMemAlloc_v2(&raw mut cache, bytes(&[rows, LAYERS, context, WIDTH])))?;
        let places = Mirrored::new(&library, most_places as usize)?;
        let tokens = Mirrored::new(&library, rows as usize)?;
        let graphs = Vec::new();
        let mut model = Self {
            library,
            device,
            module,
            feed,
            embed,
            project,
            attend,
            sample,
            stream,
            events,
            places,
            hidden,
            cache,
            tokens,
            context,
            graphs,
        };
        model.graphs = (1..=rows).map(|rows| model.capture(rows)).collect::<Result<_>>()?;
        Ok(model)
    }

    /// Says what the next step works on, in a slot whose last step was waited for.
    pub(crate) fn place(&self, slot: usize, places: &[Place]) -> Result<()> {
        self.places.upload(&self.library, self.stream, slot, places)
    }

    /// Gives each row that was placed its last token, which the host need not know.
    pub(crate) fn feed(&self, rows: usize) -> Result<()> {
        let (mut places, mut tokens) = (self.place_at(0), self.tokens.device);
        self.launch(self.feed, u32::try_from(rows)?, &mut [(&raw mut places).cast(), (&raw mut tokens).cast()])
    }

    /// Reads a prompt that was placed, chunk by chunk, and makes the first token.
    pub(crate) fn launch_prefill(&self, length: usize) -> Result<()> {
        for first in (0..length).step_by(CHUNK) {
            self.launch_layers(first, u32::try_from(CHUNK.min(length - first))?)?;
        }
        self.launch_sample(length - 1, 1)
    }

    /// Makes a token for each row that was placed.
    pub(crate) fn launch_decode(&self, rows: usize) -> Result<()> {
        cu!(self.library, cuGraphLaunch(self.graphs[rows - 1], self.stream))
    }

    /// Has the last token of each row brought to the slot when the step is over.
    pub(crate) fn bring(&self, slot: usize) -> Result<()> {
        self.tokens.download(&self.library, self.stream, slot)?;
        cu!(self.library, cuEventRecord(self.events[slot], self.stream))
    }

    /// Waits for everything.
    pub(crate) fn wait(&self) -> Result<()> {
        cu!(self.library, cuStreamSynchronize(self.stream))
    }

    /// Waits for the slot's step, and not for the one behind it.
    pub(crate) fn wait_for(&self, slot: usize) -> Result<()> {
        cu!(self.library, cuEventSynchronize(self.events[slot]))
    }

    /// The last token of each row after the slot's step, which was waited for.
    pub(crate) fn tokens(&self, slot: usize) -> Vec<u32> {
        self.tokens.values(slot)
    }

    fn capture(&self, rows: u32) -> Result<CUgraphExec> {
        let library = &self.library;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let (mut graph, mut executable) = (CUgraph(null_mut()), CUgraphExec(null_mut()));
        cu!(library, cuStreamBeginCapture_v2(self.stream, mode))?;
        self.launch_layers(0, rows)?;
        self.launch_sample(0, rows)?;
        cu!(library, cuStreamEndCapture(self.stream, &raw mut graph))?;
        cu!(library, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0))?;
        cu!(library, cuGraphDestroy(graph))?;
        Ok(executable)
    }

    fn launch_layers(&self, first: usize, count: u32) -> Result<()> {
        let (mut places, mut hidden, mut cache, mut context) =
            (self.place_at(first), self.hidden_at(first), self.cache, self.context);
        self.launch(self.embed, count, &mut [(&raw mut places).cast(), (&raw mut hidden).cast()])?;
        for mut layer in 0..LAYERS {
            let mut parameters: [*mut c_void; 5] = [
                (&raw mut places).cast(),
                (&raw mut hidden).cast(),
                (&raw mut cache).cast(),
                (&raw mut layer).cast(),
                (&raw mut context).cast(),
            ];
            self.launch(self.project, count, &mut parameters)?;
            self.launch(self.attend, count, &mut parameters)?;
        }
        Ok(())
    }

    fn launch_sample(&self, first: usize, count: u32) -> Result<()> {
        let (mut places, mut hidden, mut tokens) = (self.place_at(first), self.hidden_at(first), self.tokens.device);
        let mut parameters = [(&raw mut places).cast(), (&raw mut hidden).cast(), (&raw mut tokens).cast()];
        self.launch(self.sample, count, &mut parameters)
    }

    fn launch(&self, kernel: CUfunction, blocks: u32, parameters: &mut [*mut c_void]) -> Result<()> {
        let (values, no_extra) = (parameters.as_mut_ptr(), null_mut());
        cu!(self.library, cuLaunchKernel(kernel, blocks, 1, 1, WIDTH, 1, 1, 0, self.stream, values, no_extra))
    }

    fn place_at(&self, index: usize) -> CUdeviceptr_v2 {
        CUdeviceptr_v2(self.places.device.0 + (index * size_of::<Place>()) as u64)
    }

    fn hidden_at(&self, index: usize) -> CUdeviceptr_v2 {
        CUdeviceptr_v2(self.hidden.0 + (index * bytes(&[WIDTH])) as u64)
    }

    /// Gives back what it had.
    pub(crate) fn end(self) -> Result<()> {
        let library = &self.library;
        for graph in &self.graphs {
            cu!(library, cuGraphExecDestroy(*graph))?;
        }
        for event in self.events {
            cu!(library, cuEventDestroy_v2(event))?;
        }
        self.places.end(library)?;
        self.tokens.end(library)?;
        cu!(library, cuMemFree_v2(self.hidden))?;
        cu!(library, cuMemFree_v2(self.cache))?;
        cu!(library, cuStreamDestroy_v2(self.stream))?;
        cu!(library, cuModuleUnload(self.module))?;
        cu!(library, cuDevicePrimaryCtxRelease_v2(self.device))
    }
}

/// What so many words take.
fn bytes(dimensions: &[u32]) -> usize {
    dimensions.iter().map(|size| *size as usize).product::<usize>() * size_of::<u32>()
}
