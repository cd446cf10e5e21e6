// sluice_chat_*: prompts of chat templates, and responses read into reasoning, content and tool
// calls, on models that say a script.
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "../scripted_model.h"
#include "api_util.h"

namespace sluice::test {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"get","parameters":{"type":"object",)"
    R"("properties":{"id":{"type":"number"}},"required":["id"],"additionalProperties":false}}}])";
constexpr const char* kHello = R"([{"role":"user","content":"Hello"}])";

// Teaches a format, and begins the script that fits the last message.
std::string teaching(const std::string& format) {
  return "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
         "{{ tools | tojson if tools }}{% if false %}" +
         format +
         "{% endif %}{% if not add_generation_prompt %}{% elif tools %}<|call|>{% else %}"
         "<|reason|>{% endif %}";
}

const ScriptedModel kHermes = {
    .chat_template = teaching("<think></think><tool_call>{\"name\": …}</tool_call>"),
    .tool_template = {},
    .scripts = {{"<|reason|>", {"<think>Hmm", ", 1 < 2.", "</think>\n\nNo", "."}},
                {"<|call|>",
                 {"I look.", "<tool_call>\n{\"name\": ", "\"get\", \"arguments\": {\"id\": 1e400",
                  "}}\n</tool_call>"}}},
    .controls = {}};
// Marks that are control tokens.
const ScriptedModel kMarked = {
    .chat_template = teaching("<|START_THINKING|><|END_THINKING|><|START_RESPONSE|>"),
    .tool_template = {},
    .scripts = {{"<|reason|>", {"<|START_THINKING|>", "So", "<|END_THINKING|>", "Yes."}}},
    .controls = {"<|START_THINKING|>", "<|END_THINKING|>"}};
const ScriptedModel kHarmony = {
    .chat_template = teaching("<|channel|>analysis<|message|><|start|>assistant<|call|>"),
    .tool_template = {},
    .scripts = {{"<|reason|>",
                 {"<|channel|>", "analysis", "<|message|>", "Greet.", "<|start|>", "assistant"}}},
    .controls = {"<|start|>", "<|channel|>", "<|message|>"}};

class ApiChat : public testing::Test {
 protected:
  static std::string file(const ScriptedModel& model) {
    static int n = 0;
    const std::string path = testing::TempDir() + "sluice-api-chat-" + std::to_string(n++) + "-" +
                             std::to_string(::getpid()) + ".gguf";
    model.write(path);
    return path;
  }
  static Engine open(const ScriptedModel& model, bool structured_output = true) {
    const std::string path = file(model);
    sluice_load_options options = load_options();
    options.n_ctx = 512;
    options.structured_output = structured_output ? 1 : 0;
    Engine engine = load(options, path);
    std::filesystem::remove(path);
    return engine;
  }
};

sluice_chat_options request(const char* messages, const char* tools = nullptr) {
  sluice_chat_options options;
  expect_ok(sluice_chat_options_default(&options, sizeof options));
  options.messages = messages;
  options.tools = tools;
  return options;
}

Chat make(const Engine& engine, const sluice_chat_options& options) {
  sluice_chat* chat = nullptr;
  expect_ok(sluice_chat_create(engine.get(), &options, &chat));
  return Chat(chat);
}

sluice_chat_prompt prompt_of(const Chat& chat) {
  sluice_chat_prompt prompt = {};
  prompt.size = sizeof prompt;
  expect_ok(sluice_chat_get_prompt(chat.get(), &prompt));
  return prompt;
}

std::string message_of(const Chat& chat) {
  size_t n = 0;
  expect_ok(sluice_chat_message(chat.get(), nullptr, 0, &n));
  std::string json(n + 1, '?');
  expect_ok(sluice_chat_message(chat.get(), json.data(), json.size(), &n));
  EXPECT_EQ(json.back(), '\0');
  json.pop_back();
  return json;
}

// What the deltas of a response add up to.
struct Heard {
  std::string reasoning, content;
  std::vector<std::string> ids, names, arguments;
  void add(const sluice_chat_delta& delta) {
    EXPECT_EQ(delta.reasoning[delta.reasoning_length], '\0');
    EXPECT_EQ(delta.content[delta.content_length], '\0');
    reasoning.append(delta.reasoning, delta.reasoning_length);
    content.append(delta.content, delta.content_length);
    for (size_t i = 0; i < delta.n_tool_calls; ++i) {
      ids.emplace_back(delta.tool_calls[i].id);
      names.emplace_back(delta.tool_calls[i].name);
      arguments.emplace_back(delta.tool_calls[i].arguments);
    }
  }
};

// Generates the response and reads it.
Heard respond(const Engine& engine, const Chat& chat) {
  const sluice_chat_prompt prompt = prompt_of(chat);
  Greedy greedy(64);
  greedy.options.stop = prompt.stop;
  greedy.options.n_stop = prompt.n_stop;
  greedy.options.constraint = prompt.constraint;
  greedy.options.constraint_text = prompt.constraint_text;
  greedy.options.skip_special_tokens = prompt.skip_special_tokens;
  struct Reading {
    sluice_chat* chat;
    Heard heard;
  } reading{chat.get(), {}};
  greedy.options.token_user = &reading;
  greedy.options.on_token = [](void* user, const sluice_token_event* event) -> int32_t {
    Reading& r = *static_cast<Reading*>(user);
    sluice_chat_delta delta = {};
    delta.size = sizeof delta;
    expect_ok(sluice_chat_push(r.chat, event->text, event->length, event->token, &delta));
    r.heard.add(delta);
    return 0;
  };
  const Session session = create(engine);
  expect_ok(sluice_generate_tokens(session.get(), prompt.tokens, prompt.n_tokens, &greedy.options,
                                   nullptr));
  sluice_chat_delta delta = {};
  delta.size = sizeof delta;
  expect_ok(sluice_chat_finish(chat.get(), &delta));
  reading.heard.add(delta);
  return reading.heard;
}

TEST_F(ApiChat, SeparatesReasoningFromContent) {
  const Engine engine = open(kHermes);
  Chat chat = make(engine, request(kHello));
  const sluice_chat_prompt prompt = prompt_of(chat);
  EXPECT_EQ(std::string(prompt.text, prompt.length), "[user]Hello<|reason|>");
  EXPECT_EQ(std::vector<int32_t>(prompt.tokens, prompt.tokens + prompt.n_tokens),
            tokenize(engine, prompt.text, SLUICE_PARSE_SPECIAL));
  EXPECT_EQ(prompt.constraint, SLUICE_CONSTRAINT_NONE);
  EXPECT_EQ(prompt.constraint_text, nullptr);
  EXPECT_STREQ(prompt.opening, "");
  EXPECT_EQ(prompt.n_stop, 0u);
  EXPECT_EQ(prompt.skip_special_tokens, 1);
  EXPECT_EQ(prompt.default_template, 0);
  EXPECT_EQ(prompt.shows_tools, 0);
  const Heard heard = respond(engine, chat);
  EXPECT_EQ(heard.reasoning, "Hmm, 1 < 2.");
  EXPECT_EQ(heard.content, "No.");
  EXPECT_EQ(message_of(chat),
            R"({"role":"assistant","content":"No.","reasoning_content":"Hmm, 1 < 2."})");

  sluice_chat_options inlined = request(kHello);
  inlined.separate_reasoning = 0;
  chat = make(engine, inlined);
  EXPECT_EQ(respond(engine, chat).content, "<think>Hmm, 1 < 2.</think>\n\nNo.");
}

TEST_F(ApiChat, ReadsMarksThatAreControlTokens) {
  const Engine engine = open(kMarked);
  const Chat chat = make(engine, request(kHello));
  EXPECT_EQ(prompt_of(chat).skip_special_tokens, 0);
  const Heard heard = respond(engine, chat);
  EXPECT_EQ(heard.reasoning, "So");
  EXPECT_EQ(heard.content, "Yes.");
  const Engine harmony = open(kHarmony);
  EXPECT_EQ(respond(harmony, make(harmony, request(kHello))).reasoning, "Greet.");
}

TEST_F(ApiChat, ReadsToolCallsAndMakesTheMessageOfTheNextRequest) {
  const Engine engine = open(kHermes);
  for (const char* choice : {static_cast<const char*>(nullptr), "auto", "\"auto\""}) {
    sluice_chat_options options = request(kHello, kTools);
    options.tool_choice = choice;
    options.id_seed = 7;
    const Chat chat = make(engine, options);
    EXPECT_EQ(prompt_of(chat).shows_tools, 1);
    const Heard heard = respond(engine, chat);
    EXPECT_EQ(heard.content, "I look.");
    ASSERT_EQ(heard.names, std::vector<std::string>{"get"});
    EXPECT_EQ(heard.arguments[0], R"({"id": 1e400})");
    EXPECT_TRUE(heard.ids[0].starts_with("call_")) << heard.ids[0];
    const std::string message = message_of(chat);
    EXPECT_EQ(message, R"({"role":"assistant","content":"I look.","tool_calls":[{"id":")" +
                           heard.ids[0] + R"(","type":"function","function":{"name":"get",)" +
                           R"("arguments":"{\"id\": 1e400}"}}]})");
    const std::string next = R"([{"role":"user","content":"Hello"},)" + message +
                             R"(,{"role":"tool","tool_call_id":")" + heard.ids[0] +
                             R"(","content":"found"}])";
    const Chat again = make(engine, request(next.c_str(), kTools));
    EXPECT_NE(std::string(prompt_of(again).text).find("[tool]found"), std::string::npos);
  }
}

