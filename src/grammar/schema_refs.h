// Resolves references between subschemas: $id, $anchor, $ref and $dynamicRef. References out of the
// document are not supported.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "grammar/json.h"

namespace sluice::grammar {

class SchemaRefs {
 public:
  explicit SchemaRefs(const JsonDocument& document);

  // The schema that a reference in schema `at` points to; kNoValue if it is not in the document.
  [[nodiscard]] uint32_t resolve(uint32_t at, std::string_view reference) const;
  // The same for $dynamicRef. *unclear is set if the target depends on the path to it.
  [[nodiscard]] uint32_t resolve_dynamic(uint32_t at, std::string_view reference,
                                         bool* unclear) const;
  // Draft 7 or older: keywords beside $ref are ignored, and `items` may be a list.
  [[nodiscard]] bool draft7() const { return draft7_; }

 private:
  void visit(uint32_t schema, const std::string& base, int depth);
  [[nodiscard]] std::string base_of(uint32_t at) const;
  [[nodiscard]] uint32_t follow(uint32_t from, std::string_view pointer) const;

  const JsonDocument& document_;
  bool draft7_ = false;
  std::map<std::string, uint32_t> places_;  // by absolute address, with '#' and anchor
  std::map<uint32_t, std::string> bases_;   // of schemas with an $id
  std::map<std::string, int> dynamic_;      // number of occurrences of each $dynamicAnchor
  std::map<std::string, bool> dynamic_place_;
};

// Resolves an address relative to another (RFC 3986, 5.2).
[[nodiscard]] std::string join_address(const std::string& base, std::string_view reference);

}  // namespace sluice::grammar
