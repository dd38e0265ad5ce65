// Conway's game of life: a cell for each thread, and 32 cells in a word with bitwise sums.
#include "sample.h"

constexpr int SIDE = 96, WORDS = SIDE / 32, GENERATIONS = 12;

__global__ void by_cell(const unsigned char* now, unsigned char* next) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int around = 0;
    for (int dy = -1; dy <= 1; dy++) {
        for (int dx = -1; dx <= 1; dx++) {
            if (dx != 0 || dy != 0) around += now[(y + dy + SIDE) % SIDE * SIDE + (x + dx + SIDE) % SIDE];
        }
    }
    next[y * SIDE + x] = around == 3 || (around == 2 && now[y * SIDE + x]);
}

// Adds a word of cells to 32 counters that are spread over two words and an overflow.
__device__ void count(unsigned cells, unsigned& ones, unsigned& twos, unsigned& more) {
    const unsigned carry = ones & cells;
    ones ^= cells;
    more |= twos & carry;
    twos ^= carry;
}

__global__ void by_word(const unsigned* now, unsigned* next) {
    const int word = threadIdx.x, y = blockIdx.x;
    unsigned ones = 0, twos = 0, more = 0;
    for (int dy = -1; dy <= 1; dy++) {
        const unsigned* row = now + (y + dy + SIDE) % SIDE * WORDS;
        const unsigned middle = row[word], left = row[(word + WORDS - 1) % WORDS], right = row[(word + 1) % WORDS];
        count(__funnelshift_l(left, middle, 1), ones, twos, more);
        count(__funnelshift_r(middle, right, 1), ones, twos, more);
        if (dy != 0) count(middle, ones, twos, more);
    }
    // Two or three neighbours: twos set, no overflow; three if ones is set too.
    next[y * WORDS + word] = twos & ~more & (ones | now[y * WORDS + word]);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    Numbers numbers(32);
    std::vector<unsigned char> cells(SIDE * SIDE), other(SIDE * SIDE);
    std::vector<unsigned> words(SIDE * WORDS);
    for (int i = 0; i < SIDE * SIDE; i++) {
        cells[i] = numbers.below(3) == 0;
        words[i / 32] |= static_cast<unsigned>(cells[i]) << i % 32;
    }
    const Array<unsigned char> first(cells), second(cells.size());
    const Array<unsigned> first_words(words), second_words(words.size());
    for (int generation = 0; generation < GENERATIONS; generation += 2) {
        const dim3 blocks(SIDE / 32, SIDE / 4), threads(32, 4);
        by_cell<<<blocks, threads>>>(first, second);
        by_cell<<<blocks, threads>>>(second, first);
        by_word<<<SIDE, WORDS>>>(first_words, second_words);
        by_word<<<SIDE, WORDS>>>(second_words, first_words);
    }
    for (int generation = 0; generation < GENERATIONS; generation++) {
        for (int i = 0; i < SIDE * SIDE; i++) {
            int around = 0;
            for (int k = 0; k < 9; k++) {
                const int x = (i % SIDE + k % 3 - 1 + SIDE) % SIDE, y = (i / SIDE + k / 3 - 1 + SIDE) % SIDE;
                if (k != 4) around += cells[y * SIDE + x];
            }
            other[i] = around == 3 || (around == 2 && cells[i]);
        }
        cells.swap(other);
    }
    std::fill(words.begin(), words.end(), 0);
    for (int i = 0; i < SIDE * SIDE; i++) words[i / 32] |= static_cast<unsigned>(cells[i]) << i % 32;
    results.exact("by cells", first.host(), cells);
    results.exact("by words", first_words.host(), words);
    return results.finish();
}
