// Throughput of attention and elementwise functions for every kernel table. Decode is in positions
// of one head per second, read from memory: the KV cache of many heads is walked. Prefill is in
// multiply-adds per second. /naive is attention without flash attention, over the same f16 cache:
// all scores by one matrix multiplication, a softmax, and another multiplication with the values,
// stored transposed. It counts the same positions and multiply-adds, so rates compare.
//   cmake -DSLUICE_BENCH=ON ... && build/native/tests/bench/attention_bench --benchmark_filter=avx2
//   attention_bench --benchmark_filter='decode2048.*f16|prefill'    flash attention and naive
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"

namespace sluice::kernels {
namespace {

std::vector<f16> halves(const Table& table, size_t n) {
  std::vector<float> x(4096);
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(rng);
  std::vector<f16> result(n);
  for (size_t i = 0; i < n; i += x.size()) {
    const size_t count = std::min(x.size(), n - i);
    table.f32_to_f16(x.data(), static_cast<int64_t>(count), &result[i]);
  }
  return result;
}

// `rows` rows of `d` values in the layout of the KV cache; a multiple of kKvGroup.
std::vector<uint8_t> cache(const Table& table, KvType type, bool keys, int32_t d, size_t rows) {
  const std::vector<f16> group = halves(table, static_cast<size_t>(d) * kKvGroup);
  std::vector<float> wide(group.size());
  table.f16_to_f32(group.data(), static_cast<int64_t>(wide.size()), wide.data());
  const size_t row = static_cast<size_t>(kv_row_bytes(type, d));
  std::vector<uint8_t> out(rows * row);
  for (size_t p = 0; p < rows; p += kKvGroup) {
    if (kv_grouped(type)) table.quantize_kv_group(type, keys, group.data(), d, &out[p * row]);
    if (type == KvType::kF16) std::memcpy(&out[p * row], group.data(), kKvGroup * row);
    for (size_t i = 0; type == KvType::kQ8_0 && i < kKvGroup; ++i) {
      table.quantize_kv(&wide[i * static_cast<size_t>(d)], d, &out[(p + i) * row]);
    }
  }
  return out;
}

// Attention of `tokens` tokens of `group` query heads at the end of `positions`, over `n_heads` KV
// heads in turn. Every group of the grouped KV types is full, so no row is in the recent ring.
struct Run {
  Run(const Table& t, KvType type, int32_t tokens, int32_t group, int32_t d, int32_t positions,
      size_t n_heads)
      : table(t),
        head_size(static_cast<size_t>(kv_row_bytes(type, d)) * static_cast<size_t>(positions)),
        k(cache(t, type, true, d, static_cast<size_t>(positions) * n_heads)),
        v(cache(t, type, false, d, static_cast<size_t>(positions) * n_heads)),
        position(static_cast<size_t>(tokens * group), positions),
        q(static_cast<size_t>(tokens * group * d), 0.1f),
        out(q.size()) {
    for (int32_t i = 0; i < tokens * group; ++i) {
      begin.push_back(0);
      end.push_back(positions - tokens + i / group + 1);
    }
    args.k_type = args.v_type = type;
    args.recent_size = kKvGroup;
    args.position = position.data();
    args.q = q.data();
    args.q_stride = args.out_stride = args.dk = args.dv = d;
    args.out = out.data();
    args.n_rows = tokens * group;
    args.begin = begin.data();
    args.end = end.data();
    args.scale = 1 / std::sqrt(static_cast<float>(d));
    args.scratch = std::aligned_alloc(64, table.attention_scratch(args.n_rows, d, d));
  }
  ~Run() { std::free(args.scratch); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void once() {
    args.k = &k[head];
    args.v = &v[head];
    head = (head + head_size) % k.size();
    table.attention(args);
    benchmark::ClobberMemory();
  }

  const Table& table;
  size_t head_size, head = 0;
  std::vector<uint8_t> k, v;
  std::vector<int32_t> position;
  std::vector<float> q, out;
  std::vector<int32_t> begin, end;
  AttentionArgs args{};
};

void decode(benchmark::State& state, const Table* table, KvType type, int32_t group, int32_t d,
            int32_t positions, size_t n_heads) {
  Run run(*table, type, 1, group, d, positions, n_heads);
  for (auto _ : state) run.once();
  state.SetItemsProcessed(state.iterations() * positions);
}

void prefill(benchmark::State& state, const Table* table, int32_t tokens, int32_t group,
             int32_t d) {
  Run run(*table, KvType::kF16, tokens, group, d, tokens, 1);
  for (auto _ : state) run.once();
  state.SetItemsProcessed(state.iterations() * group * d * int64_t{tokens} * (tokens + 1));
}

// The same with complete score rows, by the table's own matrix multiplication and softmax.
struct Naive {
  explicit Naive(const Run& run)
      : table(run.table),
        args(run.args),
        positions(static_cast<int64_t>(run.head_size) / (2 * run.args.dk)),
        transposed(run.v.size() / 2),
        scores(static_cast<size_t>(args.n_rows * positions)) {
    const size_t d = static_cast<size_t>(args.dk), n = static_cast<size_t>(positions);
    const auto* values = reinterpret_cast<const f16*>(run.v.data());
    for (size_t at = 0; at < transposed.size(); ++at) {
      const size_t head = at / (n * d), p = at / d % n, i = at % d;
      transposed[(head * d + i) * n + p] = values[at];
    }
    const size_t bytes = std::max(table.matmul_scratch(Type::kF16, args.dk),
                                  table.matmul_scratch(Type::kF16, positions));
    scratch = std::aligned_alloc(64, (bytes + 64) / 64 * 64);
  }
  ~Naive() { std::free(scratch); }
  Naive(const Naive&) = delete;
  Naive& operator=(const Naive&) = delete;

