// Which metadata decides a model's arithmetic: what was read is hashed, and what is not supported
// is rejected. Converters write what a model's arithmetic depends on as keys in the family's
// namespace. An unread key that changes the arithmetic means an unsupported variant, whose output
// would be wrong without an error. The rule, for "<family>.<key>":
//   - keys that were read pass, and so do keys outside the groups that describe arithmetic
//     (attention, RoPE, experts, state spaces, ...): sizes, labels, vision towers, vendor notes;
//   - inside those groups a key passes if it is known to change nothing in these families, or if
//     its value switches it off: 0, false, empty; 1 for keys where 1 does nothing; for "..._swa"
//     keys of local layers, the same value as for all layers;
//   - everything else is an error that names the key.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::model {

// `read`: the values that were read. `hash`: a hash of them, in any order of the file; without the
// context length, which is a limit. Errors: kUnsupportedArchitecture, naming the key.
[[nodiscard]] Status check_keys(const gguf::Header& header, std::string_view arch,
                                std::span<const gguf::Value* const> read, uint64_t* hash);

}  // namespace sluice::model
