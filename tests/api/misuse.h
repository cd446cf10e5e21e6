// A list of wrong calls of every function of sluice.h, and the handles that they are made on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api_util.h"

namespace sluice::test {

inline constexpr const char* kMessages = R"([{"role":"user","content":"Hello"}])";

// Handles, and storage for the functions' results.
struct Rig {
  Engine engine = load();
  Session session = create(engine);
  Sampler sampler;
  Chat chat;
  sluice_engine* made_engine = nullptr;
  sluice_session* made_session = nullptr;
  sluice_sampler* made_sampler = nullptr;
  sluice_chat* made_chat = nullptr;
  int32_t number = 0;
  uint64_t bytes = 0;
  size_t count = 0;
  std::vector<int32_t> tokens = std::vector<int32_t>(64);
  std::vector<float> floats = std::vector<float>(8192);
  std::string text = std::string(64, '?');

  Rig() {
    expect_ok(sluice_sampler_create(engine.get(), nullptr, &made_sampler));
    sampler.reset(made_sampler);
    made_sampler = nullptr;
    sluice_chat_options request;
    expect_ok(sluice_chat_options_default(&request, sizeof request));
    request.messages = kMessages;
    expect_ok(sluice_chat_create(engine.get(), &request, &made_chat));
    chat.reset(made_chat);
    made_chat = nullptr;
  }
};

struct Misuse {
  const char* function;
  const char* what;
  std::function<sluice_status(Rig&)> call;
  sluice_status expected = SLUICE_INVALID_ARGUMENT;
};

template <typename T>
T defaults(sluice_status (*fill)(T*, size_t)) {
  T options;
  expect_ok(fill(&options, sizeof options));
  return options;
}

// Passes options with one wrong member to `call`.
template <typename T, typename Change, typename Call>
auto with(sluice_status (*fill)(T*, size_t), Change change, Call call) {
  return [=](Rig& r) {
    T options = defaults(fill);
    change(options);
    return call(r, options);
  };
}

std::vector<Misuse> wrong_loading();
std::vector<Misuse> wrong_questions();  // queries of engines
std::vector<Misuse> wrong_texts();
std::vector<Misuse> wrong_sessions();
std::vector<Misuse> wrong_answers();
std::vector<Misuse> wrong_chats();
std::vector<Misuse> wrong_steps();
std::vector<Misuse> wrong_embeddings();

}  // namespace sluice::test
