// Variables of the device by their names in the program: constant, plain, managed, in parts, in a stream, in a graph.
#include "sample.h"

__constant__ float coefficients[4];
__device__ int table[64];
__device__ unsigned long long total;
static __device__ int hidden = 41;
__managed__ int both = 5;
__managed__ float curve[8];

template <int Step>
__device__ int stepped = Step * 100;

__global__ void apply(const float* input, float* output) {
    const int i = threadIdx.x;
    output[i] = coefficients[0] + input[i] * (coefficients[1] + input[i] * (coefficients[2] + input[i] * coefficients[3]));
    atomicAdd(&total, static_cast<unsigned long long>(table[i % 64]));
    if (i == 0) {
        hidden++;
        both += hidden;
        stepped<2>++;
        for (int k = 0; k < 8; k++) curve[k] = 0.5f * static_cast<float>(k);
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    const auto code = [](cudaError_t error) { return static_cast<int>(error); };
    const float set[4] = {1, 2, 0.5f, 0.25f};
    CHECK(cudaMemcpyToSymbol(coefficients, set, sizeof set));
    const std::vector<int> numbers = Numbers(3).integers(64, 1000);
    CHECK(cudaMemcpyToSymbol(table, numbers.data(), 32 * sizeof(int)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpyToSymbolAsync(table, numbers.data() + 32, 32 * sizeof(int), 32 * sizeof(int), cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));

    const std::vector<float> input = Numbers(4).floats(256);
    const Array<float> from(input), to(256);
    apply<<<1, 256>>>(from, to);
    std::vector<float> expected(256);
    for (int i = 0; i < 256; i++) expected[i] = 1 + input[i] * (2 + input[i] * (0.5f + input[i] * 0.25f));
    results.near("constants", to.host(), expected, 1e-6);
    unsigned long long sum = 0, sum_expected = 0;
    CHECK(cudaMemcpyFromSymbol(&sum, total, sizeof sum));
    for (int number : numbers) sum_expected += 4ull * static_cast<unsigned>(number);
    results.exact("a sum", sum, sum_expected);
    results.exact("managed, read by the host", both, 5 + 42);
    results.exact("managed array", std::vector<float>(curve, curve + 8), std::vector<float>{0, 0.5f, 1, 1.5f, 2, 2.5f, 3, 3.5f});
    int value = 0;
    CHECK(cudaMemcpyFromSymbol(&value, hidden, sizeof value));
    results.exact("a static variable", value, 42);
    CHECK(cudaMemcpyFromSymbol(&value, stepped<2>, sizeof value));
    results.exact("a variable of a template", value, 201);

    size_t size = 0;
    CHECK(cudaGetSymbolSize(&size, table));
    results.exact("size of an array", size, sizeof(int) * 64);
    int* address = nullptr;
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&address), table));
    CHECK(cudaMemcpy(&value, address + 40, sizeof value, cudaMemcpyDeviceToHost));
    results.exact("by its address", value, numbers[40]);
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&address), both));
    results.holds("a managed variable has one address", address == &both);

    const int unknown = 0;
    results.exact("no symbol", code(cudaGetSymbolSize(&size, &unknown)), code(cudaErrorInvalidSymbol));
    results.exact("too long", code(cudaMemcpyToSymbol(table, numbers.data(), 65 * sizeof(int))), code(cudaErrorInvalidValue));
    results.exact("too far", code(cudaMemcpyFromSymbol(&value, total, 4, 8)), code(cudaErrorInvalidValue));

    cudaGraph_t graph;
    cudaGraphNode_t in, out;
    cudaGraphExec_t executable;
    int seven = 7, read = 0;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNodeToSymbol(&in, graph, nullptr, 0, hidden, &seven, sizeof seven, 0, cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddMemcpyNodeFromSymbol(&out, graph, &in, 1, &read, hidden, sizeof read, 0, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    results.exact("in a graph", read, 7);
    return results.finish();
}
