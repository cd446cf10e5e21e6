// Shared parts of the schema compiler: rules, errors and keyword access.
#include "grammar/schema.h"

#include <algorithm>

#include "grammar/formats.h"
#include "grammar/front.h"
#include "grammar/regex.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMaxAutomata = 512;

}  // namespace

SchemaCompiler::SchemaCompiler(JsonDocument document, const CompileOptions& options,
                               Builder* builder)
    : SchemaShapes(std::move(document), builder), options_(options) {}

Status SchemaCompiler::compile_into(uint32_t root) {
  const Expr body = value({yes(0)});
  builder_.define(root, builder_.seq({space(), body, space()}));
  while (!open_.empty() && !failed()) {
    const auto [all, rule] = std::move(open_.back());
    open_.pop_back();
    emit_rule(all, rule);
  }
  return status_;
}

void SchemaReader::refuse(uint32_t at, const char* why) {
  if (!status_.ok()) return;
  fail(error(Code::kSchemaUnsupported, "at \"%.200s\": %s", document_.pointer(at).c_str(), why));
}

uint8_t SchemaReader::type_bit(uint32_t value) const {
  switch (document_[value].type) {
    case JsonType::kNull:
      return kNullBit;
    case JsonType::kBoolean:
      return document_[value].truth ? kTrueBit : kFalseBit;
    case JsonType::kNumber:
      return kNumberBit;
    case JsonType::kString:
      return kStringBit;
    case JsonType::kArray:
      return kArrayBit;
    case JsonType::kObject:
      return kObjectBit;
  }
  return 0;
}

// A count such as minItems, which may be written 2.0; nullopt if the keyword is absent.
std::optional<uint32_t> SchemaReader::count(uint32_t at) {
  const std::optional<Decimal> d = number(at);
  if (!d) return {};
  if (d->negative || !d->whole()) {
    refuse(at, "this must be an integer of 0 or more");
    return {};
  }
  if (d->point > 9) return UINT32_MAX - 1;
  const std::optional<std::string> digits = plain(*d);
  uint32_t n = 0;
  for (const char c : digits ? *digits : std::string()) n = n * 10 + static_cast<uint32_t>(c - '0');
  return n;
}

std::optional<Decimal> SchemaReader::number(uint32_t at) {
  if (at == kNoValue) return {};
  const std::optional<Decimal> d =
      is(at, JsonType::kNumber) ? Decimal::parse(document_[at].text) : std::nullopt;
  if (!d) refuse(at, "this must be a number");
  return d;
}

uint32_t SchemaReader::automaton(std::string_view pattern, bool search, uint32_t longest,
                                 uint32_t at) {
  const auto [known, is_new] = automaton_of_.try_emplace(
      std::string(search ? "s" : "a") + std::to_string(longest) + ":" + std::string(pattern),
      static_cast<uint32_t>(automata_.size()));
  if (!is_new) return known->second;
  if (automata_.size() >= kMaxAutomata) refuse(at, "the schema has too many patterns");
  Result<Dfa> made = failed() ? Dfa() : regex_automaton(pattern, search);
  if (!made.ok()) {
    const bool large = made.status().code() == Code::kGrammarTooLarge;
    fail(error(large ? Code::kGrammarTooLarge : Code::kSchemaUnsupported, "at \"%.200s\": %s",
               document_.pointer(at).c_str(), made.status().message().c_str()));
    made = Dfa();
  }
  if (longest > 0) *made = Dfa::combine(*made, Dfa::lengths(0, longest), Dfa::How::kBoth);
  if (made->too_large()) refuse(at, "this needs too many states");
  automata_.push_back(std::move(*made));
  return known->second;
}

uint32_t SchemaReader::pattern_of(uint32_t member) {
  return automaton(document_[member].key, true, 0, member);
}

Result<std::shared_ptr<const Grammar>> compile_schema(std::string_view text,
                                                      const CompileOptions& options) {
  Result<JsonDocument> document = JsonDocument::parse(text);
  if (!document.ok()) return document.status();
  Builder builder;
  const uint32_t root = builder.new_rule("root");
  SLUICE_RETURN_IF_ERROR(
      SchemaCompiler(std::move(*document), options, &builder).compile_into(root));
  return builder.build();
}

}  // namespace sluice::grammar
