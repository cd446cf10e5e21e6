// A remote file as a ByteSource, in one of three modes:
//   direct     ranges go from the network to the reader
//   stored     ranges are fetched as whole chunks into the chunk store and read from there
//   whole      a server without range requests: a thread downloads the file from start to end into
//   a
//              store (the cache's, or a temporary one), and readers wait for their chunk
// Readers of the same chunk share one fetch; readers of different chunks fetch in parallel. When
// the store cannot be written (a full disk), it warns once and reads missing chunks in direct mode.
#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "io/address.h"
#include "io/byte_source.h"
#include "io/cache_native.h"
#include "io/http_client_native.h"
#include "platform/file.h"

namespace sluice::io {

namespace {

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
    uint64_t missing = store_ == nullptr ? size_ : 0;
    for (uint64_t c = 0; store_ != nullptr && c < store_->n_chunks(); ++c) {
      if (!store_->has(c)) missing += store_->chunk_bytes(c);
    }
    return missing;
  }

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
    for (uint64_t at = offset; at < offset + length; at += ChunkStore::kChunkBytes) {
      store_->drop(at / ChunkStore::kChunkBytes);
    }
    store_->drop((offset + length - 1) / ChunkStore::kChunkBytes);
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
      // Take unclaimed chunks first, so that readers of neighbouring ranges share the work.
      const uint64_t last = out.empty() ? 0 : (offset + out.size() - 1) / ChunkStore::kChunkBytes;
      for (uint64_t c = offset / ChunkStore::kChunkBytes; !out.empty() && c <= last; c++) {
        if (claim(c)) SLUICE_RETURN_IF_ERROR(fetch_claimed(c, turn));
      }
    }
    while (!out.empty()) {
      const uint64_t chunk = offset / ChunkStore::kChunkBytes;
      const uint64_t within = offset % ChunkStore::kChunkBytes;
      const auto n =
          static_cast<size_t>(std::min<uint64_t>(out.size(), store_->chunk_bytes(chunk) - within));
      SLUICE_RETURN_IF_ERROR(read_chunk(chunk, within, out.first(n), turn));
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

  // Reads a part of a chunk from the store. Fetches the chunk first if it is missing or damaged.
  [[nodiscard]] Status read_chunk(uint64_t chunk, uint64_t within, std::span<uint8_t> out,
                                  const Turn& turn) {
    for (int attempt = 0; attempt < 3; attempt++) {
      const bool was_there = store_->has(chunk) && !is_fetched_here(chunk);
      if (!store_->has(chunk)) {
        if (degraded_ && !whole_) break;
        SLUICE_RETURN_IF_ERROR(whole_ ? await_whole(chunk, turn) : obtain(chunk, turn));
        if (!store_->has(chunk)) continue;
      }
      const Status status = store_->read(chunk, within, out);
      if (status.ok() && was_there) from_store_ += out.size();
      if (status.ok() || status.code() != Code::kCorrupt) return status;
    }
    if (!whole_) return read_direct(chunk * ChunkStore::kChunkBytes + within, out, turn);
    return error(Code::kCorrupt, "the local copy of %s was damaged repeatedly",
                 client_->name().c_str());
  }

  [[nodiscard]] bool is_fetched_here(uint64_t chunk) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return fetched_.count(chunk) != 0;
  }

  // True when this thread must now fetch the chunk.
  [[nodiscard]] bool claim(uint64_t chunk) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !store_->has(chunk) && in_flight_.insert(chunk).second;
  }

  // Waits until the chunk is stored. Fetches it unless another thread does.
  [[nodiscard]] Status obtain(uint64_t chunk, const Turn& turn) {
    for (;;) {
      if (claim(chunk)) return fetch_claimed(chunk, turn);
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return in_flight_.count(chunk) == 0 || aborted(turn); });
      if (aborted(turn)) return aborted_error();
      if (store_->has(chunk) || degraded_) return {};
    }
  }

  [[nodiscard]] Status fetch_claimed(uint64_t chunk, const Turn& turn) {
    Status status = fetch_chunk(chunk, turn);
    const std::lock_guard<std::mutex> lock(mutex_);
    in_flight_.erase(chunk);
    if (status.ok()) fetched_.insert(chunk);
    changed_.notify_all();
    return status;
  }

  [[nodiscard]] Status fetch_chunk(uint64_t chunk, const Turn& turn) {
    if (!offline_.ok()) return offline_;
    const auto lock = store_->lock(chunk, [&] { return aborted(turn); });
    if (lock == nullptr) return aborted_error();
    if (store_->has(chunk)) return {};  // another process was faster
    ChunkStore::Writer writer(store_.get(), chunk);
    bool written = true;
    const Status fetched =
        client_->fetch(chunk * ChunkStore::kChunkBytes, store_->chunk_bytes(chunk), turn.client,
                       [&](std::span<const uint8_t> b) { return written = writer.append(b); });
    if (written && !fetched.ok()) return fetched;
    if (const Status status = writer.commit(); !status.ok()) degrade(status);
    return {};
  }

  void degrade(const Status& why) {
    if (degraded_.exchange(true)) return;
    if (on_warning_) on_warning_(why.message() + "; missing parts are read from the network");
  }

  // --- whole files

  // Waits until the download reaches the chunk. Starts it if it is not running, also after a
  // failure that an earlier reader has reported.
  [[nodiscard]] Status await_whole(uint64_t chunk, const Turn& turn) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int seen = whole_runs_;
    for (;;) {
      if (aborted(turn)) return aborted_error();
      if (store_->has(chunk)) return {};
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
    uint64_t at = 0;
    Status store_status;
    auto writer = std::make_unique<ChunkStore::Writer>(store_.get(), 0);
    const Status fetched =
        client_->fetch_whole(client_->epoch(), [&](std::span<const uint8_t> bytes) {
          while (!bytes.empty() && store_status.ok()) {
            const uint64_t chunk = at / ChunkStore::kChunkBytes;
            const uint64_t left = store_->chunk_bytes(chunk) - at % ChunkStore::kChunkBytes;
            const auto part =
                bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), left)));
            (void)writer->append(part);  // commit() reports a failure
            at += part.size();
            bytes = bytes.subspan(part.size());
            if (part.size() < left) continue;
            store_status = writer->commit();
            writer = std::make_unique<ChunkStore::Writer>(store_.get(), chunk + 1);
            const std::lock_guard<std::mutex> lock(mutex_);
            fetched_.insert(chunk);
            changed_.notify_all();
          }
          return store_status.ok() && !closing_;
        });
    const std::lock_guard<std::mutex> lock(mutex_);
    whole_status_ = store_status.ok() ? fetched : store_status;
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
  std::set<uint64_t> fetched_;  // chunks fetched by this source: not counted as read from the store
  std::thread thread_;
  bool thread_running_ = false;
  Status whole_status_;
  int whole_runs_ = 0;
};

