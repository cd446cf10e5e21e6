// What sluice.h promises to programs that use it correctly: generation equals the same steps taken
// one by one; sessions fork, rewind and are saved; calls can be cancelled; an engine's reports add
// up.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "api_util.h"
#include "base/status.h"

namespace sluice::test {
namespace {

TEST(Api, CodesAreThoseOfTheEngine) {
  for (int32_t code = SLUICE_OK; code <= SLUICE_MEDIA_MISSING; ++code) {
    EXPECT_STREQ(sluice_status_name(code), code_name(static_cast<Code>(code)));
  }
  EXPECT_STREQ(sluice_status_name(SLUICE_BUDGET_TOO_SMALL), "BUDGET_TOO_SMALL");
  EXPECT_STREQ(sluice_status_name(SLUICE_ABORTED), "ABORTED");
  EXPECT_STREQ(sluice_status_name(SLUICE_NOT_IN_BUILD), "NOT_IN_BUILD");
  // The engine has no code that sluice.h lacks: any code beyond is INTERNAL.
  EXPECT_STREQ(code_name(static_cast<Code>(SLUICE_MEDIA_MISSING + 1)), "INTERNAL");
  EXPECT_STREQ(sluice_status_name(-1), "UNKNOWN");
  EXPECT_STREQ(sluice_status_name(SLUICE_MEDIA_MISSING + 1), "UNKNOWN");
  EXPECT_STRNE(sluice_version(), "");
}

TEST(Api, GenerateEqualsForwardAndSample) {
  const Engine engine = load();
  const Session session = create(engine);
  sluice_sampling sampling;
  expect_ok(sluice_sampling_default(&sampling, sizeof sampling));
  sluice_generate_options options;
  expect_ok(sluice_generate_options_default(&options, sizeof options));
  options.sampling = &sampling;
  options.max_tokens = 30;
  const Answer whole = answer(session, kPrompt, options);
  expect_ok(whole.status);
  EXPECT_EQ(whole.result.finish, SLUICE_FINISH_LENGTH);
  EXPECT_EQ(whole.result.generated_tokens, 30);
  EXPECT_EQ(whole.result.stop_index, -1);
  EXPECT_GT(whole.result.tokens_per_second, 0);

  const Session other = create(engine);
  sluice_sampler* made = nullptr;
  expect_ok(sluice_sampler_create(engine.get(), &sampling, &made));
  const Sampler sampler(made);
  std::vector<int32_t> history = tokenize(engine, kPrompt);
  EXPECT_EQ(whole.result.prompt_tokens, static_cast<int32_t>(history.size()));
  std::vector<int32_t> next = history, chosen;
  for (int i = 0; i < 30; ++i) {
    expect_ok(sluice_forward(other.get(), next.data(), next.size(), SLUICE_LAST_LOGITS));
    const std::vector<float> logits = logits_of(other);
    next.resize(1);
    expect_ok(sluice_sampler_sample(made, logits.data(), logits.size(), history.data(),
                                    history.size(), next.data()));
    chosen.push_back(next[0]);
    history.push_back(next[0]);
  }
  EXPECT_EQ(whole.tokens, chosen);
  size_t n = 0;
  std::string text(whole.text.size() + 1, '?');
  expect_ok(sluice_detokenize(engine.get(), chosen.data(), chosen.size(), 1, text.data(),
                              text.size(), &n));
  EXPECT_NE(whole.text.find(text.substr(1, n - 1)), std::string::npos);
  // A buffer of exactly the text's length gets no terminating zero.
  std::string exact(n + 1, '?');
  expect_ok(sluice_detokenize(engine.get(), chosen.data(), chosen.size(), 1, exact.data(), n, &n));
  EXPECT_EQ(exact, text.substr(0, n) + "?");
  // The session holds all but the last token.
  history.pop_back();
  EXPECT_EQ(tokens_of(session), history);
}

TEST(Api, TheSeedIsRandomUnlessItIsGiven) {
  const Engine engine = load();
  const auto tokens = [&](const sluice_sampling* sampling) {
    sluice_generate_options options;
    expect_ok(sluice_generate_options_default(&options, sizeof options));
    options.sampling = sampling;
    options.max_tokens = 40;
    options.ignore_eos = 1;
    const Answer whole = answer(create(engine), kPrompt, options);
    expect_ok(whole.status);
    return whole.tokens;
  };
  const auto fresh = [] {
    sluice_sampling out;
    expect_ok(sluice_sampling_default(&out, sizeof out));
    out.temperature = 5;  // no two seeds choose the same 40 tokens
    out.top_k = 0;
    out.top_p = 1;
    out.min_p = 0;
    return out;
  };
  const sluice_sampling first = fresh(), second = fresh();
  EXPECT_NE(first.seed, second.seed);
  EXPECT_NE(tokens(&first), tokens(&second));
  EXPECT_EQ(tokens(&first), tokens(&first));
  sluice_sampling again = second;
  again.seed = first.seed;
  EXPECT_EQ(tokens(&again), tokens(&first));
  // Without sampling options the defaults are used, with a random seed. These are not as hot, so
  // some pairs are alike.
  std::set<std::vector<int32_t>> different;
  for (int i = 0; i < 8; ++i) different.insert(tokens(nullptr));
  EXPECT_GT(different.size(), 1u);
}

TEST(Api, AFollowUpComputesOnlyNewTokens) {
  const Engine engine = load();
  const Session session = create(engine);
  const Greedy greedy(8);
  const Answer first = answer(session, kPrompt, greedy.options);
  const Answer again = answer(session, kPrompt + first.text + " and", greedy.options);
  EXPECT_GE(again.result.cached_tokens, first.result.prompt_tokens);
  const Session fresh = create(engine);
  EXPECT_EQ(answer(fresh, kPrompt + first.text + " and", greedy.options).text, again.text);
}

TEST(Api, LogitsOfAllTokensEqualThoseOfSingleTokens) {
  const Engine engine = load();
  const Session session = create(engine), other = create(engine);
  std::vector<int32_t> tokens = tokenize(engine, kPrompt);
  tokens.resize(6);
  expect_ok(sluice_forward(session.get(), tokens.data(), tokens.size(), SLUICE_ALL_LOGITS));
  std::vector<std::vector<float>> rows;
  for (int32_t i = 0; i < 6; ++i) rows.push_back(logits_of(session, i));
  for (int32_t i = 0; i < 6; ++i) {
    expect_ok(sluice_forward(other.get(), &tokens[static_cast<size_t>(i)], 1, SLUICE_LAST_LOGITS));
    EXPECT_EQ(logits_of(other), rows[static_cast<size_t>(i)]);
  }
}

TEST(Api, SessionsForkRewindAndAreSaved) {
  const Engine engine = load();
  Session session = create(engine);
  const Greedy greedy(12);
  const Answer first = answer(session, kPrompt, greedy.options);
  const std::vector<int32_t> held = tokens_of(session);

  sluice_session* made = nullptr;
  expect_ok(sluice_session_fork(session.get(), &made));
  Session fork(made);
  EXPECT_EQ(tokens_of(fork), held);
  const std::string more = kPrompt + first.text + " But";
  const Answer forked = answer(fork, more, greedy.options);
  EXPECT_GT(forked.result.cached_tokens, first.result.prompt_tokens);
  EXPECT_EQ(tokens_of(session), held);

  uint64_t bytes = 0;
  expect_ok(sluice_session_state_bytes(session.get(), &bytes));
  std::vector<uint8_t> state(bytes);
  const size_t half = state.size() / 2;  // in two parts
  expect_ok(sluice_session_save(session.get(), 0, state.data(), half));
  expect_ok(sluice_session_save(session.get(), half, state.data() + half, state.size() - half));
  expect_ok(sluice_session_restore(fork.get(), state.data(), state.size()));
  EXPECT_EQ(tokens_of(fork), held);
  EXPECT_EQ(answer(fork, more, greedy.options).text, forked.text);

  state[state.size() / 2] ^= 1;
  EXPECT_EQ(sluice_session_restore(fork.get(), state.data(), state.size()), SLUICE_CORRUPT);
  EXPECT_TRUE(tokens_of(fork).empty());

  int32_t reached = -1;
  expect_ok(sluice_session_rewind(session.get(), 4, &reached));
  EXPECT_EQ(reached, 4);
  EXPECT_EQ(tokens_of(session), std::vector<int32_t>(held.begin(), held.begin() + 4));
  EXPECT_EQ(answer(session, kPrompt, greedy.options).text, first.text);
}

TEST(Api, StopStringsEndGeneration) {
  const Engine engine = load();
  const Session session = create(engine);
  Greedy greedy(24);
  const std::string text = answer(session, kPrompt, greedy.options).text;
  const std::string stop = text.substr(text.size() / 2, 5);
  const char* const stops[] = {"no such text", stop.c_str()};
  greedy.options.stop = stops;
  greedy.options.n_stop = 2;
  const Answer found = answer(session, kPrompt, greedy.options);
  EXPECT_EQ(found.text, text.substr(0, text.find(stop)));
  EXPECT_EQ(found.result.finish, SLUICE_FINISH_STOP);
  EXPECT_EQ(found.result.stop_index, 1);
}

// A control token has no text, yet a stop string with its name stops there.
TEST(Api, StopTokensEndGeneration) {
  const Engine engine = load();
  const Session session = create(engine);
  Greedy greedy(24);
  std::vector<int32_t> tokens;
  const auto note = [&](const sluice_token_event& event) {
    tokens.push_back(event.token);
    return true;
  };
  const std::string text = answer(session, kPrompt, greedy.options, note).text;
  const auto seen = std::find(tokens.begin(), tokens.end(), tokens[8]) - tokens.begin();
  const int32_t stops[] = {tokens[8]};
  greedy.options.stop_tokens = stops;
  greedy.options.n_stop_tokens = 1;
  const Answer found = answer(session, kPrompt, greedy.options);
  EXPECT_EQ(found.result.finish, SLUICE_FINISH_STOP);
  EXPECT_EQ(found.result.stop_index, -1);
  EXPECT_EQ(found.result.generated_tokens, seen);
  EXPECT_EQ(found.text, text.substr(0, found.text.size()));

  constexpr int32_t kUser = 1;  // <|user|>, made the likeliest
  const sluice_logit_bias bias[] = {{kUser, 1000}};
  greedy.sampling.logit_bias = bias;
  greedy.sampling.n_logit_bias = 1;
  const char* const names[] = {"no such text", "<|user|>"};
  greedy.options.n_stop_tokens = 0;
  greedy.options.stop = names;
  for (const int32_t skip : {0, 1}) {
    greedy.options.skip_special_tokens = skip;
    greedy.options.n_stop = 2;
    const Answer stopped = answer(session, kPrompt, greedy.options);
    EXPECT_EQ(stopped.text, "");
    EXPECT_EQ(stopped.result.finish, SLUICE_FINISH_STOP);
    EXPECT_EQ(stopped.result.stop_index, 1);
    EXPECT_EQ(stopped.result.generated_tokens, 0);
    greedy.options.n_stop = 1;
    EXPECT_EQ(answer(session, kPrompt, greedy.options).result.finish, SLUICE_FINISH_LENGTH);
  }
}

TEST(Api, LogprobsComeWithTokens) {
  const Engine engine = load();
  const Session session = create(engine);
  Greedy greedy(6);
  greedy.options.logprobs = 3;
  const Answer found =
      answer(session, kPrompt, greedy.options, [](const sluice_token_event& piece) {
        EXPECT_EQ(piece.n_top, 3u);
        EXPECT_EQ(piece.top[0].token, piece.token);
        EXPECT_EQ(piece.top[0].logprob, piece.logprob);
        EXPECT_LE(piece.top[1].logprob, piece.top[0].logprob);
        return piece.logprob < 0;
      });
  EXPECT_EQ(found.result.generated_tokens, 6);
}

TEST(Api, OutputMatchesTheConstraint) {
  const Engine engine = load();
  const Session session = create(engine);
  Greedy greedy(60);
  greedy.options.constraint = SLUICE_CONSTRAINT_JSON_SCHEMA;
  greedy.options.constraint_text = R"({"type": "array", "items": {"enum": [1, 2]}, "minItems": 2,
                                "maxItems": 2})";
  const Answer found = answer(session, kPrompt, greedy.options);
  expect_ok(found.status);
  EXPECT_TRUE(found.text == "[1,1]" || found.text == "[1,2]" || found.text == "[2,1]" ||
              found.text == "[2,2]")
      << found.text;
  EXPECT_EQ(found.result.finish, SLUICE_FINISH_STOP);
  const std::pair<int32_t, const char*> forms[] = {{SLUICE_CONSTRAINT_GBNF, "root ::= \"yes\""},
                                                   {SLUICE_CONSTRAINT_REGEX, "yes"},
                                                   {SLUICE_CONSTRAINT_CHOICE, "[\"yes\"]"}};
  for (const auto& [form, text] : forms) {
    greedy.options.constraint = form;
    greedy.options.constraint_text = text;
    EXPECT_EQ(answer(session, kPrompt, greedy.options).text, "yes") << text;
  }
  greedy.options.constraint_text = "[1";
  EXPECT_EQ(answer(session, kPrompt, greedy.options).status, SLUICE_GRAMMAR_SYNTAX);
}

