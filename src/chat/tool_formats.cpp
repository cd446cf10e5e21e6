#include "chat/tool_formats.h"

#include <algorithm>

#include "chat/template_text.h"

namespace sluice::chat {
namespace {

// A JSON object between two marks. The block's marks are these without white space.
ToolFormat object(std::string taught, std::string block_open, std::string block_close,
                  const std::string& before = {}, const std::string& after = {}) {
  ToolFormat out;
  out.taught = std::move(taught);
  out.has_block = true;
  out.block_open = std::move(block_open);
  out.block_close = std::move(block_close);
  out.pre = before + R"({"name": ")";
  out.mid = R"(", "arguments": )";
  out.post = "}" + after;
  return out;
}

// A JSON list of objects between marks.
ToolFormat list(std::string taught, const std::string& open, const std::string& close) {
  constexpr std::string_view kSpace = " \n";
  const size_t first = std::min(close.find_first_not_of(kSpace), close.size());
  ToolFormat out = object(std::move(taught), std::string(trimmed(open)), close.substr(first));
  out.open = open + "[";
  out.many = true;
  out.join = ", ";
  out.close = "]" + close;
  return out;
}

ToolFormat named(std::string taught, std::string pre, std::string mid, std::string post) {
  ToolFormat out;
  out.taught = std::move(taught);
  out.body = CallBody::kJson;
  out.pre = std::move(pre);
  out.mid = std::move(mid);
  out.post = std::move(post);
  return out;
}

ToolFormat params(std::string taught, std::string pre, std::string mid, std::string post,
                  std::string param_pre, std::string param_mid, std::string param_post) {
  ToolFormat out = named(std::move(taught), std::move(pre), std::move(mid), std::move(post));
  out.body = CallBody::kParams;
  out.param_pre = std::move(param_pre);
  out.param_mid = std::move(param_mid);
  out.param_post = std::move(param_post);
  return out;
}

// Several calls are possible, with `join` between them, and marks around all of them.
ToolFormat several(ToolFormat format, std::string join, std::string open = {},
                   std::string close = {}) {
  format.many = true;
  format.join = std::move(join);
  if (!open.empty()) format.open = std::move(open);
  if (!close.empty()) format.close = std::move(close);
  return format;
}

ToolFormat dsml(const std::string& name) {
  return several(
      params("｜DSML｜…" + name + ">", "<｜DSML｜invoke name=\"", "\">\n", "</｜DSML｜invoke>\n",
             "<｜DSML｜parameter name=\"", "\" string=\"#\">", "</｜DSML｜parameter>\n"),
      "", "<｜DSML｜" + name + ">\n", "</｜DSML｜" + name + ">");
}

ToolFormat arg_keys(std::string taught, const std::string& line) {
  return several(params(std::move(taught), "<tool_call>", line, "</tool_call>", "<arg_key>",
                        "</arg_key>" + line + "<arg_value>", "</arg_value>" + line),
                 line);
}

ToolFormat with_parameters(ToolFormat format) {
  format.mid = R"(", "parameters": )";
  return format;
}

ToolFormat gemma() {
  ToolFormat out =
      several(named("<|tool_call>call:", "<|tool_call>call:", "{", "}<tool_call|>"), "");
  out.body = CallBody::kGemma;
  return out;
}

ToolFormat minicpm() {
  ToolFormat out = several(params("<function name=", "<function name=\"", "\">", "</function>",
                                  "<param name=\"", "\">", "</param>"),
                           "\n");
  out.cdata = true;
  return out;
}

ToolFormat functionary() {
  ToolFormat out = several(named(">>>${recipient}", ">>>", "\n", ""), "\n");
  out.plain = ">>>all\n";
  return out;
}

ToolFormat cohere() {
  ToolFormat out =
      several(with_parameters(list("<|START_ACTION|>", "<|START_ACTION|>", "\n<|END_ACTION|>")),
              ",\n", "<|START_ACTION|>[\n", "\n]<|END_ACTION|>");
  out.pre = R"(    {"tool_call_id": "#", "tool_name": ")";
  return out;
}

