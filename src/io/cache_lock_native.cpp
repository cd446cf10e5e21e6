// Lock files, and the thread that refreshes those of entries in use.
#include "io/cache_lock_native.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <set>
#include <thread>

#include "base/clock.h"
#include "platform/file.h"
#include "platform/process.h"

namespace sluice::io {

namespace {

using platform::Access;
using platform::File;

constexpr int64_t kUseStaleSeconds = 30;
constexpr int64_t kBlockStaleSeconds = 10;
constexpr std::chrono::seconds kBeat{5};
constexpr double kRefreshMs = 1000;

std::string unique_number() {
  static std::atomic<uint32_t> count{0};
  return std::to_string(platform::process_id()) + "-" + std::to_string(count++);
}

// False if the file exists already or cannot be created. Its text is lost on a full disk; the lock
// then ages like one of another machine.
bool create_lock(const std::string& path) {
  const File file = File::open(path, Access::kCreateNew);
  if (!file.valid()) return false;
  const std::string text =
      std::to_string(platform::process_id()) + " " + platform::host_name() + "\n";
  (void)file.write_at(0, text.data(), text.size());
  return true;
}

// Whether a live process holds this lock.
bool is_held(const std::string& path, int64_t stale_seconds) {
  const File file = File::open(path, Access::kRead);
  platform::FileInfo info;
  if (!file.valid() || !file.info(&info)) return false;
  if (std::time(nullptr) - info.modified >= stale_seconds) return false;
  char text[128] = "";
  if (file.read_at(0, text, sizeof text - 1) <= 0) return true;
  long long process = 0;
  char host[64] = "";
  if (std::sscanf(text, "%lld %63[^\n]", &process, host) != 2) return true;
  return platform::host_name() != host || platform::process_alive(process);
}

// The lock files of this process that must not age.
class Heartbeat {
 public:
  explicit Heartbeat(int64_t process) : process_(process) {}

  // A forked process has no thread, so it gets an object of its own.
  static Heartbeat& instance() {
    static std::atomic<Heartbeat*> current{nullptr};
    const int64_t process = platform::process_id();
    Heartbeat* found = current.load();
    while (found == nullptr || found->process_ != process) {
      auto* fresh = new Heartbeat(process);
      if (current.compare_exchange_strong(found, fresh)) return *fresh;
      delete fresh;
    }
    return *found;
  }

  void add(const std::string& path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    files_.insert(path);
    if (!thread_.joinable()) thread_ = std::thread([this, run = run_] { beat(run); });
  }

  void remove(const std::string& path) {
    std::thread ended;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      files_.erase(path);
      if (files_.empty()) {
        ended = std::move(thread_);
        ++run_;
        changed_.notify_all();
      }
    }
    if (ended.joinable()) ended.join();
  }

 private:
  void beat(uint64_t run) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, kBeat, [&] { return run_ != run; })) {
      for (const std::string& path : files_) {
        const File file = File::open(path, Access::kReadWrite);
        if (file.valid()) file.touch();
      }
    }
  }

  const int64_t process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> files_;
  std::thread thread_;
  uint64_t run_ = 0;
};

}  // namespace

std::string temporary_name() {
  return "tmp-" + unique_number();
}

UseLock::UseLock(const std::string& entry) {
  for (int attempt = 0; attempt < 100 && path_.empty(); ++attempt) {
    const std::string path = entry + "/use-" + unique_number();
    if (create_lock(path)) {
      path_ = path;
    } else if (errno != EEXIST) {
      return;
    }
  }
  if (!path_.empty()) Heartbeat::instance().add(path_);
}

UseLock::~UseLock() {
  if (path_.empty()) return;
  Heartbeat::instance().remove(path_);
  platform::remove_file(path_);
}

bool is_in_use(const std::string& entry) {
  for (const std::string& name : platform::names_in(entry)) {
    if (name.starts_with("use-") && is_held(entry + "/" + name, kUseStaleSeconds)) return true;
  }
  return false;
}

BlockLock::BlockLock(std::string path) : path_(std::move(path)), refreshed_ms_(monotonic_ms()) {}

std::unique_ptr<BlockLock> BlockLock::try_take(const std::string& entry, uint64_t block) {
  std::string path = entry + "/get-" + std::to_string(block);
  bool taken = create_lock(path);
  if (!taken && errno == EEXIST && !is_held(path, kBlockStaleSeconds)) {
    platform::remove_file(path);
    taken = create_lock(path);
  }
  if (!taken && errno == EEXIST) return nullptr;
  // Where lock files cannot be created, the block is fetched without one.
  return std::unique_ptr<BlockLock>(new BlockLock(taken ? std::move(path) : ""));
}

BlockLock::~BlockLock() {
  if (!path_.empty()) platform::remove_file(path_);
}

void BlockLock::refresh() {
  if (path_.empty() || monotonic_ms() - refreshed_ms_ < kRefreshMs) return;
  refreshed_ms_ = monotonic_ms();
  const File file = File::open(path_, Access::kReadWrite);
  if (file.valid()) file.touch();
}

}  // namespace sluice::io