// An engine that set nothing aside is planned again within its budget, with the same output.
TEST(Api, TheFirstConstraintPlansTheBudgetAgain) {
  const auto grammar_bytes = [](const Engine& engine) {
    uint64_t bytes = 0;
    expect_ok(sluice_engine_memory(
        engine.get(),
        [](void* user, const char* name, uint64_t n) {
          if (std::string(name) == "grammar") *static_cast<uint64_t*>(user) = n;
        },
        &bytes));
    return bytes;
  };
  const auto least = [](int32_t structured_output) {
    sluice_load_options options = load_options();
    options.structured_output = structured_output;
    const Engine engine = load(options);
    sluice_info info = {};
    info.size = sizeof info;
    expect_ok(sluice_engine_info(engine.get(), &info));
    return info.memory_minimum;
  };
  const uint64_t bare = least(0), with = least(1);
  ASSERT_LT(bare, with);
  const Greedy greedy(12);
  Greedy bound(12);
  bound.options.constraint = SLUICE_CONSTRAINT_REGEX;
  bound.options.constraint_text = "yes|no";
  for (const uint64_t budget : {uint64_t{0}, bare, with, 2 * with}) {
    SCOPED_TRACE(budget);
    sluice_load_options options = load_options();
    options.structured_output = 0;
    options.memory_budget = budget;
    const Engine engine = load(options);
    const Session session = create(engine);
    const std::string text = answer(session, kPrompt, greedy.options).text;
    EXPECT_EQ(grammar_bytes(engine), 0u);
    const Answer found = answer(session, kPrompt, bound.options);
    if (budget == bare) {
      EXPECT_EQ(found.status, SLUICE_BUDGET_TOO_SMALL);
      const std::string message = sluice_last_error();
      EXPECT_NE(message.find(" is " + std::to_string(with) + " bytes"), std::string::npos)
          << message;
      EXPECT_NE(message.find("structured_output"), std::string::npos) << message;
      EXPECT_EQ(grammar_bytes(engine), 0u);
    } else {
      expect_ok(found.status);
      EXPECT_TRUE(found.text == "yes" || found.text == "no") << found.text;
      EXPECT_GT(grammar_bytes(engine), 0u);
    }
    EXPECT_EQ(answer(session, kPrompt, greedy.options).text, text);
  }
}

