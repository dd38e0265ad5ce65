// Copies of whole pieces without threads (cp.async.bulk): into shared memory with a barrier that counts bytes, and back.
#include "mbarrier.h"
#include "sample.h"

constexpr int PIECE = 256;

__global__ void reverse_pieces(const int* in, int* out) {
    __shared__ alignas(128) int piece[PIECE], turned[PIECE];
    __shared__ Barrier barrier;
    if (threadIdx.x == 0) {
        init(&barrier, 1);
        arrive_and_expect(&barrier, sizeof piece);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         shared_address(piece)),
                     "l"(in + blockIdx.x * PIECE), "r"(static_cast<unsigned>(sizeof piece)), "r"(shared_address(&barrier))
                     : "memory");
    }
    __syncthreads();
    wait(&barrier, 0);
    turned[PIECE - 1 - threadIdx.x] = piece[threadIdx.x] + 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + blockIdx.x * PIECE),
                     "r"(shared_address(turned)), "r"(static_cast<unsigned>(sizeof turned))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int pieces = 6;
    const std::vector<int> values = Numbers(41).integers(pieces * PIECE, 1 << 20);
    std::vector<int> expected(values.size());
    for (int i = 0; i < pieces * PIECE; i++) expected[i / PIECE * PIECE + PIECE - 1 - i % PIECE] = values[i] + 1;
    const Array<int> in(values), out(values.size());
    reverse_pieces<<<pieces, PIECE>>>(in, out);
    results.exact("reversed pieces", out.host(), expected);
    return results.finish();
}
