// Finds out what a template expects, by rendering short conversations.
#include "chat/messages.h"

#include <algorithm>
#include <vector>

#include "base/concat.h"
#include "chat/template.h"
#include "chat/template_text.h"
#include "jinja/json.h"

namespace sluice::chat {

using namespace jinja;

namespace {

// A probe may take this part of what a prompt may.
constexpr uint32_t kProbeShare = 16;

// Texts of probes; no template has them.
constexpr std::string_view kName = "qzname", kThought = "qzthought", kNamedArgument = "\"qzkey\"";
constexpr const char* kTool =
    R"([{"type":"function","function":{"name":"qztool","description":"qztool","parameters":)"
    R"({"type":"object","properties":{"qzkey":{"type":"string","description":"qzkey"}},)"
    R"("required":["qzkey"]}}}])";

size_t occurrences(std::string_view text, std::string_view sought) {
  size_t out = 0;
  for (size_t at = text.find(sought); at != std::string_view::npos; at = text.find(sought, at + 1))
    ++out;
  return out;
}

std::string said_json(std::string_view role, std::string_view text) {
  return concat({R"({"role":")", role, R"(","content":")", text, R"("})"});
}

// An assistant's message with so many calls.
std::string answer_json(Content form, Reasoning reasoning, size_t calls, bool ids = true,
                        bool broken = false) {
  static constexpr std::string_view kForms[] = {R"(,"content":"qzanswer")", R"(,"content":"")",
                                                R"(,"content":null)", ""};
  std::string out = R"({"role":"assistant")";
  out += kForms[static_cast<size_t>(form)];
  if (reasoning != Reasoning::kNone) {
    out += ",\"" + std::string(kReasoningNames[static_cast<size_t>(reasoning)]) + "\":\"";
    out += std::string(kThought) + "\"";
  }
  for (size_t i = 0; i < calls; ++i) {
    const std::string number = std::to_string(i);
    out += i == 0 ? R"(,"tool_calls":[{)" : ",{";
    if (ids) out += concat({R"("id":"call_qz_000000)", number, "\","});
    out += concat({R"("type":"function","function":{"name":")", kName,
                   R"(","arguments":"{\"qzkey\": \"qzvalue)", number});
    out += broken ? R"("}})" : R"(\"}"}})";
  }
  return out + (calls > 0 ? "]}" : "}");
}

std::string result_json(size_t number, bool id = true) {
  const std::string digit = std::to_string(number);
  std::string out = concat({R"({"role":"tool","content":"qzresult)", digit, "\""});
  if (id) out += concat({R"(,"tool_call_id":"call_qz_000000)", digit, "\""});
  return out + "}";
}

std::string listed_json(const std::vector<std::string>& messages) {
  std::string out = "[";
  for (const std::string& message : messages) out += (out.size() > 1 ? "," : "") + message;
  return out + "]";
}

const std::string& user_json() {
  static const std::string kUser = said_json("user", "qzuser");
  return kUser;
}

// Whether parts of contents are printed as Python's or JSON's objects.
bool shows_part(std::string_view text) {
  return text.find("'type': '") != std::string_view::npos ||
         text.find("\"type\": \"") != std::string_view::npos;
}

constexpr size_t kMaxPictureText = 256;

// What `longer` has that `text` has not, without white space around it; "" if the two differ in
// more than one place.
std::string inserted(std::string_view text, std::string_view longer) {
  if (longer.size() <= text.size()) return {};
  const size_t added = longer.size() - text.size();
  size_t at = 0;
  while (at < text.size() && text[at] == longer[at]) ++at;
  if (text.substr(at) != longer.substr(at + added)) return {};
  // Of all places where it could have been inserted, the first: control tokens begin alike, so what
  // follows may start with the same characters.
  while (at > 0 && longer[at - 1] == longer[at - 1 + added]) --at;
  return std::string(trimmed(longer.substr(at, added)));
}

// Whether a template leaves these bytes on purpose: a mark that it looks for, or an assistant's
// text before or after such a mark.
bool omitted_on_purpose(const Program& program, std::string_view bytes, bool assistant) {
  if (program.known.count(std::string(bytes)) > 0) return true;
  constexpr size_t kShortestMark = 3;
  const auto is_mark = [&](const std::string& known) {
    return known.size() >= kShortestMark && known.find_first_of("<>[]|/") != std::string::npos &&
           (bytes.starts_with(known) || bytes.ends_with(known));
  };
  return assistant && std::any_of(program.known.begin(), program.known.end(), is_mark);
}

}  // namespace