TEST(Api, ACallbackStopsGenerationAndLoading) {
  const Engine engine = load();
  const Session session = create(engine);
  const Greedy greedy(24);
  int left = 5;
  const Answer cut = answer(session, kPrompt, greedy.options,
                            [&](const sluice_token_event&) { return --left > 0; });
  expect_ok(cut.status);
  EXPECT_EQ(cut.result.finish, SLUICE_FINISH_CANCELLED);
  EXPECT_EQ(cut.tokens.size(), 5u);
  EXPECT_EQ(answer(session, kPrompt, greedy.options).text.substr(0, cut.text.size()), cut.text);

  sluice_load_options options = load_options();
  options.on_progress = [](void* user, uint64_t loaded, uint64_t total) -> int32_t {
    EXPECT_LE(loaded, total);
    ++*static_cast<int*>(user);
    return 1;
  };
  int calls = 0;
  options.progress_user = &calls;
  sluice_engine* none = nullptr;
  EXPECT_EQ(sluice_load(kSample.c_str(), &options, &none), SLUICE_ABORTED);
  EXPECT_EQ(none, nullptr);
  EXPECT_GT(calls, 0);
}

TEST(ApiThreads, CallsAreSerializedAndAnotherThreadCancelsThem) {
  const Engine engine = load();
  const Session session = create(engine), other = create(engine);
  const Greedy greedy(20);
  const std::string expected = answer(session, kPrompt, greedy.options).text;
  expect_ok(sluice_session_rewind(session.get(), 0, nullptr));
  std::thread beside([&] {
    EXPECT_EQ(answer(other, kPrompt, greedy.options).text, expected);
    sluice_stats stats = {};
    stats.size = sizeof stats;
    expect_ok(sluice_engine_stats(engine.get(), &stats));
  });
  EXPECT_EQ(answer(session, kPrompt, greedy.options).text, expected);
  beside.join();

  std::atomic<bool> begun{false};
  std::thread ending([&] {
    while (!begun) std::this_thread::yield();
    expect_ok(sluice_session_cancel(session.get()));
  });
  const Greedy endless(-1);
  const Answer cut = answer(session, kPrompt, endless.options, [&](const sluice_token_event&) {
    begun = true;
    return true;
  });
  ending.join();
  expect_ok(cut.status);
  EXPECT_TRUE(cut.result.finish == SLUICE_FINISH_CANCELLED ||
              cut.result.finish == SLUICE_FINISH_STOP ||
              cut.result.finish == SLUICE_FINISH_CONTEXT);
  // A cancellation affects only calls in progress.
  expect_ok(sluice_session_cancel(session.get()));
  EXPECT_EQ(answer(session, kPrompt, greedy.options).text, expected);
}

