// Threads that leave early, and barriers in divergent code.
// launch: guard_then_sync <<<6, 64>>> (zero 1536, bits 1536, u32 =337)
// launch: leave_in_loop <<<6, 64>>> (zero 1536, bits 1536)
// launch: leave_by_block <<<9, 64>>> (zero 2304, bits 2304)
// launch: leave_by_warp <<<6, 128>>> (zero 3072, bits 3072)
// launch: all_but_first <<<6, 64>>> (zero 24, bits 1536)
// launch: sync_in_branch <<<6, 64>>> (zero 1536, bits 1536)
// launch: sync_in_uniform_loop <<<6x2, 64>>> (zero 3072, bits 3072)
// launch: switch_returns <<<5, 96>>> (zero 1920, bits 1920)
// launch: goto_out <<<5, 96>>> (zero 1920, bits 1920)
// launch: leave_then_shuffle <<<5, 96>>> (zero 1920, bits 1920)
// launch: leave_then_ballot <<<5, 96>>> (zero 1920, bits 1920)
// launch: named_barriers <<<5, 128>>> (zero 2560, bits 2560)
// launch: producer_consumer <<<5, 128>>> (zero 1280, bits 2560)
// launch: exit_instruction <<<5, 96>>> (zero 1920, bits 1920)
// launch: three_exits <<<7, 64>>> (zero 1792, bits 1792)
// launch: loop_until_found <<<6, 64>>> (zero 1536, bits 12288)
extern "C" __global__ void guard_then_sync(unsigned *out, const unsigned *in, unsigned n) {
    __shared__ unsigned best;
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x == 0) best = 0;
    __syncthreads();
    if (i >= n) return;
    atomicMax(&best, in[i]);
    __syncthreads();
    out[i] = best - in[i];
}
extern "C" __global__ void leave_in_loop(unsigned *out, const unsigned *in) {
    __shared__ unsigned sum[8];
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x < 8) sum[threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < 8; k++) {
        atomicAdd(&sum[k], in[i] + k);
        __syncthreads();
        out[i] = sum[k];
        if (in[i] % 8 == k) return;
    }
}
extern "C" __global__ void leave_by_block(unsigned *out, const unsigned *in) {
    __shared__ unsigned a[64];
    if (blockIdx.x % 3 == 1) return;
    a[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = a[63 - threadIdx.x];
}
extern "C" __global__ void leave_by_warp(unsigned *out, const unsigned *in) {
    __shared__ unsigned a[128];
    unsigned warp = threadIdx.x / 32;
    a[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
    __syncthreads();
    if (warp == blockIdx.x % 4) return;
    unsigned v = a[threadIdx.x ^ 96];
    __syncthreads();
    a[threadIdx.x] = v * 3;
    __syncthreads();
    out[blockIdx.x * 128 + threadIdx.x] = a[threadIdx.x] + v;
}
extern "C" __global__ void all_but_first(unsigned *out, const unsigned *in) {
    __shared__ unsigned sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * 64 + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 0; i < 3; i++) { __syncthreads(); sum = sum * 5 + i; }
    out[blockIdx.x] = sum;
}
extern "C" __global__ void sync_in_branch(unsigned *out, const unsigned *in) {
    __shared__ unsigned a[64];
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    a[threadIdx.x] = in[i];
    if (blockIdx.x & 1) {
        __syncthreads();
        out[i] = a[threadIdx.x ^ 63];
    } else {
        a[threadIdx.x] *= 3;
        __syncthreads();
        out[i] = a[threadIdx.x ^ 33];
        __syncthreads();
    }
}
extern "C" __global__ void sync_in_uniform_loop(unsigned *out, const unsigned *in) {
    __shared__ unsigned a[64];
    unsigned i = (blockIdx.y * gridDim.x + blockIdx.x) * 64 + threadIdx.x, v = in[i];
    for (unsigned k = 0; k <= blockIdx.x; k++) {
        a[threadIdx.x] = v;
        __syncthreads();
        v = a[(threadIdx.x + k) % 64] + blockIdx.y;
        __syncthreads();
    }
    out[i] = v;
}
extern "C" __global__ void switch_returns(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 96 + threadIdx.x;
    __shared__ unsigned n;
    if (threadIdx.x == 0) n = 0;
    __syncthreads();
    switch (in[i] % 9) {
    case 0: out[i] = 1; return;
    case 1: out[i] = in[i] / 7; break;
    case 2: out[i] = in[i] * 3 + blockIdx.x; break;
    case 3: out[i] = 9; return;
    case 4: out[i] = in[i] ^ 0x55; break;
    case 5: out[i] = __popc(in[i]); break;
    case 6: out[i] = __brev(in[i]); return;
    default: out[i] = 77;
    }
    atomicAdd(&n, 1);
    __syncthreads();
    out[i] += n;
}
extern "C" __global__ void goto_out(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 96 + threadIdx.x, v = in[i];
    for (int k = 0; k < 5; k++)
        for (int j = 0; j < 5; j++) {
            v = v * 1664525 + 1013904223;
            if (v >> 28 == 3) goto out;
        }
    v ^= blockIdx.x;
    __syncthreads();
out:
    out[i] = v;
}
extern "C" __global__ void leave_then_shuffle(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 96 + threadIdx.x, v = in[i];
    if (threadIdx.x / 32 == 1) return;
    __syncthreads();
    v += __shfl_xor_sync(~0u, v, 7);
    out[i] = v;
}
extern "C" __global__ void leave_then_ballot(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 96 + threadIdx.x, v = in[i];
    if (v % 5 == 0) return;
    out[i] = v * 2;
    __syncthreads();
    out[i] += blockIdx.x;
}
extern "C" __global__ void named_barriers(unsigned *out, const unsigned *in) {
    __shared__ unsigned a[128];
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    a[threadIdx.x] = in[i];
    if (threadIdx.x < 64) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[i] = a[63 - threadIdx.x];
    } else {
        asm volatile("bar.sync 2, 64;" ::: "memory");
        out[i] = a[191 - threadIdx.x] + 1;
    }
}
extern "C" __global__ void producer_consumer(unsigned *out, const unsigned *in) {
    __shared__ unsigned a[64];
    if (threadIdx.x < 64) {
        for (int k = 0; k < 2; k++) {
            if (k) asm volatile("bar.sync 2, 128;" ::: "memory");
            a[threadIdx.x] = in[blockIdx.x * 128 + k * 64 + threadIdx.x];
            asm volatile("bar.arrive 1, 128;" ::: "memory");
        }
    } else {
        unsigned sum = 0;
        for (int k = 0; k < 2; k++) {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            sum = sum * 3 + a[threadIdx.x % 64 ^ 5];
            if (k == 0) asm volatile("bar.arrive 2, 128;" ::: "memory");
        }
        out[blockIdx.x * 64 + threadIdx.x - 64] = sum;
    }
}
extern "C" __global__ void exit_instruction(unsigned *out, const unsigned *in) {
    unsigned i = blockIdx.x * 96 + threadIdx.x;
    out[i] = 3;
    if (in[i] % 4 == 1) asm volatile("exit;");
    __syncthreads();
    out[i] = in[i] + blockIdx.x;
}
extern "C" __global__ void three_exits(unsigned *out, const unsigned *in) {
    __shared__ unsigned n[3];
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x < 3) n[threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < 3; k++) {
        if (in[i] >> k * 2 & 1) return;
        atomicAdd(&n[k], 1);
        __syncthreads();
        out[i] += n[k] * (k + 1);
    }
}
extern "C" __global__ void loop_until_found(unsigned *out, const unsigned *in) {
    const unsigned *mine = in + (blockIdx.x * 64 + threadIdx.x) * 8;
    for (int k = 0; k < 8; k++)
        if (mine[k] % 7 == 0) { out[blockIdx.x * 64 + threadIdx.x] = k; return; }
    out[blockIdx.x * 64 + threadIdx.x] = 99;
}
