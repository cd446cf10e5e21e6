#include "chat/tool_grammar.h"

#include <algorithm>

#include "base/concat.h"
#include "chat/harmony.h"
#include "chat/template_text.h"
#include "chat/tool_schema.h"
#include "jinja/json_text.h"

namespace sluice::chat {
namespace {

using Parts = std::vector<std::string>;

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

std::string any_of(const Parts& ways) {
  if (ways.size() == 1) return ways[0];
  std::string out = "(";
  for (const std::string& way : ways) {
    out += &way == &ways[0] ? " " : " | ";
    out += way;
  }
  return out + " )";
}

std::string maybe(std::string_view part) {
  return concat({"( ", part, " )?"});
}

std::string json(std::string_view how, std::string_view schema) {
  return concat({"%", how, " ", json_compact(schema)});
}

std::string until(const Parts& marks) {
  std::string out = "%until [";
  for (const std::string& mark : marks) {
    if (&mark != &marks[0]) out += ',';
    out += json_quote(mark);
  }
  return out + "]";
}

Status check_name(const std::string& name) {
  if (name.find_first_of(" \t\n\v\f\r<>{}()[]\"'|=,;:") == std::string::npos) return {};
  return error(Code::kInvalidArgument,
               "the tool name \"%.100s\" is invalid: use letters, digits, '_' and '-'",
               name.c_str());
}

// Schema of a call's arguments. Without `strict`: any object.
std::string object_schema(const Tool& tool) {
  if (!tool.strict) return R"({"type":"object"})";
  std::string out = R"({"type":"object")";
  if (json_type(tool.parameters) != JsonType::kObject)
    return out + R"(,"additionalProperties":false})";
  for (const JsonMember& member : json_members(tool.parameters)) {
    if (member.name == "type") continue;
    out += concat({",", json_quote(member.name), ":", json_compact(member.value)});
  }
  return out + "}";
}

// A tool's name as it stands in a call.
std::string spoken_name(const ToolFormat& format, const std::string& name) {
  if (format.body != CallBody::kObject) return name;
  const std::string quoted = json_quote(name);
  return quoted.substr(1, quoted.size() - 2);
}

class Writer {
 public:
  Writer(const ResponseShape& shape, const Marks& marks) : shape_(shape), marks_(marks) {}

  Result<std::string> answer() {
    std::string rest;
    if (shape_.format != nullptr) {
      Result<std::string> calls = this->calls(*shape_.format);
      if (!calls.ok()) return calls;
      rest = *calls;
    }
    if (!shape_.required) {
      if (!shape_.schema.empty()) {
        Parts ways;
        if (!rest.empty()) ways.push_back(rest);
        ways.push_back(json("json", shape_.schema));
        rest = any_of(ways);
      } else {
        rest = free_text(*shape_.format, rest);
      }
    }
    const ReasoningFormat& format = *shape_.reasoning;
    // Between the reasoning and what follows: a new message, and the mark of the response proper.
    std::string lead;
    if (!format.turn.empty()) lead += maybe(text(format.turn)) + " ";
    if (!format.response.empty()) lead += maybe(mark(format.response)) + " ";
    const std::string thought = until({std::string(format.close)});
    Parts ways = {
        concat({thought, " ", text(format.close), " \"\\n\"{0,2} ", lead, rule("answer", rest)})};
    // If nothing is required, the response may end inside reasoning.
    if (!shape_.required && shape_.schema.empty()) ways.push_back(thought);
    const std::string think = rule("thought", any_of(ways));
    const std::string plain = lead + "answer";
    return finish(shape_.thinking ? think
                  : shape_.thinks ? concat({plain, " | ", text(format.open), " ", think})
                                  : plain);
  }

  Result<std::string> harmony() {
    const Parts all(std::begin(kHarmonyMarks), std::end(kHarmonyMarks));
    const std::string channel = text("<|channel|>"), message = text("<|message|>");
    const std::string words = rule("text", until(all));
    const auto head = [&](const std::string& inside) {
      return concat({channel, " ", inside, " ", message});
    };
    Parts last;
    for (const Tool& tool : shape_.tools) {
      SLUICE_RETURN_IF_ERROR(check_name(tool.name));
      const std::string name = "\" to=functions.\" " + text(tool.name);
      const std::string commentary = text("commentary");
      const std::string ways = any_of({concat({name, " ", head(commentary + " \" json\"")}),
                                       head(concat({commentary, " ", name, " ( \" \" )? ",
                                                    maybe(text("<|constrain|>")), " \"json\""}))});
      last.push_back(rule("call-" + std::to_string(last.size()),
                          concat({ways, " ", json("spaced", object_schema(tool))})));
    }
    if (!shape_.required) {
      last.push_back(concat(
          {head(text("final")), " ", shape_.schema.empty() ? words : json("json", shape_.schema)}));
    }
    const std::string before = rule(
        "before", concat({head(any_of({text("analysis"), text("commentary")})), " ", words, " ",
                          text("<|end|>"), " ", text("<|start|>"), " ", text("assistant")}));
    return finish(before + "* " + any_of(last));
  }