TEST(Api, ASessionCancelsItselfFromItsCallback) {
  const Engine engine = load();
  const Session session = create(engine);
  const Answer cut = answer(session, kPrompt, Greedy(24).options, [&](const sluice_token_event&) {
    expect_ok(sluice_session_cancel(session.get()));
    return true;
  });
  EXPECT_EQ(cut.result.finish, SLUICE_FINISH_CANCELLED);
  EXPECT_EQ(cut.tokens.size(), 1u);
}

TEST(Api, TheMemoryReportAddsUpAndFollowsTheBudget) {
  sluice_load_options options = load_options();
  const Engine engine = load(options);
  const Session session = create(engine);
  const Greedy greedy(12);
  const std::string expected = answer(session, kPrompt, greedy.options).text;
  const auto total = [&] {
    uint64_t sum = 0;
    expect_ok(sluice_engine_memory(
        engine.get(),
        [](void* user, const char*, uint64_t bytes) { *static_cast<uint64_t*>(user) += bytes; },
        &sum));
    return sum;
  };
  const auto info = [&] {
    sluice_info out = {};
    out.size = sizeof out;
    expect_ok(sluice_engine_info(engine.get(), &out));
    return out;
  };
  EXPECT_EQ(total(), info().memory_total);
  EXPECT_EQ(info().fully_resident, 1);
  EXPECT_STREQ(info().architecture, "llama");
  EXPECT_EQ(info().n_ctx, 128);
  EXPECT_EQ(info().can_generate, 1);
  const uint64_t least = info().memory_minimum;
  EXPECT_EQ(sluice_engine_set_memory_budget(engine.get(), least - 1), SLUICE_BUDGET_TOO_SMALL);
  EXPECT_EQ(info().memory_budget, 0u);
  expect_ok(sluice_engine_set_memory_budget(engine.get(), least));
  EXPECT_EQ(total(), info().memory_total);
  EXPECT_LE(info().memory_total, least);
  EXPECT_EQ(info().fully_resident, 0);
  expect_ok(sluice_session_rewind(session.get(), 0, nullptr));
  EXPECT_EQ(answer(session, kPrompt, greedy.options).text, expected);
  sluice_stats stats = {};
  stats.size = sizeof stats;
  expect_ok(sluice_engine_stats(engine.get(), &stats));
  EXPECT_EQ(stats.generated_tokens, 24u);
  EXPECT_GT(stats.bytes_read, 1u << 20);
}

