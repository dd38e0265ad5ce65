// Loads and stores of two and four values at once, restricted and read-only pointers, volatile ones, and bytes of words.
// nvcc: -arch=compute_75 -code=compute_75 --compress-mode=size
#include "sample.h"

__global__ void scale_fours(const float4* __restrict__ in, float4* __restrict__ out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float4 v = __ldg(&in[i]);
    out[i] = make_float4(v.x * 2, v.y * 4, v.z * 8, v.w * 16);
}

__global__ void swap_halves(const double2* in, double2* out) { out[threadIdx.x] = make_double2(in[threadIdx.x].y, in[threadIdx.x].x); }

// Colours of four bytes: grey by whole numbers, and the sum of differences by one instruction for four bytes.
__global__ void grey(const uchar4* colours, unsigned char* out, unsigned* distances) {
    const uchar4 colour = colours[threadIdx.x];
    out[threadIdx.x] = (colour.x * 77 + colour.y * 150 + colour.z * 29) >> 8;
    const unsigned here = reinterpret_cast<const unsigned*>(colours)[threadIdx.x];
    const unsigned next = reinterpret_cast<const unsigned*>(colours)[(threadIdx.x + 1) % blockDim.x];
    distances[threadIdx.x] = __vsadu4(here, next) + __dp4a(here, 0x01010101u, 0u) + __byte_perm(here, next, 0x5140) % 1000;
}

__global__ void cached(const int* in, int* out) {
    const int i = threadIdx.x;
    out[i] = __ldcs(&in[i]) + __ldcg(&in[i]) + __ldca(&in[i]);
    __stwt(&out[blockDim.x + i], out[i] * 2);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 300;
    Numbers numbers(54);
    std::vector<float> floats = numbers.floats(count * 4), scaled;
    for (int i = 0; i < count * 4; i++) scaled.push_back(floats[i] * static_cast<float>(2 << i % 4));
    const Array<float> in(floats), out(count * 4);
    scale_fours<<<3, 128>>>(reinterpret_cast<const float4*>(in.get()), reinterpret_cast<float4*>(out.get()), count);
    results.exact("four floats", out.host(), scaled);

    std::vector<double> pairs(64), swapped(64);
    for (int i = 0; i < 64; i++) swapped[i ^ 1] = pairs[i] = numbers.unit();
    const Array<double> d_pairs(pairs), d_swapped(64);
    swap_halves<<<1, 32>>>(reinterpret_cast<const double2*>(d_pairs.get()), reinterpret_cast<double2*>(d_swapped.get()));
    results.exact("two doubles", d_swapped.host(), swapped);

    constexpr int colours = 96;
    std::vector<unsigned char> bytes(colours * 4), greys;
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(numbers.below(256));
    std::vector<unsigned> distances;
    for (int i = 0; i < colours; i++) {
        const unsigned char *here = &bytes[i * 4], *next = &bytes[(i + 1) % colours * 4];
        greys.push_back((here[0] * 77 + here[1] * 150 + here[2] * 29) >> 8);
        unsigned sum = 0;
        for (int k = 0; k < 4; k++) sum += std::abs(here[k] - next[k]) + here[k];
        // Bytes 0 and 4, then 1 and 5 of both words.
        const unsigned mixed = here[0] | next[0] << 8 | here[1] << 16 | static_cast<unsigned>(next[1]) << 24;
        distances.push_back(sum + mixed % 1000);
    }
    const Array<unsigned char> d_bytes(bytes), d_greys(colours);
    const Array<unsigned> d_distances(colours);
    grey<<<1, colours>>>(reinterpret_cast<const uchar4*>(d_bytes.get()), d_greys, d_distances);
    results.exact("greys", d_greys.host(), greys);
    results.exact("distances", d_distances.host(), distances);

    std::vector<int> values = numbers.integers(64, 1000), tripled;
    for (int value : values) tripled.push_back(value * 3);
    for (int value : values) tripled.push_back(value * 6);
    const Array<int> d_values(values), d_tripled(128);
    cached<<<1, 64>>>(d_values, d_tripled);
    results.exact("with cache hints", d_tripled.host(), tripled);
    return results.finish();
}
