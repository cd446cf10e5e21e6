// KV cache types by name: "f16", "q8_0", "q4_0", "q2", or two of them for keys and values
// separately ("q8_0,q4_0"). "auto" lets the plan choose one of them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "kernels/kernels.h"

namespace sluice::kv {

using kernels::KvType;

struct KvTypes {
  KvType k = KvType::kF16, v = KvType::kF16;
  bool automatic = false;  // the most precise type that fits: session/kv_plan.h
  [[nodiscard]] bool f16() const { return k == KvType::kF16 && v == KvType::kF16; }
  friend bool operator==(const KvTypes&, const KvTypes&) = default;
};

// Errors: kInvalidArgument, with the list of supported types.
[[nodiscard]] Result<KvTypes> parse_kv_types(std::string_view text);
[[nodiscard]] std::string kv_types_name(const KvTypes& types);

}  // namespace sluice::kv