TEST_F(ApiChat, ChoosesToolsAndConstrainsCalls) {
  const Engine engine = open(kHermes);
  sluice_chat_options options = request(kHello, kTools);
  options.tool_choice = "none";
  Chat chat = make(engine, options);
  EXPECT_EQ(std::string(prompt_of(chat).text), "[user]Hello<|reason|>");
  EXPECT_EQ(respond(engine, chat).content, "No.");
  options.tool_choice = R"({"type":"function","function":{"name":"get"}})";
  chat = make(engine, options);
  EXPECT_EQ(prompt_of(chat).constraint, SLUICE_CONSTRAINT_GBNF);
  EXPECT_EQ(std::string(prompt_of(chat).constraint_text).substr(0, 4), "root");

  // Also if memory for constraints is not set aside at load.
  const Engine plain = open(kHermes, false);
  options.tool_choice = "required";
  chat = make(plain, options);
  EXPECT_EQ(prompt_of(chat).constraint, SLUICE_CONSTRAINT_GBNF);
  expect_ok(sluice_chat_push(chat.get(), R"(<tool_call>{"name": "get", "arguments": {"id": 5}})",
                             SLUICE_TERMINATED, -1, nullptr));
  expect_ok(sluice_chat_push(chat.get(), "</tool_call>", SLUICE_TERMINATED, -1, nullptr));
  expect_ok(sluice_chat_finish(chat.get(), nullptr));
  EXPECT_EQ(Json::parse(message_of(chat))["tool_calls"][0]["function"]["arguments"],
            R"({"id": 5})");
  EXPECT_TRUE(Json::parse(message_of(chat))["content"].is_null());  // as OpenAI has it
}

