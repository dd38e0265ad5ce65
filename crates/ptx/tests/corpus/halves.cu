// Half precision, bfloat16 and eight-bit floats.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void halves(__half *h, __half2 *h2, __nv_bfloat16 *b, __nv_bfloat162 *b2, __nv_fp8_e4m3 *e) {
    int index = threadIdx.x;
    h[index] = __hfma(h[index], h[index + 1], __float2half(0.5f));
    h2[index] = __hadd2(__hmul2(h2[index], h2[index + 1]), __float2half2_rn(2.0f));
    b[index] = __hadd(b[index], __float2bfloat16(1.0f));
    b2[index] = __hmax2(b2[index], __hfma2(b2[index + 1], b2[index + 2], b2[index + 3]));
    h[index + 1] = hexp(h[index + 2]) + hrsqrt(h[index + 3]);
    if (__hgt(h[index], h[index + 4])) {
        atomicAdd(h2, h2[index]);
    }
    e[index] = __nv_fp8_e4m3(__half2float(h[index]) + (float)e[index + 1]);
}
