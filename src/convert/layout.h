// The format of the output file: where its tensors go and what surrounds them. A layout is given
// the tensors' bytes in order and writes the rest.
#pragma once

#include <functional>
#include <memory>

#include "convert/convert.h"

namespace sluice::convert {

// Counts and pads the written bytes. Without a sink it only counts.
class Output {
 public:
  Output() = default;
  Output(Sink* sink, const Options& options) : sink_(sink), options_(&options) {}

  // Sets the expected total, for progress.
  void expect(uint64_t total) { total_ = total; }
  [[nodiscard]] Status write(std::span<const uint8_t> bytes);
  [[nodiscard]] Status pad_to(uint64_t offset);
  void count(uint64_t bytes) { done_ += bytes; }
  [[nodiscard]] Status patch(uint64_t offset, std::span<const uint8_t> bytes) {
    return sink_->patch(offset, bytes);
  }
  [[nodiscard]] uint64_t done() const { return done_; }

 private:
  Sink* sink_ = nullptr;
  const Options* options_ = nullptr;
  uint64_t done_ = 0, total_ = 0;
};

class Layout {
 public:
  virtual ~Layout() = default;
  // Sort key of a tensor in the file: lower first; equal ones in the order of use.
  [[nodiscard]] virtual int32_t place(std::string_view /*tensor*/) const { return 0; }
  // Whether the format allows Sluice's own tensors: the output head sorted by cluster
  // (gguf/head_clusters.h) and an embedding in two parts (gguf/embedding_clusters.h).
  [[nodiscard]] virtual bool takes_clusters() const { return false; }
  // Bytes held while tensors like these are written.
  [[nodiscard]] virtual uint64_t memory(const gguf::Header& /*source*/) const { return 0; }
  // front_bytes: the size of the file's front, which depends on names and not on types. file_bytes:
  // the size of the whole file with a front of `front` bytes and the types in `header`. It is
  // exact, except that compressed data counts uncompressed. file_bytes changes the tensors'
  // offsets. Errors: those of begin and start.
  [[nodiscard]] virtual uint64_t front_bytes(const gguf::Header& header) const = 0;
  [[nodiscard]] virtual Result<uint64_t> file_bytes(gguf::Header* header, uint64_t front) const = 0;
  // Sets the offsets of header->tensors, which are in file order, and writes the front.
  [[nodiscard]] virtual Status begin(gguf::Header* header, Output* output) = 0;
  // Starts tensor i. The previous tensor must be complete.
  [[nodiscard]] virtual Status start(size_t i) = 0;
  [[nodiscard]] virtual Status write(std::span<const uint8_t> bytes) = 0;
  [[nodiscard]] virtual Status finish() = 0;
};

[[nodiscard]] std::unique_ptr<Layout> make_gguf_layout();
[[nodiscard]] std::unique_ptr<Layout> make_qsf_layout(Packing packing, bool expert_records);

}  // namespace sluice::convert
