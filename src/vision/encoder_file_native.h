// The native driver of a vision encoder: opens a projector and fills the encoder's read requests
// from its file.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "io/byte_source.h"
#include "vision/encoder.h"

namespace sluice::vision {

// Fills an encoder's pending requests from its files, on all threads.
class EncoderFills {
 public:
  // Errors: those of the sources. Requests that fail stay pending.
  [[nodiscard]] Status run(residency::FillQueue& queue,
                           std::span<const std::unique_ptr<io::ByteSource>> sources,
                           ThreadPool& pool);

 private:
  uint32_t filled_ = 0;  // all requests before this one
};

class EncoderFile {
 public:
  using Sources = std::vector<std::unique_ptr<io::ByteSource>>;
  // `header` is a projector's, and `sources` are its files. Without a pool in `options`, the
  // encoder has its own with n_threads (0: automatic). Errors: media::read_projector's,
  // Encoder::open's.
  [[nodiscard]] static Result<std::unique_ptr<EncoderFile>> open(const gguf::Header& header,
                                                                 Sources sources,
                                                                 EncoderOptions options,
                                                                 int n_threads = 0);

  [[nodiscard]] Encoder& encoder() { return *encoder_; }
  [[nodiscard]] const media::Projector& projector() const { return projector_; }
  // Encodes one input: `out` is n_tokens x width. `cancelled` is asked between units of work.
  // Errors: Encoder::begin's, kBadWeights, those of the source, kAborted.
  [[nodiscard]] Status encode(const media::Image& image, std::span<float> out,
                              const std::function<bool()>& cancelled = nullptr);

 private:
  EncoderFile() = default;
  [[nodiscard]] Status fill() { return fills_.run(encoder_->queue(), sources_, *pool_); }

  Sources sources_;
  media::Projector projector_;
  std::unique_ptr<ThreadPool> own_pool_;
  ThreadPool* pool_ = nullptr;
  std::unique_ptr<Encoder> encoder_;
  EncoderFills fills_;
};

}  // namespace sluice::vision
