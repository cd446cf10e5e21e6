// Names and sums of the parts of a memory plan.
#include "session/memory_plan.h"

#include <iterator>

namespace sluice::session {

MemoryPlan::MemoryPlan() = default;
MemoryPlan::MemoryPlan(const MemoryPlan&) = default;
MemoryPlan::MemoryPlan(MemoryPlan&&) noexcept = default;
MemoryPlan& MemoryPlan::operator=(const MemoryPlan&) = default;
MemoryPlan& MemoryPlan::operator=(MemoryPlan&&) noexcept = default;
MemoryPlan::~MemoryPlan() = default;

namespace {
constexpr const char* kContextFrom[] = {"option", "model", "default", "budget"};
}  // namespace

const char* context_from_name(ContextFrom from) {
  return kContextFrom[static_cast<size_t>(from)];
}

ContextFrom parse_context_from(std::string_view name) {
  for (size_t i = 0; i < std::size(kContextFrom); ++i) {
    if (name == kContextFrom[i]) return static_cast<ContextFrom>(i);
  }
  return ContextFrom::kOption;
}

std::array<MemoryPart, kMemoryParts> MemoryPlan::parts() const {
  return {{{"pinned", weights.pinned_bytes},
           {"streamBuffer", weights.ring_bytes()},
           {"smallTensors", bytes.small_tensors},
           {"kv", bytes.kv},
           {"activations", bytes.activations},
           {"scratch", bytes.scratch},
           {"tokenizer", bytes.tokenizer},
           {"generation", bytes.generation},
           {"grammar", bytes.grammar},
           {"adapters", bytes.adapters},
           {"nextn", bytes.nextn},
           {"reserve", bytes.reserve},
           {"other", bytes.other}}};
}

uint64_t MemoryPlan::total() const {
  uint64_t sum = 0;
  for (const MemoryPart& part : parts()) sum += part.bytes;
  return sum;
}

}  // namespace sluice::session