// What identifies this version of the file; empty when the server sends neither ETag nor date.
std::string version_of(const RemoteFile& file) {
  return file.etag.empty() ? file.last_modified : file.etag;
}

using Bytes = std::vector<uint8_t>;

Result<Bytes> read_head(HttpClient& client, size_t most) {
  const bool ranges = client.remote().ranges;
  const auto length = static_cast<size_t>(std::min<uint64_t>(most, client.remote().size));
  Bytes head;
  const auto take = [&](std::span<const uint8_t> bytes) {
    const size_t n = std::min(bytes.size(), length - head.size());
    head.insert(head.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    return ranges || head.size() < length;  // stops the download of a whole file
  };
  if (length == 0) return head;
  Status status = ranges ? client.fetch(0, length, client.epoch(), take)
                         : client.fetch_whole(client.epoch(), take);
  if (head.size() < length) return status;
  return head;
}

bool is_model(const Bytes& head) {
  constexpr uint8_t kGguf[] = {'G', 'G', 'U', 'F'};
  constexpr uint8_t kQsf[] = {'Q', 'S', 'F', '1'};
  constexpr uint8_t kSafetensors[] = {0, 0, 0, '{'};  // high bytes of a length, then JSON
  return (head.size() >= 4 && std::equal(kGguf, kGguf + 4, head.begin())) ||
         (head.size() >= 4 && std::equal(kQsf, kQsf + 4, head.begin())) ||
         (head.size() >= 9 && std::equal(kSafetensors, kSafetensors + 4, head.begin() + 5));
}

// Whether `fresh` can be the start of a new version of the file that began with `old`, and not the
// page of a captive portal. A portal serves no ranges, so different JSON needs range support or the
// same first key. web/io/local-chunks.ts has the same rule.
bool resembles(const Bytes& fresh, const Bytes& old, bool ranges) {
  const auto same = static_cast<ptrdiff_t>(std::min<size_t>({8, fresh.size(), old.size()}));
  if (same >= 4 && std::equal(fresh.begin(), fresh.begin() + same, old.begin())) return true;
  if (is_model(fresh)) return true;
  if (is_model(old) || (!ranges && !old.empty() && old[0] == '{')) return false;
  const auto first = std::find_if(fresh.begin(), fresh.end(), [](uint8_t c) {
    return c != ' ' && c != '\t' && c != '\n' && c != '\r';
  });
  return first != fresh.end() && *first != '<';
}

// Checks that the server has the cached file or a plausible newer version of it. If the server
// names no version, the first bytes are compared: *other then tells that the cached file of this
// size is a different one.
Status check_answer(HttpClient& client, const std::string& dir, const std::string& url,
                    bool* other) {
  constexpr size_t kCompareBytes = 64 << 10;
  constexpr size_t kHeadBytes = 16;
  const RemoteFile& remote = client.remote();
  const std::string version = version_of(remote);
  bool same = false;
  const auto old = ChunkStore::beginning(dir, url, version, remote.size, kCompareBytes, &same);
  if (!old || (same && !version.empty())) return {};
  Result<Bytes> head = read_head(client, same ? kCompareBytes : kHeadBytes);
  if (!head.ok()) return head.status();
  if (same && *head == *old) return {};
  *other = same && !old->empty();
  if (resembles(*head, *old, remote.ranges)) return {};
  return error(Code::kNetwork, "%s does not answer with the cached model or a newer version of it",
               client.name().c_str());
}

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
  auto client = std::make_unique<HttpClient>(url, options.http);
  const auto warn = [&](const std::string& text) {
    if (options.on_warning) options.on_warning(text);
  };
  const std::string& dir = options.cache_dir;
  const std::string name = stored_address(url);
  bool other = false;
  Status status = client->open();
  if (status.ok() && !dir.empty()) status = check_answer(*client, dir, name, &other);
  if (!status.ok()) {
    if (dir.empty() || status.code() == Code::kAborted) return status;
    auto complete = ChunkStore::open_complete(dir, name);
    if (!complete.ok()) return status;
    warn(status.message() + "; using the complete copy in the cache");
    return std::unique_ptr<ByteSource>(std::make_unique<HttpSource>(
        std::move(client), std::move(*complete), options, false, status));
  }
  const RemoteFile& remote = client->remote();
  std::unique_ptr<ChunkStore> store;
  if (!dir.empty()) {
    auto opened = ChunkStore::open(dir, name, version_of(remote), remote.size);
    if (opened.ok()) {
      store = std::move(*opened);
      if (other) store->clear();
    } else {
      warn(opened.status().message() + "; continuing without the cache");
    }
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
