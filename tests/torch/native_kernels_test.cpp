// The native ops' CUDA kernels, compiled for the host, against plain loops over the definitions:
// every type, random shapes with tails, arrays whose ends AddressSanitizer knows, and threads in
// two orders, which must give the same bits.
#include "strategies/cuda/native_kernels.cu"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "models/native/geometry.h"

namespace millrace::train::native {
namespace {

using host_cuda::Grid;
using host_cuda::Order;

std::int64_t draw(std::mt19937& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

template <class T>
std::vector<T> normal(std::mt19937& random, std::int64_t count) {
  std::normal_distribution<double> distribution;
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = static_cast<T>(distribution(random));
  return values;
}

template <class T>
std::vector<T> filled(std::int64_t count, T value) {
  return std::vector<T>(static_cast<std::size_t>(count), value);
}

/// Runs `launch` with threads in both orders. Returns its result, which must be the same bits.
template <class T, class Launch>
std::vector<T> launched(std::int64_t count, const Launch& launch) {
  Grid& grid = Grid::instance();
  std::vector<std::vector<T>> results;
  for (const Order order : {Order::forward, Order::backward}) {
    grid.order = order;
    results.push_back(filled<T>(count, T(77)));  // a value that was left out
    const std::uint64_t before = grid.launches;
    EXPECT_EQ(launch(results.back().data()), cudaSuccess);
    EXPECT_EQ(grid.launches, before + (count > 0 ? 1 : 0));
    EXPECT_FALSE(grid.diverged);
  }
  if (count > 0) {
    EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(T)), 0)
        << "the order of threads shows";
  }
  return results[0];
}

template <class T>
void expect_near(const std::vector<T>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  double largest = 1;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  const double tolerance = 64 * static_cast<double>(std::numeric_limits<T>::epsilon()) * largest;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(static_cast<double>(found[i]), wanted[i], tolerance) << i;
}

struct Gradients {
  std::vector<double> output, input, weight, bias;
};

/// Computes a convolution and its gradients by the definition in geometry.h.
template <class T>
Gradients convolved(const ConvGeometry& g, const std::vector<T>& input,
                    const std::vector<T>& weight, const std::vector<T>& bias,
                    const std::vector<T>& deltas) {
  Gradients all;
  all.output = filled(g.batch * g.out * g.output.h * g.output.w, 0.0);
  all.input = filled(g.batch * g.in * g.input.h * g.input.w, 0.0);
  all.weight = filled(g.weights(), 0.0);
  all.bias = filled(g.out, 0.0);
  std::size_t to = 0;
  for (std::int64_t n = 0; n < g.batch; ++n)
    for (std::int64_t o = 0; o < g.out; ++o)
      for (std::int64_t oy = 0; oy < g.output.h; ++oy)
        for (std::int64_t ox = 0; ox < g.output.w; ++ox, ++to) {
          const double delta = static_cast<double>(deltas[to]);
          all.output[to] = static_cast<double>(bias[static_cast<std::size_t>(o)]);
          all.bias[static_cast<std::size_t>(o)] += delta;
          for (std::int64_t c = 0; c < g.group_in(); ++c)
            for (std::int64_t ky = 0; ky < g.kernel.h; ++ky)
              for (std::int64_t kx = 0; kx < g.kernel.w; ++kx) {
                const std::int64_t y = oy * g.stride.h + ky * g.dilation.h - g.padding.h;
                const std::int64_t x = ox * g.stride.w + kx * g.dilation.w - g.padding.w;
                if (y < 0 || y >= g.input.h || x < 0 || x >= g.input.w) continue;
                const std::int64_t channel = o / g.group_out() * g.group_in() + c;
                const auto from = static_cast<std::size_t>(
                    ((n * g.in + channel) * g.input.h + y) * g.input.w + x);
                const auto tap = static_cast<std::size_t>(
                    ((o * g.group_in() + c) * g.kernel.h + ky) * g.kernel.w + kx);
                all.output[to] +=
                    static_cast<double>(weight[tap]) * static_cast<double>(input[from]);
                all.input[from] += static_cast<double>(weight[tap]) * delta;
                all.weight[tap] += static_cast<double>(input[from]) * delta;
              }
        }
  return all;
}

/// `many`: more outputs than a block has threads, so that each thread adds to sums over them.
ConvGeometry random_convolution(std::mt19937& random, bool many) {
  ConvGeometry g;
  g.groups = draw(random, 1, 3);
  g.batch = draw(random, 0, 4);
  g.in = g.groups * draw(random, 1, 2);
  g.out = g.groups * draw(random, 1, 3);
  g.kernel = {draw(random, 1, 3), draw(random, 1, 3)};
  g.stride = {draw(random, 1, 3), draw(random, 1, 3)};
  g.padding = {draw(random, 0, 3), draw(random, 0, 3)};
  g.dilation = {draw(random, 1, 2), draw(random, 1, 2)};
  g.input = {g.dilation.h * (g.kernel.h - 1) + draw(random, 1, 7),
             g.dilation.w * (g.kernel.w - 1) + draw(random, 1, 9)};
  if (many) {
    g.batch = 3;
    g.input.h += 12 * g.stride.h;
    g.input.w += 12 * g.stride.w;
  }
  complete(g);
  return g;
}

template <class T>
class KernelsOnTheHost : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(KernelsOnTheHost, Types);

TYPED_TEST(KernelsOnTheHost, ConvolveAsTheDefinition) {
  using T = TypeParam;
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ConvGeometry g = random_convolution(random, seed % 3 == 0);
    const std::int64_t inputs = g.batch * g.in * g.input.h * g.input.w;
    const std::int64_t outputs = g.batch * g.out * g.output.h * g.output.w;
    const auto x = normal<T>(random, inputs), w = normal<T>(random, g.weights());
    const auto bias = normal<T>(random, g.out), deltas = normal<T>(random, outputs);
    const Gradients wanted = convolved(g, x, w, bias, deltas);
    expect_near(
        launched<T>(
            outputs,
            [&](T* to) { return launch_conv<T>(g, x.data(), w.data(), bias.data(), to, nullptr); }),
        wanted.output);
    expect_near(launched<T>(inputs,
                            [&](T* to) {
                              return launch_conv_input_gradient<T>(g, deltas.data(), w.data(), to,
                                                                   nullptr);
                            }),
                wanted.input);
    expect_near(launched<T>(g.weights(),
                            [&](T* to) {
                              return launch_conv_weight_gradient<T>(g, x.data(), deltas.data(), to,
                                                                    nullptr);
                            }),
                wanted.weight);
    expect_near(launched<T>(g.out,
                            [&](T* to) {
                              return launch_conv_bias_gradient<T>(g, deltas.data(), to, nullptr);
                            }),
                wanted.bias);
  }
}

