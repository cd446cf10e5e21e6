// Grammars with vocabularies of three sizes, made of random words (as many plain ones, with marks,
// and in other scripts, as large vocabularies have): compiling, the first mask of a state, a mask
// along a text, and a step.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "grammar/matcher.h"

namespace sluice::grammar {
namespace {

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "name": {"type": "string", "maxLength": 64}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
  "mail": {"type": "string", "format": "email"}, "tags": {"type": "array", "items": {"type": "string"}},
  "kind": {"enum": ["red", "green", "blue"]}, "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$"},
  "more": {"type": "object", "additionalProperties": {"type": "number"}}},
  "required": ["name", "age", "tags"]})";
constexpr const char* kText =
    R"({"name":"Ada Lovelace","age":36,"mail":"ada@example.org","tags":["first","of many"],)"
    R"("kind":"green","code":"AL-1815","more":{"x":1.5,"longer name":-2}})";

class Words final : public TokenSource {
 public:
  explicit Words(int32_t n) {
    for (int byte = 0; byte < 256; ++byte)
      texts_.push_back(std::string(1, static_cast<char>(byte)));
    std::mt19937 random(1);
    const auto any = [&random](uint32_t n_of) { return static_cast<uint32_t>(random() % n_of); };
    const char* const marks[] = {"\"", "\",", "\":", "\n",  "\n\n", "  ",
                                 "{",  "}",   "\\",  "();", "=\"",  "\t"};
    while (static_cast<int32_t>(texts_.size()) < n) {
      std::string text = any(2) == 0 ? " " : "";
      const uint32_t script = any(10);
      for (uint32_t k = any(8) + 1; k > 0; --k) {
        if (script < 7) {
          text += static_cast<char>('a' + std::min(any(26), any(26)));
        } else if (script < 9) {
          text += "\xE4";
          text += static_cast<char>(0xB8 + any(6));
          text += static_cast<char>(0x80 + any(64));
        } else {
          text += static_cast<char>('0' + any(10));
        }
      }
      if (any(12) == 0) text += marks[any(12)];
      texts_.push_back(text);
    }
  }
  [[nodiscard]] int32_t n_tokens() const override { return static_cast<int32_t>(texts_.size()); }
  [[nodiscard]] std::string bytes(Token t) const override { return texts_[static_cast<size_t>(t)]; }
  [[nodiscard]] std::string_view name(Token t) const override {
    return texts_[static_cast<size_t>(t)];
  }
  [[nodiscard]] bool ends(Token) const override { return false; }

 private:
  std::vector<std::string> texts_;
};

void compile_schema_bench(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(compile(Kind::kJsonSchema, kSchema, nullptr));
}
BENCHMARK(compile_schema_bench)->Unit(benchmark::kMicrosecond);

// Byte by byte along the text, a mask at each place; the states are new in each round.
void masks(benchmark::State& state) {
  const Words words(static_cast<int32_t>(state.range(0)));
  const auto vocabulary = Vocabulary::create(words);
  const auto grammar = compile(Kind::kJsonSchema, kSchema, nullptr);
  std::vector<double> times, steps;
  const auto since = [](std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
        .count();
  };
  for (auto _ : state) {
    auto matcher = Matcher::create(*grammar, **vocabulary);
    for (const char* c = kText; *c != 0; ++c) {
      auto start = std::chrono::steady_clock::now();
      benchmark::DoNotOptimize((*matcher)->mask());
      times.push_back(since(start));
      start = std::chrono::steady_clock::now();
      if (!(*matcher)->advance(static_cast<uint8_t>(*c)))
        state.SkipWithError("the text is refused");
      steps.push_back(since(start));
    }
  }
  const auto at = [](std::vector<double>& list, double share) {
    std::sort(list.begin(), list.end());
    return list[static_cast<size_t>(share * static_cast<double>(list.size() - 1))];
  };
  double sum = 0;
  for (const double t : times) sum += t;
  state.counters["mask_mean_us"] = sum / static_cast<double>(times.size());
  state.counters["mask_p50_us"] = at(times, 0.5);
  state.counters["mask_p99_us"] = at(times, 0.99);
  state.counters["mask_max_us"] = at(times, 1);
  state.counters["step_p50_us"] = at(steps, 0.5);
  state.counters["step_p99_us"] = at(steps, 0.99);
}
BENCHMARK(masks)->Arg(32'000)->Arg(151'936)->Arg(262'144)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sluice::grammar
