// Throughput of attention and elementwise functions for every kernel table. Decode is in positions
// of one head per second, read from memory: the KV cache of many heads is walked. Prefill is in
// multiply-adds per second.
//   cmake -DSLUICE_BENCH=ON ... && build/native/tests/attention_bench --benchmark_filter=avx2
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
    }
  }
  for (const int32_t tokens : {128, 1024}) {
    const std::string n = std::to_string(tokens);
    add("prefill" + n + "/group:1/head:128", prefill, table, tokens, 1, 128);
    add("prefill" + n + "/group:8/head:64", prefill, table, tokens, 8, 64);
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
