// Names.
#include "kv/kv_policy.h"

namespace sluice::kv {

Result<KvPolicy> parse_kv_policy(std::string_view name) {
  KvPolicy policy;
  policy.window = name == "window";
  if (policy.window || name == "full") return policy;
  return error(Code::kInvalidArgument, "the KV policy \"%.*s\" is unknown: it is full or window",
               static_cast<int>(std::min<size_t>(name.size(), 64)), name.data());
}

}  // namespace sluice::kv