TYPED_TEST(KernelsOnTheHost, ConvolveWithoutABias) {
  using T = TypeParam;
  std::mt19937 random(5);
  ConvGeometry g = random_convolution(random, /*many=*/false);
  g.batch = 2;
  const auto x = normal<T>(random, g.batch * g.in * g.input.h * g.input.w);
  const auto w = normal<T>(random, g.weights());
  const std::int64_t outputs = g.batch * g.out * g.output.h * g.output.w;
  const Gradients wanted = convolved(g, x, w, filled<T>(g.out, T(0)), filled<T>(outputs, T(0)));
  expect_near(launched<T>(outputs,
                          [&](T* to) {
                            return launch_conv<T>(g, x.data(), w.data(), nullptr, to, nullptr);
                          }),
              wanted.output);
}

TYPED_TEST(KernelsOnTheHost, PoolAsTheDefinition) {
  using T = TypeParam;
  for (unsigned seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    PoolGeometry g;
    g.batch = draw(random, 0, 3);
    g.channels = draw(random, 1, 4);
    g.kernel = {draw(random, 1, 3), draw(random, 1, 3)};
    g.stride = {draw(random, 1, 3), draw(random, 1, 3)};
    g.padding = {draw(random, 0, g.kernel.h / 2), draw(random, 0, g.kernel.w / 2)};
    g.dilation = {draw(random, 1, 2), draw(random, 1, 2)};
    g.input = {g.dilation.h * (g.kernel.h - 1) + draw(random, 1, 8),
               g.dilation.w * (g.kernel.w - 1) + draw(random, 1, 8)};
    complete(g);
    const std::int64_t inputs = g.batch * g.channels * g.input.h * g.input.w;
    const std::int64_t outputs = g.batch * g.channels * g.output.h * g.output.w;
    std::vector<T> x(static_cast<std::size_t>(inputs));
    for (T& value : x) {
      value = static_cast<T>(draw(random, -2, 2));  // equal values are frequent
      if (draw(random, 0, 40) == 0) value = -std::numeric_limits<T>::infinity();
    }
    const auto deltas = normal<T>(random, outputs);

    // The first of the largest values of a window wins.
    std::vector<std::int32_t> winners;
    std::vector<double> pooled, gradient(x.size());
    std::size_t to = 0;
    for (std::int64_t plane = 0; plane < g.batch * g.channels; ++plane)
      for (std::int64_t oy = 0; oy < g.output.h; ++oy)
        for (std::int64_t ox = 0; ox < g.output.w; ++ox, ++to) {
          std::int64_t best = -1;
          const T* const values = x.data() + plane * g.input.h * g.input.w;
          for (std::int64_t ky = 0; ky < g.kernel.h; ++ky)
            for (std::int64_t kx = 0; kx < g.kernel.w; ++kx) {
              const std::int64_t row = oy * g.stride.h + ky * g.dilation.h - g.padding.h;
              const std::int64_t column = ox * g.stride.w + kx * g.dilation.w - g.padding.w;
              if (row < 0 || row >= g.input.h || column < 0 || column >= g.input.w) continue;
              const std::int64_t at = row * g.input.w + column;
              if (best < 0 || values[at] > values[best]) best = at;
            }
          winners.push_back(static_cast<std::int32_t>(best));
          pooled.push_back(static_cast<double>(values[best]));
          gradient[static_cast<std::size_t>(plane * g.input.h * g.input.w + best)] +=
              static_cast<double>(deltas[to]);
        }

    std::vector<std::int32_t> found(winners.size(), -7);
    const auto values = launched<T>(outputs, [&](T* result) {
      return launch_max_pool<T>(g, x.data(), result, found.data(), nullptr);
    });
    EXPECT_EQ(found, winners);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(static_cast<double>(values[i]), pooled[i]) << i;
    expect_near(launched<T>(inputs,
                            [&](T* result) {
                              return launch_max_pool_gradient<T>(g, deltas.data(), found.data(),
                                                                 result, nullptr);
                            }),
                gradient);
  }
}

