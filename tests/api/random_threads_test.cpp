// Random calls of sluice.h from several threads at once on one engine: generate, cancel, save,
// restore, fork, rewind, free, and changes of the budget. Where a result is defined it is the same
// as that of the calls one after another on an engine of its own.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "../random_sequence.h"
#include "../sanitized.h"
#include "api_util.h"

namespace sluice::test {
namespace {

using Random = std::mt19937_64;
using TokenList = std::vector<int32_t>;

// A generation that has run, to be compared later.
struct Generated {
  TokenList prompt, tokens;
  bool cut = false;  // a prefix only
};

// One thread with a session of its own. Others may cancel its calls.
class ThreadOfCalls {
 public:
  explicit ThreadOfCalls(sluice_engine* engine) {
    expect_ok(sluice_session_create(engine, &session_));
  }
  ~ThreadOfCalls() { expect_ok(sluice_session_free(session_)); }
  ThreadOfCalls(const ThreadOfCalls&) = delete;
  ThreadOfCalls& operator=(const ThreadOfCalls&) = delete;

  void call(const Random& random) {
    random_ = random;
    const uint64_t kind = random_() % 9;
    if (kind < 4) {
      generate();
    } else if (kind == 4) {
      save();
    } else if (kind == 5) {
      restore();
    } else if (kind == 6) {
      fork();
    } else if (kind == 7) {
      rewind();
    } else {
      forward();
    }
  }
  void cancel() {
    const std::lock_guard<std::mutex> lock(handle_);
    expect_ok(sluice_session_cancel(session_));
  }
  [[nodiscard]] const std::vector<Generated>& generated() const { return generated_; }

 private:
  // A call that another thread may have ended.
  static bool done(sluice_status status) {
    if (status != SLUICE_ABORTED) expect_ok(status);
    return status == SLUICE_OK;
  }
  TokenList held() {
    size_t n = 0;
    expect_ok(sluice_session_tokens(session_, nullptr, 0, &n));
    TokenList out(n);
    if (n > 0) expect_ok(sluice_session_tokens(session_, out.data(), n, &n));
    return out;
  }
  TokenList prompt() {
    TokenList out = held();
    if (out.size() > 80 || random_() % 4 == 0) out.clear();
    for (size_t n = 1 + random_() % 10; n > 0; --n)
      out.push_back(static_cast<int32_t>(5 + random_() % 500));
    return out;
  }

  void generate() {
    Greedy greedy(1 + static_cast<int64_t>(random_() % 5));
    greedy.options.ignore_eos = 1;
    Generated g;
    g.prompt = prompt();
    greedy.options.on_token = [](void* user, const sluice_token_event* event) -> int32_t {
      static_cast<TokenList*>(user)->push_back(event->token);
      return 0;
    };
    greedy.options.token_user = &g.tokens;
    sluice_result result = {};
    result.size = sizeof result;
    const sluice_status status = sluice_generate_tokens(session_, g.prompt.data(), g.prompt.size(),
                                                        &greedy.options, &result);
    if (!done(status)) return;
    g.cut = result.finish == SLUICE_FINISH_CANCELLED;
    EXPECT_TRUE(g.cut || g.tokens.size() == static_cast<size_t>(greedy.options.max_tokens));
    generated_.push_back(std::move(g));
  }

