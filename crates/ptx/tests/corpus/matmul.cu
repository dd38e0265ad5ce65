// Tiles in shared memory, of a fixed size and of the launch's.

constexpr int TILE = 16;

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < n; start += TILE) {
        a_tile[threadIdx.y][threadIdx.x] = a[row * n + start + threadIdx.x];
        b_tile[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            sum += a_tile[threadIdx.y][k] * b_tile[k][threadIdx.x];
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void reverse(int *data) {
    extern __shared__ int copy[];
    copy[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}
