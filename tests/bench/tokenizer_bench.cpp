// Encoding speed in bytes of text per second, for every vocabulary (beside the checkout, and in
// tests/data for SentencePiece BPE as Gemma uses it and for unigram). The texts are prose, code,
// many scripts, and repetitions that make a naive merge loop quadratic. Also time and memory of
// creation.
//   tokenizer_bench --benchmark_filter=qwen2
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../paths.h"
#include "tokenizer/tokenizer.h"

namespace {

using sluice::tokenizer::Tokenizer;

constexpr size_t kTextBytes = 1u << 20;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The text of all files below `folder` with this extension, repeated or cut to kTextBytes.
std::string text_of(const std::string& folder, const std::string& extension) {
  std::vector<std::filesystem::path> paths;
  const auto root = std::filesystem::path(sluice::test::source_dir()) / folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const auto& path : paths) text += read_file(path);
  if (text.empty()) text = "no text ";
  while (text.size() < kTextBytes) text += std::string(text);
  text.resize(kTextBytes);
  return text;
}

std::string repeated(const std::string& unit) {
  std::string text;
  while (text.size() < kTextBytes) text += unit;
  return text;
}

const std::vector<std::pair<std::string, std::string>>& texts() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"prose", text_of("examples", ".py")},
      {"code", text_of("src", ".cpp")},
      {"scripts", repeated("Съешь ещё этих мягких французских булок. 我能吞下玻璃而不伤身体。 "
                           "いろはにほへと 다람쥐 헌 쳇바퀴에 타고파 ข้อความภาษาไทย עברית العربية "
                           "🚀🙂👩‍👩‍👧 été naïve 1234567 ")},
      {"letter_a", repeated("a")},
      {"spaces", repeated(" ")},
      {"newlines", repeated("\n")},
      {"digits", repeated("1234567890")},
      {"punctuation", repeated("=-*/")},
      {"chinese", repeated("我能吞下玻璃而不伤身体天地玄黄宇宙洪荒")},
  };
  return all;
}

void encode(benchmark::State& state, const Tokenizer* tokenizer, const std::string* text) {
  size_t n_tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer->encode(*text);
    n_tokens = ids.size();
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text->size()));
  state.counters["tokens"] = static_cast<double>(n_tokens);
}

void create(benchmark::State& state, const std::string* file) {
  sluice::gguf::Header header;
  const sluice::gguf::Bytes bytes(reinterpret_cast<const uint8_t*>(file->data()), file->size());
  if (!sluice::gguf::parse_header(bytes, bytes.size(), &header).ok()) {
    state.SkipWithError("bad header");
    return;
  }
  uint64_t held = 0;
  for (auto _ : state) held = (*Tokenizer::create(header))->memory_bytes();
  state.counters["held_bytes"] = static_cast<double>(held);
  state.counters["estimate_bytes"] =
      static_cast<double>(sluice::tokenizer::estimate_memory(header));
}

int register_all() {
  static std::vector<std::string> files;  // must outlive the benchmarks
  static std::vector<std::unique_ptr<Tokenizer>> loaded;
  std::vector<std::filesystem::path> paths;
  std::error_code none;
  for (const char* folder : {sluice::test::shared_dir() + "/fixtures/tokenizer",
                             sluice::test::source_dir() + "/tests/data/tokenizer"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
      if (entry.path().extension() == ".gguf") paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  files.reserve(paths.size());
  for (const auto& path : paths) {
    const std::string& file = files.emplace_back(read_file(path));
    sluice::gguf::Header header;
    const sluice::gguf::Bytes bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
    if (!sluice::gguf::parse_header(bytes, bytes.size(), &header).ok()) continue;
    auto tokenizer = Tokenizer::create(header);
    if (!tokenizer.ok()) continue;
    loaded.push_back(std::move(*tokenizer));
    const std::string name = path.stem().string();
    benchmark::RegisterBenchmark((name + "/create").c_str(), create, &file)
        ->Unit(benchmark::kMillisecond);
    for (const auto& [kind, text] : texts()) {
      benchmark::RegisterBenchmark((name + "/" + kind).c_str(), encode, loaded.back().get(), &text)
          ->Unit(benchmark::kMillisecond);
    }
  }
  return 0;
}

const int kRegistered = register_all();

}  // namespace
