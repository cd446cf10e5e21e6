// Fuzzes projectors: a GGUF file is opened as a vision encoder, and small pictures are encoded
// where the plan is below a few megabytes. The plan must hold, and every failure has a message.
// A file that ends before its weights is also read with weights that are all alike: seeds are
// headers, and mutations change what is parsed.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "vision/encoder_file_native.h"

namespace {

using sluice::vision::EncoderFile;

constexpr uint64_t kBudget = 4 << 20;
constexpr uint32_t kMaxSide = 512;
constexpr uint64_t kFileBytes = 1 << 20;
constexpr uint8_t kWeightByte = 0x2c;  // small and finite as F32, F16, BF16 and as scales of blocks

void require(bool holds) {
  if (!holds) std::abort();
}

void encode(EncoderFile& file, uint32_t width, uint32_t height) {
  if (width > kMaxSide || height > kMaxSide) return;
  const auto plan = file.encoder().plan_for(width, height, kBudget);
  if (!plan.ok()) return require(!plan.status().message().empty());
  require(plan->total() <= kBudget);
  auto image = sluice::media::Image::create(width, height);
  if (!image.ok()) return;
  for (uint64_t i = 0; i < image->size(); ++i) image->row(0)[i] = static_cast<uint8_t>(i * 31);
  const uint64_t values = static_cast<uint64_t>(plan->sizes.n_tokens) * file.encoder().width();
  if (values > kBudget) return;
  std::vector<float> out(static_cast<size_t>(values));
  const sluice::Status status = file.encode(*image, out);
  require(status.ok() || !status.message().empty());
}

// A file of `total` bytes, of which the first are there.
class Prefix final : public sluice::io::ByteSource {
 public:
  Prefix(sluice::gguf::Bytes bytes, uint64_t total) : bytes_(bytes), total_(total) {}
  [[nodiscard]] uint64_t size() const override { return total_; }
  [[nodiscard]] sluice::Status read(uint64_t offset, std::span<uint8_t> out) override {
    require(offset <= total_ && out.size() <= total_ - offset);
    const uint64_t first = std::min<uint64_t>(offset, bytes_.size());
    const uint64_t n = std::min<uint64_t>(out.size(), bytes_.size() - first);
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(first), n, out.begin());
    std::fill(out.begin() + static_cast<ptrdiff_t>(n), out.end(), kWeightByte);
    return {};
  }

 private:
  sluice::gguf::Bytes bytes_;
  uint64_t total_;
};

// Whether the file has a header, and weights for it.
bool open_and_encode(sluice::gguf::Bytes bytes, uint64_t total) {
  static sluice::ThreadPool pool(1);
  sluice::gguf::Header header;
  const auto parsed = sluice::gguf::parse_header(bytes, total, &header);
  if (!parsed.ok() || !parsed->done) return false;
  EncoderFile::Sources sources;
  sources.push_back(std::make_unique<Prefix>(bytes, total));
  auto file =
      EncoderFile::open(header, std::move(sources), {.memory_budget = kBudget, .pool = &pool});
  if (!file.ok()) {
    require(!file.status().message().empty());
    return true;
  }
  const uint32_t token = (*file)->projector().token_side();
  const uint32_t fixed = (*file)->projector().image_size;
  encode(**file, fixed, fixed);
  if (token <= kMaxSide) encode(**file, 2 * token, 3 * token);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!open_and_encode({data, size}, size) && size < kFileBytes) {
    open_and_encode({data, size}, kFileBytes);
  }
  return 0;
}
