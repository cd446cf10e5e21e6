// Wrong calls of chats.
#include "misuse.h"

namespace sluice::test {
namespace {

Misuse wrong_chat(const char* what, void (*change)(sluice_chat_options&),
                  sluice_status expected = SLUICE_INVALID_ARGUMENT) {
  return {"sluice_chat_create", what,
          with(
              sluice_chat_options_default,
              [change](sluice_chat_options& o) {
                o.messages = kMessages;
                change(o);
              },
              [](Rig& r, const sluice_chat_options& o) {
                return sluice_chat_create(r.engine.get(), &o, &r.made_chat);
              }),
          expected};
}

Misuse wrong_push(const char* what, const char* text, size_t length, int32_t token) {
  return {"sluice_chat_push", what,
          [=](Rig& r) { return sluice_chat_push(r.chat.get(), text, length, token, nullptr); }};
}

}  // namespace

std::vector<Misuse> wrong_chats() {
  return {
      {"sluice_chat_options_default", "null",
       [](Rig&) { return sluice_chat_options_default(nullptr, sizeof(sluice_chat_options)); }},
      {"sluice_chat_options_default", "too small",
       [](Rig&) {
         sluice_chat_options o;
         return sluice_chat_options_default(&o, sizeof o - 1);
       }},
      {"sluice_chat_create", "null engine",
       [](Rig& r) {
         const auto o = defaults(sluice_chat_options_default);
         return sluice_chat_create(nullptr, &o, &r.made_chat);
       }},
      {"sluice_chat_create", "null options",
       [](Rig& r) { return sluice_chat_create(r.engine.get(), nullptr, &r.made_chat); }},
      {"sluice_chat_create", "null result",
       [](Rig& r) {
         auto o = defaults(sluice_chat_options_default);
         o.messages = kMessages;
         return sluice_chat_create(r.engine.get(), &o, nullptr);
       }},
      wrong_chat("size", [](sluice_chat_options& o) { o.size = 3; }),
      wrong_chat("null messages", [](sluice_chat_options& o) { o.messages = nullptr; }),
      wrong_chat("messages", [](sluice_chat_options& o) { o.messages = "[{"; }),
      wrong_chat("no message", [](sluice_chat_options& o) { o.messages = "[1]"; }),
      wrong_chat("tools", [](sluice_chat_options& o) { o.tools = "{}"; }),
      wrong_chat("tool_choice", [](sluice_chat_options& o) { o.tool_choice = "7"; }),
      wrong_chat("tool_choice without tools",
                 [](sluice_chat_options& o) { o.tool_choice = "required"; }),
      wrong_chat("response_schema", [](sluice_chat_options& o) { o.response_schema = "{"; }),
      wrong_chat("documents", [](sluice_chat_options& o) { o.documents = "{}"; }),
      wrong_chat("variables", [](sluice_chat_options& o) { o.variables = "[]"; }),
      wrong_chat(
          "chat_template", [](sluice_chat_options& o) { o.chat_template = "{{"; },
          SLUICE_CHAT_TEMPLATE),
      wrong_chat("add_generation_prompt",
                 [](sluice_chat_options& o) { o.add_generation_prompt = 2; }),
      wrong_chat("continue_final_message",
                 [](sluice_chat_options& o) { o.continue_final_message = -1; }),
      wrong_chat("continue a user's message",
                 [](sluice_chat_options& o) { o.continue_final_message = 1; }),
      wrong_chat("parse_special_in_content",
                 [](sluice_chat_options& o) { o.parse_special_in_content = 2; }),
      wrong_chat("parallel_tool_calls", [](sluice_chat_options& o) { o.parallel_tool_calls = 2; }),
      wrong_chat("separate_reasoning", [](sluice_chat_options& o) { o.separate_reasoning = 2; }),
      {"sluice_chat_free", "null",
       [](Rig&) {
         sluice_chat_free(nullptr);
         return SLUICE_OK;
       },
       SLUICE_OK},
      {"sluice_chat_get_prompt", "null",
       [](Rig&) {
         sluice_chat_prompt prompt = {};
         prompt.size = sizeof prompt;
         return sluice_chat_get_prompt(nullptr, &prompt);
       }},
      {"sluice_chat_get_prompt", "null result",
       [](Rig& r) { return sluice_chat_get_prompt(r.chat.get(), nullptr); }},
      {"sluice_chat_get_prompt", "size",
       [](Rig& r) {
         sluice_chat_prompt prompt = {};
         return sluice_chat_get_prompt(r.chat.get(), &prompt);
       }},
      {"sluice_chat_push", "null",
       [](Rig&) { return sluice_chat_push(nullptr, "a", 1, -1, nullptr); }},
      wrong_push("null text", nullptr, 1, -1),
      wrong_push("token", "a", 1, -2),
      wrong_push("a token beyond the vocabulary", "a", 1, 1 << 24),
      {"sluice_chat_push", "size",
       [](Rig& r) {
         sluice_chat_delta delta = {};
         return sluice_chat_push(r.chat.get(), "a", 1, -1, &delta);
       }},
      {"sluice_chat_finish", "null", [](Rig&) { return sluice_chat_finish(nullptr, nullptr); }},
      {"sluice_chat_finish", "size",
       [](Rig& r) {
         sluice_chat_delta delta = {};
         return sluice_chat_finish(r.chat.get(), &delta);
       }},
      {"sluice_chat_message", "null",
       [](Rig& r) { return sluice_chat_message(nullptr, nullptr, 0, &r.count); }},
      {"sluice_chat_message", "null count",
       [](Rig& r) { return sluice_chat_message(r.chat.get(), nullptr, 0, nullptr); }},
      {"sluice_chat_message", "null buffer",
       [](Rig& r) { return sluice_chat_message(r.chat.get(), nullptr, 4, &r.count); }},
      {"sluice_chat_message", "small buffer",
       [](Rig& r) { return sluice_chat_message(r.chat.get(), r.text.data(), 4, &r.count); }},
  };
}

}  // namespace sluice::test
