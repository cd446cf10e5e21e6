// A JSON schema as it is written: its keywords, its references, its patterns as automata, and the
// first error in it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/builder.h"
#include "grammar/decimal.h"
#include "grammar/dfa.h"
#include "grammar/json.h"
#include "grammar/schema_refs.h"

namespace sluice::grammar {

// The schema's value index times two, plus one if it is negated.
using Term = uint32_t;

enum TypeBit : uint8_t {
  kNullBit = 1,
  kTrueBit = 2,
  kFalseBit = 4,
  kNumberBit = 8,
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
  kAllBits = 127,
};

class SchemaReader {
 protected:
  // `builder` must outlive it.
  SchemaReader(JsonDocument document, Builder* builder)
      : document_(std::move(document)), refs_(document_), builder_(*builder) {}

  uint32_t keyword(uint32_t schema, std::string_view name) const {
    return document_.find(schema, name);
  }
  bool is(uint32_t at, JsonType type) const { return at != kNoValue && document_[at].type == type; }
  uint8_t type_bit(uint32_t value) const;
  std::optional<uint32_t> count(uint32_t at);
  std::optional<Decimal> number(uint32_t at);
  uint32_t automaton(std::string_view pattern, bool search, uint32_t longest, uint32_t at);
  uint32_t pattern_of(uint32_t member);  // automaton of a name in patternProperties

  // --- errors: the first one is kept, and later results are invalid
  void refuse(uint32_t at, const char* why);
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  [[nodiscard]] bool failed() const { return !status_.ok() || builder_.full(); }

  static Term yes(uint32_t schema) { return schema * 2; }
  static Term no(uint32_t schema) { return schema * 2 + 1; }

  JsonDocument document_;
  SchemaRefs refs_;
  Builder& builder_;
  Status status_;
  std::vector<Dfa> automata_;

 private:
  std::map<std::string, uint32_t> automaton_of_;
};

}  // namespace sluice::grammar
