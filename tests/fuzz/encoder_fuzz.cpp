// Fuzzes projectors: a GGUF file is opened as a vision encoder, and small pictures are encoded
// where the plan is below a few megabytes. The plan must hold, and every failure has a message.
#include <cstdlib>

#include "vision/encoder_file_native.h"

namespace {

using sluice::vision::EncoderFile;

constexpr uint64_t kBudget = 4 << 20;
constexpr uint32_t kMaxSide = 512;

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static sluice::ThreadPool pool(1);
  sluice::gguf::Header header;
  const auto parsed = sluice::gguf::parse_header({data, size}, size, &header);
  if (!parsed.ok() || !parsed->done) return 0;
  EncoderFile::Sources sources;
  sources.push_back(sluice::io::open_memory({data, size}));
  auto file =
      EncoderFile::open(header, std::move(sources), {.memory_budget = kBudget, .pool = &pool});
  if (!file.ok()) {
    require(!file.status().message().empty());
    return 0;
  }
  const uint32_t token = (*file)->projector().token_side();
  const uint32_t fixed = (*file)->projector().image_size;
  encode(**file, fixed, fixed);
  if (token <= kMaxSide) encode(**file, 2 * token, 3 * token);
  return 0;
}
