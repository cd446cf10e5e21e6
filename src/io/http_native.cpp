// A remote file as a ByteSource, in one of three modes:
//   direct     ranges go from the network to the reader
//   stored     ranges are fetched as whole blocks into the chunk store and read from there
//   whole      a server without range requests: a thread downloads the file from start to end into
//              a store (the cache's, or a temporary one), and readers wait for their block
// Readers of the same block share one fetch; readers of different blocks fetch in parallel. When
// the store cannot be written (a full disk), it warns once and reads missing chunks in direct mode.
#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "io/address.h"
#include "io/byte_source.h"
#include "io/cache_native.h"
#include "io/default_cache_native.h"
#include "io/http_client_native.h"
#include "io/http_entry_native.h"
#include "platform/file.h"

namespace sluice::io {

namespace {

constexpr uint64_t kBlock = ChunkStore::kBlockBytes;
constexpr int kMaxWholeRuns = 3;  // downloads of the whole file that one read may start

class HttpSource final : public ByteSource {
 public:
  HttpSource(std::unique_ptr<HttpClient> client, std::unique_ptr<ChunkStore> store,
             const OpenOptions& options, bool whole, Status offline)
      : client_(std::move(client)),
        store_(std::move(store)),
        on_warning_(options.on_warning),
        whole_(whole),
        offline_(std::move(offline)) {
    size_ = store_ != nullptr ? store_->size() : client_->remote().size;
  }

  ~HttpSource() override {
    closing_ = true;
    abort();
    if (thread_.joinable()) thread_.join();
  }
  HttpSource(const HttpSource&) = delete;
  HttpSource& operator=(const HttpSource&) = delete;

  [[nodiscard]] uint64_t size() const override { return size_; }
  [[nodiscard]] uint64_t bytes_fetched() const override { return client_->bytes_fetched(); }
  [[nodiscard]] uint64_t bytes_from_cache() const override { return from_store_.load(); }
  [[nodiscard]] uint64_t bytes_missing() const override {
    return store_ == nullptr ? size_ : store_->missing_bytes();
  }

  [[nodiscard]] bool offline() const override { return !offline_.ok(); }

  void abort() override {
    reader_epoch_.fetch_add(1);
    // The download of a whole file serves all readers, so it continues unless the source closes.
    if (!whole_ || closing_) client_->abort();
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

  [[nodiscard]] Status refresh(uint64_t offset, uint64_t length) override {
    if (store_ == nullptr) return {};
    if (!offline_.ok()) return offline_;
    const uint64_t each = store_->header().chunk_bytes;
    for (uint64_t c = offset / each; c * each < offset + length; ++c) store_->drop(c);
    return {};
  }

  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    if (offset > size_ || out.size() > size_ - offset) {
      return error(Code::kTruncated, "%s ends before byte %llu", client_->name().c_str(),
                   static_cast<unsigned long long>(offset + out.size()));
    }
    const Turn turn{reader_epoch_.load(), client_->epoch()};
    if (store_ == nullptr) return read_direct(offset, out, turn);
    if (!whole_ && !degraded_) {
      // Take unclaimed blocks first, so that readers of neighbouring ranges share the work.
      const uint64_t last = out.empty() ? 0 : (offset + out.size() - 1) / kBlock;
      for (uint64_t b = offset / kBlock; !out.empty() && b <= last; b++) {
        if (claim(b)) SLUICE_RETURN_IF_ERROR(fetch_claimed(b, turn));
      }
    }
    while (!out.empty()) {
      const uint64_t block = offset / kBlock;
      const uint64_t left = store_->block_bytes(block) - offset % kBlock;
      const auto n = static_cast<size_t>(std::min<uint64_t>(out.size(), left));
      SLUICE_RETURN_IF_ERROR(read_block(block, offset, out.first(n), turn));
      offset += n;
      out = out.subspan(n);
    }
    return {};
  }

 private:
  // The epochs in which a read began. abort() starts new ones.
  struct Turn {
    uint64_t reader;
    uint64_t client;
  };

  [[nodiscard]] bool aborted(const Turn& turn) const { return reader_epoch_.load() != turn.reader; }
  [[nodiscard]] Status aborted_error() const {
    return error(Code::kAborted, "the read of %s was aborted", client_->name().c_str());
  }

  [[nodiscard]] Status read_direct(uint64_t offset, std::span<uint8_t> out, const Turn& turn) {
    if (!offline_.ok()) return offline_;
    size_t done = 0;
    return client_->fetch(offset, out.size(), turn.client, [&](std::span<const uint8_t> bytes) {
      std::memcpy(out.data() + done, bytes.data(), bytes.size());
      done += bytes.size();
      return true;
    });
  }

