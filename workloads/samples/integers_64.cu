// Whole numbers of 64 and 128 bits: products' upper halves, divisions, powers by Montgomery's method, bits, big factorials.
#include "sample.h"

using Long = unsigned long long;

__host__ __device__ Long power(Long base, Long exponent, Long modulus) {
    unsigned __int128 result = 1, square = base % modulus;
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 == 1) result = result * square % modulus;
        square = square * square % modulus;
    }
    return static_cast<Long>(result);
}

// Miller-Rabin with bases that decide every 64-bit number.
__host__ __device__ bool is_prime(Long n) {
    const Long bases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    for (Long base : bases) {
        if (n % base == 0) return n == base;
    }
    Long odd = n - 1;
    int twos = 0;
    for (; odd % 2 == 0; odd /= 2) twos++;
    for (Long base : bases) {
        Long x = power(base, odd, n);
        bool composite = x != 1 && x != n - 1;
        for (int k = 1; composite && k < twos; k++) {
            x = power(x, 2, n);
            composite = x != n - 1;
        }
        if (composite) return false;
    }
    return true;
}

__global__ void find_primes(Long first, unsigned char* prime) { prime[threadIdx.x] = is_prime(first + threadIdx.x); }

constexpr int RESULTS = 8;

__global__ void arithmetic(const Long* a, const Long* b, Long* out, int count) {
    const int i = threadIdx.x;
    if (i >= count) return;
    out[i] = __umul64hi(a[i], b[i]);
    out[count + i] = static_cast<Long>(__mul64hi(static_cast<long long>(a[i]), static_cast<long long>(b[i])));
    out[2 * count + i] = a[i] / (b[i] >> 20 | 1);
    out[3 * count + i] = static_cast<Long>(static_cast<long long>(a[i]) % static_cast<long long>(b[i] >> 3 | 1));
    out[4 * count + i] = __brevll(a[i]);
    out[5 * count + i] = __clzll(a[i] >> (b[i] % 60)) * 100 + __popcll(b[i]);
    out[6 * count + i] = a[i] << (b[i] % 64) | a[i] >> (64 - b[i] % 64) % 64;
    out[7 * count + i] = static_cast<Long>(static_cast<long long>(a[i]) >> (b[i] % 64));
}

// Digits of a factorial in base 10^9, a carry passed along by one thread.
__global__ void factorial(int n, unsigned* digits, int length) {
    digits[0] = 1;
    for (int factor = 2; factor <= n; factor++) {
        Long carry = 0;
        for (int k = 0; k < length; k++) {
            const Long product = static_cast<Long>(digits[k]) * factor + carry;
            digits[k] = static_cast<unsigned>(product % 1000000000);
            carry = product / 1000000000;
        }
    }
}

int main(int argc, char** argv) {
    Results results(argc, argv);
    constexpr int count = 128;
    Numbers numbers(49);
    std::vector<Long> a(count), b(count), expected(RESULTS * count);
    for (int i = 0; i < count; i++) {
        a[i] = numbers.next();
        b[i] = numbers.next();
        const auto x = static_cast<long long>(a[i]), y = static_cast<long long>(b[i]);
        Long reversed = 0;
        for (int bit = 0; bit < 64; bit++) reversed |= (a[i] >> bit & 1) << (63 - bit);
        const Long shifted = a[i] >> (b[i] % 60);
        const Long all[] = {static_cast<Long>(static_cast<unsigned __int128>(a[i]) * b[i] >> 64),
                            static_cast<Long>(static_cast<__int128>(x) * y >> 64),
                            a[i] / (b[i] >> 20 | 1),
                            static_cast<Long>(x % static_cast<long long>(b[i] >> 3 | 1)),
                            reversed,
                            static_cast<Long>((shifted == 0 ? 64 : __builtin_clzll(shifted)) * 100 + __builtin_popcountll(b[i])),
                            a[i] << (b[i] % 64) | a[i] >> (64 - b[i] % 64) % 64,
                            static_cast<Long>(x >> (b[i] % 64))};
        for (int k = 0; k < RESULTS; k++) expected[k * count + i] = all[k];
    }
    const Array<Long> d_a(a), d_b(b), out(RESULTS * count);
    arithmetic<<<1, count>>>(d_a, d_b, out, count);
    results.exact("arithmetic", out.host(), expected);

    constexpr Long first = 18446744073709551000ull;
    const Array<unsigned char> primes(64);
    find_primes<<<1, 64>>>(first, primes);
    std::vector<unsigned char> expected_primes;
    for (int i = 0; i < 64; i++) expected_primes.push_back(is_prime(first + i));
    results.exact("primes below 2^64", primes.host(), expected_primes);

    constexpr int length = 20;
    const Array<unsigned> digits(length);
    factorial<<<1, 1>>>(100, digits, length);
    std::vector<unsigned> expected_digits(length);
    expected_digits[0] = 1;
    for (int factor = 2; factor <= 100; factor++) {
        Long carry = 0;
        for (unsigned& digit : expected_digits) {
            const Long product = static_cast<Long>(digit) * factor + carry;
            digit = static_cast<unsigned>(product % 1000000000);
            carry = product / 1000000000;
        }
    }
    results.exact("100 factorial", digits.host(), expected_digits);
    return results.finish();
}
