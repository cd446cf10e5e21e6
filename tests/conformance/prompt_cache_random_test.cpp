// The prompt cache under random faults: processes that save prompts and are killed at a random
// moment or byte, a full disk, a second process, damaged entries. Whatever came before, a prompt
// has the logits that it has without a cache, and the next process leaves nothing of a killed one
// behind.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>

#include "../random_sequence.h"
#include "file_limit_util.h"
#include "fixtures_util.h"
#include "native/prompt_cache.h"

#if !defined(_WIN32)
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;
using Tokens = std::vector<int32_t>;

// Attention alone, and a recurrent state, which cannot be rewound to any prefix.
const char* const kModels[] = {"arch/llama-gqa", "families/lfm2"};

class PromptCacheRandom : public testing::Test {
 protected:
  struct Model {
    Opened fresh, cached;
    std::map<Tokens, std::vector<float>> logits;  // without a cache
  };

  void SetUp() override {
    directory_ = testing::TempDir() + "sluice-prompts-random-" + std::to_string(::getpid());
    fs::remove_all(directory_);
    for (const std::string name : kModels) {
      const size_t slash = name.find('/');
      const std::string path = fixture_folder(name.substr(0, slash)) + name.substr(slash) + ".gguf";
      session::EngineOptions options;
      options.n_threads = 1;  // children have only the thread that forks
      options.n_ctx = 400;
      models_.push_back({open_model(path, options), open_model(path, options), {}});
    }
  }
  void TearDown() override { fs::remove_all(directory_); }

  native::PromptCache cache(Model& model) {
    auto made = native::PromptCache::open(directory_, max_bytes_, *model.cached.model);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }

  // One of a few texts, whose beginnings are equal.
  static Tokens text(Random& random) {
    const size_t n = 1 + random() % (random() % 2 == 0 ? 30 : 160);
    const int32_t kind = static_cast<int32_t>(random() % 3);
    Tokens out;
    for (size_t i = 0; i < n; ++i) {
      const int32_t differs = i > 40 ? kind : 0;
      out.push_back(static_cast<int32_t>((i * 7 + i / 5) % 80) + differs);
    }
    return out;
  }

  const std::vector<float>& expected(Model& model, const Tokens& tokens) {
    std::vector<float>& known = model.logits[tokens];
    if (known.empty()) {
      model.fresh.session->clear();
      known = logits_after(model.fresh, tokens);
    }
    return known;
  }

  // What a process does with one prompt: restore, compute, save.
  void use(Model& model, const Tokens& tokens, bool saves, bool disk_full = false) {
    model.cached.session->clear();
    native::PromptCache prompts = cache(model);
    const Result<int32_t> found = prompts.restore(*model.cached.session, tokens);
    if (!found.ok()) {
      ASSERT_TRUE(damaged_) << found.status().message();
      ASSERT_EQ(found.status().code(), Code::kCorrupt) << found.status().message();
    }
    ASSERT_EQ(logits_after(model.cached, tokens), expected(model, tokens));
    if (!saves) return;
    const Status saved = prompts.save(*model.cached.session);
    if (!disk_full) {
      ASSERT_TRUE(saved.ok()) << saved.message();
    }
  }

