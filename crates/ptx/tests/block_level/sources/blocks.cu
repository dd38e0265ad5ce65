// Work that the threads of a block share: reductions, scans, sorting, histograms.
// launch: reduce_tree <<<6, 128>>> (zero 24, bits 3072)
// launch: reduce_shuffle <<<6, 128>>> (zero 24, bits 3072)
// launch: reduce_atomic <<<6, 96>>> (zero 4, bits 2304)
// launch: reduce_last_block <<<8, 64>>> (zero 64, zero 4, bits 2048)
// launch: scan_blocks <<<5, 128>>> (zero 2560, bits 2560)
// launch: scan_warps <<<5, 128>>> (zero 2560, bits 2560)
// launch: sort_bitonic <<<4, 128>>> (bits 2048)
// launch: histogram <<<7, 96>>> (zero 128, bits 2688)
// launch: histogram_dynamic <<<7, 64, 256>>> (zero 256, bits 1792, u32 =64)
// launch: dynamic_two_arrays <<<5, 64, 768>>> (zero 1280, bits 1280)
// launch: matmul <<<2x3, 8x8>>> (zero 1536, f32 1536, f32 1024, u32 =16)
// launch: double_buffer <<<4, 64>>> (zero 1024, bits 8192)
// launch: static_and_early <<<6, 64>>> (zero 1536, bits 1536, u32 =350)
// launch: sync_count <<<6, 96>>> (zero 72, bits 2304)
// launch: softmax_rows <<<5, 64>>> (zero 5120, f32 5120)
// launch: compact <<<6, 64>>> (zero 1536, zero 24, bits 1536)
// launch: mean_double <<<5, 32>>> (zero 40, f64 1280)
extern "C" __global__ void reduce_tree(unsigned *out, const unsigned *in) {
    __shared__ unsigned part[128];
    part[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
    __syncthreads();
    for (unsigned s = 64; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
extern "C" __global__ void reduce_shuffle(unsigned *out, const unsigned *in) {
    __shared__ unsigned part[4];
    unsigned v = in[blockIdx.x * 128 + threadIdx.x];
    for (int s = 16; s > 0; s >>= 1) v += __shfl_down_sync(~0u, v, s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < 4 ? part[threadIdx.x] : 0;
        for (int s = 2; s > 0; s >>= 1) v += __shfl_down_sync(~0u, v, s);
        if (threadIdx.x == 0) out[blockIdx.x] = v;
    }
}
extern "C" __global__ void reduce_atomic(unsigned *out, const unsigned *in) {
    atomicAdd(out, in[blockIdx.x * blockDim.x + threadIdx.x]);
}
extern "C" __global__ void reduce_last_block(unsigned *partial, unsigned *ticket, const unsigned *in) {
    __shared__ unsigned sum;
    __shared__ bool last;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * 64 + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        unsigned all = 0;
        for (unsigned i = 0; i < gridDim.x; i++) all += ((volatile unsigned *)partial)[i];
        partial[15] = all;
    }
}
extern "C" __global__ void scan_blocks(unsigned *out, const unsigned *in) {
    __shared__ unsigned a[128];
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    a[threadIdx.x] = in[i];
    __syncthreads();
    for (unsigned s = 1; s < 128; s *= 2) {
        unsigned v = threadIdx.x >= s ? a[threadIdx.x - s] : 0;
        __syncthreads();
        a[threadIdx.x] += v;
        __syncthreads();
    }
    out[i] = a[threadIdx.x];
}
extern "C" __global__ void scan_warps(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 128 + threadIdx.x, lane = threadIdx.x % 32, v = in[i];
    for (int s = 1; s < 32; s *= 2) {
        unsigned w = __shfl_up_sync(~0u, v, s);
        if (lane >= s) v += w;
    }
    out[i] = v;
}
extern "C" __global__ void sort_bitonic(unsigned *data) {
    __shared__ unsigned a[128];
    unsigned t = threadIdx.x;
    a[t] = data[blockIdx.x * 128 + t];
    for (unsigned k = 2; k <= 128; k *= 2)
        for (unsigned j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            unsigned o = t ^ j;
            if (o > t) {
                bool up = (t & k) == 0;
                if ((a[t] > a[o]) == up) { unsigned x = a[t]; a[t] = a[o]; a[o] = x; }
            }
        }
    __syncthreads();
    data[blockIdx.x * 128 + t] = a[t];
}
extern "C" __global__ void histogram(unsigned *bins, const unsigned *in) {
    __shared__ unsigned own[32];
    if (threadIdx.x < 32) own[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&own[in[blockIdx.x * blockDim.x + threadIdx.x] % 32], 1);
    __syncthreads();
    if (threadIdx.x < 32) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}
extern "C" __global__ void histogram_dynamic(unsigned *bins, const unsigned *in, unsigned n) {
    extern __shared__ unsigned dyn[];
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) dyn[i] = 0;
    __syncthreads();
    atomicAdd(&dyn[in[blockIdx.x * blockDim.x + threadIdx.x] % n], 1);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[i], dyn[i]);
}
extern "C" __global__ void dynamic_two_arrays(unsigned *out, const unsigned *in) {
    extern __shared__ unsigned dyn[];
    unsigned *a = dyn, i = blockIdx.x * 64 + threadIdx.x;
    double *b = (double *)(dyn + 64);
    a[threadIdx.x] = in[i];
    b[threadIdx.x] = (double)(in[i] % 1000);
    __syncthreads();
    out[i] = a[63 - threadIdx.x] + (unsigned)b[threadIdx.x ^ 1];
}
extern "C" __global__ void matmul(float *c, const float *a, const float *b, unsigned n) {
    __shared__ float ta[8][8], tb[8][8];
    unsigned x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    float sum = 0;
    for (unsigned k = 0; k < n; k += 8) {
        ta[threadIdx.y][threadIdx.x] = a[y * n + k + threadIdx.x];
        tb[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + x];
        __syncthreads();
        for (int i = 0; i < 8; i++) sum = fmaf(ta[threadIdx.y][i], tb[i][threadIdx.x], sum);
        __syncthreads();
    }
    c[y * n + x] = sum;
}
extern "C" __global__ void double_buffer(unsigned *out, const unsigned *in) {
    __shared__ unsigned buffer[2][64];
    const unsigned *mine = in + blockIdx.x * 512;
    buffer[0][threadIdx.x] = mine[threadIdx.x];
    unsigned sum = 0;
    for (int k = 0; k < 8; k++) {
        __syncthreads();
        if (k < 7) buffer[(k + 1) & 1][threadIdx.x] = mine[(k + 1) * 64 + threadIdx.x];
        sum = sum * 7 + buffer[k & 1][(threadIdx.x * 5 + k) % 64];
        __syncthreads();
    }
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}
extern "C" __global__ void static_and_early(unsigned *out, const unsigned *in, unsigned n) {
    __shared__ unsigned seen[16];
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x < 16) seen[threadIdx.x] = 0;
    __syncthreads();
    if (i >= n) return;
    atomicAdd(&seen[in[i] % 16], in[i]);
    __syncthreads();
    out[i] = seen[i % 16];
}
extern "C" __global__ void sync_count(unsigned *out, const unsigned *in) {
    unsigned v = in[blockIdx.x * 96 + threadIdx.x];
    int n = __syncthreads_count(v & 1), a = __syncthreads_and(v & 6), o = __syncthreads_or(v == 12345);
    if (threadIdx.x == 0) { out[3 * blockIdx.x] = n; out[3 * blockIdx.x + 1] = a; out[3 * blockIdx.x + 2] = o; }
}
extern "C" __global__ void softmax_rows(float *out, const float *in) {
    __shared__ float part[64];
    const float *row = in + blockIdx.x * 256;
    float m = -1e30f;
    for (int i = threadIdx.x; i < 256; i += 64) m = fmaxf(m, row[i]);
    part[threadIdx.x] = m;
    __syncthreads();
    for (int s = 32; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
        __syncthreads();
    }
    m = part[0];
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < 256; i += 64) sum += expf(row[i] - m);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 32; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    for (int i = threadIdx.x; i < 256; i += 64) out[blockIdx.x * 256 + i] = expf(row[i] - m) / part[0];
}
extern "C" __global__ void compact(unsigned *out, unsigned *counts, const unsigned *in) {
    __shared__ unsigned place[64];
    unsigned v = in[blockIdx.x * 64 + threadIdx.x];
    bool keep = v % 3 == 0;
    place[threadIdx.x] = keep;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned n = 0;
        for (int i = 0; i < 64; i++) { unsigned k = place[i]; place[i] = n; n += k; }
        counts[blockIdx.x] = n;
    }
    __syncthreads();
    if (!keep) return;
    out[blockIdx.x * 64 + place[threadIdx.x]] = v;
}
extern "C" __global__ void mean_double(double *out, const double *in) {
    double v = in[blockIdx.x * 32 + threadIdx.x];
    for (int s = 16; s > 0; s /= 2) v += __shfl_xor_sync(~0u, v, s);
    if (threadIdx.x == 0) out[blockIdx.x] = v / 32;
}
