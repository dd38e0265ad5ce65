// Kernels that run for milliseconds, as programs have them: a matrix product, a convolution, bodies that attract each other,
// softmax of long rows, a chain of elementwise operations.
//
// `long_work FILE` is a sample like the others, with small sizes. `long_work --commands [--small]` does what it is told, a line
// each, and answers with a line of JSON; times are seconds of CLOCK_MONOTONIC:
//
//     fit KIND MS                       how many units take about that long, and what they take
//     work KIND UNITS SECONDS [stamps]  launches for so long, one after the other; when each launch began and was over, and the
//                                       checksums of the results, which should be one; with `stamps` also when its blocks had the GPU
//     end
//
// Blocks' stamps stay on the GPU until the time is over: what is measured beside somebody else is the kernels, not how they are measured.
#include "long_work_expected.h"

#include <time.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <sstream>

namespace {

constexpr Scale FULL = {256, 4096, 128, 16, 65536, 32768, 65536};
constexpr Scale SMALL = {32, 128, 32, 2, 512, 512, 1024};
constexpr int ROWS_OF_UNIT = 4;
constexpr int LAUNCHES_OF_ROUND = 2;
constexpr float KEEP = 0.5f;
constexpr size_t MOST_BYTES = size_t{8} << 30;  // of one array
constexpr size_t STAMP_BYTES = size_t{4} << 30, SMALL_STAMP_BYTES = size_t{16} << 20;

int64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

// Memory that grows when it has to.
class Room {
public:
    void* of(size_t bytes) {
        if (bytes > size_) {
            CHECK(cudaFree(pointer_));
            CHECK(cudaMalloc(&pointer_, bytes));
            size_ = bytes;
        }
        return pointer_;
    }
    size_t size() const { return size_; }

private:
    void* pointer_ = nullptr;
    size_t size_ = 0;
};

// One kind of work of so many units: how large its arrays are, its grid, and its launch.
struct Shape {
    size_t in, weights, out;  // in floats
    dim3 grid;

    size_t blocks() const { return static_cast<size_t>(grid.x) * grid.y * grid.z; }
};

const std::vector<std::string> KINDS = {"matmul", "convolution", "nbody", "softmax", "chain"};

Shape shape_of(const std::string& kind, const Scale& scale, unsigned units) {
    const size_t count = units;
    if (kind == "matmul") {
        const size_t inner = scale.inner, columns = scale.columns;
        return {count * TILE * inner, inner * columns, count * TILE * columns, dim3(scale.columns / TILE, units)};
    }
    if (kind == "convolution") {
        const size_t values = count * scale.channels * scale.image * scale.image;
        const size_t filters = static_cast<size_t>(scale.channels) * scale.channels * WINDOW * WINDOW;
        return {values, filters, values, dim3(scale.image / WIDE, scale.image / HIGH, units * scale.channels)};
    }
    if (kind == "nbody") {
        const size_t bodies = scale.bodies, sources = count * THREADS;
        return {4 * std::max(bodies, sources), 0, 4 * count * bodies, dim3(scale.bodies / THREADS, units)};
    }
    if (kind == "softmax") {
        const size_t values = count * ROWS_OF_UNIT * scale.row;
        return {values, 0, values, dim3(units * ROWS_OF_UNIT)};
    }
    const size_t values = count * scale.elements;
    return {values, 0, values, dim3(units * (scale.elements / THREADS))};
}

// The most units that grids and memory take.
unsigned most_units(const std::string& kind, const Scale& scale) {
    const Shape one = shape_of(kind, scale, 1);
    const size_t fits = MOST_BYTES / sizeof(float) / std::max(one.in, one.out);
    return static_cast<unsigned>(std::clamp<size_t>(fits, 1, 65535 / one.grid.z));
}

// When the blocks of launches had the GPU, by its clock.
struct Span {
    uint64_t begin, end;
};

// Adds when any of these blocks ran, without pauses that are too short to tell.
void add_spans_of(const Stamp* stamps, size_t count, std::vector<Span>& spans) {
    constexpr uint64_t SHORT_NS = 3000, BUCKET_NS = 1000;
    uint64_t first = UINT64_MAX, last = 0;
    for (size_t i = 0; i < count; i++) {
        first = std::min<uint64_t>(first, stamps[i].begin);
        last = std::max<uint64_t>(last, stamps[i].begin);
    }
    // Sorted by when they began, as far as it matters; sorting them all would take longer than they ran.
    std::vector<Span> buckets((last - first) / BUCKET_NS + 1, Span{UINT64_MAX, 0});
    for (size_t i = 0; i < count; i++) {
        Span& bucket = buckets[(stamps[i].begin - first) / BUCKET_NS];
        bucket.begin = std::min<uint64_t>(bucket.begin, stamps[i].begin);
        bucket.end = std::max<uint64_t>(bucket.end, stamps[i].end);
    }
    Span span = buckets.front();
    for (const Span& bucket : buckets) {
        if (bucket.end == 0) continue;
        if (bucket.begin > span.end + SHORT_NS) {
            spans.push_back(span);
            span = bucket;
        }
        span.end = std::max(span.end, bucket.end);
    }
    spans.push_back(span);
}

class Worker {
public:
    Worker(const Scale& scale, size_t stamp_bytes) : scale_(scale), stamp_bytes_(stamp_bytes) {
        CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        unsigned long long* told;
        CHECK(cudaHostAlloc(&told, sizeof *told, cudaHostAllocMapped));
        CHECK(cudaHostGetDevicePointer(&told_on_device_, told, 0));
        told_ = told;
    }

