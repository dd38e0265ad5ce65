// What a warp can ask itself: votes, ballots, matches, reductions in one instruction, shuffles with parts of a warp.
// nvcc: -arch=compute_80 -code=compute_80
#include "sample.h"

constexpr unsigned ALL = 0xffffffff;
constexpr int QUESTIONS = 13;

__global__ void ask(const int* values, unsigned* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, value = values[i];
    int alike;
    unsigned answers[QUESTIONS] = {
        __ballot_sync(ALL, value % 3 == 0),
        static_cast<unsigned>(__any_sync(ALL, value == 5)),
        static_cast<unsigned>(__all_sync(ALL, value < 64)),
        __match_any_sync(ALL, value % 4),
        __match_all_sync(ALL, value / 1000, &alike),
        __reduce_add_sync(ALL, unsigned(value)),
        __reduce_max_sync(ALL, unsigned(value)),
        static_cast<unsigned>(__reduce_min_sync(ALL, value - 30)),
        __reduce_or_sync(ALL, 1u << value % 32),
        static_cast<unsigned>(__shfl_sync(ALL, value, lane / 8 * 8, 8)),
        static_cast<unsigned>(__shfl_up_sync(ALL, value, 3, 16)),
        static_cast<unsigned>(__shfl_down_sync(ALL, value, 5, 16)),
        static_cast<unsigned>(__shfl_xor_sync(ALL, value, 7)),
    };
    answers[4] = answers[4] * 2 + alike;
    for (int k = 0; k < QUESTIONS; k++) out[k * count + i] = answers[k];
}

// Half a warp at a time, in branches of its own.
__global__ void ask_halves(const int* values, unsigned* out) {
    const int lane = threadIdx.x % 32;
    if (lane < 16) {
        out[threadIdx.x] = __ballot_sync(0x0000ffff, values[threadIdx.x] > 20) ^ __activemask();
    } else {
        __syncwarp(0xffff0000);
        out[threadIdx.x] = __reduce_add_sync(0xffff0000, unsigned(values[threadIdx.x]));
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 256;
    const std::vector<int> values = Numbers(50).integers(count, 64);
    const Array<int> input(values);
    const Array<unsigned> out(QUESTIONS * count), halves(count);
    ask<<<count / 64, 64>>>(input, out, count);
    ask_halves<<<1, count>>>(input, halves);

    std::vector<unsigned> expected(QUESTIONS * count), expected_halves(count);
    for (int i = 0; i < count; i++) {
        const int warp = i / 32 * 32, lane = i % 32, value = values[i];
        unsigned answers[QUESTIONS] = {0, 0, 1, 0, ALL * 2 + 1, 0, 0, ALL, 0};
        int least = 1000;
        for (int k = 0; k < 32; k++) {
            const int other = values[warp + k];
            answers[0] |= unsigned(other % 3 == 0) << k;
            answers[1] |= other == 5;
            answers[2] &= other < 64;
            answers[3] |= unsigned(other % 4 == value % 4) << k;
            answers[5] += other;
            answers[6] = std::max(answers[6], unsigned(other));
            least = std::min(least, other - 30);
            answers[8] |= 1u << other % 32;
            if (k < 16 && lane < 16) expected_halves[i] |= unsigned(other > 20) << k;
            if (k >= 16 && lane >= 16) expected_halves[i] += other;
        }
        if (lane < 16) expected_halves[i] ^= 0x0000ffff;
        answers[7] = static_cast<unsigned>(least);
        answers[9] = values[warp + lane / 8 * 8 + lane / 8 * 8 % 8];
        answers[10] = values[lane % 16 >= 3 ? i - 3 : i];
        answers[11] = values[lane % 16 < 11 ? i + 5 : i];
        answers[12] = values[warp + (lane ^ 7)];
        for (int k = 0; k < QUESTIONS; k++) expected[k * count + i] = answers[k];
    }
    results.exact("answers", out.host(), expected);
    results.exact("answers of half warps", halves.host(), expected_halves);
    return results.finish();
}
