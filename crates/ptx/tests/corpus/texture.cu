// Texture and surface objects, read-only loads and cache hints.

extern "C" __global__ void sample(cudaTextureObject_t texture, cudaSurfaceObject_t surface, float4 *out, int width) {
    int x = threadIdx.x, y = threadIdx.y;
    float4 texel = tex2D<float4>(texture, x + 0.5f, y + 0.5f);
    float layered = tex2DLayered<float>(texture, x, y, 3);
    float volume = tex3D<float>(texture, x, y, 2.0f);
    float line = tex1Dfetch<float>(texture, x);
    float level = tex2DLod<float>(texture, x, y, 1.0f);
    float4 gathered = tex2Dgather<float4>(texture, x, y, 2);
    int stored;
    surf2Dread(&stored, surface, x * 4, y);
    surf2Dwrite(stored + 1, surface, x * 4, y, cudaBoundaryModeZero);
    surf1Dwrite(make_float2(1, 2), surface, x * 8);
    out[y * width + x] = make_float4(texel.x + layered, texel.y + volume, texel.z + line, level + gathered.w);
}

extern "C" __global__ void hints(const int *__restrict__ from, int *to) {
    int index = threadIdx.x;
    to[index] = __ldg(from + index) + __ldcg(from + index + 1) + __ldcs(from + index + 2) + __ldlu(to + index + 3)
        + __ldcv(to + index + 4);
    __stwt(to + index + 5, 1);
    __stcg(to + index + 6, 2);
    __stcs(to + index + 7, 3);
}