    void prepare(const std::string& kind, unsigned units) {
        kind_ = kind;
        shape_ = shape_of(kind, scale_, units);
        const size_t size = in_.size() + weights_.size();
        in_.of(shape_.in * sizeof(float));
        weights_.of(shape_.weights * sizeof(float));
        out_.of(shape_.out * sizeof(float));
        stamps_.of(bytes_of_launch());
        stamped_ = 0;
        places_ = 1;
        sums_.of(chunks(shape_.out) * sizeof(uint64_t));
        // What is there already is the same for all kinds.
        if (in_.size() + weights_.size() != size) {
            for (Room* room : {&in_, &weights_}) {
                const size_t count = room->size() / sizeof(float);
                if (count > 0) fill<<<chunks(count), THREADS, 0, stream_>>>(floats(*room), count);
            }
        }
        finish();
    }

    // From here on the stamps of each launch are kept, as far as there is room.
    void keep_stamps() {
        places_ = std::max<size_t>(1, stamp_bytes_ / bytes_of_launch());
        stamps_.of(places_ * bytes_of_launch());
        stamped_ = 0;
    }

    // Launches it once, and waits for it.
    void launch(float keep) {
        const float* const in = floats(in_);
        const float* const weights = floats(weights_);
        float* const out = floats(out_);
        Stamp* const stamps = stamps_of(std::min(stamped_++, places_ - 1));
        if (kind_ == "matmul") {
            multiply<<<shape_.grid, THREADS, 0, stream_>>>(in, weights, out, keep, stamps, scale_.inner, scale_.columns);
        } else if (kind_ == "convolution") {
            convolve<<<shape_.grid, THREADS, 0, stream_>>>(in, weights, out, keep, stamps, scale_.image, scale_.channels);
        } else if (kind_ == "nbody") {
            attract<<<shape_.grid, THREADS, 0, stream_>>>(reinterpret_cast<const float4*>(in),
                                                          reinterpret_cast<float4*>(out), keep, stamps, scale_.bodies);
        } else if (kind_ == "softmax") {
            softmax<<<shape_.grid, THREADS, 0, stream_>>>(in, out, keep, stamps, scale_.row);
        } else {
            chain<<<shape_.grid, THREADS, 0, stream_>>>(in, out, keep, stamps);
        }
        finish();
    }

    // A number that every bit of the result decides.
    uint64_t checksum() {
        const unsigned count = chunks(shape_.out);
        auto* const sums = static_cast<unsigned long long*>(sums_.of(0));
        digest<<<count, THREADS, 0, stream_>>>(reinterpret_cast<const unsigned*>(floats(out_)), shape_.out, sums);
        std::vector<uint64_t> found(count);
        copy_to_host(found.data(), sums, count * sizeof(uint64_t));
        uint64_t all = 0;
        for (uint64_t sum : found) all += sum;
        return all;
    }