  // Reads a part of a block from the store. Fetches the block first if it is missing or damaged.
  [[nodiscard]] Status read_block(uint64_t block, uint64_t offset, std::span<uint8_t> out,
                                  const Turn& turn) {
    for (int attempt = 0; attempt < 3; attempt++) {
      const bool there = store_->has_block(block);
      const bool was_there = there && !is_fetched_here(block);
      if (!there) {
        if (degraded_ && !whole_) break;
        SLUICE_RETURN_IF_ERROR(whole_ ? await_whole(block, turn) : obtain(block, turn));
        if (!store_->has_block(block)) continue;
      }
      const Status status = store_->read(offset, out);
      if (status.ok() && was_there) from_store_ += out.size();
      if (status.ok() || status.code() != Code::kCorrupt) return status;
    }
    if (!whole_) return read_degraded(offset, out, turn);
    return error(Code::kCorrupt, "the local copy of %s was damaged repeatedly",
                 client_->name().c_str());
  }

  // The store cannot be written: takes what it has, and the rest from the network.
  [[nodiscard]] Status read_degraded(uint64_t offset, std::span<uint8_t> out, const Turn& turn) {
    while (!out.empty()) {
      const uint64_t chunk = offset / store_->header().chunk_bytes;
      const uint64_t left = store_->chunk_bytes(chunk) - offset % store_->header().chunk_bytes;
      const auto part = out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), left)));
      if (store_->has(chunk) && store_->read(offset, part).ok()) {
        if (!is_fetched_here(offset / kBlock)) from_store_ += part.size();
      } else {
        SLUICE_RETURN_IF_ERROR(read_direct(offset, part, turn));
      }
      offset += part.size();
      out = out.subspan(part.size());
    }
    return {};
  }

  [[nodiscard]] bool is_fetched_here(uint64_t block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return fetched_.count(block) != 0;
  }

  // True when this thread must now fetch the block.
  [[nodiscard]] bool claim(uint64_t block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !store_->has_block(block) && in_flight_.insert(block).second;
  }

  // Waits until the block is stored. Fetches it unless another thread does.
  [[nodiscard]] Status obtain(uint64_t block, const Turn& turn) {
    for (;;) {
      if (claim(block)) return fetch_claimed(block, turn);
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return in_flight_.count(block) == 0 || aborted(turn); });
      if (aborted(turn)) return aborted_error();
      if (store_->has_block(block) || degraded_) return {};
    }
  }

  [[nodiscard]] Status fetch_claimed(uint64_t block, const Turn& turn) {
    Status status = fetch_block(block, turn);
    const std::lock_guard<std::mutex> lock(mutex_);
    in_flight_.erase(block);
    if (status.ok()) fetched_.insert(block);
    changed_.notify_all();
    return status;
  }

  // Fetches the missing chunks of a block. Another process may be faster.
  [[nodiscard]] Status fetch_block(uint64_t block, const Turn& turn) {
    if (!offline_.ok()) return offline_;
    const auto lock =
        store_->lock(block, [&] { return aborted(turn) || store_->has_block(block); });
    if (lock == nullptr) return aborted(turn) ? aborted_error() : Status();
    for (const ChunkStore::Run& run : store_->missing(block)) {
      ChunkStore::Writer writer(store_.get(), run.first);
      const uint64_t from = run.first * store_->header().chunk_bytes;
      const uint64_t to =
          (run.end - 1) * store_->header().chunk_bytes + store_->chunk_bytes(run.end - 1);
      const Status fetched =
          client_->fetch(from, to - from, turn.client, [&](std::span<const uint8_t> bytes) {
            lock->refresh();
            return writer.append(bytes);
          });
      if (!writer.status().ok()) {
        degrade(writer.status());
        return {};
      }
      SLUICE_RETURN_IF_ERROR(fetched);
    }
    return {};
  }

  void degrade(const Status& why) {
    if (degraded_.exchange(true)) return;
    if (on_warning_) on_warning_(why.message() + "; missing parts are read from the network");
  }

  // --- whole files

  // Waits until the download reaches the end of the block. Starts it if it is not running, also
  // after a failure that an earlier reader has reported.
  [[nodiscard]] Status await_whole(uint64_t block, const Turn& turn) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int seen = whole_runs_;
    for (;;) {
      if (aborted(turn)) return aborted_error();
      if (store_->has_block(block)) return {};
      if (!thread_running_) {
        if (whole_runs_ != seen && !whole_status_.ok()) return whole_status_;
        if (whole_runs_ - seen >= kMaxWholeRuns) {
          return error(Code::kCorrupt, "the local copy of %s keeps losing data",
                       client_->name().c_str());
        }
        if (thread_.joinable()) thread_.join();
        whole_runs_++;
        thread_running_ = true;
        thread_ = std::thread([this] { take_whole(); });
      }
      changed_.wait(lock);
    }
  }

  void take_whole() {
    ChunkStore::Writer writer(store_.get(), 0);
    const Status fetched =
        client_->fetch_whole(client_->epoch(), [&](std::span<const uint8_t> bytes) {
          const uint64_t before = writer.chunk();
          const bool written = writer.append(bytes);
          if (writer.chunk() != before) {
            const std::lock_guard<std::mutex> lock(mutex_);
            for (uint64_t c = before; c < writer.chunk(); ++c) {
              fetched_.insert(c * store_->header().chunk_bytes / kBlock);
            }
            changed_.notify_all();
          }
          return written && !closing_;
        });
    const std::lock_guard<std::mutex> lock(mutex_);
    whole_status_ = writer.status().ok() ? fetched : writer.status();
    thread_running_ = false;
    changed_.notify_all();
  }

  std::unique_ptr<HttpClient> client_;
  std::unique_ptr<ChunkStore> store_;  // null: direct
  std::function<void(const std::string&)> on_warning_;
  const bool whole_;
  const Status offline_;  // why the server cannot be reached; ok when it can
  uint64_t size_ = 0;
  std::atomic<uint64_t> reader_epoch_{1};
  std::atomic<uint64_t> from_store_{0};
  std::atomic<bool> degraded_{false};
  std::atomic<bool> closing_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<uint64_t> in_flight_;
  std::set<uint64_t> fetched_;  // blocks fetched by this source: not counted as read from the store
  std::thread thread_;
  bool thread_running_ = false;
  Status whole_status_;
  int whole_runs_ = 0;
};

