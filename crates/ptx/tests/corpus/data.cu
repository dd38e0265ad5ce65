// Module variables: constants, initializers of every type, pointers to each other, managed and opaque ones.

struct Node { int key; const Node *next; float weight; };
struct __attribute__((packed)) Tight { char tag; const void *target; short tail; };

__constant__ float coefficients[5] = {1.0f, -0.5f, 0.25f, -1e-30f, 3.0e38f};
__constant__ int empty[16];
__constant__ unsigned char bytes[] = {0, 1, 127, 128, 255};
__constant__ double pi = 3.141592653589793;
__constant__ long long wide[2][2] = {{-9223372036854775807LL - 1, -1}, {0, 9223372036854775807LL}};
__device__ unsigned long long huge = 0xffffffffffffffffull;
__device__ short small = -3;
__device__ bool truth = true;
__device__ int numbers[3] = {7, 8, 9};
__device__ int *third = numbers + 2;
__device__ int *const table[3] = {numbers, nullptr, numbers + 1};
__device__ Node last = {2, nullptr, 0.5f};
__device__ Node first = {1, &last, 1.5f};
__device__ Tight tight = {1, numbers + 1, -2};
__device__ const char *words[] = {"alpha", "beta"};
__device__ float4 vector = {1, 2, 3, 4};
__managed__ int shared_with_host = 42;
extern __device__ int defined_elsewhere;
static __device__ int hidden;

extern "C" __global__ void touch(double *out, int index) {
    out[0] = coefficients[index] + empty[index] + bytes[index] + pi + wide[index & 1][1];
    out[1] = (double)huge + small + truth + *third + *table[index] + first.next->weight;
    out[2] = words[index][1] + vector.x + shared_with_host + defined_elsewhere + hidden++;
    out[3] = *(const int *)tight.target + tight.tail;
    last.key = numbers[index]++;
}
