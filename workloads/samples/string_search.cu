// Where words occur in a text: word by word in constant memory, and the edit distance of lines by dynamic programming.
#include "sample.h"

constexpr int LONGEST = 16;
__constant__ char words[4][LONGEST];
__constant__ int lengths[4];

__global__ void find(const char* text, int size, int* counts, int* first) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x, word = blockIdx.y;
    const int length = lengths[word];
    if (at + length > size) return;
    for (int k = 0; k < length; k++) {
        if (text[at + k] != words[word][k]) return;
    }
    atomicAdd(&counts[word], 1);
    atomicMin(&first[word], at);
}

// One thread for each pair of lines; the row of the table is in local memory.
__global__ void edit_distances(const char* lines, int length, int count, int* distances) {
    const int a = blockIdx.x, b = threadIdx.x;
    if (b >= count) return;
    unsigned char row[33];
    for (int k = 0; k <= length; k++) row[k] = k;
    for (int i = 1; i <= length; i++) {
        unsigned char diagonal = row[0];
        row[0] = i;
        for (int k = 1; k <= length; k++) {
            const unsigned char above = row[k];
            const bool same = lines[a * length + i - 1] == lines[b * length + k - 1];
            row[k] = min(min(above + 1, row[k - 1] + 1), diagonal + (same ? 0 : 1));
            diagonal = above;
        }
    }
    distances[a * count + b] = row[length];
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int size = 20000;
    const char host_words[4][LONGEST] = {"ab", "abba", "cabbage", "zzz"};
    const int host_lengths[4] = {2, 4, 7, 3};
    CHECK(cudaMemcpyToSymbol(words, host_words, sizeof host_words));
    CHECK(cudaMemcpyToSymbol(lengths, host_lengths, sizeof host_lengths));
    Numbers numbers(31);
    std::string text(size, ' ');
    for (char& letter : text) letter = "abceg"[numbers.below(5)];
    text.replace(12345, 7, "cabbage");
    std::vector<int> counts(4), first(4, size);
    for (int word = 0; word < 4; word++) {
        for (size_t at = text.find(host_words[word]); at != std::string::npos; at = text.find(host_words[word], at + 1)) {
            if (counts[word]++ == 0) first[word] = static_cast<int>(at);
        }
    }
    const Array<char> d_text(std::vector<char>(text.begin(), text.end()));
    const Array<int> d_counts(4), d_first(std::vector<int>(4, size));
    find<<<dim3(ceil_div(size, 128), 4), 128>>>(d_text, size, d_counts, d_first);
    results.exact("occurrences", d_counts.host(), counts);
    results.exact("first places", d_first.host(), first);

    constexpr int lines = 24, length = 32;
    std::vector<int> distances(lines * lines);
    for (int a = 0; a < lines; a++) {
        for (int b = 0; b < lines; b++) {
            std::vector<int> row(length + 1), above(length + 1);
            for (int k = 0; k <= length; k++) above[k] = k;
            for (int i = 1; i <= length; i++) {
                row[0] = i;
                for (int k = 1; k <= length; k++) {
                    const int change = above[k - 1] + (text[a * length + i - 1] != text[b * length + k - 1]);
                    row[k] = std::min(std::min(above[k], row[k - 1]) + 1, change);
                }
                row.swap(above);
            }
            distances[a * lines + b] = above[length];
        }
    }
    const Array<int> d_distances(lines * lines);
    edit_distances<<<lines, 32>>>(d_text, length, lines, d_distances);
    results.exact("edit distances", d_distances.host(), distances);
    return results.finish();
}
