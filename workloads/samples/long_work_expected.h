// What the kernels of long_work.h compute once, by the CPU.
#pragma once

#include "long_work.h"

inline std::vector<double> expected_product(const std::vector<float>& a, const std::vector<float>& b, const Scale& scale) {
    const size_t rows = a.size() / scale.inner;
    std::vector<double> product(rows * scale.columns);
    for (size_t i = 0; i < rows; i++) {
        for (int k = 0; k < scale.inner; k++) {
            const double left = a[i * scale.inner + k];
            for (int j = 0; j < scale.columns; j++) product[i * scale.columns + j] += left * b[k * scale.columns + j];
        }
    }
    return product;
}

inline std::vector<double> expected_images(const std::vector<float>& in, const std::vector<float>& filters,
                                           const Scale& scale) {
    const int side = scale.image, channels = scale.channels;
    std::vector<double> out(in.size());
    for (size_t i = 0; i < in.size(); i++) {
        const int x = i % side, y = i / side % side, channel = i / side / side % channels;
        const size_t image = i / side / side / channels;
        for (int from = 0; from < channels; from++) {
            for (int v = -MARGIN; v <= MARGIN; v++) {
                for (int u = -MARGIN; u <= MARGIN; u++) {
                    if (x + u < 0 || x + u >= side || y + v < 0 || y + v >= side) continue;
                    const int place = ((channel * channels + from) * WINDOW + v + MARGIN) * WINDOW + u + MARGIN;
                    out[i] += double(in[((image * channels + from) * side + y + v) * side + x + u]) * filters[place];
                }
            }
        }
    }
    return out;
}

inline std::vector<double> expected_pulls(const std::vector<float>& bodies, const Scale& scale, unsigned tiles) {
    std::vector<double> pulls;
    for (unsigned tile = 0; tile < tiles; tile++) {
        for (int i = 0; i < scale.bodies; i++) {
            double sum[3] = {};
            for (int k = 0; k < THREADS; k++) {
                const float* const source = &bodies[4 * (tile * THREADS + k)];
                double difference[3], square = SOFTENING;
                for (int d = 0; d < 3; d++) {
                    difference[d] = double(source[d]) - bodies[4 * i + d];
                    square += difference[d] * difference[d];
                }
                for (int d = 0; d < 3; d++) sum[d] += difference[d] * std::fabs(source[3]) / (square * std::sqrt(square));
            }
            pulls.insert(pulls.end(), {sum[0], sum[1], sum[2], 0.0});
        }
    }
    return pulls;
}

inline std::vector<double> expected_rows(const std::vector<float>& in, const Scale& scale) {
    std::vector<double> out(in.size());
    for (size_t first = 0; first < in.size(); first += scale.row) {
        double sum = 0;
        for (int k = 0; k < scale.row; k++) sum += out[first + k] = std::exp(double(in[first + k]));
        for (int k = 0; k < scale.row; k++) out[first + k] /= sum;
    }
    return out;
}

inline std::vector<double> expected_chain(const std::vector<float>& in) {
    std::vector<double> out(in.begin(), in.end());
    for (double& value : out) {
        for (int link = 0; link < LINKS; link++) {
            value = value * 1.5 + 0.25;
            value = value / (1.0 + std::fabs(value));
            value = std::sqrt(value * value + 0.5) - 0.5;
        }
    }
    return out;
}
