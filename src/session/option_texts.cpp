#include "session/option_texts.h"

namespace sluice::session {

Result<HeadPolicy> parse_head_policy(std::string_view text) {
  HeadPolicy policy;
  if (text.empty()) return policy;
  policy.kind = HeadPolicy::Kind::kWhole;
  if (text == "off") return policy;
  policy.kind = HeadPolicy::Kind::kExact;
  if (text == "exact") return policy;
  policy.kind = HeadPolicy::Kind::kSome;
  policy.clusters = 0;
  for (const char digit : text.substr(0, 4)) {
    policy.clusters = digit >= '0' && digit <= '9' ? 10 * policy.clusters + (digit - '0') : 9999;
  }
  if (policy.clusters >= 1 && policy.clusters <= kMaxHeadClusters && text.size() <= 3)
    return policy;
  return error(Code::kInvalidArgument,
               "head_clusters must be off, exact or a number from 1 to 256");
}

Status apply(const OptionTexts& texts, EngineOptions* out) {
  if (!texts.kv_type.empty()) {
    const Result<kv::KvTypes> types = kv::parse_kv_types(texts.kv_type);
    if (!types.ok()) return types.status();
    out->kv = *types;
  }
  const Result<kv::KvPolicy> policy =
      kv::parse_kv_policy(texts.kv_policy, texts.kv_sinks, texts.kv_capacity);
  if (!policy.ok()) return policy.status();
  out->kv_policy = *policy;
  const Result<HeadPolicy> head = parse_head_policy(texts.head_clusters);
  if (!head.ok()) return head.status();
  out->approximate.head = *head;
  return {};
}

}  // namespace sluice::session
