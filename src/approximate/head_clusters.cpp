// Reads and validates clusters: every length and value is checked before use.
#include "approximate/head_clusters.h"

#include <cmath>

#include "gguf/head_clusters.h"
#include "model/program.h"

namespace sluice::approximate {
namespace {

constexpr int64_t kBlock = 32, kBlockBytes = 34;  // of Q8_0

// Number of clusters if layers are skipped: 1 at a ratio of 1, 8 at 0.5, 32 near 0.
int32_t clusters_for(double skip_layers_ratio) {
  return 1 << static_cast<int32_t>(6 * (1 - skip_layers_ratio));
}

const gguf::Value* array_of(const gguf::Header& header, std::string_view key,
                            gguf::ValueType element) {
  const gguf::Value* value = header.find(key);
  const bool fits = value != nullptr && value->type == gguf::ValueType::kArray &&
                    value->element == element && value->count > 0;
  return fits ? value : nullptr;
}

Status bad(std::string_view key, const char* what) {
  return error(Code::kBadHeader, "the metadata value %s %s", std::string(key).c_str(), what);
}

Status read_centres(const gguf::Header& header, const model::Mat& head, HeadClusters* out) {
  const gguf::Value* radii = array_of(header, gguf::kHeadRadii, gguf::ValueType::kF32);
  if (radii == nullptr || radii->count > static_cast<uint64_t>(session::kMaxHeadClusters)) {
    return bad(gguf::kHeadRadii, "is not 1 to 256 numbers");
  }
  out->radii.resize(static_cast<size_t>(radii->count));
  out->lengths.resize(out->radii.size());
  out->reaches.resize(out->radii.size());
  for (size_t i = 0; i < out->radii.size(); ++i) {
    const auto radius = static_cast<float>(radii->number_at(i));
    if (!(radius >= 0 && radius < HUGE_VALF))
      return bad(gguf::kHeadRadii, "has a negative or infinite value");
    out->radii[i] = radius;
  }
  const gguf::Value* centres = array_of(header, gguf::kHeadCentres, gguf::ValueType::kU8);
  const auto row = static_cast<uint64_t>(head.cols / kBlock * kBlockBytes);
  if (centres == nullptr || head.cols % kBlock != 0 || centres->count != radii->count * row) {
    return bad(gguf::kHeadCentres, "does not have one vector per cluster");
  }
  const auto values = static_cast<int64_t>(radii->count) * head.cols;
  if (!kernels::all_finite(kernels::Type::kQ8_0, centres->bytes.data(), values)) {
    return bad(gguf::kHeadCentres, "has a value that is not finite");
  }
  out->centres.assign(centres->bytes.begin(), centres->bytes.end());
  std::vector<float> centre(static_cast<size_t>(head.cols));
  for (size_t i = 0; i < out->radii.size(); ++i) {
    kernels::best().dequantize(kernels::Type::kQ8_0, out->centres.data() + i * row, head.cols,
                               centre.data());
    double squares = 0;
    for (const float x : centre) squares += static_cast<double>(x) * x;
    out->lengths[i] = static_cast<float>(std::sqrt(squares));
  }
  return {};
}

// Tokens by cluster, ascending within each.
Status read_members(const gguf::Header& header, const model::Mat& head, HeadClusters* out) {
  const gguf::Value* of = array_of(header, gguf::kHeadClusterOf, gguf::ValueType::kU8);
  if (of == nullptr || of->count != static_cast<uint64_t>(head.rows)) {
    return bad(gguf::kHeadClusterOf, "does not have one number per token");
  }
  const auto n = static_cast<size_t>(out->n());
  out->first.assign(n + 1, 0);
  for (const uint8_t cluster : of->bytes) {
    if (cluster >= n) return bad(gguf::kHeadClusterOf, "refers to a cluster that does not exist");
    ++out->first[cluster + size_t{1}];
  }
  for (size_t i = 0; i < n; ++i) {
    // Expected maximum of m normal variables: products with unit vectors in `cols` dimensions.
    const double members = std::max(1, out->first[i + 1]);
    out->reaches[i] =
        out->radii[i] *
        static_cast<float>(std::sqrt(2 * std::log(members) / static_cast<double>(head.cols)));
    out->first[i + 1] += out->first[i];
  }
  std::vector<int32_t> next(out->first.begin(), out->first.end() - 1);
  out->tokens.resize(of->bytes.size());
  for (size_t token = 0; token < of->bytes.size(); ++token) {
    out->tokens[static_cast<size_t>(next[of->bytes[token]]++)] = static_cast<int32_t>(token);
  }
  return {};
}

}  // namespace

const model::Op* plain_head(const model::Program& p) {
  for (const model::Op& op : p.ops) {
    const auto* product = op.get<model::MatmulOp>();
    if (product == nullptr || op.out != model::Buf::kLogits) continue;
    const model::MatPart& part = product->all[0];
    const bool plain = product->n_parts == 1 && part.mat == p.head && part.bias < 0 &&
                       part.factor < 0 && !product->add && product->scale > 0;
    return plain && p.hp.attention.causal ? &op : nullptr;
  }
  return nullptr;
}

Result<HeadClusters> read_head_clusters(const gguf::Header& header, const model::Program& program,
                                        const session::HeadPolicy& policy,
                                        double skip_layers_ratio) {
  HeadClusters out;
  const bool there = header.find(gguf::kHeadRadii) != nullptr;
  const bool by_ratio = policy.kind == session::HeadPolicy::Kind::kByRatio;
  if (policy.kind == session::HeadPolicy::Kind::kWhole ||
      (by_ratio && (skip_layers_ratio == 0 || !there))) {
    return out;
  }
  if (!there) {
    return error(Code::kInvalidArgument,
                 "this file has no clustered output head: create one with sluice convert "
                 "--cluster-head");
  }
  if (plain_head(program) == nullptr) {
    return error(Code::kInvalidArgument,
                 "a clustered output head is not supported for \"%s\" models",
                 program.hp.arch.c_str());
  }
  const model::Mat& head = program.mats[static_cast<size_t>(program.head)];
  const std::optional<uint64_t> type = header.get_u64(gguf::kHeadType);
  if (type != static_cast<uint64_t>(head.type)) {
    return bad(gguf::kHeadType, "is not the type of the output head: convert the file again");
  }
  SLUICE_RETURN_IF_ERROR(read_centres(header, head, &out));
  SLUICE_RETURN_IF_ERROR(read_members(header, head, &out));
  out.exact = policy.kind == session::HeadPolicy::Kind::kExact;
  out.most = std::min(by_ratio ? clusters_for(skip_layers_ratio) : policy.clusters, out.n());
  return out;
}

}  // namespace sluice::approximate