// An error if the whole file does not fit in `dir`.
Status check_room(const HttpClient& client, const std::string& dir, uint64_t cap) {
  const uint64_t size = client.remote().size;
  uint64_t room = cap;
  if (platform::free_bytes(dir, &room)) room = std::min(room, cap);
  if (size <= room) return {};
  return error(Code::kNoRangeSupport,
               "%s does not support range requests, and its %llu bytes do not fit in %s",
               client.name().c_str(), static_cast<unsigned long long>(size), dir.c_str());
}

}  // namespace

Result<std::unique_ptr<ByteSource>> open_http(const std::string& url, const OpenOptions& options) {
  auto client = std::make_unique<HttpClient>(url, options);
  const auto warn = [&](const std::string& text) {
    if (options.on_warning) options.on_warning(text);
  };
  const std::string& dir = options.cache_dir;
  const std::string name = stored_address(url);
  const Result<uint64_t> limit = dir.empty() ? Result<uint64_t>(0) : cache_limit();
  if (!limit.ok()) return limit.status();
  std::unique_ptr<ChunkStore> store;
  Status status = client->open();
  if (status.ok() && !dir.empty()) {
    auto opened = open_entry(*client, name, options, *limit);
    if (opened.ok()) {
      store = std::move(*opened);
    } else if (opened.status().code() == Code::kIo) {
      warn(opened.status().message() + "; continuing without the cache");
    } else {
      status = opened.status();
    }
  }
  if (!status.ok()) {
    if (dir.empty() || status.code() == Code::kAborted) return status;
    store = open_complete(dir, name);
    if (store == nullptr) return status;
    warn(status.message() + "; using the complete copy in the cache");
    return std::unique_ptr<ByteSource>(
        std::make_unique<HttpSource>(std::move(client), std::move(store), options, false, status));
  }
  const RemoteFile& remote = client->remote();
  if (store != nullptr && store->has(0) && !remote.etag.empty()) {
    std::vector<uint8_t> head(std::min<uint64_t>(kCacheHeadBytes, remote.size));
    if (store->read(0, head).ok()) client->know_head(head);
  }
  if (!remote.ranges) {
    const std::string room = store != nullptr ? dir : platform::temporary_directory();
    SLUICE_RETURN_IF_ERROR(check_room(*client, room, options.http.max_whole_bytes));
    if (store == nullptr) {
      auto opened = ChunkStore::open_temporary(remote.size);
      if (!opened.ok()) return opened.status();
      store = std::move(*opened);
    }
  }
  return std::unique_ptr<ByteSource>(std::make_unique<HttpSource>(
      std::move(client), std::move(store), options, !remote.ranges, Status()));
}

}  // namespace sluice::io