 private:
  [[nodiscard]] std::string finish(const std::string& root) const {
    return concat({"root ::= ", root, "\n", rules_});
  }

  std::string rule(std::string name, std::string_view body) {
    rules_ += concat({name, " ::= ", body, "\n"});
    return name;
  }

  [[nodiscard]] std::string text(std::string_view mark) const { return marks_.gbnf(mark); }

  // The same, where '#' matches an id or a word.
  [[nodiscard]] std::string mark(std::string_view mark) const {
    const char* id = mark.find("[CALL_ID]") != std::string_view::npos ? "[0-9A-Za-z]{9}"
                     : mark.find(" to=#") != std::string_view::npos   ? "[0-9A-Za-z_-]{1,64}"
                                                                      : "[0-9]{1,3}";
    std::string out;
    for (size_t at = 0; at <= mark.size();) {
      const size_t end = std::min(mark.find('#', at), mark.size());
      if (at > 0) out += concat({" ", id, " "});
      out += text(mark.substr(at, end - at));
      at = end + 1;
    }
    return out;
  }

  // Free text, optionally followed by calls.
  std::string free_text(const ToolFormat& format, const std::string& calls) {
    Parts starts;
    for (const ToolFormat& each : formats_to_read(&format, /*strictly=*/true)) {
      starts.emplace_back(each.mark());
    }
    const std::string words = until(starts);
    Parts named;
    for (const std::string_view name : shape_.loose) {
      const bool begins = std::any_of(starts.begin(), starts.end(),
                                      [&](const auto& start) { return start.starts_with(name); });
      if (!begins) named.push_back(text(name));
    }
    const std::string free = rule(
        "free", named.empty() ? words : concat({words, " ( ", any_of(named), " ", words, " )*"}));
    // A call without a mark is the whole response; other text must not start like a call.
    if (format.bare) {
      return any_of({calls, "[ \\t\\r\\n]* " + maybe("[^{< \\t\\r\\n] " + free)});
    }
    if (!shape_.begun.empty()) {
      return any_of({calls, concat({text(format.plain.substr(shape_.begun.size())), " ", free, " ",
                                    maybe(concat({mark(format.pre), " ", calls}))})});
    }
    return concat({free, " ", maybe(calls)});
  }

  Result<std::string> calls(const ToolFormat& format) {
    Parts ways;
    for (size_t i = 0; i < shape_.tools.size(); ++i) {
      const Tool& tool = shape_.tools[i];
      SLUICE_RETURN_IF_ERROR(check_name(tool.name));
      Result<std::string> arguments = this->arguments(format, tool, i);
      if (!arguments.ok()) return arguments;
      ways.push_back(rule("call-" + std::to_string(i),
                          concat({text(spoken_name(format, tool.name)), " ", mark(format.mid), " ",
                                  *arguments, " ", mark(format.post)})));
    }
    const std::string pre = mark(format.pre), call = rule("call", any_of(ways));
    std::string body = mark(format.open) + " ";
    if (shape_.begun.empty()) body += pre + " ";
    body += call + " ";
    if (shape_.parallel && format.many) {
      body += concat({"( ", text(format.join), " ", pre, " ", call, " )* "});
    }
    return rule("calls", body + mark(format.close));
  }

  Result<std::string> arguments(const ToolFormat& format, const Tool& tool, size_t number) {
    if (format.body == CallBody::kObject || format.body == CallBody::kJson) {
      return json("spaced", object_schema(tool));
    }
    Result<std::vector<Parameter>> list = parameters_of(tool.parameters, tool.strict);
    if (!list.ok()) return list.status();
    if (format.body == CallBody::kParams) {
      std::string out;
      for (const Parameter& each : *list) {
        Result<std::string> one = parameter(format, each);
        if (!one.ok()) return one;
        if (!out.empty()) out += ' ';
        out += each.required ? *one : maybe(*one);
      }
      return out;
    }
    // Members with separators: a separator is needed only after an earlier member.
    const bool gemma = format.body == CallBody::kGemma;
    const auto name_of = [&](size_t at, bool some) {
      return concat({"arg-", std::to_string(number), "-", std::to_string(at), some ? "-1" : "-0"});
    };
    for (size_t at = 0; at <= list->size(); ++at) {
      for (const bool some : {false, true}) {
        if (at == list->size()) {
          rule(name_of(at, some), "\"\"");
          continue;
        }
        const Parameter& each = (*list)[at];
        Result<std::string> value = gemma ? gemma_value(each) : python_value(each);
        if (!value.ok()) return value;
        const std::string name =
            concat({some ? gemma ? "," : ", " : "", each.name, gemma ? ":" : "="});
        Parts ways = {concat({text(name), " ", *value, " ", name_of(at + 1, true)})};
        if (!each.required) ways.push_back(name_of(at + 1, some));
        rule(name_of(at, some), any_of(ways));
      }
    }
    return name_of(0, false);
  }

