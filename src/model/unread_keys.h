// Metadata that nobody reads. What a model's arithmetic depends on, converters write as keys of the
// family's own namespace; one that changes it and is not read means a variant that this engine does
// not compute, and the answers would be wrong without a word. The rule, for "<family>.<key>":
//   - keys that were read pass, and so do keys outside the groups that describe arithmetic
//     (attention, RoPE, experts, state spaces, ...): sizes, labels, vision towers, a vendor's
//     notes;
//   - inside those groups a key passes when it is known to change nothing in these families, or
//   when
//     its value switches it off: 0, false, nothing; 1 where that is what does nothing; for what
//     local layers may have apart ("..._swa"), the value of all layers;
//   - everything else is refused by name.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::model {

// `read`: the values that were. Errors: kUnsupportedArchitecture.
[[nodiscard]] Status check_unread_keys(const gguf::Header& header, std::string_view arch,
                                       std::span<const gguf::Value* const> read);

}  // namespace sluice::model
