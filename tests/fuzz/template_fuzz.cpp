// Fuzzes the parser and the interpreter of chat templates, and the conversion of messages. The
// input is a template; after a zero byte, messages as JSON, else a fixed conversation. For any
// template the pieces alternate, and a prompt that was rendered twice is the same.
#include <cstdlib>

#include "chat/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::chat;
  ModelTexts texts;
  texts.bos = "<s>";
  texts.eos = "</s>";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto chat = Template::create(texts, input.substr(0, zero));
  if (!chat.ok()) {
    if (chat.status().message().empty()) std::abort();
    return 0;
  }
  Request request;
  request.messages =
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"<|im_end|> \u00e9\ud83d\ude00"},)"
      R"({"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",)"
      R"("function":{"name":"f","arguments":"{\"x\": [1, 2.5, true]}"}}]}])";
  if (zero != std::string_view::npos) request.messages = input.substr(zero + 1);
  if (size % 2 == 0) {
    request.tools =
        R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
  }
  request.continue_final_message = size % 3 == 0;
  request.allow_missing_text = size % 5 == 0;
  request.now = 0;
  const auto prompt = chat->render(request);
  if (!prompt.ok()) {
    if (prompt.status().message().empty()) std::abort();
    return 0;
  }
  for (size_t i = 0; i < prompt->pieces.size(); ++i) {
    if (prompt->pieces[i].text.empty()) std::abort();
    if (i > 0 && prompt->pieces[i].content == prompt->pieces[i - 1].content) std::abort();
  }
  const auto again = chat->render(request);
  if (!again.ok() || again->text() != prompt->text()) std::abort();
  return 0;
}
