// What kernels print: formats, widths, strings, the count that printf returns; read back from the program's own output.
#include "sample.h"

#include <algorithm>
#include <unistd.h>

__global__ void greet(int* returned) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    returned[i] = printf("thread %d of block %d says %s\n", threadIdx.x, blockIdx.x, i % 2 == 0 ? "even" : "odd");
}

__global__ void formats() {
    printf("%d %i %u %x %X %o %c %%\n", -7, 8, 4000000000u, 255, 255, 8, 'z');
    printf("%5d|%-5d|%05d|%+d|%#x\n", 42, 42, 42, 42, 255);
    printf("%lld %llu %llx %hd\n", -5000000000ll, 18446744073709551615ull, 1ull << 40, short(-3));
    printf("%f %.3f %10.2f %e %g %g\n", 1.5, 3.14159, 2.5f, 12345.678, 0.0001, 1e10);
    printf("[%8s] [%-8s] [%.2s]\n", "right", "left", "cut");
}

// Runs `body` with the standard output in a file, and returns what was printed.
template <class Body>
std::string printed(Body body) {
    std::fflush(stdout);
    std::FILE* const file = std::tmpfile();
    const int kept = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    body();
    CHECK(cudaDeviceSynchronize());
    std::fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    std::string text;
    std::rewind(file);
    for (int letter = std::fgetc(file); letter != EOF; letter = std::fgetc(file)) text += static_cast<char>(letter);
    std::fclose(file);
    return text;
}

std::vector<std::string> sorted_lines(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        lines.push_back(text.substr(at, end - at));
    }
    std::sort(lines.begin(), lines.end());
    return lines;
}

std::vector<char> joined(const std::vector<std::string>& lines) {
    std::vector<char> text;
    for (const std::string& line : lines) {
        text.insert(text.end(), line.begin(), line.end());
        text.push_back('\n');
    }
    return text;
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int blocks = 3, threads = 8;
    const Array<int> returned(blocks * threads);
    const std::string greetings = printed([&] { greet<<<blocks, threads>>>(returned); });
    std::vector<std::string> expected;
    for (int i = 0; i < blocks * threads; i++) {
        expected.push_back("thread " + std::to_string(i % threads) + " of block " + std::to_string(i / threads) + " says " +
                           (i % 2 == 0 ? "even" : "odd"));
    }
    std::sort(expected.begin(), expected.end());
    results.exact("greetings in any order", joined(sorted_lines(greetings)), joined(expected));
    // The device's printf returns how many arguments it took.
    results.exact("numbers of arguments", returned.host(), std::vector<int>(blocks * threads, 3));

    const std::string text = printed([] { formats<<<1, 1>>>(); });
    const std::string wanted =
        "-7 8 4000000000 ff FF 10 z %\n"
        "   42|42   |00042|+42|0xff\n"
        "-5000000000 18446744073709551615 10000000000 -3\n"
        "1.500000 3.142       2.50 1.234568e+04 0.0001 1e+10\n"
        "[   right] [left    ] [cu]\n";
    if (text != wanted) std::printf("printed:\n%s", text.c_str());
    results.exact("formats", std::vector<char>(text.begin(), text.end()), std::vector<char>(wanted.begin(), wanted.end()));
    return results.finish();
}