const Shown* find_missing(const Interpreter& in, const Program& program, const Text& output,
                          const Normalized& messages) {
  std::vector<Span> spans;
  for (const Span& span : output.spans()) {
    if (span.source == Span::kSeveral) return nullptr;  // any text may be in it
    if (span.source > 0) spans.push_back(span);
  }
  const auto before = [](const Span& a, const Span& b) {
    return a.source != b.source ? a.source < b.source : a.from < b.from;
  };
  std::make_heap(spans.begin(), spans.end(), before);
  std::sort_heap(spans.begin(), spans.end(), before);  // shorter code than std::sort
  for (const Shown& shown : messages.shown) {
    const std::string_view text = in.source(shown.source);
    const bool assistant = messages.roles[shown.message] == "assistant";
    Span first;
    first.source = shown.source;
    size_t covered = 0;
    const auto whole = [&](size_t end) {
      if (end <= covered) return true;
      std::string_view rest = text.substr(covered, end - covered);
      rest = rest.substr(leading_space(rest));
      rest = rest.substr(0, trailing_space(rest));
      return rest.empty() || omitted_on_purpose(program, rest, assistant && !shown.call);
    };
    auto span = std::lower_bound(spans.begin(), spans.end(), first, before);
    for (; span != spans.end() && span->source == shown.source; ++span) {
      if (!whole(span->from)) return &shown;
      covered = std::max<size_t>(covered, span->to);
    }
    if (!whole(text.size())) return &shown;
  }
  return nullptr;
}

void set_tokens(Interpreter& in, const ModelTexts& texts) {
  in.set("bos_token", in.text(texts.bos));
  in.set("eos_token", in.text(texts.eos));
  if (texts.unk) in.set("unk_token", in.text(*texts.unk));
  if (texts.pad) in.set("pad_token", in.text(*texts.pad));
}

Result<Normalized> Normalizer::normalize(Interpreter& in, const Value& messages,
                                         const Options& options) const {
  Result<std::vector<Message>> read =
      read_messages(in, program_, messages, options.mark, options.n_pictures);
  if (!read.ok()) return read.status();
  Manner manner;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    find_out(needs_of(*read));
    manner = manner_;
  }
  if (options.picture_marks) manner.pictures = PictureAs::kMark;
  Normalized out = write_messages(in, manner, std::move(*read));
  if (!in.ok()) return in.failure();
  return out;
}

// --- probes

size_t Normalizer::Trial::nothings() const {
  return occurrences(text, "None") + occurrences(text, "null");
}

Normalizer::Trial Normalizer::attempt(const Manner& manner, std::string_view messages) const {
  Interpreter in(program_, 0, kProbeShare);
  const Result<Value> parsed = read_json(in, program_, messages, "messages", true);
  if (!parsed.ok()) return {};
  Result<std::vector<Message>> read = read_messages(in, program_, *parsed, true, 1);
  if (!read.ok()) return {};
  const bool answered = read->back().role == "assistant";
  const Normalized written = write_messages(in, manner, std::move(*read));
  Result<Value> tools(written.empty_tools ? in.sequence({}) : none());
  if (tools_) tools = read_json(in, program_, kTool, "tools", true);
  if (!tools.ok()) return {};
  in.set("messages", written.messages);
  in.set("tools", *tools);
  in.set("documents", none());
  in.set("add_generation_prompt", Value(!answered));
  set_tokens(in, texts_);
  const Result<Text> text = in.run();
  if (!text.ok()) return {};
  return {find_missing(in, program_, *text, written) == nullptr, std::string(text->view())};
}

void Normalizer::find_texts() const {
  const std::string messages = listed_json({user_json()});
  if (attempt(manner_, messages).complete) return;
  Manner tried = manner_;
  tried.empty_tools = !tools_;
  if (tried.empty_tools && attempt(tried, messages).complete) {
    manner_ = tried;
    return;
  }
  tried.empty_tools = false;
  tried.text_parts = true;
  const Trial trial = attempt(tried, messages);
  if (trial.complete && !shows_part(trial.text)) manner_ = tried;
}

