// Converts tensors to packed blocks and back, and computes ReLU with 2x2 pooling on them. Part of
// conv_kernels.inl, compiled once per instruction set.
#include <algorithm>
#include <cstring>

#include "models/native/conv_kernels.h"
#include "models/native/vectors.h"

namespace millrace::train::native {
namespace {

template <class T>
inline constexpr std::int64_t kLanes = MILLRACE_VECTOR_BYTES / static_cast<int>(sizeof(T));
template <class T>
using Vector = typename VectorOf<T, MILLRACE_VECTOR_BYTES>::type;
template <class T>
using Mask = typename VectorOf<typename MaskElement<T>::type, MILLRACE_VECTOR_BYTES>::type;
template <class T>
using Bytes = typename VectorOf<std::uint8_t, MILLRACE_VECTOR_BYTES / int{sizeof(T)}>::type;

#define MILLRACE_KERNEL MILLRACE_VECTOR_TARGET inline __attribute__((always_inline))

template <class T>
MILLRACE_KERNEL const Vector<T>* vectors(const T* block) {
  return reinterpret_cast<const Vector<T>*>(block);
}
template <class T>
MILLRACE_KERNEL Vector<T>* vectors(T* block) {
  return reinterpret_cast<Vector<T>*>(block);
}

// ---- packing ----------------------------------------------------------------------------------

/// Returns the image's row or column at `coordinate` of a window; -1 if there is none.
MILLRACE_KERNEL std::int64_t source_of(std::int64_t coordinate, std::int64_t insert,
                                       std::int64_t side) {
  if (coordinate < 0 || coordinate % insert != 0 || coordinate / insert >= side) return -1;
  return coordinate / insert;
}

/// Range of those of `count` coordinates from `from` on that lie in the image.
struct Range {
  std::int64_t begin, end;
};
MILLRACE_KERNEL Range inside(std::int64_t from, std::int64_t count, std::int64_t side) {
  const std::int64_t begin = std::clamp<std::int64_t>(-from, 0, count);
  return {begin, std::clamp<std::int64_t>(side - from, begin, count)};
}

/// Transposes four samples' runs of four elements to the lanes of four pixels.
template <class T>
MILLRACE_KERNEL void transpose4(const T* from, std::int64_t from_step, T* to,
                                std::int64_t to_step) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
  const Four a = *reinterpret_cast<const Four*>(from);
  const Four b = *reinterpret_cast<const Four*>(from + from_step);
  const Four c = *reinterpret_cast<const Four*>(from + 2 * from_step);
  const Four d = *reinterpret_cast<const Four*>(from + 3 * from_step);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *reinterpret_cast<Four*>(to) = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + to_step) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  *reinterpret_cast<Four*>(to + 2 * to_step) =
      __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(to + 3 * to_step) =
      __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/// Transposes rows x columns elements; rows are `from_step` and `to_step` apart.
template <class T>
MILLRACE_KERNEL void transpose(const T* from, std::int64_t from_step, std::int64_t rows,
                               std::int64_t columns, T* to, std::int64_t to_step) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    std::int64_t column = 0;
    for (; column + 4 <= columns; column += 4)
      transpose4(from + row * from_step + column, from_step, to + column * to_step + row, to_step);
    for (; column < columns; ++column)
      for (std::int64_t i = row; i < row + 4; ++i)
        to[column * to_step + i] = from[i * from_step + column];
  }
  for (; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      to[column * to_step + row] = from[row * from_step + column];
}

template <class T>
MILLRACE_VECTOR_TARGET void pack(const View<const T>& from, std::int64_t used,
                                 const Window& window, T* block) {
  constexpr std::int64_t lanes = kLanes<T>;
  const Range valid = inside(window.column, window.columns, window.image.w);
  for (std::int64_t c = 0; c < window.channels; ++c) {
    for (std::int64_t r = 0; r < window.rows; ++r, block += window.columns * lanes) {
      const std::int64_t row = source_of(window.row + r, window.insert.h, window.image.h);
      if (row < 0) {
        std::fill_n(block, window.columns * lanes, T{0});
        continue;
      }
      const T* const source = from.data + c * from.c + row * from.h;
      if (window.insert.w != 1) {
        std::fill_n(block, window.columns * lanes, T{0});
        for (std::int64_t x = 0; x < window.columns; ++x) {
          const std::int64_t column =
              source_of(window.column + x, window.insert.w, window.image.w);
          if (column < 0) continue;
          for (std::int64_t l = 0; l < used; ++l)
            block[x * lanes + l] = source[column * from.w + l * from.n];
        }
        continue;
      }
      std::fill_n(block, valid.begin * lanes, T{0});
      std::fill_n(block + valid.end * lanes, (window.columns - valid.end) * lanes, T{0});
      T* const to = block + valid.begin * lanes;
      const std::int64_t count = valid.end - valid.begin;
      if (used < lanes) std::fill_n(to, count * lanes, T{0});
      const T* const first = source + (window.column + valid.begin) * from.w;
      if (from.n == 1 && used == lanes) {
        for (std::int64_t x = 0; x < count; ++x)
          std::memcpy(to + x * lanes, first + x * from.w, lanes * sizeof(T));
      } else if (from.w == 1) {
        transpose(first, from.n, used, count, to, lanes);
      } else {
        for (std::int64_t x = 0; x < count; ++x)
          for (std::int64_t l = 0; l < used; ++l)
            to[x * lanes + l] = first[x * from.w + l * from.n];
      }
    }
  }
}

