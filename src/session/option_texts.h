// Options that callers give as texts, such as "q8_0,q4_0". The command line, the C API and the
// browser's binding parse them here.
#pragma once

#include <string_view>

#include "session/memory_plan.h"

namespace sluice::session {

struct OptionTexts {
  std::string_view kv_type, kv_policy, head_clusters;  // "": the default
  int32_t kv_sinks = -1, kv_capacity = 0;              // -1, 0: the default
};

// Errors: those of kv::parse_kv_types, kv::parse_kv_policy and parse_head_policy.
[[nodiscard]] Status apply(const OptionTexts& texts, EngineOptions* out);

// "" (by skip_layers_ratio), "off", "exact", or a number of clusters. Errors: kInvalidArgument.
[[nodiscard]] Result<HeadPolicy> parse_head_policy(std::string_view text);

}  // namespace sluice::session