// Whether the template has something of its own for pictures. It is what a picture adds to a
// prompt.
void Normalizer::find_pictures() const {
  constexpr std::string_view kPart = R"({"type":"text","text":"qzuser"})";
  const auto conversation = [&](std::string_view parts) {
    return concat({R"([{"role":"user","content":[)", parts, "]}]"});
  };
  Manner tried = manner_;
  tried.text_parts = true;
  const Trial without = attempt(tried, conversation(kPart));
  if (!without.complete) return;
  for (const PictureAs as : {PictureAs::kImage, PictureAs::kImageUrl}) {
    tried.pictures = as;
    const Trial with =
        attempt(tried, conversation(concat({kPart, R"(,{"type":"image","picture":0})"})));
    const std::string added = with.complete ? inserted(without.text, with.text) : std::string();
    if (added.empty() || added.size() > kMaxPictureText || shows_part(added)) continue;
    manner_.pictures = as;
    manner_.picture_text = added;
    return;
  }
}

void Normalizer::find_systems(Systems kind) const {
  const std::string system = said_json("system", "qzsystem"),
                    developer = said_json("developer", "qzsystem");
  const std::string answered = answer_json(Content::kText, Reasoning::kNone, 0);
  const std::string conversations[] = {
      listed_json({system, user_json()}), listed_json({developer, user_json()}),
      listed_json({system, system, user_json()}),
      listed_json({user_json(), answered, system, user_json()}),
      listed_json({user_json(), answered, developer, user_json()})};
  const auto at = static_cast<size_t>(kind);
  Manner tried = manner_;
  for (const SystemAs as :
       {SystemAs::kGiven, SystemAs::kSystem, SystemAs::kJoined, SystemAs::kMerged}) {
    if (as == SystemAs::kJoined && kind != Systems::kSeveral) continue;
    tried.systems[at] = as;
    if (!attempt(tried, conversations[at]).complete) continue;
    manner_ = tried;
    return;
  }
}

void Normalizer::find_calls() const {
  constexpr Shape kShape{Content::kEmpty, true, Reasoning::kNone};
  const auto conversation = [](bool ids) {
    return listed_json(
        {user_json(), answer_json(Content::kEmpty, Reasoning::kNone, 1, ids), result_json(0, ids)});
  };
  Manner best = manner_;
  bool found = false;
  for (int i = 0; i < 12; ++i) {
    Manner tried = manner_;
    tried.tool_names = true;
    tried.short_ids = i >= 6;
    tried.text_arguments = i / 3 % 2 == 1;
    tried.call_content = static_cast<Content>(1 + i % 3);
    tried.contents[kShape.index()].form = tried.call_content;
    const Trial trial = attempt(tried, conversation(true));
    if (!trial.complete) continue;
    const bool json = trial.text.find(kNamedArgument) != std::string::npos ||
                      trial.text.find("'qzkey'") == std::string::npos;  // Python's repr of a dict
    if (!found || json) best = tried;
    found = true;
    if (json) break;
  }
  if (!found) return find_call_text();
  Manner unnamed = best;
  unnamed.tool_names = false;
  const Trial named = attempt(best, conversation(true)),
              bare = attempt(unnamed, conversation(true));
  if (bare.complete && occurrences(bare.text, kName) == occurrences(named.text, kName))
    best = unnamed;
  best.make_ids = !attempt(best, conversation(false)).complete;
  best.contents = manner_.contents;
  manner_ = best;
}

// The template shows no calls, or no results: they become text.
void Normalizer::find_call_text() const {
  const auto mentions = [&](std::string_view sought) {
    return std::any_of(program_.known.begin(), program_.known.end(), [&](const std::string& known) {
      return known.find(sought) != std::string::npos;
    });
  };
  const bool lfm = mentions("<|tool_call_start|>") || mentions("<|tool_list_start|>") ||
                   mentions("List of tools: [");
  Manner tried = manner_;
  tried.call_text = lfm                         ? CallText::kPython
                    : mentions("<|tool_call|>") ? CallText::kList
                                                : CallText::kHermes;
  const std::string messages =
      listed_json({user_json(), answer_json(Content::kEmpty, Reasoning::kNone, 1), result_json(0)});
  for (const bool user_results : {false, true}) {
    tried.user_results = user_results;
    if (!attempt(tried, messages).complete) continue;
    manner_ = tried;
    return;
  }
}

void Normalizer::find_broken() const {
  Manner tried = manner_;
  constexpr Shape kShape{Content::kEmpty, true, Reasoning::kNone};
  tried.contents[kShape.index()].form = tried.call_content;
  const std::string messages = listed_json(
      {user_json(), answer_json(Content::kEmpty, Reasoning::kNone, 1, true, true), result_json(0)});
  if (attempt(tried, messages).complete) return;
  tried.wrap_broken = true;
  manner_.wrap_broken = attempt(tried, messages).complete;
}