ToolFormat command_r_plus() {
  ToolFormat out = several(list("Action:…tool_name", "Action:\n```json\n", "\n```"), ",\n",
                           "Action:\n```json\n[\n", "\n]```");
  out.pre = "    {\n        \"tool_name\": \"";
  out.mid = "\",\n        \"parameters\": ";
  out.post = "\n    }";
  return out;
}

ToolFormat apertus() {
  ToolFormat out = list("<|tools_prefix|>", "<|tools_prefix|>", "<|tools_suffix|>");
  out.pre = "{\"";
  out.mid = "\": ";
  return out;
}

ToolFormat lfm2() {
  ToolFormat out =
      several(named("<|tool_call_start|>¦<|tool_list_start|>¦List of tools: [", "", "(", ")"), ", ",
              "<|tool_call_start|>[", "]<|tool_call_end|>");
  out.body = CallBody::kPython;
  return out;
}

ToolFormat hermes() {
  return several(
      object("<tool_call>", "<tool_call>", "</tool_call>", "<tool_call>\n", "\n</tool_call>"),
      "\n");
}

ToolFormat llama() {
  ToolFormat out =
      with_parameters(object("<|python_tag|>¦\"parameters\"…tools¦'parameters'"
                             "…tools¦tools…\"parameters\"¦tools…'parameters'",
                             "<|python_tag|>", ""));
  out.bare = true;
  return out;
}

ToolFormat mistral_ids() {
  return several(named("[TOOL_CALLS]…[CALL_ID]", "[TOOL_CALLS]", "[CALL_ID]#[ARGS]", ""), "");
}
ToolFormat mistral_args() {
  return several(named("[TOOL_CALLS]…[ARGS]", "[TOOL_CALLS]", "[ARGS]", ""), "");
}
ToolFormat mistral() {
  return list("[TOOL_CALLS]", "[TOOL_CALLS]", "");
}

