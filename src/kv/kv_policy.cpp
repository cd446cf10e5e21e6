// Names.
#include "kv/kv_policy.h"

namespace sluice::kv {

int32_t Leaving::gone(int32_t position) const {
  return position < ring ? 0 : (position - ring) / block * block + block;
}

int32_t Leaving::until(int32_t position) const {
  return ring + gone(position) - position;
}

Result<KvPolicy> parse_kv_policy(std::string_view name, int32_t keep, int32_t size) {
  KvPolicy policy;
  policy.window = name == "window";
  policy.heavy = name == "heavy";
  if (policy.forgets()) {
    if (keep >= 0) policy.keep = keep;
    policy.size = size;
    return policy;
  }
  if (keep >= 0 || size > 0) {
    return error(Code::kInvalidArgument,
                 "what a KV cache keeps, and its size, can be chosen for the policies window and "
                 "heavy alone");
  }
  if (name.empty() || name == "full") return policy;
  return error(Code::kInvalidArgument,
               "the KV policy \"%.*s\" is unknown: it is full, window or heavy",
               static_cast<int>(std::min<size_t>(name.size(), 64)), name.data());
}

}  // namespace sluice::kv