  Result<std::string> parameter(const ToolFormat& format, const Parameter& of) {
    const std::string at = "/properties/" + of.name;
    if (of.name.find(format.param_mid[0]) != std::string::npos || of.name.starts_with('/')) {
      return unsupported(at, "the model's tool call format cannot write this name");
    }
    const std::string end = replaced(std::string(format.param_post), "@", of.name);
    const std::string last(trimmed(end));
    const auto around = [&](std::string_view type, const std::string& value) {
      const std::string mid = replaced(std::string(format.param_mid), "#", type);
      return concat({text(concat({format.param_pre, of.name, mid})), " ", value, " ", text(end)});
    };
    const bool flags = format.param_mid.find("string=") != std::string::npos;
    Parts ways;
    if (of.any_text) {
      Parts ends = {last};
      if (format.cdata) ends.emplace_back("<![CDATA[");
      ways.push_back(around(flags ? "true" : "string", until(ends)));
    }
    for (const std::string& each : of.texts) {
      if (of.any_text) break;
      if (each.find(last) != std::string::npos) {
        return unsupported(at, concat({"\"", each, "\" contains the mark that ends a parameter"}));
      }
      ways.push_back(around(flags ? "true" : "string", gbnf_literal(each)));
    }
    for (const std::string& each : of.values) {
      ways.push_back(around(flags ? "false" : "json", json("spaced", each)));
    }
    if (ways.empty()) return unsupported(at, "no value is possible");
    return any_of(ways);
  }

  Result<std::string> gemma_value(const Parameter& of) {
    const std::string quote = text(kGemmaQuote);
    Parts ways;
    if (of.any_text)
      ways.push_back(concat({quote, " ", until({std::string(kGemmaQuote)}), " ", quote}));
    for (const std::string& each : of.texts) {
      if (!of.any_text) ways.push_back(concat({quote, " ", gbnf_literal(each), " ", quote}));
    }
    for (const std::string& each : of.values) {
      // Strings inside of lists and objects would have other quotes than JSON's.
      const auto types = types_of(each, each);
      const bool simple = json_member(each, "enum") ||
                          (types && (*types & ~(kNumberType | kBooleanType | kNullType)) == 0);
      if (!simple) {
        return unsupported("/properties/" + of.name,
                           "the model's tool call format cannot enforce lists and objects");
      }
      ways.push_back(json("json", each));
    }
    if (ways.empty()) return unsupported("/properties/" + of.name, "no value is possible");
    return any_of(ways);
  }

  // Python values, written as JSON: double-quoted strings are both, and the reader accepts JSON.
  static Result<std::string> python_value(const Parameter& of) {
    Parts out;
    if (of.any_text) {
      out.push_back(json("spaced", R"({"type":"string"})"));
    } else if (!of.texts.empty()) {
      std::string list;
      for (const std::string& each : of.texts) {
        if (!list.empty()) list += ',';
        list += json_quote(each);
      }
      out.push_back(json("spaced", concat({"{\"enum\":[", list, "]}"})));
    }
    for (const std::string& each : of.values) out.push_back(json("spaced", each));
    if (out.empty()) return unsupported("/properties/" + of.name, "no value is possible");
    return any_of(out);
  }

  const ResponseShape& shape_;
  const Marks& marks_;
  std::string rules_;
};

}  // namespace

Result<std::string> answer_grammar(const ResponseShape& shape, const Marks& marks) {
  return Writer(shape, marks).answer();
}

Result<std::string> harmony_grammar(const ResponseShape& shape, const Marks& marks) {
  return Writer(shape, marks).harmony();
}

CallOpening call_opening(const ToolFormat& format, std::string_view name) {
  const auto with_ids = [](std::string text) {
    return replaced(replaced(std::move(text), "[CALL_ID]#", "[CALL_ID]000000000"), "#", "0");
  };
  CallOpening out;
  out.before = with_ids(concat({format.open, format.pre}));
  if (name.empty()) return out;
  out.name = spoken_name(format, std::string(name));
  out.behind = with_ids(std::string(format.mid));
  return out;
}

CallOpening harmony_opening(std::string_view name) {
  return {" to=functions.", std::string(name),
          name.empty() ? "" : "<|channel|>commentary json<|message|>"};
}

}  // namespace sluice::chat
