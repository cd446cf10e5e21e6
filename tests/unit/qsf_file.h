// Small QSF files in memory, made by the writer of `sluice convert`, and the GGUF file they come
// from.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "convert/convert.h"
#include "gguf_builder.h"
#include "io/byte_source.h"

namespace sluice::test {

class MemoryFile final : public convert::Sink {
 public:
  [[nodiscard]] Status write(std::span<const uint8_t> bytes) override {
    file.insert(file.end(), bytes.begin(), bytes.end());
    return {};
  }
  [[nodiscard]] Status patch(uint64_t offset, std::span<const uint8_t> bytes) override {
    std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<ptrdiff_t>(offset));
    return {};
  }
  std::vector<uint8_t> file;
};

// Two layers of `rows` rows of 64 bf16 values, experts in one of them, and tensors outside layers.
inline std::vector<uint8_t> gguf_file(size_t rows) {
  std::mt19937 random(5);
  std::normal_distribution<float> draw(0, 0.03f);
  const auto floats = [&](size_t n) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < n; ++i) {
      const float x = draw(random);
      const auto* from = reinterpret_cast<const uint8_t*>(&x);
      bytes.insert(bytes.end(), from, from + 4);
    }
    return bytes;
  };
  const auto halves = [&](size_t n) {
    const std::vector<uint8_t> whole = floats(n);
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < n; ++i) {
      bytes.push_back(whole[4 * i + 2]);
      bytes.push_back(whole[4 * i + 3]);
    }
    return bytes;
  };
  constexpr uint32_t kBf16 = 30;
  GgufBuilder file;
  file.string("general.architecture", "llama")
      .number("llama.block_count", uint32_t{2})
      .number("llama.embedding_length", uint32_t{64})
      .tensor("token_embd.weight", kBf16, {64, 3}, halves(64 * 3))
      .tensor("output_norm.weight", 0, {64}, floats(64))
      .tensor("output.weight", kBf16, {64, 3}, halves(64 * 3))
      .tensor("rope_freqs.weight", 0, {8}, floats(8));
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    file.tensor(layer + "attn_norm.weight", 0, {64}, floats(64))
        .tensor(layer + "attn_q.weight", kBf16, {64, rows}, halves(64 * rows))
        .tensor(layer + "ffn_up_exps.weight", kBf16, {64, 1, 2}, halves(64 * 2));
  }
  return file.build();
}

// Cross builds have no compression libraries.
constexpr bool can_pack([[maybe_unused]] convert::Packing packing) {
#if defined(SLUICE_NO_CODECS)
  return packing == convert::Packing::kNone;
#else
  return true;
#endif
}

inline std::vector<uint8_t> qsf_file(const std::vector<uint8_t>& gguf, convert::Packing packing,
                                     convert::Options options) {
  gguf::Header header;
  EXPECT_TRUE(gguf::parse_header(gguf, gguf.size(), &header)->done);
  std::vector<std::unique_ptr<io::ByteSource>> sources;
  sources.push_back(io::open_memory(gguf));
  const Result<convert::Source> source = convert::Source::create(header, sources);
  EXPECT_TRUE(source.ok());
  MemoryFile out;
  options.threads = 1;
  const Result<convert::Report> made = convert::to_qsf(*source, options, packing, &out);
  EXPECT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made.ok() ? made->bytes : 0, out.file.size());
  return std::move(out.file);
}

inline std::vector<uint8_t> qsf_file(const std::vector<uint8_t>& gguf, convert::Packing packing,
                                     const char* type = "") {
  convert::Options options;
  options.type = type;
  options.pure = true;
  return qsf_file(gguf, packing, options);
}

// A source one of whose bytes is wrong until it is fetched again `times` times.
class DamagedSource final : public io::ByteSource {
 public:
  DamagedSource(std::vector<uint8_t> bytes, size_t at, int times)
      : bytes_(std::move(bytes)), at_(at), times_(times) {}
  [[nodiscard]] uint64_t size() const override { return bytes_.size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    if (offset + out.size() > bytes_.size()) return error(Code::kTruncated, "past the end");
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
    if (times_ > 0 && at_ >= offset && at_ - offset < out.size()) out[at_ - offset] ^= 4;
    return {};
  }
  [[nodiscard]] Status refresh(uint64_t offset, uint64_t length) override {
    refreshed.emplace_back(offset, length);
    --times_;
    return {};
  }
  std::vector<std::pair<uint64_t, uint64_t>> refreshed;

 private:
  const std::vector<uint8_t> bytes_;
  const size_t at_;
  int times_;
};

// Counts how often each byte is read. Opening a small file reads all of it.
class CountedSource final : public io::ByteSource {
 public:
  explicit CountedSource(const std::vector<uint8_t>& bytes)
      : counts(bytes.size()), file_(io::open_memory(bytes)) {}
  [[nodiscard]] uint64_t size() const override { return file_->size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    for (size_t i = 0; i < out.size(); ++i) ++counts[static_cast<size_t>(offset) + i];
    return file_->read(offset, out);
  }
  void restart() {
    for (auto& count : counts) count = 0;
  }
  std::vector<std::atomic<int>> counts;

 private:
  const std::unique_ptr<io::ByteSource> file_;
};

}  // namespace sluice::test
