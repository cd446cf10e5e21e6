#include "chat/tool_formats.h"

#include <string>

#include "chat/template_text.h"

namespace sluice::chat {
namespace {

// A JSON object between two marks. The block's marks are these without white space.
constexpr ToolFormat object(std::string_view taught, std::string_view block_open,
                            std::string_view block_close, std::string_view pre = R"({"name": ")",
                            std::string_view post = "}") {
  ToolFormat out;
  out.taught = taught;
  out.has_block = true;
  out.block_open = block_open;
  out.block_close = block_close;
  out.pre = pre;
  out.mid = R"(", "arguments": )";
  out.post = post;
  return out;
}

// Several calls are possible, with `join` between them, and marks around all of them.
constexpr ToolFormat several(ToolFormat format, std::string_view join, std::string_view open = {},
                             std::string_view close = {}) {
  format.many = true;
  format.join = join;
  if (!open.empty()) format.open = open;
  if (!close.empty()) format.close = close;
  return format;
}

// A JSON list of objects between marks.
constexpr ToolFormat list(std::string_view taught, std::string_view block_open,
                          std::string_view block_close, std::string_view open,
                          std::string_view close) {
  return several(object(taught, block_open, block_close), ", ", open, close);
}

constexpr ToolFormat named(std::string_view taught, std::string_view pre, std::string_view mid,
                           std::string_view post) {
  ToolFormat out;
  out.taught = taught;
  out.body = CallBody::kJson;
  out.pre = pre;
  out.mid = mid;
  out.post = post;
  return out;
}

constexpr ToolFormat params(std::string_view taught, std::string_view pre, std::string_view mid,
                            std::string_view post, std::string_view param_pre,
                            std::string_view param_mid, std::string_view param_post) {
  ToolFormat out = named(taught, pre, mid, post);
  out.body = CallBody::kParams;
  out.param_pre = param_pre;
  out.param_mid = param_mid;
  out.param_post = param_post;
  return out;
}

constexpr ToolFormat dsml(std::string_view taught, std::string_view open, std::string_view close) {
  return several(params(taught, "<｜DSML｜invoke name=\"", "\">\n", "</｜DSML｜invoke>\n",
                        "<｜DSML｜parameter name=\"", "\" string=\"#\">", "</｜DSML｜parameter>\n"),
                 "", open, close);
}

constexpr ToolFormat gemma() {
  ToolFormat out =
      several(named("<|tool_call>call:", "<|tool_call>call:", "{", "}<tool_call|>"), "");
  out.body = CallBody::kGemma;
  return out;
}

constexpr ToolFormat minicpm() {
  ToolFormat out = several(params("<function name=", "<function name=\"", "\">", "</function>",
                                  "<param name=\"", "\">", "</param>"),
                           "\n");
  out.cdata = true;
  return out;
}

constexpr ToolFormat functionary() {
  ToolFormat out = several(named(">>>${recipient}", ">>>", "\n", ""), "\n");
  out.plain = ">>>all\n";
  return out;
}

constexpr ToolFormat cohere() {
  ToolFormat out = several(object("<|START_ACTION|>", "<|START_ACTION|>", "<|END_ACTION|>",
                                  R"(    {"tool_call_id": "#", "tool_name": ")"),
                           ",\n", "<|START_ACTION|>[\n", "\n]<|END_ACTION|>");
  out.mid = R"(", "parameters": )";
  return out;
}

constexpr ToolFormat command_r_plus() {
  ToolFormat out = several(object("Action:…tool_name", "Action:\n```json", "```",
                                  "    {\n        \"tool_name\": \"", "\n    }"),
                           ",\n", "Action:\n```json\n[\n", "\n]```");
  out.mid = "\",\n        \"parameters\": ";
  return out;
}

constexpr ToolFormat apertus() {
  ToolFormat out = list("<|tools_prefix|>", "<|tools_prefix|>", "<|tools_suffix|>",
                        "<|tools_prefix|>[", "]<|tools_suffix|>");
  out.pre = "{\"";
  out.mid = "\": ";
  return out;
}

constexpr ToolFormat lfm2() {
  ToolFormat out =
      several(named("<|tool_call_start|>¦<|tool_list_start|>¦List of tools: [", "", "(", ")"), ", ",
              "<|tool_call_start|>[", "]<|tool_call_end|>");
  out.body = CallBody::kPython;
  return out;
}

constexpr ToolFormat llama() {
  ToolFormat out = object(
      "<|python_tag|>¦\"parameters\"…tools¦'parameters'"
      "…tools¦tools…\"parameters\"¦tools…'parameters'",
      "<|python_tag|>", "");
  out.mid = R"(", "parameters": )";
  out.bare = true;
  return out;
}

