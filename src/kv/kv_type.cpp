// KV cache type names, in the order of the enumeration.
#include "kv/kv_type.h"

#include <algorithm>
#include <iterator>

namespace sluice::kv {
namespace {

constexpr std::string_view kNames[] = {"f16", "q8_0", "q4_0", "q2"};

bool find(std::string_view name, KvType* out) {
  const auto* at = std::find(std::begin(kNames), std::end(kNames), name);
  *out = static_cast<KvType>(at - std::begin(kNames));
  return at != std::end(kNames);
}

}  // namespace

Result<KvTypes> parse_kv_types(std::string_view text) {
  const size_t comma = text.find(',');
  const std::string_view k = text.substr(0, comma);
  KvTypes types;
  types.automatic = text == "auto";
  if (types.automatic) return types;
  if (find(k, &types.k) && find(comma == text.npos ? k : text.substr(comma + 1), &types.v)) {
    return types;
  }
  return error(Code::kInvalidArgument,
               "unknown KV cache type \"%.*s\": choose f16, q8_0, q4_0, q2, auto or a pair such as "
               "q8_0,q4_0",
               static_cast<int>(std::min<size_t>(text.size(), 64)), text.data());
}

std::string kv_types_name(const KvTypes& types) {
  std::string name(kNames[static_cast<size_t>(types.k)]);
  if (types.k != types.v) name.append(",").append(kNames[static_cast<size_t>(types.v)]);
  return name;
}

}  // namespace sluice::kv
