// More sessions than fit in memory, through sluice.h. For any calls in any order, each session
// generates what it would alone. A full disk is an error after which all sessions continue, and
// memory use stays that of the sessions in memory.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "../sanitized.h"
#include "api_util.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

class ApiSwap : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "sluice-swap-" + std::to_string(getpid());
  }
  void TearDown() override { fs::remove_all(directory_); }
  sluice_load_options swapping(int32_t sessions) const {
    sluice_load_options options = load_options();
    options.sessions = sessions;
    options.swap_directory = directory_.c_str();
    return options;
  }
  std::string directory_;
};

sluice_stats stats_of(const Engine& engine) {
  sluice_stats stats = {};
  stats.size = sizeof stats;
  expect_ok(sluice_engine_stats(engine.get(), &stats));
  return stats;
}

Tokens answer_of(const Session& session, const Tokens& prompt, int64_t n, sluice_result* result) {
  Greedy greedy(n);
  greedy.options.ignore_eos = 1;
  Tokens out;
  greedy.options.on_token = [](void* user, const sluice_token_event* piece) -> int32_t {
    static_cast<Tokens*>(user)->push_back(piece->token);
    return 0;
  };
  greedy.options.token_user = &out;
  result->size = sizeof *result;
  expect_ok(
      sluice_generate_tokens(session.get(), prompt.data(), prompt.size(), &greedy.options, result));
  return out;
}

std::vector<uint8_t> saved(const Session& session) {
  uint64_t bytes = 0;
  expect_ok(sluice_session_state_bytes(session.get(), &bytes));
  std::vector<uint8_t> out(bytes);
  for (size_t at = 0; at < out.size(); at += 50000) {
    const size_t n = std::min<size_t>(50000, out.size() - at);
    expect_ok(sluice_session_save(session.get(), at, &out[at], n));
  }
  return out;
}

