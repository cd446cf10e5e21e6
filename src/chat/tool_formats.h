// The tool call formats of models: the text around names and arguments, as the models' chat
// templates write it. Reading (tool_reader.h), forced beginnings and grammars (tool_grammar.h) all
// use this table.
//   open (pre NAME mid ARGUMENTS post, join, pre …) close
// In these texts '#' is a number or an id, and '@' the name of the parameter. Reading treats white
// space in them as optional.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice::chat {

enum class CallBody : uint8_t {
  kObject,  // arguments are a member of the JSON object that also has the name
  kJson,    // a JSON object
  kParams,  // each parameter has its own marks
  kPython,  // Python keyword arguments
  kGemma,   // members whose strings stand between <|"|>
};

// The texts are the table's, or belong to whoever encoded them.
struct ToolFormat {
  std::string_view taught;  // templates that use the format match this pattern (template_text.h)
  CallBody body = CallBody::kObject;
  std::string_view open, pre, mid, post;
  // Text between two calls, if several are possible.
  bool many = false;
  std::string_view join;
  std::string_view close;
  // For kParams: before the name, between name and value, and after the value.
  std::string_view param_pre, param_mid, param_post;
  bool cdata = false;      // values may be enclosed in <![CDATA[…]]>
  std::string_view plain;  // mark that starts plain text and is not part of it
  bool bare = false;       // a call needs no mark if it is the whole response
  // For kObject: marks at the start and end of a block of JSON values.
  bool has_block = false;
  std::string_view block_open, block_close;

  // The mark that starts a call; without '#', so it may be cut short.
  [[nodiscard]] std::string_view mark() const;
};

// All formats. The first one that matches a template is the model's.
[[nodiscard]] std::span<const ToolFormat> tool_formats();

// The tool call format of a chat template; null if it does not support tools.
[[nodiscard]] const ToolFormat* tool_format(std::string_view source);

// The formats to read: the model's own and the common ones; if `strictly`, only its own.
[[nodiscard]] std::vector<ToolFormat> formats_to_read(const ToolFormat* own, bool strictly);

// Whether the template uses the harmony format of gpt-oss (harmony.h).
[[nodiscard]] bool is_harmony(std::string_view source);

// Whether the template demands that ids of calls have nine letters and digits.
[[nodiscard]] bool needs_short_ids(std::string_view source);

}  // namespace sluice::chat
