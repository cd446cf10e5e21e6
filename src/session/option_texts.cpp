#include "session/option_texts.h"

namespace sluice::session {

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
  const Result<model::HeadPolicy> head = model::parse_head_policy(texts.head_clusters);
  if (!head.ok()) return head.status();
  out->head = *head;
  return {};
}

}  // namespace sluice::session
