// Finds the layers that can be skipped, and ranks them.
#include "approximate/layer_skipping.h"

#include <cmath>

#include "base/sort.h"
#include "gguf/layer_importance.h"

namespace sluice::approximate {

std::vector<int32_t> skippable_layers(const model::Program& p) {
  std::vector<int32_t> out;
  if (!p.hp.attention.causal || p.decoder > 0) return out;
  for (int32_t layer = 2; layer + 2 < p.hp.n_layer; ++layer) {
    const bool read = std::any_of(p.ops.begin(), p.ops.end(), [layer](const model::Op& op) {
      const auto* attention = op.get<model::AttentionOp>();
      return attention != nullptr && attention->att.cache == layer && op.layer != layer;
    });
    if (!read) out.push_back(layer);
  }
  return out;
}

Result<std::vector<int32_t>> layers_to_skip(const gguf::Header& header, const model::Program& p,
                                            double ratio) {
  if (!(ratio >= 0 && ratio <= 1)) {
    return error(Code::kInvalidArgument, "skip_layers_ratio must be between 0 and 1");
  }
  std::vector<int32_t> out;
  if (ratio == 0) return out;
  const gguf::Value* value = header.find(gguf::kLayerImportance);
  if (value == nullptr || value->element != gguf::ValueType::kF32 ||
      value->count != static_cast<uint64_t>(p.hp.n_layer)) {
    return error(Code::kInvalidArgument,
                 "this file does not rank its layers: "
                 "sluice convert --calibrate measures it");
  }
  out = skippable_layers(p);
  const auto importance = [value](int32_t layer) {
    const double x = value->number_at(static_cast<uint64_t>(layer));
    return std::isnan(x) ? HUGE_VAL : x;
  };
  heap_sort(out, [&importance](int32_t a, int32_t b) {
    const double x = importance(a), y = importance(b);
    return x != y ? x < y : a < b;
  });
  // The small term compensates rounding of a product that is a whole number.
  out.resize(static_cast<size_t>(ratio * static_cast<double>(out.size()) + 1e-9));
  heap_sort(out, [](int32_t a, int32_t b) { return a < b; });
  return out;
}

}  // namespace sluice::approximate