    // When blocks of the launches ran whose stamps were kept. Of those for which there was no room any more the last is among them.
    std::vector<Span> spans() {
        const size_t count = shape_.blocks();
        if (count > stamps_on_host_count_) {
            CHECK(cudaFreeHost(stamps_on_host_));
            CHECK(cudaHostAlloc(&stamps_on_host_, count * sizeof(Stamp), cudaHostAllocDefault));
            stamps_on_host_count_ = count;
        }
        std::vector<Span> spans;
        for (size_t place = 0; place < std::min(stamped_, places_); place++) {
            copy_to_host(stamps_on_host_, stamps_of(place), bytes_of_launch());
            add_spans_of(stamps_on_host_, count, spans);
        }
        return spans;
    }

    // What the host's clock is ahead of the GPU's: as long as it took to tell at most, which is little the fastest time.
    int64_t host_ahead() {
        constexpr int TIMES = 64;
        int64_t least = INT64_MAX;
        unsigned long long before = *told_ = 0;
        tell_time<<<1, 1, 0, stream_>>>(told_on_device_, TIMES);
        bool is_over = false;
        while (!is_over) {
            is_over = cudaStreamQuery(stream_) != cudaErrorNotReady;
            const unsigned long long told = *told_;
            if (told != before) least = std::min(least, now() - static_cast<int64_t>(told));
            before = told;
        }
        finish();
        return least;
    }

    std::vector<float> result() {
        std::vector<float> values(shape_.out);
        copy_to_host(values.data(), floats(out_), shape_.out * sizeof(float));
        return values;
    }
    std::vector<float> read(Room& room, size_t count) {
        std::vector<float> values(count);
        if (count > 0) copy_to_host(values.data(), room.of(0), count * sizeof(float));
        return values;
    }
    std::vector<float> input() { return read(in_, shape_.in); }
    std::vector<float> weights() { return read(weights_, shape_.weights); }
    size_t blocks() const { return shape_.blocks(); }

private:
    static unsigned chunks(size_t count) { return static_cast<unsigned>((count + CHUNK - 1) / CHUNK); }
    static float* floats(Room& room) { return static_cast<float*>(room.of(0)); }
    size_t bytes_of_launch() const { return shape_.blocks() * sizeof(Stamp); }
    Stamp* stamps_of(size_t place) { return static_cast<Stamp*>(stamps_.of(0)) + place * shape_.blocks(); }
    void finish() {
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream_));
    }
    void copy_to_host(void* to, const void* from, size_t bytes) {
        CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
        finish();
    }

    Scale scale_;
    size_t stamp_bytes_;
    std::string kind_;
    Shape shape_;
    cudaStream_t stream_;
    Room in_, weights_, out_, stamps_, sums_;
    Stamp* stamps_on_host_ = nullptr;
    size_t stamps_on_host_count_ = 0;
    size_t stamped_ = 0, places_ = 1;  // launches since stamps are kept, and for how many there is room
    volatile unsigned long long* told_;
    unsigned long long* told_on_device_;
};

double milliseconds_of(Worker& worker) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < 3; i++) {
        const int64_t begin = now();
        worker.launch(0);
        least = std::min(least, now() - begin);
    }
    return least / 1e6;
}

// So many units that they take about that long.
void fit(Worker& worker, const Scale& scale, const std::string& kind, double wanted) {
    const unsigned most = most_units(kind, scale);
    unsigned units = 1;
    worker.prepare(kind, units);
    double took = milliseconds_of(worker);
    while (took < wanted * 0.95 && units < most) {
        // Never much more at once: what few blocks take says little of what many do.
        const double grown = units * std::min(wanted / took, 8.0);
        units = std::clamp(static_cast<unsigned>(grown), units + 1, most);
        worker.prepare(kind, units);
        took = milliseconds_of(worker);
    }
    std::printf("{\"units\": %u, \"blocks\": %zu, \"ms\": %.3f}\n", units, worker.blocks(), took);
}

template <class T, class Text>
std::string list(const T& all, Text text) {
    std::string joined;
    for (const auto& one : all) joined += (joined.empty() ? "" : ", ") + text(one);
    return "[" + joined + "]";
}

std::string pair_of_seconds(int64_t begin, int64_t end) {
    char text[64];
    std::snprintf(text, sizeof text, "[%.9f, %.9f]", begin / 1e9, end / 1e9);
    return text;
}

