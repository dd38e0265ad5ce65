// Constant memory: a polynomial's coefficients, structures, a table that every thread reads elsewhere, values set at build.
#include "sample.h"

struct Camera {
    float position[3];
    int width, height;
    double zoom;
};

__constant__ int coefficients[8] = {3, -1, 4, 1, -5, 9, 2, -6};
__constant__ Camera camera;
__constant__ unsigned char sbox[256];
__constant__ const char* const words[3] = {"red", "green", "blue"};

__global__ void evaluate(int* out) {
    const int x = threadIdx.x % 11 - 5;
    int sum = 0;
    for (int k = 7; k >= 0; k--) sum = sum * x + coefficients[k];
    out[threadIdx.x] = sum;
}

__global__ void project(double* out) {
    out[threadIdx.x] = camera.zoom * (camera.position[threadIdx.x % 3] + camera.width * camera.height);
}

__global__ void substitute(const unsigned char* in, unsigned char* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = sbox[sbox[in[i]] ^ static_cast<unsigned char>(i)];
}

__global__ void spell(char* out) {
    const char* const word = words[threadIdx.x % 3];
    int length = 0;
    while (word[length] != 0) length++;
    out[threadIdx.x] = word[threadIdx.x % length];
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    const Array<int> values(64);
    const auto polynomial = [](const std::vector<int>& c) {
        std::vector<int> all;
        for (int i = 0; i < 64; i++) {
            int sum = 0;
            for (int k = 7; k >= 0; k--) sum = sum * (i % 11 - 5) + c[k];
            all.push_back(sum);
        }
        return all;
    };
    evaluate<<<1, 64>>>(values);
    results.exact("coefficients of the program", values.host(), polynomial({3, -1, 4, 1, -5, 9, 2, -6}));
    const int two[2] = {100, 200};
    CHECK(cudaMemcpyToSymbol(coefficients, two, sizeof two, 2 * sizeof(int)));
    evaluate<<<1, 64>>>(values);
    results.exact("two of them replaced", values.host(), polynomial({3, -1, 100, 200, -5, 9, 2, -6}));

    const Camera view = {{0.5f, 1.5f, 2.5f}, 640, 480, 1.25};
    CHECK(cudaMemcpyToSymbol(camera, &view, sizeof view));
    const Array<double> projected(6);
    project<<<1, 6>>>(projected);
    std::vector<double> expected;
    for (int i = 0; i < 6; i++) expected.push_back(1.25 * (view.position[i % 3] + 640 * 480));
    results.exact("a structure", projected.host(), expected);

    unsigned char box[256];
    for (int i = 0; i < 256; i++) box[i] = static_cast<unsigned char>(i * 167 + 13);
    CHECK(cudaMemcpyToSymbol(sbox, box, sizeof box));
    std::vector<unsigned char> bytes(1000), substituted(1000);
    Numbers numbers(53);
    for (int i = 0; i < 1000; i++) {
        bytes[i] = static_cast<unsigned char>(numbers.below(256));
        substituted[i] = box[box[bytes[i]] ^ static_cast<unsigned char>(i)];
    }
    const Array<unsigned char> in(bytes), out(1000);
    substitute<<<8, 128>>>(in, out, 1000);
    results.exact("a table", out.host(), substituted);

    const Array<char> letters(30);
    spell<<<1, 30>>>(letters);
    std::vector<char> spelt;
    const std::string names[] = {"red", "green", "blue"};
    for (int i = 0; i < 30; i++) spelt.push_back(names[i % 3][i % names[i % 3].size()]);
    results.exact("words", letters.host(), spelt);
    return results.finish();
}