TEST(Api, TheTimeOfForwardPassesIsDividedIfAskedFor) {
  for (const int32_t on : {0, 1}) {
    sluice_load_options options = load_options();
    options.time_breakdown = on;
    const Engine engine = load(options);
    const Session session = create(engine);
    const Greedy greedy(8);
    answer(session, kPrompt, greedy.options);
    sluice_stats stats = {};
    stats.size = sizeof stats;
    expect_ok(sluice_engine_stats(engine.get(), &stats));
    const double parts = stats.forward_wait_ms + stats.forward_decompress_ms +
                         stats.forward_projections_ms + stats.forward_ffn_ms +
                         stats.forward_experts_ms + stats.forward_output_ms +
                         stats.forward_attention_ms + stats.forward_other_ms;
    EXPECT_NEAR(parts, stats.forward_ms, 1e-6);
    EXPECT_EQ(stats.forward_ms > 0, on == 1);
    EXPECT_EQ(stats.forward_ffn_ms > 0, on == 1);
    EXPECT_EQ(stats.forward_attention_ms > 0, on == 1);
    EXPECT_EQ(stats.forward_experts_ms, 0);
    EXPECT_LE(stats.forward_ms, stats.prompt_ms + stats.generate_ms);
  }
}

TEST(Api, AReaderProvidesTheModelOrFails) {
  struct File {
    std::ifstream stream{kSample, std::ios::binary};
    std::atomic<bool> broken{false};
  } file;
  sluice_reader reader = {};
  reader.size = sizeof reader;
  file.stream.seekg(0, std::ios::end);
  reader.length = static_cast<uint64_t>(file.stream.tellg());
  reader.serialize_reads = 1;
  reader.user = &file;
  reader.read = [](void* user, uint64_t offset, void* buffer, size_t length) -> int32_t {
    File& f = *static_cast<File*>(user);
    f.stream.seekg(static_cast<std::streamoff>(offset));
    f.stream.read(static_cast<char*>(buffer), static_cast<std::streamsize>(length));
    return f.stream && !f.broken ? 0 : 7;
  };
  const Greedy greedy(12);
  const Engine plain = load();
  const std::string expected = answer(create(plain), kPrompt, greedy.options).text;
  sluice_info info = {};
  info.size = sizeof info;
  expect_ok(sluice_engine_info(plain.get(), &info));
  sluice_load_options options = load_options();
  options.memory_budget = info.memory_minimum;  // so weights are read again and again
  sluice_engine* made = nullptr;
  expect_ok(sluice_load_reader(&reader, &options, &made));
  const Engine engine(made);
  const Session session = create(engine);
  EXPECT_EQ(answer(session, kPrompt, greedy.options).text, expected);
  file.broken = true;
  EXPECT_EQ(answer(session, kPrompt, Greedy(-1).options).status, SLUICE_IO);
  EXPECT_NE(std::string(sluice_last_error()).find("the reader returned 7"), std::string::npos);
  sluice_engine* none = nullptr;
  EXPECT_EQ(sluice_load_reader(&reader, &options, &none), SLUICE_IO);
  EXPECT_EQ(none, nullptr);
}

