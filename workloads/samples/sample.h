// What the samples share: arrays on the device, numbers to begin with, and results that are checked and written down.
//
// A sample compares what the device computed with what the CPU computes: bit for bit, or within a bound where rounding
// or order may differ. `SAMPLE FILE` writes its results to the file as JSON: of an exact result the checksum, of the
// others some values and the bound, so that two devices can be compared with each other too.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#define CHECK(call) sample::check((call), #call, __FILE__, __LINE__)

namespace sample {

inline void check(cudaError_t error, const char* call, const char* file, int line) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorName(error));
    std::exit(1);
}

// Launch errors show at the next call; kernel errors when the kernel is waited for.
inline void finish_kernels() {
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

// An array on the device.
template <class T>
class Array {
public:
    explicit Array(size_t count) : count_(count) {
        CHECK(cudaMalloc(&pointer_, bytes()));
        CHECK(cudaMemset(pointer_, 0, bytes()));
    }
    explicit Array(const std::vector<T>& values) : count_(values.size()) {
        CHECK(cudaMalloc(&pointer_, bytes()));
        CHECK(cudaMemcpy(pointer_, values.data(), bytes(), cudaMemcpyHostToDevice));
    }
    ~Array() { cudaFree(pointer_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* get() const { return pointer_; }
    operator T*() const { return pointer_; }
    size_t size() const { return count_; }
    size_t bytes() const { return count_ * sizeof(T); }

    // A copy on the host, once all kernels before it are through.
    std::vector<T> host() const {
        finish_kernels();
        std::vector<T> values(count_);
        CHECK(cudaMemcpy(values.data(), pointer_, bytes(), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    T* pointer_ = nullptr;
    size_t count_;
};

// Pseudo-random numbers that are the same everywhere (splitmix64).
class Numbers {
public:
    explicit Numbers(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    uint32_t below(uint32_t limit) { return static_cast<uint32_t>((next() >> 32) * limit >> 32); }
    // A multiple of 2^-24 in [0, 1).
    float unit() { return static_cast<float>(next() >> 40) * 0x1p-24f; }
    float between(float low, float high) { return low + (high - low) * unit(); }

    std::vector<int> integers(size_t count, uint32_t limit) {
        std::vector<int> values(count);
        for (int& value : values) value = static_cast<int>(below(limit));
        return values;
    }
    std::vector<float> floats(size_t count, float low = 0, float high = 1) {
        std::vector<float> values(count);
        for (float& value : values) value = between(low, high);
        return values;
    }

private:
    uint64_t state_;
};

// The results of one run.
class Results {
public:
    // `results.json` is written where the first argument says.
    Results(int argc, char** argv) : path_(argc > 1 ? argv[1] : "") {}

    // Equal bit for bit.
    template <class T>
    void exact(const std::string& name, const std::vector<T>& device, const std::vector<T>& cpu) {
        if (device.size() != cpu.size()) {
            fail(name, 0, "another number of values");
            return;
        }
        for (size_t i = 0; i < device.size(); i++) {
            if (std::memcmp(&device[i], &cpu[i], sizeof(T)) != 0) {
                fail(name, i, text(device[i]) + " instead of " + text(cpu[i]));
                break;
            }
        }
        add(name, device.size(), "\"checksum\": \"" + hex(checksum(device.data(), device.size() * sizeof(T))) + "\"");
    }
    template <class T, class U>
    void exact(const std::string& name, T device, U cpu) {
        exact(name, std::vector<T>{device}, std::vector<T>{static_cast<T>(cpu)});
    }

    // No value differs by more than the bound, relative to the larger of 1 and the CPU's value.
    template <class T>
    void near(const std::string& name, const std::vector<T>& device, const std::vector<T>& cpu, double bound) {
        constexpr size_t most_values = 16;
        if (device.size() != cpu.size()) {
            fail(name, 0, "another number of values");
            return;
        }
        for (size_t i = 0; i < device.size(); i++) {
            const double scale = std::fmax(1.0, std::fabs(static_cast<double>(cpu[i])));
            // Also true of no number.
            if (!(std::fabs(static_cast<double>(device[i]) - static_cast<double>(cpu[i])) <= bound * scale)) {
                fail(name, i, text(device[i]) + " instead of " + text(cpu[i]));
                break;
            }
        }
        std::string values;
        const size_t shown = device.size() < most_values ? device.size() : most_values;
        for (size_t i = 0; i < shown; i++) {
            values += (i == 0 ? "" : ", ") + text(device[i * device.size() / shown]);
        }
        add(name, device.size(), "\"bound\": " + text(bound) + ", \"values\": [" + values + "]");
    }
    template <class T>
    void near(const std::string& name, T device, T cpu, double bound) {
        near(name, std::vector<T>{device}, std::vector<T>{cpu}, bound);
    }

    // Something that must hold, and leaves no values.
    void holds(const std::string& name, bool is_so) {
        if (!is_so) fail(name, 0, "does not hold");
        add(name, 0, "\"checksum\": \"" + hex(is_so) + "\"");
    }

    // The program's exit code; prints what was found and writes the file.
    int finish() {
        std::printf("%s%zu results, checksum %s\n", lines_.c_str(), count_, hex(all_).c_str());
        if (!path_.empty() && !write()) return 1;
        return failed_ ? 1 : 0;
    }

private:
    static uint64_t checksum(const void* data, size_t size) {  // FNV-1a
        uint64_t hash = 0xcbf29ce484222325;
        for (size_t i = 0; i < size; i++) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
        return hash;
    }
    static std::string hex(uint64_t value) {
        char digits[17];
        std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
        return digits;
    }
    template <class T>
    static std::string text(const T& value) {
        if constexpr (std::is_arithmetic_v<T>) {
            char digits[32];
            std::snprintf(digits, sizeof digits, "%.17g", static_cast<double>(value));
            return digits;
        } else {
            return "other bits";
        }
    }
    void fail(const std::string& name, size_t at, const std::string& what) {
        failed_ = true;
        std::printf("%s[%zu]: %s\n", name.c_str(), at, what.c_str());
    }
    void add(const std::string& name, size_t count, const std::string& fields) {
        json_ += (count_++ == 0 ? "" : ",\n ");
        json_ += "{\"name\": \"" + name + "\", \"count\": " + std::to_string(count) + ", " + fields + "}";
        lines_ += name + ": " + std::to_string(count) + " values\n";
        all_ ^= checksum(json_.data(), json_.size());
    }
    bool write() const {
        std::FILE* file = std::fopen(path_.c_str(), "w");
        if (file == nullptr) {
            std::perror(path_.c_str());
            return false;
        }
        std::fprintf(file, "[%s]\n", json_.c_str());
        return std::fclose(file) == 0;
    }

    std::string path_, json_, lines_;
    size_t count_ = 0;
    uint64_t all_ = 0;
    bool failed_ = false;
};

}  // namespace sample

using sample::Array;
using sample::ceil_div;
using sample::Numbers;
using sample::Results;