template <class Word>
void normalise_random_images() {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    NormalizeGeometry g;
    g.batch = draw(random, 0, 3);
    g.channels = draw(random, 1, 4);
    g.pixels = draw(random, 1, 400);
    g.from_pixels = draw(random, 0, 1) == 1;
    g.to_pixels = draw(random, 0, 1) == 1;
    std::vector<std::uint8_t> levels(static_cast<std::size_t>(g.elements()));
    for (std::uint8_t& level : levels) level = static_cast<std::uint8_t>(draw(random, 0, 255));
    std::vector<Word> tables(static_cast<std::size_t>(g.channels * 256));
    for (Word& word : tables) word = static_cast<Word>(random());
    const auto place = [&](bool pixels, std::int64_t n, std::int64_t c, std::int64_t p) {
      return static_cast<std::size_t>(pixels ? (n * g.pixels + p) * g.channels + c
                                             : (n * g.channels + c) * g.pixels + p);
    };
    std::vector<Word> wanted(levels.size());
    for (std::int64_t n = 0; n < g.batch; ++n)
      for (std::int64_t c = 0; c < g.channels; ++c)
        for (std::int64_t p = 0; p < g.pixels; ++p)
          wanted[place(g.to_pixels, n, c, p)] =
              tables[static_cast<std::size_t>(c * 256) + levels[place(g.from_pixels, n, c, p)]];
    EXPECT_EQ(launched<Word>(g.elements(),
                             [&](Word* to) {
                               return launch_normalize(g, levels.data(), tables.data(), to,
                                                       nullptr);
                             }),
              wanted);
  }
}

TEST(KernelsOnTheHostOnce, NormaliseByTables) {
  normalise_random_images<std::uint16_t>();
  normalise_random_images<std::uint32_t>();
}

TEST(KernelsOnTheHostOnce, CountRowsWhoseFirstLargestLogitIsTheLabel) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::int64_t rows = draw(random, 0, 70);
    const std::int64_t classes = draw(random, 1, seed % 2 == 0 ? 12 : 700);
    std::vector<float> logits(static_cast<std::size_t>(rows * classes));
    for (float& logit : logits) {
      logit = static_cast<float>(draw(random, -2, 2));  // equal values are frequent
      if (draw(random, 0, 500) == 0) logit = NAN;
    }
    std::vector<std::int64_t> labels(static_cast<std::size_t>(rows));
    std::int64_t wanted = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* const values = logits.data() + row * classes;
      const std::int64_t largest = std::max_element(values, values + classes) - values;
      std::int64_t label = draw(random, 0, 2) == 0 ? draw(random, -1, classes) : largest;
      labels[static_cast<std::size_t>(row)] = label;
      if (label < 0 || label >= classes) continue;
      bool correct = true;
      for (std::int64_t i = 0; i < classes; ++i)
        if (i != label && (values[i] > values[label] || (i < label && values[i] == values[label])))
          correct = false;
      wanted += correct;
    }
    for (const Order order : {Order::forward, Order::backward}) {
      Grid::instance().order = order;
      std::int64_t count = 1000;
      EXPECT_EQ(launch_count_correct(rows, classes, logits.data(), labels.data(), &count, nullptr),
                cudaSuccess);
      EXPECT_EQ(count, 1000 + wanted);
    }
    EXPECT_FALSE(Grid::instance().diverged);
  }
}

TEST(HostGrid, SeesAMissingBarrierAndABarrierThatSomeThreadsPass) {
  Grid& grid = Grid::instance();
  static int shared[8];
  const auto sum_of = [&](bool waits, Order order) {
    grid.order = order;
    int sum = 0;
    std::memset(shared, 0, sizeof shared);
    grid.run(1, 8, [&] {
      shared[threadIdx.x] = 1;
      if (waits) __syncthreads();
      if (threadIdx.x == 0)
        for (const int value : shared) sum += value;
    });
    return sum;
  };
  EXPECT_EQ(sum_of(true, Order::forward), 8);
  EXPECT_EQ(sum_of(true, Order::backward), 8);
  EXPECT_EQ(sum_of(false, Order::forward), 1);
  EXPECT_FALSE(grid.diverged);
  grid.run(1, 8, [] {
    if (threadIdx.x < 4) __syncthreads();
  });
  EXPECT_TRUE(std::exchange(grid.diverged, false));
}

}  // namespace
}  // namespace millrace::train::native
