#include "vision/encoder_file_native.h"

#include <array>

namespace sluice::vision {

Result<std::unique_ptr<EncoderFile>> EncoderFile::open(const gguf::Header& header, Sources sources,
                                                       EncoderOptions options, int n_threads) {
  Result<media::Projector> projector = media::read_projector(header);
  if (!projector.ok()) return projector.status();
  std::unique_ptr<EncoderFile> out(new EncoderFile);
  out->projector_ = std::move(*projector);
  if (options.pool == nullptr) {
    out->own_pool_ =
        std::make_unique<ThreadPool>(n_threads > 0 ? n_threads : default_thread_count());
    options.pool = out->own_pool_.get();
  }
  out->pool_ = options.pool;
  Result<std::unique_ptr<Encoder>> encoder = Encoder::open(header, out->projector_, options);
  if (!encoder.ok()) return encoder.status();
  out->encoder_ = std::move(*encoder);
  out->sources_ = std::move(sources);
  return out;
}

Status EncoderFills::run(residency::FillQueue& queue,
                         std::span<const std::unique_ptr<io::ByteSource>> sources,
                         ThreadPool& pool) {
  const auto request = [&queue](uint32_t n) -> residency::FillRequest& {
    return queue.ring[n % residency::kFillCapacity];
  };
  const auto pending = [&request](uint32_t n) {
    return request(n).state.load(std::memory_order_acquire) == residency::kFillPending;
  };
  const uint32_t pushed = queue.pushed.load(std::memory_order_acquire);
  std::array<Status, residency::kFillCapacity> results;
  pool.parallel_for(pushed - filled_, [&](int64_t task, int) {
    const uint32_t n = filled_ + static_cast<uint32_t>(task);
    if (!pending(n)) return;
    const residency::FillRequest& r = request(n);
    uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst));
    results[static_cast<size_t>(task)] = sources[r.file]->read(r.offset, {dst, r.length});
    if (results[static_cast<size_t>(task)].ok()) queue.complete(n);
  });
  while (filled_ != pushed && !pending(filled_)) ++filled_;
  for (const Status& result : results) SLUICE_RETURN_IF_ERROR(result);
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
