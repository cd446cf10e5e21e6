// What keys and values are kept as, by name: "f16", "q8_0", "q4_0", "q2", or two of them for keys
// and values apart ("q8_0,q4_0"); or "auto", which a plan turns into one of them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "kernels/kernels.h"

namespace sluice::kv {

using kernels::KvType;

struct KvTypes {
  KvType k = KvType::kF16, v = KvType::kF16;
  bool automatic = false;  // the best that there is room for: session/kv_plan.h
  [[nodiscard]] bool f16() const { return k == KvType::kF16 && v == KvType::kF16; }
  friend bool operator==(const KvTypes&, const KvTypes&) = default;
};

// Errors: kInvalidArgument naming the types that there are.
[[nodiscard]] Result<KvTypes> parse_kv_types(std::string_view text);
[[nodiscard]] std::string kv_types_name(const KvTypes& types);

}  // namespace sluice::kv