std::vector<ToolFormat> make_formats() {
  return {
      gemma(),
      several(named("<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
                    ":#<|tool_call_argument_begin|>", "<|tool_call_end|>"),
              "", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
      several(params("open_tag('argument'", "<|open|>call tool=\"", "\" index=\"#\"<|sep|>",
                     "<|close|>call<|sep|>", "<|open|>argument key=\"", "\" type=\"#\"<|sep|>",
                     "<|close|>argument<|sep|>"),
              "", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
      several(named("<｜tool▁sep｜>…```json", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                    "\n```json\n", "\n```<｜tool▁call▁end｜>"),
              "\n", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
      several(
          named("<｜tool▁sep｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
          "", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
      dsml("function_calls"),
      dsml("tool_calls"),
      several(params("]<]minimax[>[", "]<]minimax[>[<invoke name=\"", "\">",
                     "]<]minimax[>[</invoke>\n", "]<]minimax[>[<", ">", "]<]minimax[>[</@>"),
              "", "]<]minimax[>[<tool_call>\n", "]<]minimax[>[</tool_call>"),
      several(params("<minimax:tool_call>", "<invoke name=\"", "\">\n", "</invoke>\n",
                     "<parameter name=\"", "\">", "</parameter>\n"),
              "", "<minimax:tool_call>\n", "</minimax:tool_call>"),
      several(params("<atem:function_calls>", "<atem:invoke name=\"", "\">\n", "</atem:invoke>\n",
                     "<atem:parameter name=\"", "\">", "</atem:parameter>\n"),
              "", "<atem:function_calls>\n", "</atem:function_calls>"),
      minicpm(),
      several(params("<seed:tool_call>", "<seed:tool_call>\n<function=", ">\n",
                     "</function>\n</seed:tool_call>", "<parameter=", ">", "</parameter>\n"),
              "\n"),
      several(params("<function=…<parameter=", "<tool_call>\n<function=", ">\n",
                     "</function>\n</tool_call>", "<parameter=", ">\n", "\n</parameter>\n"),
              "\n"),
      several(params("<tool_sep{}>", "<tool_call:opensource>", "<tool_sep:opensource>\n",
                     "</tool_call:opensource>\n", "<arg_key:opensource>",
                     "</arg_key:opensource>\n<arg_value:opensource>", "</arg_value:opensource>\n"),
              "", "<tool_calls:opensource>\n", "</tool_calls:opensource>"),
      arg_keys("name}<arg_key>…</arg_key><arg_value>¦name }}<arg_key>…</arg_key><arg_value>"
               "¦name}}<arg_key>…</arg_key><arg_value>¦name -}}<arg_key>…</arg_key><arg_value>",
               ""),
      arg_keys("<arg_key>", "\n"),
      several(named("<function=", "<function=", ">", "</function>"), "\n"),
      functionary(),
      mistral_ids(),
      mistral_args(),
      mistral(),
      cohere(),
      command_r_plus(),
      apertus(),
      several(named("<|tool_call:begin|>", "<|tool_call:begin|>#<|tool_call:name|>",
                    "<|tool_call:args|>", "<|tool_call:end|>"),
              "\n", "<|tool_calls|>"),
      lfm2(),
      object("<|function_call|>", "<|function_call|>", "", "<|function_call|>"),
      object("function call<|role_sep|>¦'function call'", "function call<|role_sep|>", "",
             "<|message_sep|>\n\nfunction call<|role_sep|>\n"),
      list("<|tool_call|>", "<|tool_call|>", ""),
      list("<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>"),
      several(object("<tool_calls>\\n{", "<tool_calls>", "</tool_calls>"), "\n", "<tool_calls>\n",
              "\n</tool_calls>"),
      list("<tool_calls>", "<tool_calls>", "</tool_calls>"),
      list("functools[", " functools", ""),
      hermes(),
      llama(),
  };
}

}  // namespace

std::string ToolFormat::mark() const {
  if (has_block) return block_open;
  const std::string& start = open.empty() ? pre : open;
  std::string out = start.substr(0, start.find_first_of("\n#"));
  if (out.ends_with('[')) out.pop_back();
  return out;
}

std::span<const ToolFormat> tool_formats() {
  static const std::vector<ToolFormat> formats = make_formats();
  return formats;
}

const ToolFormat* tool_format(std::string_view source) {
  if (!mentions(source, "tool") && !mentions(source, "function")) return nullptr;
  for (const ToolFormat& format : tool_formats()) {
    if (matches(source, format.taught)) return &format;
  }
  return nullptr;
}

std::vector<ToolFormat> formats_to_read(const ToolFormat* own, bool strictly) {
  std::vector<ToolFormat> out;
  // A mark may have another one before it, which is then no text.
  const size_t at = own != nullptr && own->has_block && own->open.empty()
                        ? own->pre.find(own->block_open)
                        : std::string::npos;
  if (at != std::string::npos && at > 0) {
    out.push_back(*own);
    out[0].block_open = own->pre.substr(0, at + own->block_open.size());
  }
  if (own != nullptr) out.push_back(*own);
  if (own != nullptr && own->body == CallBody::kPython) {
    ToolFormat& json = out.emplace_back(hermes());
    json.block_open = "<|tool_call_start|>";
    json.block_close = "<|tool_call_end|>";
  }
  if (strictly && own != nullptr) return out;
  for (ToolFormat (*common)() : {hermes, mistral_ids, mistral_args, mistral, llama}) {
    ToolFormat format = common();
    if (own == nullptr || format.taught != own->taught) out.push_back(std::move(format));
  }
  return out;
}

bool is_harmony(std::string_view source) {
  return matches(source, "<|channel|>analysis¦<|channel|>commentary");
}

bool needs_short_ids(std::string_view source) {
  return matches(source, "[TOOL_CALLS]");
}

}  // namespace sluice::chat
