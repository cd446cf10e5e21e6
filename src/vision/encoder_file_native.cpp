#include "vision/encoder_file_native.h"

namespace sluice::vision {

Result<std::unique_ptr<EncoderFile>> EncoderFile::open(const gguf::Header& header, Sources sources,
                                                       EncoderOptions options, int n_threads) {
  Result<media::Projector> projector = media::read_projector(header);
  if (!projector.ok()) return projector.status();
  std::unique_ptr<EncoderFile> out(new EncoderFile);
  out->projector_ = std::move(*projector);
  if (options.pool == nullptr) {
    out->pool_ = std::make_unique<ThreadPool>(n_threads > 0 ? n_threads : default_thread_count());
    options.pool = out->pool_.get();
  }
  Result<std::unique_ptr<Encoder>> encoder = Encoder::open(header, out->projector_, options);
  if (!encoder.ok()) return encoder.status();
  out->encoder_ = std::move(*encoder);
  out->sources_ = std::move(sources);
  return out;
}

// Fills all pending requests. After an error they stay pending.
Status EncoderFile::fill() {
  residency::FillQueue& queue = encoder_->queue();
  while (filled_ != queue.pushed.load(std::memory_order_acquire)) {
    const residency::FillRequest& request = queue.ring[filled_ % residency::kFillCapacity];
    uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(request.dst));
    SLUICE_RETURN_IF_ERROR(sources_[request.file]->read(request.offset, {dst, request.length}));
    queue.complete(filled_++);
  }
  return {};
}

Status EncoderFile::encode(const media::Image& image, std::span<float> out,
                           const std::function<bool()>& cancelled) {
  if (encoder_->started()) SLUICE_RETURN_IF_ERROR(fill());
  SLUICE_RETURN_IF_ERROR(encoder_->begin(image, out));
  for (;;) {
    if (cancelled && cancelled()) return error(Code::kAborted, "encoding was cancelled");
    switch (encoder_->step()) {
      case Step::kDone:
        return {};
      case Step::kFailed:
        return encoder_->status();
      case Step::kBlocked:
        SLUICE_RETURN_IF_ERROR(fill());
        break;
      case Step::kProgress:
        break;
    }
  }
}

}  // namespace sluice::vision
