// The form of a file that is converted to: where its tensors go, and what stands around them. A
// layout is given the tensors' bytes in order and writes the rest.
#pragma once

#include <functional>
#include <memory>

#include "convert/convert.h"

namespace sluice::convert {

// Counts what is written, and pads; without a sink it counts alone.
class Output {
 public:
  Output() = default;
  Output(Sink* sink, const Options& options) : sink_(sink), options_(&options) {}

  // Bytes to come, as far as one can know.
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
  // Where a tensor stands among others in such a file: lower numbers first, equal ones in the order
  // of use.
  [[nodiscard]] virtual int32_t place(std::string_view /*tensor*/) const { return 0; }
  // Whether such a file may have what other programs do not know: the output vectors once more, by
  // cluster (gguf/head_clusters.h), and an embedding in two parts (gguf/embedding_clusters.h).
  [[nodiscard]] virtual bool takes_clusters() const { return false; }
  // What it holds while it writes tensors like these.
  [[nodiscard]] virtual uint64_t memory(const gguf::Header& /*source*/) const { return 0; }
  // How long the front of such a file is, which names decide and not types; and the whole file, its
  // front so long, with tensors of the types and bytes that they have there: exactly, but for what
  // is compressed, which is counted as if it could not be. Changes offsets. Errors: begin's and
  // start's.
  [[nodiscard]] virtual uint64_t front_bytes(const gguf::Header& header) const = 0;
  [[nodiscard]] virtual Result<uint64_t> file_bytes(gguf::Header* header, uint64_t front) const = 0;
  // Places header->tensors, which are in their order, and writes what stands before them.
  [[nodiscard]] virtual Status begin(gguf::Header* header, Output* output) = 0;
  // The bytes of tensor i follow; the one before has had all of its own.
  [[nodiscard]] virtual Status start(size_t i) = 0;
  [[nodiscard]] virtual Status write(std::span<const uint8_t> bytes) = 0;
  [[nodiscard]] virtual Status finish() = 0;
};

[[nodiscard]] std::unique_ptr<Layout> make_gguf_layout();
[[nodiscard]] std::unique_ptr<Layout> make_qsf_layout(Packing packing);

}  // namespace sluice::convert
