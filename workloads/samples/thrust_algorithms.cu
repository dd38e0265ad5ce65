// Algorithms of Thrust, and CUB below them: sort, scan, reduce, by key, with iterators and functions of the program's own.
#include "sample.h"

#include <thrust/device_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>

#include <algorithm>
#include <map>
#include <numeric>

struct Square {
    __host__ __device__ long long operator()(int value) const { return static_cast<long long>(value) * value; }
};

int main(int argc, char** argv) {
    Results results(argc, argv);
    const std::vector<int> numbers = Numbers(17).integers(5000, 100000);
    thrust::device_vector<int> values(numbers.begin(), numbers.end());
    const auto host = [](const thrust::device_vector<int>& from) {
        std::vector<int> to(from.size());
        thrust::copy(from.begin(), from.end(), to.begin());
        return to;
    };
    std::vector<int> expected = numbers;
    std::sort(expected.begin(), expected.end());
    thrust::sort(values.begin(), values.end());
    results.exact("sorted", host(values), expected);
    thrust::device_vector<int> running(values.size());
    thrust::inclusive_scan(values.begin(), values.end(), running.begin());
    std::partial_sum(expected.begin(), expected.end(), expected.begin());
    results.exact("running sums", host(running), expected);
    const long long squares = thrust::transform_reduce(values.begin(), values.end(), Square(), 0ll, thrust::plus<long long>());
    long long squares_expected = 0;
    for (int number : numbers) squares_expected += Square()(number);
    results.exact("sum of squares", squares, squares_expected);

    std::vector<int> keys(numbers.size());
    std::map<int, int> counts;
    for (size_t i = 0; i < keys.size(); i++) counts[keys[i] = numbers[i] % 17]++;
    thrust::device_vector<int> grouped(keys.begin(), keys.end()), groups(17), sizes(17);
    thrust::sort(grouped.begin(), grouped.end(), thrust::greater<int>());
    const auto ends = thrust::reduce_by_key(grouped.begin(), grouped.end(), thrust::make_constant_iterator(1), groups.begin(), sizes.begin());
    std::vector<int> groups_expected, sizes_expected;
    for (auto group = counts.rbegin(); group != counts.rend(); ++group) {
        groups_expected.push_back(group->first);
        sizes_expected.push_back(group->second);
    }
    results.holds("groups end together", ends.first - groups.begin() == 17 && ends.second - sizes.begin() == 17);
    results.exact("groups", host(groups), groups_expected);
    results.exact("their sizes", host(sizes), sizes_expected);
    return results.finish();
}