TEST(Api, InspectReturnsThePlanWithoutLoading) {
  std::map<std::string, std::string> facts;
  const sluice_load_options options = load_options();
  expect_ok(sluice_inspect(
      kSample.c_str(), &options,
      [](void* user, const char* section, const char* key, const char* value) {
        const std::string name = section == nullptr ? "" : std::string(section) + ".";
        (*static_cast<std::map<std::string, std::string>*>(user))[name + key] = value;
      },
      &facts));
  EXPECT_EQ(facts["architecture"], "llama");
  EXPECT_EQ(facts["plan.contextLength"], "128");
  EXPECT_EQ(facts["plan.resident"], "true");
  EXPECT_FALSE(facts["types.Q8_0"].empty());
}

TEST(Api, EmbeddingsDependOnlyOnTheirInput) {
  const Engine engine = load();
  const Session session = create(engine);
  const char* const texts[] = {"A fox was hungry.", "Zoe met a fox in the yard."};
  size_t n = 0;
  expect_ok(sluice_embed(session.get(), texts, 2, nullptr, nullptr, 0, &n));
  sluice_info info = {};
  info.size = sizeof info;
  expect_ok(sluice_engine_info(engine.get(), &info));
  ASSERT_EQ(n, 2 * static_cast<size_t>(info.n_embd));
  std::vector<float> both(n), alone(n / 2);
  expect_ok(sluice_embed(session.get(), texts, 2, nullptr, both.data(), n, &n));
  expect_ok(sluice_embed(session.get(), texts + 1, 1, nullptr, alone.data(), alone.size(), &n));
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), both.begin() + info.n_embd));
  double squares = 0;
  for (const float x : alone) squares += static_cast<double>(x) * x;
  EXPECT_NEAR(squares, 1, 1e-5);
  sluice_embed_options options;
  expect_ok(sluice_embed_options_default(&options, sizeof options));
  options.pooling = SLUICE_POOLING_NONE;
  options.dimensions = 3;
  expect_ok(sluice_embed(session.get(), texts, 1, &options, nullptr, 0, &n));
  EXPECT_EQ(n, 3 * tokenize(engine, texts[0]).size());
  options.dimensions = 0;
  options.pooling = SLUICE_POOLING_RANK;
  options.query = "Who was hungry?";
  EXPECT_EQ(sluice_embed(session.get(), texts, 1, &options, nullptr, 0, &n),
            SLUICE_INVALID_ARGUMENT);  // this model is not a reranker
}

