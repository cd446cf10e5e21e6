// Matrix multiplication for every kernel table and quantization type on one thread. Decode (one
// token) reads weights from the CPU cache and from memory, packed and in file layout. Small batches
// have 2 to 16 tokens, prefill 16 to 256. Counters: GMAC/s, and GB/s of weights. Dequantization to
// f32 reads one row from the CPU cache, in file layout or packed; GB/s of weights, and of f32
// written. Activations of a prompt are rounded to int8: GB/s of f32. For example
//   kernels_bench --benchmark_filter='avx512vnni/Q4_K/.*'
//   kernels_bench --benchmark_filter='/dequantize'
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "matmul_inputs.h"

namespace sluice::kernels {
namespace {

struct Free {
  size_t size;
  void operator()(void* p) const { platform::release(p, size); }
};
using Buffer = std::unique_ptr<void, Free>;
Buffer allocate(size_t n) {
  return Buffer(platform::reserve(n), {n});
}

struct Shape {
  const char* name;
  int64_t rows, cols;
  int32_t n_tokens;
  bool packed;
};
constexpr Shape kShapes[] = {{"decode_cache", 256, 2048, 1, true},
                             {"decode_memory", 32768, 5632, 1, true},
                             {"decode_memory_narrow", 90112, 2048, 1, true},
                             {"decode_file_cache", 256, 2048, 1, false},
                             {"decode_file_memory", 32768, 5632, 1, false},
                             {"prefill_16", 2048, 2048, 16, true},
                             {"prefill_64", 2048, 2048, 64, true},
                             {"prefill_128", 2048, 2048, 128, true},
                             {"prefill_256", 2048, 2048, 256, true},
                             {"prefill_128_wide", 1024, 5632, 128, true},
                             {"prefill_128_file", 2048, 2048, 128, false},
                             {"cache_2", 256, 2048, 2, true},
                             {"cache_3", 256, 2048, 3, true},
                             {"cache_4", 256, 2048, 4, true},
                             {"cache_6", 256, 2048, 6, true},
                             {"cache_8", 256, 2048, 8, true},
                             {"memory_2", 90112, 2048, 2, true},
                             {"memory_4", 90112, 2048, 4, true},
                             {"memory_8", 90112, 2048, 8, true},
                             {"memory_16", 90112, 2048, 16, true},
                             {"file_2", 32768, 2048, 2, false},
                             {"file_8", 32768, 2048, 8, false}};

void run(benchmark::State& state, const Table* table, Type type, Shape shape) {
  const int64_t cols = shape.cols;
  const size_t row_bytes = reference::row_bytes(type, cols);
  const size_t file_group = row_bytes * static_cast<size_t>(table->row_group);
  const size_t group = shape.packed ? table->packed_group_bytes(type, cols) : file_group;
  const size_t n_groups = static_cast<size_t>(shape.rows / table->row_group);

  // One group of random bits, repeated: only the memory traffic matters, not the values.
  const std::vector<uint8_t> file = random_file(file_group);
  const Buffer one = allocate(group);
  if (shape.packed) {
    table->pack_group(type, file.data(), table->row_group, cols, one.get());
  } else {
    std::memcpy(one.get(), file.data(), group);
  }
  const Buffer weights = allocate(group * n_groups);
  for (size_t g = 0; g < n_groups; ++g) {
    std::memcpy(static_cast<uint8_t*>(weights.get()) + g * group, one.get(), group);
  }

  const size_t n = static_cast<size_t>(shape.n_tokens);
  const std::vector<float> x = random_activations(n * static_cast<size_t>(cols));
  const Buffer q8 = allocate(n * table->q8_bytes(cols));
  table->quantize_q8(x.data(), cols, cols, shape.n_tokens, q8.get());
  std::vector<float> y(n * static_cast<size_t>(shape.rows));
  const Buffer scratch = allocate(table->matmul_scratch(type, cols));
  MatmulArgs a = {};
  a.w = {type, shape.packed, shape.rows, cols, weights.get()};
  a.r1 = shape.rows;
  a.x = {x.data(), cols, q8.get(), shape.n_tokens};
  a.scale = 1.0f;
  a.y = y.data();
  a.ldy = shape.rows;
  a.scratch = scratch.get();
  for (auto _ : state) {
    table->matmul(a);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  const double macs = static_cast<double>(shape.rows * cols) * shape.n_tokens;
  const double bytes = static_cast<double>(group * n_groups);
  using benchmark::Counter;
  state.counters["GMAC/s"] = Counter(macs * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
}

void dequantize(benchmark::State& state, const Table* table, Type type, bool packed) {
  constexpr int64_t kCols = 4096;
  const size_t row_bytes = reference::row_bytes(type, kCols);
  const int32_t rows = packed ? table->row_group : 1;
  const std::vector<uint8_t> file = random_file(row_bytes * static_cast<size_t>(rows));
  const Buffer group = allocate(table->packed_group_bytes(type, kCols));
  if (packed) table->pack_group(type, file.data(), rows, kCols, group.get());
  const Matrix matrix = {type, true, rows, kCols, group.get()};
  std::vector<float> out(kCols);
  for (auto _ : state) {
    if (packed) {
      table->unpack_row(matrix, 0, out.data());
    } else {
      table->dequantize(type, file.data(), kCols, out.data());
    }
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const double read = static_cast<double>(row_bytes), written = 4.0 * kCols;
  state.counters["GB/s"] = Counter(read * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["GB/s f32"] = Counter(written * 1e-9, Counter::kIsIterationInvariantRate);
}

void quantize_activations(benchmark::State& state, const Table* table, int64_t cols) {
  constexpr int32_t kTokens = 16;
  const auto n = static_cast<size_t>(cols * kTokens);
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  const Buffer out = allocate(kTokens * table->q8_bytes(cols));
  for (auto _ : state) {
    table->quantize_q8(x.data(), cols, cols, kTokens, out.get());
    benchmark::DoNotOptimize(out.get());
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const double bytes = static_cast<double>(n * sizeof(float));
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
}

const bool registered = [] {
  for (const char* const* name = available(); *name != nullptr; ++name) {
    for (const int64_t cols : {256, 2048}) {
      const std::string label = std::string(*name) + "/activations_" + std::to_string(cols);
      benchmark::RegisterBenchmark(label.c_str(), quantize_activations, by_name(*name), cols);
    }
    for (const Weight& w : kWeights) {
      for (const Shape& shape : kShapes) {
        const std::string label = std::string(*name) + "/" + w.name + "/" + shape.name;
        benchmark::RegisterBenchmark(label.c_str(), run, by_name(*name), w.type, shape);
      }
      const std::string label = std::string(*name) + "/" + w.name + "/dequantize_";
      const Table* table = by_name(*name);
      benchmark::RegisterBenchmark((label + "file").c_str(), dequantize, table, w.type, false);
      benchmark::RegisterBenchmark((label + "packed").c_str(), dequantize, table, w.type, true);
    }
  }
  return true;
}();

}  // namespace
}  // namespace sluice::kernels
