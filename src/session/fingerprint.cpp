#include "session/fingerprint.h"

#include <algorithm>
#include <string>

namespace sluice::session {

const char* Fingerprint::difference(const Fingerprint& other) const {
  constexpr const char* kProjectors = "weights of the projectors";
  constexpr const char* kNames[kParts] = {
      "metadata", "weights",        "weights",         kProjectors,    kProjectors,
      "adapters", "KV cache types", "KV cache policy", "RoPE factors", "approximations"};
  for (size_t i = 0; i < kParts; ++i) {
    const uint64_t a = parts_[i], b = other.parts_[i];
    const bool sampled = i >= kFewWeights && i <= kProjector;
    const bool unknown = sampled && (a == 0 || b == 0);
    if (a != b && !unknown) return kNames[i];
  }
  return nullptr;
}

Fingerprint fingerprint_of(const gguf::Header& header, const model::Program& program,
                           const MemoryPlan& plan) {
  Fingerprint out;
  Hash64 model;
  model.add(program.hp.metadata_hash);
  for (const gguf::Tensor& t : header.tensors) {
    model.add(std::string_view(t.name));
    for (const uint64_t n : {static_cast<uint64_t>(t.type), t.cols(), t.rows(), t.bytes}) {
      model.add(n);
    }
  }
  out[Fingerprint::kMetadata] = model.value();

  Hash64 types;
  types.add(kv::kv_types_name(plan.kv.types));
  if (!plan.kv.types.f16()) types.add(kernels::kKvForms);
  out[Fingerprint::kKvTypes] = types.value();

  if (plan.kv.layout.evicts()) {
    Hash64 policy;
    policy.add(static_cast<uint64_t>(plan.kv.layout.sinks) << 32 |
               static_cast<uint64_t>(plan.kv.layout.window));
    policy.add(static_cast<uint64_t>(plan.kv.layout.slots));
    out[Fingerprint::kKvPolicy] = policy.value();
  }

  // The original context length may come from the context length, which the metadata's hash omits.
  Hash64 rope;
  for (const model::Rope& r : program.ropes) {
    const bool is_long = r.is_long(plan.kv.layout.positions);
    const bool yarn = r.hp.scaling == model::RopeScaling::kYarn;
    rope.add(static_cast<uint64_t>(is_long) |
             (yarn ? static_cast<uint64_t>(r.hp.n_ctx_orig) << 1 : 0));
  }
  if (program.hp.temperature.scale != 0) {
    rope.add(static_cast<uint64_t>(program.hp.temperature.length));
  }
  out[Fingerprint::kRope] = rope.value();

  Hash64 skipped;
  for (const int32_t layer : program.skipped) skipped.add(static_cast<uint64_t>(layer));
  for (const uint64_t part : program.approximated.identity) skipped.add(part);
  out[Fingerprint::kApproximation] = skipped.value();
  return out;
}

namespace {

constexpr uint64_t kAllBytes = 16 << 20, kPart = 64;

}  // namespace

WeightHash::WeightHash(const model::Program& program, bool all)
    : all_(all), few_of_(Fingerprint::kFewWeights), all_of_(Fingerprint::kWeights) {
  const uint64_t share = kAllBytes / (program.mats.size() + program.vecs.size());
  // Not the head and MTP layers: options replace or add them, and no state depends on them. Mats
  // with other first rows are further parts of the same tensors.
  for (size_t i = 0; i < program.mats.size(); ++i) {
    const model::Mat& m = program.mats[i];
    const bool decides =
        m.layer >= 0 ? m.layer < program.hp.n_layer : static_cast<size_t>(program.embedding) == i;
    if (decides && m.row0 == 0)
      add_tensor(m.file, m.offset, static_cast<uint64_t>(m.tensor_rows * m.row_bytes), share);
  }
  const std::string mtp = "blk." + std::to_string(program.hp.n_layer) + ".";
  for (const model::Vec& v : program.vecs) {
    if (!model::kNextn || !v.name.starts_with(mtp)) add_tensor(v.file, v.offset, v.bytes, share);
  }
  choose();
}

WeightHash::WeightHash(const gguf::Header& projector, bool all, uint32_t first_file)
    : all_(all), few_of_(Fingerprint::kFewOfProjector), all_of_(Fingerprint::kProjector) {
  for (const gguf::Tensor& t : projector.tensors) {
    add_tensor(first_file + t.file, t.offset, t.bytes, kAllBytes / projector.tensors.size());
  }
  choose();
}

void WeightHash::add_tensor(uint32_t file, uint64_t offset, uint64_t bytes, uint64_t share) {
  const auto add = [&](uint64_t at, uint64_t n) {
    samples_.push_back({file, static_cast<uint32_t>(n), offset + at});
  };
  if (bytes > std::max(share, 3 * kPart)) {
    for (const uint64_t at : {uint64_t{0}, (bytes - kPart) / 2, bytes - kPart}) add(at, kPart);
    return;
  }
  for (uint64_t at = 0; at < bytes; at += kMaxSampleBytes) {
    add(at, std::min<uint64_t>(bytes - at, kMaxSampleBytes));
  }
}

// A few of the samples, unless all are wanted.
void WeightHash::choose() {
  constexpr size_t kFew = 16;
  stride_ = samples_.size() / kFew + 1;
  if (all_) return;
  size_t n = 0;
  for (size_t i = 0; i < samples_.size(); i += stride_) samples_[n++] = samples_[i];
  samples_.resize(n);
  stride_ = 1;
}

void WeightHash::add(std::span<const uint8_t> bytes) {
  every_.add(bytes);
  if (done_++ % stride_ == 0) few_.add(bytes);
}

void WeightHash::set(Fingerprint* fingerprint) const {
  (*fingerprint)[few_of_] = few_.value();
  if (all_) (*fingerprint)[all_of_] = every_.value();
}

}  // namespace sluice::session
