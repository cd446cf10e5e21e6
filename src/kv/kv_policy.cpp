// Parses KV policy names and computes which positions have been evicted.
#include "kv/kv_policy.h"

namespace sluice::kv {

int32_t Eviction::gone(int32_t position) const {
  return position < ring ? 0 : (position - ring) / block * block + block;
}

int32_t Eviction::until(int32_t position) const {
  return ring + gone(position) - position;
}

Result<KvPolicy> parse_kv_policy(std::string_view name, int32_t sinks, int32_t capacity) {
  KvPolicy policy;
  policy.window = name == "window";
  policy.heavy_hitter = name == "heavy-hitter";
  if (policy.evicts()) {
    if (sinks >= 0) policy.sinks = sinks;
    policy.capacity = capacity;
    return policy;
  }
  if (sinks >= 0 || capacity > 0) {
    return error(Code::kInvalidArgument,
                 "KV sinks and capacity need the KV policy window or heavy-hitter");
  }
  if (name.empty() || name == "full") return policy;
  return error(Code::kInvalidArgument,
               "unknown KV policy \"%.*s\": choose full, window or heavy-hitter",
               static_cast<int>(std::min<size_t>(name.size(), 64)), name.data());
}

}  // namespace sluice::kv
