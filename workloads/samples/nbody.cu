// Bodies that attract each other: tiles of positions in shared memory, some steps of leapfrog.
#include "sample.h"

constexpr int BODIES = 256, THREADS = 64, STEPS = 3;
constexpr float SOFTENING = 0.01f, DT = 0.001f;

__device__ float3 acceleration(float4 own, const float4* others, float3 sum) {
    for (int k = 0; k < THREADS; k++) {
        const float dx = others[k].x - own.x, dy = others[k].y - own.y, dz = others[k].z - own.z;
        const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + SOFTENING);
        const float pull = others[k].w * inverse * inverse * inverse;
        sum.x += dx * pull;
        sum.y += dy * pull;
        sum.z += dz * pull;
    }
    return sum;
}

__global__ void advance(const float4* positions, float4* new_positions, float3* velocities) {
    __shared__ float4 tile[THREADS];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    const float4 own = positions[i];
    float3 sum = make_float3(0, 0, 0);
    for (int first = 0; first < BODIES; first += THREADS) {
        tile[threadIdx.x] = positions[first + threadIdx.x];
        __syncthreads();
        sum = acceleration(own, tile, sum);
        __syncthreads();
    }
    float3 velocity = velocities[i];
    velocity.x += sum.x * DT;
    velocity.y += sum.y * DT;
    velocity.z += sum.z * DT;
    velocities[i] = velocity;
    new_positions[i] = make_float4(own.x + velocity.x * DT, own.y + velocity.y * DT, own.z + velocity.z * DT, own.w);
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    Numbers numbers(20);
    std::vector<float4> bodies(BODIES);
    for (float4& body : bodies) {
        body = make_float4(numbers.between(-1, 1), numbers.between(-1, 1), numbers.between(-1, 1), numbers.between(0.5f, 1));
    }
    const Array<float4> one(bodies), other(BODIES);
    const Array<float3> velocities(BODIES);
    struct Body {
        double position[3], velocity[3], mass;
    };
    std::vector<Body> exact(BODIES);
    for (int i = 0; i < BODIES; i++) exact[i] = {{bodies[i].x, bodies[i].y, bodies[i].z}, {}, bodies[i].w};
    for (int step = 0; step < STEPS; step++) {
        const bool even = step % 2 == 0;
        advance<<<BODIES / THREADS, THREADS>>>(even ? one.get() : other.get(), even ? other.get() : one.get(), velocities);
        const std::vector<Body> before = exact;
        for (int i = 0; i < BODIES; i++) {
            double sum[3] = {};
            for (const Body& other_body : before) {
                double difference[3], square = SOFTENING;
                for (int d = 0; d < 3; d++) {
                    difference[d] = other_body.position[d] - before[i].position[d];
                    square += difference[d] * difference[d];
                }
                for (int d = 0; d < 3; d++) sum[d] += difference[d] * other_body.mass / (square * std::sqrt(square));
            }
            for (int d = 0; d < 3; d++) exact[i].velocity[d] += sum[d] * DT;
            for (int d = 0; d < 3; d++) exact[i].position[d] += exact[i].velocity[d] * DT;
        }
    }
    std::vector<float> found, expected;
    const std::vector<float4> last = STEPS % 2 == 0 ? one.host() : other.host();
    const std::vector<float3> speeds = velocities.host();
    for (int i = 0; i < BODIES; i++) {
        found.insert(found.end(), {last[i].x, last[i].y, last[i].z, speeds[i].x, speeds[i].y, speeds[i].z});
        for (double value : exact[i].position) expected.push_back(static_cast<float>(value));
        for (double value : exact[i].velocity) expected.push_back(static_cast<float>(value));
    }
    results.near("positions and velocities", found, expected, 1e-4);
    return results.finish();
}
