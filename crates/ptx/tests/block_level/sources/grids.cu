// Grids of one, two and three dimensions, in the ways in which programs use them.
// launch: fill <<<7, 128>>> (zero 3584, u32 =850)
// launch: transpose <<<5x3, 16x8>>> (zero 7680, bits 7680, u32 =80, u32 =24)
// launch: volume <<<3x2x4, 8x4x2>>> (zero 12288, u32 =24, u32 =8, u32 =8)
// launch: grid_stride <<<6, 64>>> (bits 8000, u32 =2000)
// launch: reversed <<<9, 64>>> (zero 2304, bits 2304)
// launch: halo <<<4x4, 8x8>>> (zero 4096, f32 4096, u32 =32)
// launch: block_table <<<3x3x3, 32>>> (zero 432)
// launch: nested_stride <<<3x4, 16x4>>> (bits 9600, u32 =60, u32 =40)
// launch: odd_sizes <<<13, 37>>> (zero 1924)
// launch: wide_grid <<<900, 32>>> (zero 115200)
// launch: early_out_2d <<<4x3, 16x8>>> (zero 5400, u32 =50, u32 =27)
extern "C" __global__ void fill(unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i * 2654435761u;
}
extern "C" __global__ void transpose(unsigned *out, const unsigned *in, unsigned w, unsigned h) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) out[x * h + y] = in[y * w + x];
}
extern "C" __global__ void volume(unsigned *out, unsigned nx, unsigned ny, unsigned nz) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz) return;
    out[(z * ny + y) * nx + x] = (x << 20) ^ (y << 10) ^ z ^ (gridDim.x * gridDim.y * gridDim.z << 25);
}
extern "C" __global__ void grid_stride(unsigned *data, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] = data[i] * 3 + i;
}
extern "C" __global__ void reversed(unsigned *out, const unsigned *in) {
    unsigned block = gridDim.x - 1 - blockIdx.x;
    out[block * blockDim.x + threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x] + block;
}
extern "C" __global__ void halo(float *out, const float *in, unsigned n) {
    __shared__ float tile[10][10];
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    for (int j = threadIdx.y; j < 10; j += 8)
        for (int i = threadIdx.x; i < 10; i += 8) {
            int gx = (int)blockIdx.x * 8 + i - 1, gy = (int)blockIdx.y * 8 + j - 1;
            tile[j][i] = gx >= 0 && gy >= 0 && gx < (int)n && gy < (int)n ? in[gy * n + gx] : 0.0f;
        }
    __syncthreads();
    float s = tile[threadIdx.y][threadIdx.x + 1] + tile[threadIdx.y + 2][threadIdx.x + 1] +
              tile[threadIdx.y + 1][threadIdx.x] + tile[threadIdx.y + 1][threadIdx.x + 2];
    out[y * n + x] = __fmul_rn(0.25f, s);
}
extern "C" __global__ void block_table(uint4 *out) {
    unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (threadIdx.x == 0) out[b] = make_uint4(blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x * 100 + gridDim.y * 10 + gridDim.z);
}
extern "C" __global__ void nested_stride(unsigned *data, unsigned w, unsigned h) {
    for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < h; y += gridDim.y * blockDim.y)
        for (unsigned x = blockIdx.x * blockDim.x + threadIdx.x; x < w; x += gridDim.x * blockDim.x)
            data[y * w + x] = data[y * w + x] * 5 + blockIdx.y * 1000 + blockIdx.x;
}
extern "C" __global__ void odd_sizes(unsigned *out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x % 5 * threadIdx.x;
}
extern "C" __global__ void wide_grid(unsigned *out) { out[blockIdx.x * 32 + threadIdx.x] = blockIdx.x ^ threadIdx.x; }
extern "C" __global__ void early_out_2d(unsigned *out, unsigned w, unsigned h) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w) return;
    if (y >= h) return;
    unsigned v = 0;
    for (unsigned i = 0; i < x % 7; i++) {
        v = v * 31 + y;
        if (v % 11 == 3) { out[y * w + x] = v; return; }
    }
    out[y * w + x] = v + 1;
}