void work(Worker& worker, const std::string& kind, unsigned units, double seconds, bool with_stamps) {
    worker.prepare(kind, units);
    if (with_stamps) worker.keep_stamps();
    std::vector<std::pair<int64_t, int64_t>> launches;
    std::set<uint64_t> checksums;
    const int64_t ahead_at_first = worker.host_ahead(), started = now();
    while (now() - started < seconds * 1e9) {
        for (int launch = 0; launch < LAUNCHES_OF_ROUND; launch++) {
            const int64_t begin = now();
            worker.launch(launch == 0 ? 0 : KEEP);
            launches.emplace_back(begin, now());
        }
        checksums.insert(worker.checksum());
    }
    const int64_t ended = now(), drift = worker.host_ahead() - ahead_at_first;
    const std::vector<Span> spans = with_stamps ? worker.spans() : std::vector<Span>();
    // The two clocks drift apart evenly.
    const auto host_time = [&](uint64_t gpu) {
        const int64_t about = static_cast<int64_t>(gpu) + ahead_at_first;
        return about + static_cast<int64_t>(static_cast<double>(drift) * (about - started) / (ended - started));
    };
    const auto hex = [](uint64_t value) {
        char text[24];
        std::snprintf(text, sizeof text, "\"%016llx\"", static_cast<unsigned long long>(value));
        return std::string(text);
    };
    const auto launch = [](const auto& one) { return pair_of_seconds(one.first, one.second); };
    const auto span = [&](const Span& one) { return pair_of_seconds(host_time(one.begin), host_time(one.end)); };
    std::printf("{\"blocks\": %zu, \"clock_drift_ns\": %lld, \"launches\": %s, \"spans\": %s, \"checksums\": %s}\n",
                worker.blocks(), static_cast<long long>(drift), list(launches, launch).c_str(), list(spans, span).c_str(),
                list(checksums, hex).c_str());
}

int obey(const Scale& scale, size_t stamp_bytes) {
    Worker worker(scale, stamp_bytes);
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string command, kind, stamps;
        double number = 0, seconds = 0;
        words >> command >> kind >> number;
        if (command == "end") return 0;
        const bool is_known = std::find(KINDS.begin(), KINDS.end(), kind) != KINDS.end() && number > 0;
        if (command == "fit" && is_known) {
            fit(worker, scale, kind, number);
        } else if (command == "work" && is_known && words >> seconds && number <= most_units(kind, scale)) {
            work(worker, kind, static_cast<unsigned>(number), seconds, words >> stamps && stamps == "stamps");
        } else {
            std::fprintf(stderr, "long_work: not understood: %s\n", line.c_str());
            return 2;
        }
        std::fflush(stdout);
    }
    return 0;
}

std::vector<double> expected(const std::string& kind, Worker& worker, const Scale& scale, unsigned units) {
    const std::vector<float> in = worker.input();
    if (kind == "matmul") return expected_product(in, worker.weights(), scale);
    if (kind == "convolution") return expected_images(in, worker.weights(), scale);
    if (kind == "nbody") return expected_pulls(in, scale, units);
    if (kind == "softmax") return expected_rows(in, scale);
    return expected_chain(in);
}

int check_small(int argc, char** argv) {
    constexpr unsigned UNITS = 3;
    Results results(argc, argv);
    Worker worker(SMALL, SMALL_STAMP_BYTES);
    for (const std::string& kind : KINDS) {
        worker.prepare(kind, UNITS);
        worker.launch(0);
        worker.launch(KEEP);
        const uint64_t checksum = worker.checksum();
        std::vector<float> twice;
        for (double value : expected(kind, worker, SMALL, UNITS)) {
            twice.push_back(static_cast<float>(value * (1 + static_cast<double>(KEEP))));
        }
        results.near(kind, worker.result(), twice, 1e-3);
        worker.launch(0);
        worker.launch(KEEP);
        results.holds(kind + ", the same bits again", worker.checksum() == checksum);
        worker.launch(KEEP);
        results.holds(kind + ", a launch more shows", worker.checksum() != checksum);
    }
    return results.finish();
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const auto has = [&](const char* word) { return std::find(arguments.begin(), arguments.end(), word) != arguments.end(); };
    if (has("--commands")) {
        return has("--small") ? obey(SMALL, SMALL_STAMP_BYTES) : obey(FULL, STAMP_BYTES);
    }
    return check_small(argc, argv);
}