// Formats that are read for every model (formats_to_read()).
constexpr ToolFormat kHermes = several(object("<tool_call>", "<tool_call>", "</tool_call>",
                                              "<tool_call>\n{\"name\": \"", "}\n</tool_call>"),
                                       "\n");
constexpr ToolFormat kMistralIds =
    several(named("[TOOL_CALLS]…[CALL_ID]", "[TOOL_CALLS]", "[CALL_ID]#[ARGS]", ""), "");
constexpr ToolFormat kMistralArgs =
    several(named("[TOOL_CALLS]…[ARGS]", "[TOOL_CALLS]", "[ARGS]", ""), "");
constexpr ToolFormat kMistral = list("[TOOL_CALLS]", "[TOOL_CALLS]", "", "[TOOL_CALLS][", "]");
constexpr ToolFormat kLlama = llama();

constexpr ToolFormat kToolFormats[] = {
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
    dsml("｜DSML｜…function_calls>", "<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>"),
    dsml("｜DSML｜…tool_calls>", "<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>"),
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
    several(params("name}<arg_key>…</arg_key><arg_value>¦name }}<arg_key>…</arg_key><arg_value>"
                   "¦name}}<arg_key>…</arg_key><arg_value>¦name -}}<arg_key>…</arg_key><arg_value>",
                   "<tool_call>", "", "</tool_call>", "<arg_key>", "</arg_key><arg_value>",
                   "</arg_value>"),
            ""),
    several(params("<arg_key>", "<tool_call>", "\n", "</tool_call>", "<arg_key>",
                   "</arg_key>\n<arg_value>", "</arg_value>\n"),
            "\n"),
    several(named("<function=", "<function=", ">", "</function>"), "\n"),
    functionary(),
    kMistralIds,
    kMistralArgs,
    kMistral,
    cohere(),
    command_r_plus(),
    apertus(),
    several(named("<|tool_call:begin|>", "<|tool_call:begin|>#<|tool_call:name|>",
                  "<|tool_call:args|>", "<|tool_call:end|>"),
            "\n", "<|tool_calls|>"),
    lfm2(),
    object("<|function_call|>", "<|function_call|>", "", "<|function_call|>{\"name\": \""),
    object("function call<|role_sep|>¦'function call'", "function call<|role_sep|>", "",
           "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \""),
    list("<|tool_call|>", "<|tool_call|>", "", "<|tool_call|>[", "]"),
    list("<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>", "<TOOLCALL>[", "]</TOOLCALL>"),
    several(object("<tool_calls>\\n{", "<tool_calls>", "</tool_calls>"), "\n", "<tool_calls>\n",
            "\n</tool_calls>"),
    list("<tool_calls>", "<tool_calls>", "</tool_calls>", "<tool_calls>[", "]</tool_calls>"),
    list("functools[", "functools", "", " functools[", "]"),
    kHermes,
    kLlama,
};

}  // namespace

std::string_view ToolFormat::mark() const {
  if (has_block) return block_open;
  const std::string_view start = open.empty() ? pre : open;
  std::string_view out = start.substr(0, start.find_first_of("\n#"));
  if (out.ends_with('[')) out.remove_suffix(1);
  return out;
}

std::span<const ToolFormat> tool_formats() {
  return kToolFormats;
}

const ToolFormat* tool_format(std::string_view source) {
  if (!mentions(source, "tool") && !mentions(source, "function")) return nullptr;
  for (const ToolFormat& format : kToolFormats) {
    if (matches(source, format.taught)) return &format;
  }
  return nullptr;
}

std::vector<ToolFormat> formats_to_read(const ToolFormat* own, bool strictly) {
  std::vector<ToolFormat> out;
  if (own != nullptr) {
    // A mark may have another one before it, which is then no text.
    const size_t at =
        own->has_block && own->open.empty() ? own->pre.find(own->block_open) : std::string::npos;
    if (at != std::string::npos && at > 0) {
      out.push_back(*own);
      out[0].block_open = own->pre.substr(0, at + own->block_open.size());
    }
    out.push_back(*own);
    if (own->body == CallBody::kPython) {
      out.push_back(kHermes);
      out.back().block_open = "<|tool_call_start|>";
      out.back().block_close = "<|tool_call_end|>";
    }
    if (strictly) return out;
  }
  for (const ToolFormat* common : {&kHermes, &kMistralIds, &kMistralArgs, &kMistral, &kLlama}) {
    if (own == nullptr || common->taught != own->taught) out.push_back(*common);
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
