// Rates of attention and of the vector functions on every table: decode in bytes of f16 cache read
// per second (from memory: the cache of many heads is walked), prefill in multiply-adds per second.
//   cmake -DSLUICE_BENCH=ON ... && build/native/tests/attention_bench --benchmark_filter=avx2
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
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

// `tokens` tokens of `group` query heads at the end of `positions`, over `n_heads` KV heads in
// turn.
struct Run {
  Run(const Table& t, int32_t tokens, int32_t group, int32_t d, int32_t positions, size_t n_heads)
      : table(t),
        head_size(static_cast<size_t>(d) * static_cast<size_t>(positions)),
        k(halves(t, head_size * n_heads)),
        v(halves(t, head_size * n_heads)),
        q(static_cast<size_t>(tokens * group * d), 0.1f),
        out(q.size()) {
    for (int32_t i = 0; i < tokens * group; ++i) {
      begin.push_back(0);
      end.push_back(positions - tokens + i / group + 1);
    }
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
  std::vector<f16> k, v;
  std::vector<float> q, out;
  std::vector<int32_t> begin, end;
  AttentionArgs args{};
};

void decode(benchmark::State& state, const Table* table, int32_t group, int32_t d,
            int32_t positions, size_t n_heads) {
  Run run(*table, 1, group, d, positions, n_heads);
  for (auto _ : state) run.once();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(run.head_size) * 4);
}

void prefill(benchmark::State& state, const Table* table, int32_t tokens, int32_t group,
             int32_t d) {
  Run run(*table, tokens, group, d, tokens, 1);
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
      add("decode2048" + shape, decode, table, group, d, 2048, kMany);
      add("decode256cached" + shape, decode, table, group, d, 256, size_t{1});
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