template <class T>
MILLRACE_VECTOR_TARGET void unpack(const T* block, std::int64_t used, const Window& window,
                                   const View<T>& to) {
  constexpr std::int64_t lanes = kLanes<T>;
  for (std::int64_t c = 0; c < window.channels; ++c) {
    for (std::int64_t r = 0; r < window.rows; ++r, block += window.columns * lanes) {
      T* const row = to.data + c * to.c + (window.row + r) * to.h;
      if (to.n == 1 && used == lanes) {
        for (std::int64_t x = 0; x < window.columns; ++x)
          std::memcpy(row + x * to.w, block + x * lanes, lanes * sizeof(T));
      } else if (to.w == 1) {
        transpose(block, lanes, window.columns, used, row, to.n);
      } else {
        for (std::int64_t x = 0; x < window.columns; ++x)
          for (std::int64_t l = 0; l < used; ++l) row[x * to.w + l * to.n] = block[x * lanes + l];
      }
    }
  }
}

// ---- ReLU and 2x2 pooling ---------------------------------------------------------------------

template <class T>
MILLRACE_VECTOR_TARGET void relu_pool(const T* block, std::int64_t channels, Pair size, T* pooled,
                                      std::uint8_t* winners, std::int64_t winner_step) {
  using Element = typename MaskElement<T>::type;
  Vector<T>* out = vectors(pooled);
  for (std::int64_t c = 0; c < channels; ++c) {
    auto* winner = reinterpret_cast<Bytes<T>*>(winners + c * winner_step);
    for (std::int64_t y = 0; y < size.h / 2; ++y) {
      const Vector<T>* const row = vectors(block) + (c * size.h + 2 * y) * size.w;
      for (std::int64_t x = 0; x < size.w / 2; ++x) {
        Vector<T> best{};
        Mask<T> index = Element{kNoWinner} - Mask<T>{};
        for (int k = 0; k < 4; ++k) {
          const Vector<T> value = row[k / 2 * size.w + 2 * x + k % 2];
          const Mask<T> wins = (value > best) | (value != value);
          best = wins ? value : best;
          index = wins ? Element{k} - Mask<T>{} : index;
        }
        *out++ = best;
        *winner++ = __builtin_convertvector(index, Bytes<T>);
      }
    }
  }
}

template <class T>
MILLRACE_VECTOR_TARGET void unpool(const T* pooled, const std::uint8_t* winners,
                                   const Window& window, T* block) {
  using Element = typename MaskElement<T>::type;
  const std::int64_t height = window.image.h / 2;
  const std::int64_t width = window.image.w / 2;
  for (std::int64_t c = 0; c < window.channels; ++c) {
    for (std::int64_t r = 0; r < window.rows; ++r, block += window.columns * kLanes<T>) {
      const std::int64_t row = window.row + r;
      std::fill_n(block, window.columns * kLanes<T>, T{0});
      if (row < 0 || row >= window.image.h) continue;
      const std::int64_t first = (c * height + row / 2) * width;
      const Vector<T>* delta = vectors(pooled) + first;
      const auto* winner = reinterpret_cast<const Bytes<T>*>(winners) + first;
      Vector<T>* out = vectors(block) - window.column;
      const Mask<T> left = Element(row % 2 * 2) - Mask<T>{};
      for (std::int64_t x = 0; x < width; ++x, out += 2) {
        const Mask<T> index = __builtin_convertvector(winner[x], Mask<T>);
        out[0] = index == left ? delta[x] : Vector<T>{};
        out[1] = index == left + 1 ? delta[x] : Vector<T>{};
      }
    }
  }
}

}  // namespace
}  // namespace millrace::train::native