// Also a state that is read from a swap file, which was written before anything was saved.
TEST_F(ApiSwap, ASavedStateBelongsToItsWeights) {
  fs::create_directories(directory_);
  const std::string copy = directory_ + "/other.gguf";
  fs::copy_file(kSample, copy);
  {
    std::fstream file(copy, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(-1, std::ios::end);
    const int last = file.get();
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
  }
  const Engine engine = load(swapping(1)), same = load(), other = load(load_options(), copy);
  const Session first = create(engine), second = create(engine);
  sluice_result result = {};
  answer_of(first, Tokens(40, 7), 1, &result);
  answer_of(second, Tokens(40, 8), 1, &result);
  ASSERT_EQ(stats_of(engine).sessions_swapped, 1u);
  for (const Session* session : {&first, &second}) {
    const std::vector<uint8_t> state = saved(*session);
    const Session to = create(same);
    expect_ok(sluice_session_restore(to.get(), state.data(), state.size()));
    EXPECT_EQ(tokens_of(to), tokens_of(*session));
    const Session foreign = create(other);
    EXPECT_EQ(sluice_session_restore(foreign.get(), state.data(), state.size()), SLUICE_CORRUPT);
    EXPECT_NE(std::string(sluice_last_error()).find("the weights differ"), std::string::npos)
        << sluice_last_error();
    EXPECT_TRUE(tokens_of(foreign).empty());
  }
}

TEST_F(ApiSwap, RandomCallsOnManySessionsEqualThoseOnSingleOnes) {
  const char* const types[] = {"f16", "q8_0", "q4_0", "q2"};
  for (int32_t pool = 1; pool <= 3; ++pool) {
    sluice_load_options options = swapping(pool), alone = load_options();
    options.kv_type = alone.kv_type = types[pool];
    options.draft = pool == 2 ? kSample.c_str() : nullptr;  // with a KV cache of its own
    const Engine engine = load(options), fresh = load(alone);
    sluice_info info = {};
    info.size = sizeof info;
    expect_ok(sluice_engine_info(engine.get(), &info));
    EXPECT_EQ(info.sessions, 512);
    Session truth = create(fresh);
    std::vector<Session> sessions;
    for (int i = 0; i < 7; ++i) sessions.push_back(create(engine));
    std::mt19937 random(7);
    std::vector<uint8_t> state;
    Tokens in_state;
    for (int i = 0; i < 90 && !HasFailure(); ++i) {
      SCOPED_TRACE(std::to_string(pool) + " in memory, call " + std::to_string(i));
      Session& session = sessions[random() % sessions.size()];
      const Tokens held = tokens_of(session);
      const auto kind = random() % 10;
      if (kind < 5) {
        Tokens prompt = held.size() > 90 ? Tokens() : held;
        for (size_t n = 1 + random() % 12; n > 0; --n) {
          prompt.push_back(static_cast<int32_t>(5 + random() % 500));
        }
        sluice_result result = {}, whole = {};
        const Tokens said = answer_of(session, prompt, 5, &result);
        expect_ok(sluice_session_rewind(truth.get(), 0, nullptr));
        EXPECT_EQ(said, answer_of(truth, prompt, 5, &whole));
        if (held.size() <= 90 && !held.empty()) {
          EXPECT_GT(result.cached_tokens, 0);
        }
      } else if (kind == 5) {
        sluice_session* made = nullptr;
        expect_ok(sluice_session_fork(session.get(), &made));
        Session fork(made);
        EXPECT_EQ(tokens_of(fork), held);
        sessions[random() % sessions.size()] = std::move(fork);
      } else if (kind == 6) {
        int32_t reached = -1;
        const int32_t to = static_cast<int32_t>(random() % (held.size() + 1));
        expect_ok(sluice_session_rewind(session.get(), to, &reached));
        EXPECT_LE(reached, to);
        EXPECT_EQ(tokens_of(session), Tokens(held.begin(), held.begin() + reached));
      } else if (kind == 7) {
        state = saved(session);
        in_state = held;
      } else if (kind == 8 && !state.empty()) {
        expect_ok(sluice_session_restore(session.get(), state.data(), state.size()));
        EXPECT_EQ(tokens_of(session), in_state);
      } else if (held.size() < 100) {
        const int32_t more[] = {static_cast<int32_t>(9 + random() % 400), 11};
        expect_ok(sluice_forward(session.get(), more, 2, SLUICE_ALL_LOGITS));
        const std::vector<float> logits = logits_of(session, 1);
        expect_ok(sluice_session_rewind(truth.get(), 0, nullptr));
        if (!held.empty()) {
          expect_ok(sluice_forward(truth.get(), held.data(), held.size(), SLUICE_LAST_LOGITS));
        }
        expect_ok(sluice_forward(truth.get(), more, 2, SLUICE_ALL_LOGITS));
        EXPECT_EQ(logits, logits_of(truth, 1));
      }
    }
    const sluice_stats stats = stats_of(engine);
    EXPECT_GT(stats.sessions_swapped, 0u);
    EXPECT_GT(stats.bytes_swapped_out, stats.bytes_swapped_in);
    EXPECT_GT(stats.bytes_swapped_in, 0u);
    EXPECT_TRUE(fs::is_empty(directory_));
  }
}

TEST_F(ApiSwap, EmbeddingsAndShortSessionsShareTheEngine) {
  const Engine engine = load(swapping(1));
  const Session talk = create(engine), texts = create(engine);
  sluice_result result = {};
  const Tokens prompt = tokenize(engine, kPrompt);
  const Tokens said = answer_of(talk, prompt, 6, &result);
  const Tokens held = tokens_of(talk);
  const char* const text = "a fox and an owl";
  std::vector<float> first(4096), second(4096);
  size_t n = 0;
  expect_ok(sluice_embed(texts.get(), &text, 1, nullptr, first.data(), first.size(), &n));
  EXPECT_EQ(stats_of(engine).sessions_swapped, 1u);
  EXPECT_EQ(tokens_of(talk), held);
  Tokens more = prompt;
  more.insert(more.end(), said.begin(), said.end());
  more.push_back(17);
  answer_of(talk, more, 3, &result);
  EXPECT_EQ(result.cached_tokens, static_cast<int32_t>(held.size()));
  expect_ok(sluice_embed(texts.get(), &text, 1, nullptr, second.data(), second.size(), &n));
  EXPECT_EQ(first, second);
}

TEST_F(ApiSwap, AFullDiskIsAnErrorAndAllContinues) {
  const Engine engine = load(swapping(1));
  const Session one = create(engine), two = create(engine);
  const Tokens prompt = tokenize(engine, kPrompt);
  sluice_result result = {};
  const Tokens said = answer_of(one, prompt, 6, &result);
  const Tokens held = tokens_of(one);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  EXPECT_EQ(sluice_generate_tokens(two.get(), prompt.data(), prompt.size(), nullptr, &result),
            SLUICE_IO);
  EXPECT_NE(std::string(sluice_last_error()).find(directory_), std::string::npos);
  EXPECT_TRUE(tokens_of(two).empty());
  EXPECT_EQ(tokens_of(one), held);
  EXPECT_EQ(stats_of(engine).sessions_swapped, 0u);
  sluice_session* made = nullptr;
  EXPECT_EQ(sluice_session_fork(one.get(), &made), SLUICE_IO);
  EXPECT_EQ(made, nullptr);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(answer_of(two, prompt, 6, &result), said);
  EXPECT_EQ(answer_of(one, prompt, 6, &result), said);
  EXPECT_GT(result.cached_tokens, 0);

  sluice_load_options options = load_options();
  const std::string beneath = kSample + "/swap";  // a path below a file
  options.swap_directory = beneath.c_str();
  sluice_engine* none_made = nullptr;
  EXPECT_EQ(sluice_load(kSample.c_str(), &options, &none_made), SLUICE_IO);
  options.swap_directory = "";
  EXPECT_EQ(sluice_load(kSample.c_str(), &options, &none_made), SLUICE_INVALID_ARGUMENT);
}

// Sessions are swapped in while other threads cancel them.
TEST_F(ApiSwap, ASessionSurvivesCancellationAtAnyMoment) {
  const Engine engine = load(swapping(1));
  std::vector<Session> sessions;
  std::vector<Tokens> said;
  const Tokens prompt = tokenize(engine, kPrompt);
  sluice_result result = {};
  for (int i = 0; i < 4; ++i) {
    sessions.push_back(create(engine));
    Tokens own = prompt;
    own.push_back(20 + i);
    said.push_back(answer_of(sessions.back(), own, 6, &result));
  }
  std::atomic<bool> over{false};
  std::thread canceller([&] {
    for (size_t i = 0; !over; ++i) expect_ok(sluice_session_cancel(sessions[i % 4].get()));
  });
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const int32_t token = 30;
        const sluice_status status =
            sluice_forward(sessions[t].get(), &token, 1, SLUICE_LAST_LOGITS);
        EXPECT_TRUE(status == SLUICE_OK || status == SLUICE_ABORTED) << sluice_last_error();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  canceller.join();
  for (size_t t = 0; t < 4; ++t) {
    Tokens own = prompt;
    own.push_back(20 + static_cast<int32_t>(t));
    EXPECT_EQ(answer_of(sessions[t], own, 6, &result), said[t]);
    EXPECT_GT(result.cached_tokens, 0);
  }
}

// Peak RSS of a process that loads the sample and runs `work`.
uint64_t peak_of(const sluice_load_options& options, void (*work)(const Engine&)) {
  const pid_t child = fork();
  if (child == 0) {
    {
      const Engine engine = load(options);
      work(engine);
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  EXPECT_EQ(status, 0);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

void talk(const Engine& engine, int n) {
  std::vector<Session> sessions;
  Tokens text(500);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(5 + i % 300);
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < n; ++i) {
      if (turn == 0) sessions.push_back(create(engine));
      text.back() = i + 20 * turn;
      sluice_result result = {};
      answer_of(sessions[static_cast<size_t>(i)], text, 2, &result);
      EXPECT_TRUE(turn == 0 || result.cached_tokens == 499);
    }
  }
}

TEST_F(ApiSwap, ManySessionsUseTheMemoryOfThoseInTheEngine) {
#if defined(__APPLE__)
  GTEST_SKIP() << "peak RSS has another unit here";
#endif
  if (kSanitized) GTEST_SKIP() << "sanitizers allocate memory themselves";
  sluice_load_options options = load_options();
  options.n_ctx = 512;
  options.draft = nullptr;
  const uint64_t few = peak_of(options, [](const Engine& engine) { talk(engine, 2); });
  options.swap_directory = directory_.c_str();
  const uint64_t many = peak_of(options, [](const Engine& engine) { talk(engine, 60); });
  const Engine engine = load(options);
  const Session session = create(engine);
  sluice_result result = {};
  Tokens text(500, 7);
  answer_of(session, text, 1, &result);
  const uint64_t each = saved(session).size();
  std::printf("2 sessions %llu bytes, 60 of %llu bytes each %llu\n",
              static_cast<unsigned long long>(few), static_cast<unsigned long long>(each),
              static_cast<unsigned long long>(many));
  EXPECT_LT(many, few + (1 << 20));
  EXPECT_GT(58 * each, 4u << 20);
}

}  // namespace
}  // namespace sluice::test
