// Warp shuffles, votes and matches.

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xffffffff, value, offset);
    }
    return value;
}

extern "C" __global__ void sum(const float *data, float *result, int count) {
    __shared__ float partial[32];
    float value = 0.0f;
    for (int index = threadIdx.x; index < count; index += blockDim.x) {
        value += data[index];
    }
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        value = warp_sum(threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) {
            *result = value;
        }
    }
}

extern "C" __global__ void votes(unsigned *out, int limit) {
    unsigned mask = __ballot_sync(0xffffffff, threadIdx.x < limit);
    int all = __all_sync(mask, threadIdx.x & 1), any = __any_sync(mask, threadIdx.x & 2);
    unsigned same = __match_any_sync(__activemask(), threadIdx.x / 4);
    int uniform;
    unsigned everyone = __match_all_sync(0xffffffff, limit, &uniform);
    out[threadIdx.x] = mask ^ same ^ everyone ^ __popc(mask) ^ __clz(mask) ^ __brev(same) ^ (all + any + uniform)
        ^ __shfl_xor_sync(0xffffffff, same, 1) ^ __shfl_sync(0xffffffff, same, 3, 8);
}