TEST(Api, EmbeddingsOfALanguageModelAreMeans) {
  const Engine engine = load();
  const Session session = create(engine);
  const char* const text = "A fox was hungry.";
  sluice_embed_options options;
  expect_ok(sluice_embed_options_default(&options, sizeof options));
  options.normalize = 0;
  size_t n = 0;
  expect_ok(sluice_embed(session.get(), &text, 1, &options, nullptr, 0, &n));
  const size_t width = n;
  std::vector<float> pooled(n);
  expect_ok(sluice_embed(session.get(), &text, 1, &options, pooled.data(), n, &n));
  options.pooling = SLUICE_POOLING_NONE;
  expect_ok(sluice_embed(session.get(), &text, 1, &options, nullptr, 0, &n));
  const size_t rows = n / width;
  ASSERT_GT(rows, 2u);
  std::vector<float> all(n);
  expect_ok(sluice_embed(session.get(), &text, 1, &options, all.data(), n, &n));
  for (size_t i = 0; i < width; ++i) {
    double sum = 0;
    for (size_t row = 0; row < rows; ++row) sum += static_cast<double>(all[row * width + i]);
    EXPECT_NEAR(pooled[i], sum / static_cast<double>(rows), 1e-4) << i;
  }
}

TEST(Api, HandlesAreFreedInAnyOrder) {
  Engine engine = load();
  sluice_sampler* made = nullptr;
  expect_ok(sluice_sampler_create(engine.get(), nullptr, &made));
  const Sampler sampler(made);
  const Session session = create(engine);
  engine.reset();
  EXPECT_EQ(answer(session, kPrompt, Greedy(4).options).result.generated_tokens, 4);
  const std::vector<float> logits(16);
  int32_t token = 0;
  EXPECT_EQ(sluice_sampler_sample(made, logits.data(), 16, nullptr, 0, &token),
            SLUICE_INVALID_ARGUMENT);
}

TEST(Api, UnknownMembersOfLaterStructVersionsAreErrors) {
  struct Later {
    sluice_generate_options options;
    uint64_t member;
  } later;
  expect_ok(sluice_generate_options_default(&later.options, sizeof later));
  EXPECT_EQ(later.options.size, sizeof later);
  EXPECT_EQ(later.member, 0u);
  later.options.max_tokens = 2;
  const Engine engine = load();
  const Session session = create(engine);
  expect_ok(sluice_generate(session.get(), kPrompt, SLUICE_TERMINATED, &later.options, nullptr));
  later.member = 1;  // this version does not know the member
  EXPECT_EQ(sluice_generate(session.get(), kPrompt, SLUICE_TERMINATED, &later.options, nullptr),
            SLUICE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace sluice::test