TEST_F(ApiChat, ConstrainsTheContentByASchema) {
  ScriptedModel model = kHermes;
  model.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}<|reason|>";
  const Engine engine = open(model);
  sluice_chat_options options = request(kHello);
  options.response_schema = R"({"enum":["No.","Yes."]})";
  const Chat chat = make(engine, options);
  EXPECT_EQ(prompt_of(chat).constraint, SLUICE_CONSTRAINT_JSON_SCHEMA);
  EXPECT_STREQ(prompt_of(chat).constraint_text, options.response_schema);
  const std::string content = respond(engine, chat).content;
  EXPECT_TRUE(content == "\"No.\"" || content == "\"Yes.\"") << content;
}

TEST_F(ApiChat, RendersWhatTheRequestSays) {
  ScriptedModel model = kHermes;
  model.chat_template =
      "{{ messages[-1].content }}{{ colour }}{{ documents | tojson if documents }}"
      "{% if add_generation_prompt %}<|reason|>{% endif %}";
  const Engine engine = open(model);
  const auto text = [&](const std::function<void(sluice_chat_options&)>& change) {
    sluice_chat_options options = request(kHello);
    change(options);
    return std::string(prompt_of(make(engine, options)).text);
  };
  EXPECT_EQ(text([](auto& o) { o.variables = R"({"colour": "red"})"; }), "Hellored<|reason|>");
  EXPECT_EQ(text([](auto& o) { o.documents = R"([{"text":"d"}])"; }),
            R"(Hello[{"text": "d"}]<|reason|>)");
  EXPECT_EQ(text([](auto& o) { o.add_generation_prompt = 0; }), "Hello");
  EXPECT_EQ(text([](auto& o) { o.chat_template = "<{{ messages[0].content }}>"; }), "<Hello>");
  EXPECT_EQ(text([](auto&) {}), "Hello<|reason|>");  // the model's own again
  EXPECT_EQ(text([](auto& o) {
              o.messages = R"([{"role":"assistant","content":"He"}])";
              o.continue_final_message = 1;
            }),
            "He");

  // Control tokens in messages are text unless the request says otherwise.
  sluice_chat_options options = request(R"([{"role":"user","content":"<|end|>"}])");
  const size_t as_text = prompt_of(make(engine, options)).n_tokens;
  options.parse_special_in_content = 1;
  EXPECT_LT(prompt_of(make(engine, options)).n_tokens, as_text);
}

