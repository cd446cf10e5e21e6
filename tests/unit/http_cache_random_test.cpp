// The cache of remote files under random faults: processes that write the same entry and are killed
// at a random moment, a full disk in either process, damaged bytes, a file replaced on the server,
// several readers, and entries deleted while they are in use. Whatever came before, every byte read
// is right, and the next process completes the entry.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "../conformance/file_limit_util.h"
#include "../random_sequence.h"
#include "http_cache_fixture.h"

namespace sluice::io {
namespace {

using Random = std::mt19937_64;

class HttpCacheRandom : public HttpCacheTest {
 protected:
  static constexpr uint64_t kLength = kBlock + 3 * kChunk + 70'000;

  // Writes chunks as the source does. Ends in any of these ways: done, at a full disk, killed.
  [[noreturn]] void write_in_child(uint64_t seed) {
    Random random(seed);
    if (random() % 4 > 0) {  // at a random moment, without cleaning up
      itimerval timer{};
      timer.it_value.tv_usec =
          static_cast<suseconds_t>(1 + random() % (random() % 2 == 0 ? 500 : 9000));
      ::setitimer(ITIMER_REAL, &timer, nullptr);
    } else if (random() % 2 == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{random() % kLength, RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    auto store = ChunkStore::create(options_.cache_dir, version(file_.size()));
    if (!store.ok()) ::_exit(0);
    const auto* bytes = reinterpret_cast<const uint8_t*>(file_.data());
    for (uint64_t i = 0, first = random(); i < (*store)->n_blocks(); ++i) {
      const uint64_t block = (first + i) % (*store)->n_blocks();
      const auto lock = (*store)->lock(block, [&] { return (*store)->has_block(block); });
      for (const ChunkStore::Run& run : (*store)->missing(block)) {
        ChunkStore::Writer writer(store->get(), run.first);
        const uint64_t end = std::min(run.end * kChunk, kLength);
        for (uint64_t at = run.first * kChunk; at < end;) {
          const uint64_t n = std::min(1 + random() % 700'000, end - at);
          if (!writer.append({bytes + at, static_cast<size_t>(n)})) break;
          at += n;
        }
      }
    }
    ::_exit(0);
  }

  // A writer in another process. A thread waits for its end, so that its locks die with it.
  class Child {
   public:
    explicit Child(pid_t process)
        : waiter_([this, process] { good_ = ::waitpid(process, &state_, 0) == process; }) {}
    ~Child() {
      waiter_.join();
      EXPECT_TRUE(good_);
      EXPECT_TRUE(WIFEXITED(state_) ? WEXITSTATUS(state_) == 0 : WTERMSIG(state_) == SIGALRM)
          << state_;
    }

   private:
    int state_ = 0;
    bool good_ = false;
    std::thread waiter_;
  };
  std::unique_ptr<Child> begin_child(uint64_t seed) {
    const pid_t process = ::fork();
    if (process == 0) write_in_child(seed);
    EXPECT_GT(process, 0);
    return std::make_unique<Child>(process);
  }

  void read_some(Random& random) {
    if (source_ == nullptr || random() % 4 == 0) open();
    for (uint64_t i = 1 + random() % 4; i > 0; --i) {
      const uint64_t length = 1 + random() % (random() % 3 == 0 ? kLength : 100'000);
      expect_read(random() % (kLength - length + 1), length);
    }
  }

  void read_by_two(Random& random) {
    auto other = open_source(server_->url(), options_);
    ASSERT_TRUE(other.ok()) << other.status().message();
    if (source_ == nullptr) open();
    const uint64_t seed = random();
    std::thread beside([&] { read_some_of(**other, seed); });
    read_some_of(*source_, seed + 1);
    beside.join();
  }
  void read_some_of(ByteSource& source, uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 4; ++i) {
      std::vector<uint8_t> out(static_cast<size_t>(1 + random() % 300'000));
      const uint64_t at = random() % (kLength - out.size());
      const Status status = source.read(at, out);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(std::memcmp(out.data(), file_.data() + at, out.size()), 0);
    }
  }

  // A new version, with the same length and other bytes.
  void replace_file(Random& random) {
    source_.reset();  // its reads would be errors
    file_[random() % file_.size()] ^= 1;
    etag_ = "\"v" + std::to_string(random()) + "\"";
  }

  void damage(Random& random) {
    source_.reset();
    for (const char* file : {"data", "index"}) {
      if (random() % 2 == 0) continue;
      const std::filesystem::path path = entry(file);
      if (!std::filesystem::exists(path)) continue;
      const uint64_t size = std::filesystem::file_size(path);
      if (size == 0) continue;
      if (random() % 4 == 0) {
        std::filesystem::resize_file(path, random() % size);
      } else {
        flip(path, random() % std::min<uint64_t>(size, random() % 2 == 0 ? 60 : size));
      }
    }
  }

  void maintain(Random& random) {
    switch (random() % 3) {
      case 0:
        static_cast<void>(list_cache(options_.cache_dir));
        break;
      case 1:
        static_cast<void>(evict_cache(options_.cache_dir, random() % kLength));
        break;
      default: {
        const auto deleted = delete_cached(options_.cache_dir, server_->url());
        ASSERT_TRUE(deleted.ok() || deleted.status().code() == Code::kCacheLocked);
      }
    }
  }

  void sequence(test::RandomSequence& run) {
    options_.cache_dir = (dir_ / std::to_string(run.seed())).string();
    std::filesystem::create_directories(options_.cache_dir);
    source_.reset();
    run.run([&](Random& random) {
      const uint64_t what = random() % 10;
      const auto child = random() % 2 == 0 ? begin_child(random()) : nullptr;
      if (child != nullptr) run.note("a second writer");
      if (what < 3) {
        run.note("reads");
        read_some(random);
      } else if (what < 5) {
        run.note("reads on a full disk");
        const test::FileLimit limit(random() % kLength);
        read_some(random);
      } else if (what == 5) {
        run.note("two readers");
        read_by_two(random);
      } else if (what == 6) {
        run.note("a new version");
        if (child == nullptr) replace_file(random);
      } else if (what == 7) {
        run.note("damage");
        damage(random);
      } else {
        run.note("maintenance");
        maintain(random);
      }
    });
    if (run.failed()) return;
    run.begin_part("the entry is completed");
    open();
    expect_all();
    EXPECT_EQ(sent([&] {
                open();
                expect_all();
              }),
              kProbe);
    source_.reset();
    std::filesystem::remove_all(options_.cache_dir);
  }
};

TEST_F(HttpCacheRandom, EveryByteIsRightWhateverHappensToTheEntry) {
  file_ = test::patterned(kLength);
  test::run_random_sequences(10, 8, [&](test::RandomSequence& run) { sequence(run); });
}

}  // namespace
}  // namespace sluice::io
