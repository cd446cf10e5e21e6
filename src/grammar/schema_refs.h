// Where the subschemas of a document are: what $id, $anchor, $ref and $dynamicRef mean by each
// other. Only the document itself is known: a reference out of it is refused.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "grammar/json.h"

namespace sluice::grammar {

class SchemaRefs {
 public:
  explicit SchemaRefs(const JsonDocument& document);

  // What the reference in the schema `at` names; kNoValue where that is not in the document.
  [[nodiscard]] uint32_t resolve(uint32_t at, std::string_view reference) const;
  // The same for $dynamicRef, where its meaning does not depend on how one came there; *unclear is
  // set where it does.
  [[nodiscard]] uint32_t resolve_dynamic(uint32_t at, std::string_view reference,
                                         bool* unclear) const;
  // Draft 7 and before: the neighbours of $ref mean nothing, `items` may be a list.
  [[nodiscard]] bool draft7() const { return draft7_; }

 private:
  void visit(uint32_t schema, const std::string& base, int depth);
  [[nodiscard]] std::string base_of(uint32_t at) const;
  [[nodiscard]] uint32_t follow(uint32_t from, std::string_view pointer) const;

  const JsonDocument& document_;
  bool draft7_ = false;
  std::map<std::string, uint32_t> places_;  // by absolute address, with '#' and anchor
  std::map<uint32_t, std::string> bases_;   // of schemas with an $id
  std::map<std::string, int> dynamic_;      // how often a $dynamicAnchor's name is there
  std::map<std::string, bool> dynamic_place_;
};

// An address relative to another (RFC 3986, 5.2).
[[nodiscard]] std::string join_address(const std::string& base, std::string_view reference);

}  // namespace sluice::grammar