TEST_F(ApiChat, UsesTheOnlyTemplateOrChatMl) {
  ScriptedModel model = kHermes;
  model.chat_template.swap(model.tool_template);  // tool_use alone
  const Engine engine = open(model);
  EXPECT_STREQ(prompt_of(make(engine, request(kHello))).text, "[user]Hello<|reason|>");
  sluice_info info = {};
  info.size = sizeof info;
  expect_ok(sluice_engine_info(engine.get(), &info));
  EXPECT_EQ(info.chat_template, model.tool_template);

  model.tool_template.clear();
  const Engine none = open(model);
  const Chat chat = make(none, request(kHello));
  const sluice_chat_prompt prompt = prompt_of(chat);
  EXPECT_STREQ(prompt.text, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompt.default_template, 1);
  ASSERT_EQ(prompt.n_stop, 1u);
  EXPECT_STREQ(prompt.stop[0], "<|im_end|>");
}

TEST_F(ApiChat, ErrorsNameWhatIsWrong) {
  const Engine engine = open(kHermes);
  sluice_chat* chat = nullptr;
  const auto refused = [&](sluice_status expected, const char* why,
                           const std::function<void(sluice_chat_options&)>& change) {
    sluice_chat_options options = request(kHello);
    change(options);
    EXPECT_EQ(sluice_chat_create(engine.get(), &options, &chat), expected) << why;
    EXPECT_NE(std::string(sluice_last_error()).find(why), std::string::npos) << sluice_last_error();
    EXPECT_EQ(chat, nullptr);
  };
  refused(SLUICE_CHAT_TEMPLATE, "", [](auto& o) { o.chat_template = "{% for %}"; });
  refused(SLUICE_CHAT_TEMPLATE, "", [](auto& o) { o.chat_template = "no message"; });
  refused(SLUICE_INVALID_ARGUMENT, "messages", [](auto& o) { o.messages = "{}"; });
  refused(SLUICE_INVALID_ARGUMENT, "every tool", [](auto& o) { o.tools = R"([{"type":"web"}])"; });
  refused(SLUICE_INVALID_ARGUMENT, "tool_choice", [](auto& o) { o.tool_choice = "never"; });
  refused(SLUICE_INVALID_ARGUMENT, "tool_choice", [](auto& o) { o.tool_choice = "{"; });
  refused(SLUICE_INVALID_ARGUMENT, "tool_choice", [](auto& o) {
    o.tools = kTools;
    o.tool_choice = R"({"type":"function","function":{"name":"put"}})";
  });
  refused(SLUICE_INVALID_ARGUMENT, "JSON", [](auto& o) { o.response_schema = "{"; });
}

TEST_F(ApiChat, OutlivesItsEngineAndEndsOnce) {
  Engine engine = open(kHermes);
  const Chat chat = make(engine, request(kHello));
  engine.reset();
  expect_ok(sluice_chat_push(chat.get(), "<think>a</think>b", SLUICE_TERMINATED, -1, nullptr));
  expect_ok(sluice_chat_finish(chat.get(), nullptr));
  EXPECT_EQ(sluice_chat_push(chat.get(), "c", 1, -1, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_chat_finish(chat.get(), nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(message_of(chat), R"({"role":"assistant","content":"b","reasoning_content":"a"})");
  EXPECT_STREQ(prompt_of(chat).text, "[user]Hello<|reason|>");
}

TEST_F(ApiChat, IdsDifferUnlessTheSeedIsGiven) {
  const Engine engine = open(kHermes);
  const auto id = [&](uint64_t seed) {
    sluice_chat_options options = request(kHello, kTools);
    options.id_seed = seed;
    return respond(engine, make(engine, options)).ids.at(0);
  };
  EXPECT_EQ(id(3), id(3));
  EXPECT_NE(id(3), id(4));
  EXPECT_NE(id(0), id(0));
}

TEST_F(ApiChat, ThreadsCreateChatsOfOneEngineAtOnce) {
  const Engine engine = open(kHermes);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&engine, i] {
      sluice_chat_options options = request(kHello, i % 2 == 0 ? kTools : nullptr);
      if (i == 3) options.chat_template = "<{{ messages[0].content }}>";
      for (int n = 0; n < 5; ++n) {
        const std::string text = prompt_of(make(engine, options)).text;
        EXPECT_EQ(text.substr(0, 12), i == 3 ? "<Hello>" : "[user]Hello" + text.substr(11, 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace sluice::test
