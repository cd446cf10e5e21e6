// Parses GGUF adapters, and pairs the tensors of both formats.
#include "adapter/adapter.h"

#include <cmath>

#include "adapter/pairs.h"
#include "base/sort.h"
#include "gguf/printable.h"

namespace sluice::adapter {
namespace {

using gguf::printable;
using gguf::TensorType;

Status bad_pair(const Pair& p) {
  const auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  return error(
      Code::kBadShape,
      "the adapter's pair for %s has the shapes [%llu, %llu, %llu] and [%llu, %llu, %llu]: "
      "a rank is at most %llu",
      printable(p.name).c_str(), n(p.a.ne[0]), n(p.a.ne[1]), n(p.a.ne[2]), n(p.b.ne[0]),
      n(p.b.ne[1]), n(p.b.ne[2]), n(kMaxRank));
}

Status check_pair(Pair* p) {
  const bool by_token = p->name == kEmbedding && !p->turned;
  const uint64_t rank = p->b.ne[0];
  p->rank = static_cast<int64_t>(rank);
  if (rank == 0 || rank > kMaxRank || p->a.ne[by_token ? 0 : 1] != rank ||
      p->a.ne[2] != p->b.ne[2] || p->a.ne[3] != 1 || p->b.ne[3] != 1 || p->a.bytes == 0 ||
      p->b.bytes == 0 || (p->name == kEmbedding && p->a.ne[2] != 1)) {
    return bad_pair(*p);
  }
  for (const gguf::Tensor* t : {&p->a, &p->b}) {
    if (t->type == TensorType::kF32 || t->type == TensorType::kF16 ||
        t->type == TensorType::kBF16) {
      continue;
    }
    return error(Code::kUnsupportedType, "the adapter's tensors for %s must be F32, F16 or BF16",
                 printable(p->name).c_str());
  }
  return {};
}

// Checks the adapter keys. Unknown ones are errors, because they could change the adapter's
// meaning.
Status check_keys(const gguf::Header& header) {
  if (header.get_string("general.type").value_or("") != "adapter") {
    return error(Code::kBadHeader, "the file is not an adapter: its general.type is \"%s\"",
                 printable(header.get_string("general.type").value_or("")).c_str());
  }
  const std::string_view type = header.get_string("adapter.type").value_or("");
  if (type != "lora") {
    return error(Code::kUnsupportedArchitecture, "the adapter's type \"%s\" is not supported",
                 printable(type).c_str());
  }
  for (const gguf::KeyValue& entry : header.metadata) {
    const std::string_view key = entry.key;
    if (!key.starts_with("adapter.") || key == "adapter.type" || key == "adapter.lora.alpha" ||
        key == "adapter.lora.task_name" || key == "adapter.lora.prompt_prefix") {
      continue;
    }
    return error(Code::kUnsupportedArchitecture, "the adapter's key %s is not supported",
                 printable(key).c_str());
  }
  return {};
}

}  // namespace

double Adapter::scale(int64_t rank) const {
  if (alpha == 0) return 1;
  const double n = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(n) : n);
}

Status pair_up(std::vector<Named> tensors, bool turned, std::vector<Pair>* out) {
  heap_sort(tensors, [](const Named& x, const Named& y) { return x.first < y.first; });
  if (tensors.empty()) return error(Code::kBadHeader, "the adapter has no tensors");
  out->reserve(tensors.size() / 2);
  for (size_t i = 0; i < tensors.size(); i += 2) {
    const std::string& first = tensors[i].first;
    const std::string base = first.substr(0, first.size() - kA.size());
    if (!first.ends_with(kA) || i + 1 == tensors.size() ||
        tensors[i + 1].first != base + std::string(kB)) {
      return error(Code::kBadHeader,
                   "the adapter's tensor %s lacks its other half, or is duplicated",
                   printable(first).c_str());
    }
    Pair pair{base, tensors[i].second, tensors[i + 1].second, 0, turned && base == kEmbedding};
    pair.a.name = pair.b.name = {};
    SLUICE_RETURN_IF_ERROR(check_pair(&pair));
    out->push_back(std::move(pair));
  }
  return {};
}

Result<gguf::ParseProgress> parse_gguf(gguf::Bytes prefix, uint64_t file_size, Adapter* out) {
  *out = {};
  gguf::Header header;
  const Result<gguf::ParseProgress> parsed = gguf::parse_header(prefix, file_size, &header);
  if (!parsed.ok() || !parsed->done) return parsed;
  SLUICE_RETURN_IF_ERROR(check_keys(header));
  const Result<uint32_t> parts = gguf::split_count(header);
  if (!parts.ok()) return parts.status();
  if (*parts > 1) return error(Code::kBadHeader, "an adapter in %u files is not supported", *parts);
  out->arch = std::string(header.get_string("general.architecture").value_or(""));
  out->alpha = header.get_f64("adapter.lora.alpha").value_or(0);
  // Keys that the npm package writes for PEFT adapters.
  out->hugging_face = header.get_bool("sluice.checkpoint").value_or(false);
  out->rank_stabilized = header.get_bool("sluice.rank_stabilized").value_or(false);
  if (out->arch.empty() || !std::isfinite(out->alpha)) {
    return error(Code::kBadHeader, "the adapter's %s is missing or invalid",
                 out->arch.empty() ? "general.architecture" : "adapter.lora.alpha");
  }
  std::vector<Named> tensors;
  tensors.reserve(header.tensors.size());
  for (const gguf::Tensor& t : header.tensors) {
    if (!t.name.ends_with(kA) && !t.name.ends_with(kB)) {
      return error(Code::kUnsupportedArchitecture,
                   "the adapter's tensor %s is not part of a low-rank pair",
                   printable(t.name).c_str());
    }
    tensors.emplace_back(t.name, t);
  }
  SLUICE_RETURN_IF_ERROR(pair_up(std::move(tensors), out->hugging_face, &out->pairs));
  return parsed;
}

}  // namespace sluice::adapter