  void save() {
    uint64_t bytes = 0;
    if (!done(sluice_session_state_bytes(session_, &bytes))) return;
    std::vector<uint8_t> out(bytes);
    for (size_t at = 0; at < out.size();) {
      const size_t n = std::min<size_t>(1 + random_() % 90'000, out.size() - at);
      if (!done(sluice_session_save(session_, at, &out[at], n))) return;
      at += n;
    }
    state_ = std::move(out);
    in_state_ = held();
  }

  void restore() {
    if (state_.empty()) return;
    if (random_() % 4 == 0) {
      std::vector<uint8_t> damaged = state_;
      damaged[random_() % damaged.size()] ^= 1;
      const sluice_status status = sluice_session_restore(session_, damaged.data(), damaged.size());
      EXPECT_TRUE(status == SLUICE_CORRUPT || status == SLUICE_CONTEXT_FULL ||
                  status == SLUICE_ABORTED)
          << sluice_status_name(status);
      EXPECT_EQ(held(), TokenList());
      return;
    }
    if (done(sluice_session_restore(session_, state_.data(), state_.size()))) {
      EXPECT_EQ(held(), in_state_);
    }
  }

  void fork() {
    const TokenList before = held();
    sluice_session* made = nullptr;
    if (!done(sluice_session_fork(session_, &made))) return;
    {
      const std::lock_guard<std::mutex> lock(handle_);  // nobody cancels what is freed
      std::swap(session_, made);
    }
    expect_ok(sluice_session_free(made));
    EXPECT_EQ(held(), before);
  }

  void rewind() {
    const TokenList before = held();
    int32_t reached = 0;
    const auto to = static_cast<int32_t>(random_() % (before.size() + 1));
    if (!done(sluice_session_rewind(session_, to, &reached))) return;
    EXPECT_LE(reached, to);
    EXPECT_EQ(held(), TokenList(before.begin(), before.begin() + reached));
  }

  // Its logits are lost when another thread computes.
  void forward() {
    if (held().size() > 100) return;
    const int32_t more[] = {static_cast<int32_t>(9 + random_() % 400), 11};
    if (!done(sluice_forward(session_, more, 2, SLUICE_LAST_LOGITS))) return;
    size_t n = 0;
    std::vector<float> logits(1 << 16);
    const sluice_status status = sluice_logits(session_, 0, logits.data(), logits.size(), &n);
    EXPECT_TRUE(status == SLUICE_OK || status == SLUICE_INVALID_ARGUMENT)
        << sluice_status_name(status);
  }

  Random random_;
  std::mutex handle_;
  sluice_session* session_ = nullptr;
  std::vector<uint8_t> state_;
  TokenList in_state_;
  std::vector<Generated> generated_;
};

void call_engine(sluice_engine* engine, Random random) {
  sluice_info info = {};
  info.size = sizeof info;
  expect_ok(sluice_engine_info(engine, &info));
  sluice_stats stats = {};
  stats.size = sizeof stats;
  expect_ok(sluice_engine_stats(engine, &stats));
  const uint64_t budget = random() % 3 == 0 ? 0 : info.memory_minimum + random() % 2'000'000;
  const sluice_status status = sluice_engine_set_memory_budget(engine, budget);
  EXPECT_TRUE(status == SLUICE_OK || status == SLUICE_BUDGET_TOO_SMALL)
      << sluice_status_name(status) << ": " << sluice_last_error();
  expect_ok(sluice_engine_info(engine, &info));
  EXPECT_TRUE(info.memory_budget == 0 || info.memory_total <= info.memory_budget);
}

// What the session of one engine generates for a whole prompt.
class OneByOne {
 public:
  OneByOne() : engine_(load()), session_(create(engine_)) {}
  void compare(const Generated& g) {
    expect_ok(sluice_session_rewind(session_.get(), 0, nullptr));
    TokenList tokens;
    Greedy greedy(static_cast<int64_t>(g.tokens.size()));
    greedy.options.ignore_eos = 1;
    greedy.options.on_token = [](void* user, const sluice_token_event* event) -> int32_t {
      static_cast<TokenList*>(user)->push_back(event->token);
      return 0;
    };
    greedy.options.token_user = &tokens;
    expect_ok(sluice_generate_tokens(session_.get(), g.prompt.data(), g.prompt.size(),
                                     &greedy.options, nullptr));
    EXPECT_EQ(g.tokens, tokens) << "after " << g.prompt.size() << " tokens";
  }

 private:
  Engine engine_;
  Session session_;
};

constexpr size_t kThreads = 3;

void run_threads(RandomSequence& sequence, OneByOne& truth, const std::string& directory) {
  Random random = sequence.setup();
  sluice_load_options options = load_options();
  const bool swaps = random() % 2 == 0;
  options.sessions = swaps ? 2 : 2 * static_cast<int32_t>(kThreads);  // forks need more
  if (swaps) options.swap_directory = directory.c_str();
  options.threads = 1 + static_cast<int32_t>(random() % 2);
  if (random() % 4 == 0) options.draft = "ngram";
  Engine engine = load(options);
  ASSERT_NE(engine, nullptr);
  const bool frees_early = random() % 2 == 0;

  std::vector<Random> plans[kThreads];
  sequence.run([&](Random& operation) {
    std::vector<Random>& plan = plans[operation() % kThreads];
    plan.push_back(operation);
    sequence.note("thread " + std::to_string(&plan - plans));
  });
  std::vector<std::unique_ptr<ThreadOfCalls>> calls;
  for (size_t t = 0; t < kThreads; ++t)
    calls.push_back(std::make_unique<ThreadOfCalls>(engine.get()));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (Random operation : plans[t]) {
        const uint64_t kind = operation() % 12;
        if (kind < 9) {
          calls[t]->call(operation);
        } else if (kind < 11 && t == 0) {
          call_engine(engine.get(), operation);
        } else {
          calls[operation() % kThreads]->cancel();
        }
      }
      if (t == 0 && frees_early) engine.reset();  // sessions keep the model
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& thread : calls) {
    for (const Generated& g : thread->generated()) truth.compare(g);
  }
  if (random() % 2 == 0) engine.reset();
}

TEST(ApiThreads, RandomCallsAtOnceEqualThoseOneAfterAnother) {
  const std::string directory = testing::TempDir() + "sluice-threads-" + std::to_string(getpid());
  OneByOne truth;
  run_random_sequences(kSanitized ? 4 : 20, 24,
                       [&](RandomSequence& sequence) { run_threads(sequence, truth, directory); });
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace sluice::test
