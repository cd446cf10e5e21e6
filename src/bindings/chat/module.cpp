// chat.wasm: renders chat templates for the page and Node, where web/chat/chat-wasm.ts calls it,
// reads responses (answers.cpp), and serves requests (exchange.cpp). chat-server.wasm has the last
// two, with more endpoints. Neither has an engine or threads, or does I/O. Texts go in and out as
// UTF-8, structured values as JSON. A call takes an array of texts and returns the address of its
// result, or null, and then error_code() and error_message() say why. If memory runs out it aborts;
// the caller handles that.
#include <ctime>
#include <string>

#include "bindings/chat/calls.h"
#include "chat/template.h"
#include "jinja/json_text.h"

namespace {

using namespace sluice;
using namespace sluice::bindings;
using namespace sluice::chat;

struct Rendered {
  // With marks around literal spans, unless control tokens in messages are parsed and the model
  // takes no pictures.
  Bytes text;
  Bytes stop;      // stop strings, each of which ends with a zero byte
  Bytes pictures;  // JSON: the URLs of pictures, one for each tokenizer::kMediaMark of the template
  uint32_t add_special = 0;
  uint32_t sees_tools = 0;
};

struct State {
  std::string text, stop, pictures;
  Rendered rendered;
};

State& state() {
  static State s;
  return s;
}

}  // namespace

// Parses a template. texts: source ("" is ChatML), then the BOS, EOS, UNK and PAD token's text. The
// template lives as long as the instance.
SLUICE_EXPORT Template* parse_template(const Bytes* texts) {
  ModelTexts of;
  of.bos = texts[1].view();
  of.eos = texts[2].view();
  of.unk = texts[3].optional();
  of.pad = texts[4].optional();
  Result<Template> made = Template::create(of, texts[0].view());
  last_error() = made.status();
  return made.ok() ? new Template(std::move(*made)) : nullptr;
}

// Renders a prompt. texts: JSON of messages, tools, documents and variables. flags: RenderFlags.
SLUICE_EXPORT const Rendered* render(const Template* with, const Bytes* texts, uint32_t flags,
                                     double now) {
  State& s = state();
  Request request;
  request.messages = texts[0].view();
  request.tools = texts[1].view();
  request.documents = texts[2].view();
  request.variables = texts[3].view();
  request.add_generation_prompt = (flags & kAddGenerationPrompt) != 0;
  request.parse_special_in_content = (flags & kParseSpecialInContent) != 0;
  request.continue_final_message = (flags & kContinueFinalMessage) != 0;
  request.allow_missing_text = (flags & kAllowMissingText) != 0;
  request.pictures = (flags & kPictures) != 0;
  request.now = static_cast<std::time_t>(now);
  const Result<Prompt> prompt = with->render(request);
  last_error() = prompt.status();
  if (!prompt.ok()) return nullptr;
  const bool unmarked = request.parse_special_in_content && !request.pictures;
  s.text = unmarked ? prompt->text() : marked_text(*prompt);
  s.stop.clear();
  for (const std::string& text : prompt->stop) s.stop.append(text.c_str(), text.size() + 1);
  s.pictures = "[";
  for (const std::string& url : prompt->pictures) {
    if (s.pictures.size() > 1) s.pictures += ',';
    s.pictures += json_quote(url);
  }
  s.pictures += ']';
  s.rendered = {bytes_of(s.text), bytes_of(s.stop), bytes_of(s.pictures), prompt->add_special,
                prompt->sees_tools};
  return &s.rendered;
}
