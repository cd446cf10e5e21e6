// Matrix multiplication in WebAssembly for each table of the binary, on one thread: GMAC/s of
// packed weights that lie in a CPU's second-level cache. Run by kernels.mjs.
//   matmul_bench TYPES TOKENS SECONDS    TYPES and TOKENS are lists with commas
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "matmul_inputs.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kRows = 512, kCols = 2048;

std::vector<std::string> split(const char* list) {
  std::stringstream in(list);
  std::vector<std::string> parts;
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

AlignedBuffer allocated(size_t bytes) {
  AlignedBuffer buffer;
  if (!buffer.allocate(bytes).ok()) std::abort();
  return buffer;
}

// The best of many repetitions.
double gigamacs_per_second(const Table& table, Type type, int32_t n_tokens, double seconds) {
  const size_t row_bytes = reference::row_bytes(type, kCols);
  const std::vector<uint8_t> file = random_file(row_bytes * kRows);
  const size_t group = table.packed_group_bytes(type, kCols);
  const AlignedBuffer weights = allocated(group * (kRows / static_cast<size_t>(table.row_group)));
  for (int64_t row = 0; row < kRows; row += table.row_group) {
    table.pack_group(type, &file[static_cast<size_t>(row) * row_bytes], table.row_group, kCols,
                     weights.data() + static_cast<size_t>(row / table.row_group) * group);
  }
  const std::vector<float> x = random_activations(static_cast<size_t>(n_tokens * kCols));
  const AlignedBuffer q8 = allocated(static_cast<size_t>(n_tokens) * table.q8_bytes(kCols));
  table.quantize_q8(x.data(), kCols, kCols, n_tokens, q8.data());
  std::vector<float> y(static_cast<size_t>(n_tokens * kRows));
  const AlignedBuffer scratch = allocated(table.matmul_scratch(type, kCols));
  MatmulArgs a = {};
  a.w = {type, true, kRows, kCols, weights.data()};
  a.r1 = kRows;
  a.x = {x.data(), kCols, q8.data(), n_tokens};
  a.scale = 1.0f;
  a.y = y.data();
  a.ldy = kRows;
  a.scratch = scratch.data();
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  double best = 1e9;
  for (const auto start = Clock::now(); since(start) < seconds;) {
    constexpr int kTimes = 8;
    const auto began = Clock::now();
    for (int i = 0; i < kTimes; ++i) table.matmul(a);
    best = std::min(best, since(began) / kTimes);
  }
  return static_cast<double>(kRows * kCols) * n_tokens / best * 1e-9;
}

}  // namespace
}  // namespace sluice::kernels

int main(int argc, char** argv) {
  using namespace sluice::kernels;
  if (argc != 4) return 2;
  for (const char* const* name = available(); *name != nullptr; ++name) {
    for (const std::string& wanted : split(argv[1])) {
      for (const Weight& w : kWeights) {
        if (wanted != w.name) continue;
        for (const std::string& tokens : split(argv[2])) {
          const double rate = gigamacs_per_second(*by_name(*name), w.type,
                                                  std::atoi(tokens.c_str()), std::atof(argv[3]));
          std::printf("%s %s %s %.2f\n", *name, w.name, tokens.c_str(), rate);
        }
      }
    }
  }
  return 0;
}
