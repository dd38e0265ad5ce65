// The plainest kernels: one element for each thread, with and without launch bounds.

extern "C" __global__ void add(const float *a, const float *b, float *sum, int count) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) {
        sum[index] = a[index] + b[index];
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) scale(float4 *__restrict__ data, const float4 *__restrict__ by) {
    int index = blockIdx.x * 256 + threadIdx.x;
    float4 value = data[index], factor = by[index];
    data[index] = make_float4(value.x * factor.x, value.y / factor.y, fmaf(value.z, factor.z, 1.5f), sqrtf(value.w));
}

extern "C" __global__ void doubles(double *data, long long count, unsigned long long stride) {
    for (long long index = threadIdx.x; index < count; index += stride) {
        data[index] = sin(data[index]) * 3.25 + exp(data[index]);
    }
}
