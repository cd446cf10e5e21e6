// Helpers that load and run the sample model through sluice.h.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../paths.h"
#include "api/sluice.h"

namespace sluice::test {

inline const std::string kSample = source_dir() + "/examples/models/sluice-tales-Q8_0.gguf";
inline constexpr const char* kPrompt = "Once upon a time there was a girl";

// Expects the call to succeed; otherwise prints its error.
inline void expect_ok(sluice_status status) {
  EXPECT_EQ(status, SLUICE_OK) << sluice_status_name(status) << ": " << sluice_last_error();
}

struct Free {
  void operator()(sluice_engine* engine) const { sluice_engine_free(engine); }
  void operator()(sluice_session* session) const { expect_ok(sluice_session_free(session)); }
  void operator()(sluice_sampler* sampler) const { sluice_sampler_free(sampler); }
  void operator()(sluice_chat* chat) const { sluice_chat_free(chat); }
};
using Engine = std::unique_ptr<sluice_engine, Free>;
using Session = std::unique_ptr<sluice_session, Free>;
using Sampler = std::unique_ptr<sluice_sampler, Free>;
using Chat = std::unique_ptr<sluice_chat, Free>;

inline sluice_load_options load_options() {
  sluice_load_options options;
  expect_ok(sluice_load_options_default(&options, sizeof options));
  options.n_ctx = 128;
  options.threads = 2;
  options.sessions = 2;
  options.logits_rows = 8;
  options.structured_output = 1;
  return options;
}

inline Engine load(const sluice_load_options& options = load_options(),
                   const std::string& path = kSample) {
  sluice_engine* engine = nullptr;
  expect_ok(sluice_load(path.c_str(), &options, &engine));
  return Engine(engine);
}

inline Session create(const Engine& engine) {
  sluice_session* session = nullptr;
  expect_ok(sluice_session_create(engine.get(), &session));
  return Session(session);
}

inline std::vector<int32_t> tokenize(const Engine& engine, const std::string& text,
                                     uint32_t flags = SLUICE_ADD_SPECIAL) {
  size_t n = 0;
  expect_ok(sluice_tokenize(engine.get(), text.data(), text.size(), flags, nullptr, 0, &n));
  std::vector<int32_t> tokens(n);
  expect_ok(sluice_tokenize(engine.get(), text.data(), text.size(), flags, tokens.data(),
                            tokens.size(), &n));
  return tokens;
}

inline std::vector<int32_t> tokens_of(const Session& session) {
  size_t n = 0;
  expect_ok(sluice_session_tokens(session.get(), nullptr, 0, &n));
  std::vector<int32_t> tokens(n);
  expect_ok(sluice_session_tokens(session.get(), tokens.data(), n, &n));
  return tokens;
}

inline std::vector<float> logits_of(const Session& session, int32_t row = 0) {
  size_t n = 0;
  expect_ok(sluice_logits(session.get(), row, nullptr, 0, &n));
  std::vector<float> logits(n);
  expect_ok(sluice_logits(session.get(), row, logits.data(), n, &n));
  return logits;
}

// Default options with greedy sampling.
struct Greedy {
  sluice_sampling sampling;
  sluice_generate_options options;
  explicit Greedy(int64_t max_tokens) {
    expect_ok(sluice_sampling_default(&sampling, sizeof sampling));
    sampling.temperature = 0;
    expect_ok(sluice_generate_options_default(&options, sizeof options));
    options.max_tokens = max_tokens;
    options.sampling = &sampling;
  }
  Greedy(const Greedy&) = delete;
  Greedy& operator=(const Greedy&) = delete;
};

struct Answer {
  sluice_status status = SLUICE_OK;
  sluice_result result = {};
  std::string text;
  std::vector<int32_t> tokens;
};

// Generates. `each`, if given, is called with every token event; returning false stops.
inline Answer answer(const Session& session, const std::string& prompt,
                     sluice_generate_options options,
                     const std::function<bool(const sluice_token_event&)>& each = nullptr) {
  struct Told {
    Answer answer;
    const std::function<bool(const sluice_token_event&)>& each;
  } told{{}, each};
  options.on_token = [](void* user, const sluice_token_event* piece) -> int32_t {
    Told& t = *static_cast<Told*>(user);
    t.answer.text.append(piece->text, piece->length);
    t.answer.tokens.push_back(piece->token);
    EXPECT_EQ(piece->text[piece->length], '\0');
    return t.each && !t.each(*piece) ? 1 : 0;
  };
  options.token_user = &told;
  told.answer.result.size = sizeof told.answer.result;
  told.answer.status =
      sluice_generate(session.get(), prompt.data(), prompt.size(), &options, &told.answer.result);
  return told.answer;
}

}  // namespace sluice::test