  // Saves prompts like another process, which ends in any way.
  [[noreturn]] void save_in_child(Model& model, uint64_t seed) {
    Random random(seed);
    const uint64_t how = random() % 8;
    rlimit limit{random() % 200'000, RLIM_INFINITY};
    if (how < 3) {  // killed at a byte
      std::signal(SIGXFSZ, SIG_DFL);
      rlimit none{0, 0};
      ::setrlimit(RLIMIT_CORE, &none);
      ::setrlimit(RLIMIT_FSIZE, &limit);
    } else if (how == 3) {  // a full disk
      std::signal(SIGXFSZ, SIG_IGN);
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    for (int i = 0; i < 2; ++i) {
      const Tokens tokens = text(random);
      model.cached.session->clear();
      logits_after(model.cached, tokens);
      auto prompts = native::PromptCache::open(directory_, max_bytes_, *model.cached.model);
      if (!prompts.ok()) ::_exit(1);
      if (how > 3 && how < 7) {  // killed at a moment
        itimerval timer{};
        timer.it_value.tv_usec = static_cast<suseconds_t>(1 + random() % 1500);
        ::setitimer(ITIMER_REAL, &timer, nullptr);
      }
      const Status saved = prompts->save(*model.cached.session);
      if (!saved.ok() && how != 3) ::_exit(2);
    }
    ::_exit(0);
  }
  pid_t begin_child(Model& model, uint64_t seed) {
    const pid_t child = ::fork();
    if (child == 0) save_in_child(model, seed);
    EXPECT_GT(child, 0);
    return child;
  }
  static void end_child(pid_t child) {
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    const bool ended = WIFEXITED(state) && WEXITSTATUS(state) == 0;
    const bool killed =
        WIFSIGNALED(state) && (WTERMSIG(state) == SIGALRM || WTERMSIG(state) == SIGXFSZ);
    ASSERT_TRUE(ended || killed) << state;
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    if (!fs::exists(directory_)) return out;
    for (const auto& entry : fs::directory_iterator(directory_)) out.push_back(entry.path());
    return out;
  }

  void damage(Random& random) {
    const std::vector<fs::path> all = files();
    if (all.empty()) return;
    damaged_ = true;
    const fs::path& path = all[random() % all.size()];
    const uint64_t size = fs::file_size(path);
    if (size == 0 || random() % 3 == 0) {
      fs::resize_file(path, random() % (size + 100));
      return;
    }
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    const auto at =
        static_cast<std::streamoff>(random() % std::min<uint64_t>(size, random() % 2 ? 200 : size));
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ (1 << random() % 8)));
  }

  // Files as if the time had passed that the clocks of file systems need to tell them apart.
  void age() const {
    for (const fs::path& file : files()) {
      std::error_code gone;
      fs::last_write_time(file, fs::last_write_time(file, gone) - std::chrono::seconds(10), gone);
    }
  }

  void sequence(RandomSequence& run) {
    fs::remove_all(directory_);
    damaged_ = false;
    Random setup = run.setup();
    max_bytes_ = 200'000 + setup() % 300'000;  // the longest prompt fits
    run.run([&](Random& random) {
      Model& model = models_[random() % models_.size()];
      const uint64_t what = random() % 8;
      const pid_t child = random() % 4 > 0 ? begin_child(model, random()) : 0;
      if (child > 0) run.note("a process that saves prompts");
      if (what < 4) {
        run.note("a prompt");
        use(models_[random() % models_.size()], text(random), random() % 2 == 0);
      } else if (what == 4) {
        run.note("a prompt on a full disk");
        const FileLimit limit(random() % 100'000);
        use(model, text(random), true, true);
      } else if (what == 5) {
        run.note("damage");
        damage(random);
      }
      if (child > 0) end_child(child);
      age();
    });
    if (run.failed()) return;
    run.begin_part("the next process");
    Random random = run.setup();
    for (Model& model : models_) {
      Tokens tokens = text(random);
      while (tokens.size() < 40) tokens.push_back(5);
      use(model, tokens, true);
      model.cached.session->clear();
      const Result<int32_t> found = cache(model).restore(*model.cached.session, tokens);
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_EQ(*found, static_cast<int32_t>(tokens.size()));
    }
    uint64_t bytes = 0;
    for (const fs::path& file : files()) {
      EXPECT_EQ(file.extension(), ".session") << file;
      bytes += fs::file_size(file);
    }
    EXPECT_LE(bytes, max_bytes_);
  }

  std::vector<Model> models_;
  std::string directory_;
  uint64_t max_bytes_ = 0;
  bool damaged_ = false;
};

TEST_F(PromptCacheRandom, APromptHasTheSameLogitsWhateverHappensToItsEntries) {
  run_random_sequences(12, 12, [&](RandomSequence& run) { sequence(run); });
}

}  // namespace
}  // namespace sluice::test
#endif