void Normalizer::find_parallel() const {
  Manner tried = manner_;
  constexpr Shape kShape{Content::kEmpty, true, Reasoning::kNone};
  tried.contents[kShape.index()].form = tried.call_content;
  const std::string messages =
      listed_json({user_json(), answer_json(Content::kEmpty, Reasoning::kNone, 2), result_json(0),
                   result_json(1)});
  if (attempt(tried, messages).complete) return;
  tried.one_call = true;
  manner_.one_call = attempt(tried, messages).complete;
}

void Normalizer::find_reasoning(Reasoning given) const {
  const std::string conversations[] = {
      listed_json({user_json(), answer_json(Content::kEmpty, given, 1), result_json(0)}),
      listed_json({user_json(), answer_json(Content::kText, given, 0)})};
  const auto at = static_cast<size_t>(given);
  const Shape called{Content::kEmpty, true, given};
  for (const Reasoning read :
       {given, Reasoning::kReasoningContent, Reasoning::kReasoning, Reasoning::kThinking}) {
    Manner tried = manner_;
    tried.reasoning[at] = read;
    tried.contents[called.index()].form = tried.call_content;
    for (const std::string& messages : conversations) {
      if (attempt(tried, messages).text.find(kThought) == std::string::npos) continue;
      manner_.reasoning[at] = read;
      return;
    }
  }
}

void Normalizer::find_content(Shape shape) const {
  static constexpr Content kOrder[4][3] = {
      {Content::kText, Content::kText, Content::kText},
      {Content::kEmpty, Content::kNull, Content::kAbsent},
      {Content::kNull, Content::kAbsent, Content::kEmpty},
      {Content::kAbsent, Content::kNull, Content::kEmpty},
  };
  const std::string message = answer_json(shape.form, shape.reasoning, shape.calls ? 1 : 0);
  const std::string messages = shape.calls ? listed_json({user_json(), message, result_json(0)})
                                           : listed_json({user_json(), message, user_json()});
  const bool text = shape.form == Content::kText;
  Manner tried = manner_;
  Manner::Writing& writing = tried.contents[shape.index()];
  Manner::Writing best = writing;
  size_t fewest = SIZE_MAX;
  for (const bool reasoning : {true, false}) {
    if (!reasoning && (shape.reasoning == Reasoning::kNone || fewest < SIZE_MAX)) break;
    for (size_t i = 0; i < 3; ++i) {
      if (text && i > (shape.calls ? 1 : 0)) break;
      writing = {kOrder[static_cast<size_t>(shape.form)][i], text && i == 1, reasoning};
      const Trial trial = attempt(tried, messages);
      if (!trial.complete || trial.nothings() >= fewest) continue;
      fewest = trial.nothings();
      best = writing;
    }
  }
  manner_.contents[shape.index()] = best;
}

// Answers the questions that have not been asked yet, each after those that its probes rely on.
void Normalizer::find_out(const Needs& needs) const {
  const auto ask = [](bool needed, bool* known) { return needed && !std::exchange(*known, true); };
  if (ask(needs.texts, &known_.texts)) find_texts();
  if (ask(needs.pictures, &known_.pictures)) find_pictures();
  for (size_t i = 0; i < kSystemsCount; ++i) {
    if (ask(needs.systems[i], &known_.systems[i])) find_systems(static_cast<Systems>(i));
  }
  const bool reasons =
      std::find(needs.reasoning.begin(), needs.reasoning.end(), true) != needs.reasoning.end();
  if (ask(needs.calls || reasons, &known_.calls)) find_calls();
  for (size_t i = 1; i < needs.reasoning.size(); ++i) {
    if (ask(needs.reasoning[i], &known_.reasoning[i])) find_reasoning(static_cast<Reasoning>(i));
  }
  for (size_t i = 0; i < Shape::kCount; ++i) {
    const Shape shape{static_cast<Content>(i / 8), i / 4 % 2 == 1, static_cast<Reasoning>(i % 4)};
    if (ask(needs.contents[i], &known_.contents[i])) find_content(shape);
  }
  if (ask(needs.parallel, &known_.parallel)) find_parallel();
  if (ask(needs.broken, &known_.broken)) find_broken();
}

}  // namespace sluice::chat