  void multiply(const void* w, int64_t rows, int64_t cols, const float* x, float scale,
                float* y) const {
    MatmulArgs a = {};
    a.w = {Type::kF16, false, rows, cols, w};
    a.r1 = rows;
    a.x = {x, cols, nullptr, args.n_rows};
    a.scale = scale;
    a.y = y;
    a.ldy = rows;
    a.scratch = scratch;
    table.matmul(a);
  }
  // For keys `k` of the head whose values begin at `head` bytes.
  void once(const void* k, size_t head) {
    multiply(k, positions, args.dk, args.q, args.scale, scores.data());
    for (int32_t i = 0; i < args.n_rows; ++i) {
      float* row = &scores[static_cast<size_t>(i * positions)];
      table.softmax(row, args.end[i], row);
      std::fill(row + args.end[i], row + positions, 0.0f);
    }
    multiply(&transposed[head / 2], args.dv, positions, scores.data(), 1, args.out);
    benchmark::ClobberMemory();
  }

  const Table& table;
  const AttentionArgs& args;
  int64_t positions;
  std::vector<f16> transposed;  // [heads][d][positions]
  std::vector<float> scores;    // [n_rows][positions]
  void* scratch;
};

// Whether both compute the same, but for rounding.
bool same(Run& run, Naive& naive) {
  run.once();
  const std::vector<float> flash = run.out;
  naive.once(run.k.data(), 0);
  run.head = 0;
  double error = 0, all = 0;
  for (size_t i = 0; i < flash.size(); ++i) {
    error += std::pow(flash[i] - run.out[i], 2);
    all += std::pow(flash[i], 2);
  }
  return error <= 1e-6 * all;
}

void naive(benchmark::State& state, const Table* table, int32_t tokens, int32_t group, int32_t d,
           int32_t positions, size_t n_heads, int64_t items) {
  Run run(*table, KvType::kF16, tokens, group, d, positions, n_heads);
  Naive other(run);
  if (!same(run, other)) return state.SkipWithError("differs from attention");
  for (auto _ : state) {
    other.once(&run.k[run.head], run.head);
    run.head = (run.head + run.head_size) % run.k.size();
  }
  state.SetItemsProcessed(state.iterations() * items);
}

using Map = void (*)(const float*, int64_t, float*);
void map(benchmark::State& state, Map f) {
  std::vector<float> x(8192, 0.5f);
  std::vector<float> out(x.size());
  for (auto _ : state) {
    f(x.data(), 8192, out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * 8192);
}

void add_benchmarks(const Table* table) {
  const auto name = [table](const std::string& what) {
    return std::string(table->name) + "/" + what;
  };
  const auto add = [&](const std::string& what, auto&&... args) {
    benchmark::RegisterBenchmark(name(what).c_str(), args...);
  };
  constexpr size_t kMany = 32;
  for (const int32_t group : {1, 4, 8}) {
    for (const int32_t d : {64, 128}) {
      const std::string shape = "/group:" + std::to_string(group) + "/head:" + std::to_string(d);
      add("decode256cached" + shape, decode, table, KvType::kF16, group, d, 256, size_t{1});
    }
  }
  const std::pair<const char*, KvType> types[] = {
      {"f16", KvType::kF16}, {"q8_0", KvType::kQ8_0}, {"q4_0", KvType::kQ4_0}, {"q2", KvType::kQ2}};
  for (const auto& [type, kv_type] : types) {
    for (const int32_t group : {1, 2, 4, 8}) {
      const std::string shape = "/group:" + std::to_string(group) + "/head:128/";
      add("decode2048" + shape + type, decode, table, kv_type, group, 128, 2048, kMany);
      if (kv_type != KvType::kF16) continue;
      add("decode2048" + shape + "f16/naive", naive, table, 1, group, 128, 2048, kMany,
          int64_t{2048});
    }
  }
  for (const int32_t tokens : {128, 1024}) {
    const std::string n = std::to_string(tokens);
    add("prefill" + n + "/group:1/head:128", prefill, table, tokens, 1, 128);
    add("prefill" + n + "/group:8/head:64", prefill, table, tokens, 8, 64);
    for (const auto& [group, d] : {std::pair{1, 128}, {8, 64}}) {
      const std::string shape = "/group:" + std::to_string(group) + "/head:" + std::to_string(d);
      add("prefill" + n + shape + "/naive", naive, table, tokens, group, d, tokens, size_t{1},
          group * d * int64_t{tokens} * (tokens + 1));
    }
  }
  add("silu", map, table->silu);
  add("gelu_tanh", map, table->gelu_tanh);
  add("softmax", map, table->softmax);
}

}  // namespace
}  // namespace sluice::kernels

int main(int argc, char** argv) {
  for (const char* const* name = sluice::kernels::available(); *name != nullptr; ++name) {
    sluice::kernels::add_benchmarks(sluice::kernels::by_name(*name));
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
