// Decides which entry of the cache is that of a file on a server: by its validators, else by bytes.
#include "io/http_entry_native.h"

#include <algorithm>

#include "platform/file.h"

namespace sluice::io {

namespace {

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

CacheHeader header_of(const std::string& url, const RemoteFile& remote) {
  CacheHeader header;
  header.url = url;
  header.etag = remote.etag.starts_with("W/") ? remote.etag.substr(2) : remote.etag;
  header.last_modified = remote.last_modified;
  header.size = remote.size;
  return header;
}

bool both(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty();
}

// Whether the validators show that two files are the same, or that they are not. Neither: the first
// bytes decide.
bool surely_same(const CacheHeader& a, const CacheHeader& b) {
  if (a.size != b.size) return false;
  if (both(a.etag, b.etag)) return a.etag == b.etag;
  return both(a.last_modified, b.last_modified) && a.last_modified == b.last_modified;
}
// Servers behind one name may have different ETags for the same file, but not different dates.
bool surely_different(const CacheHeader& a, const CacheHeader& b) {
  return a.size != b.size ||
         (both(a.last_modified, b.last_modified) && a.last_modified != b.last_modified);
}

// Whether the same first bytes make the cached file the server's. Without a date, another ETag is
// another version: it may have the header of the old one.
bool is_same(const CacheHeader& file, const CacheHeader& remote) {
  const bool tags_differ = both(file.etag, remote.etag) && file.etag != remote.etag;
  const bool dated = !file.last_modified.empty() || !remote.last_modified.empty();
  return !surely_different(file, remote) && (!tags_differ || dated);
}

// Sets *gone if another process has deleted one of the entries meanwhile.
Result<std::unique_ptr<ChunkStore>> find_or_create(HttpClient& client, const std::string& url,
                                                   const OpenOptions& options, uint64_t limit,
                                                   bool* gone) {
  const CacheHeader remote = header_of(url, client.remote());
  const std::vector<CachedFile> versions = ChunkStore::versions(options.cache_dir, url);
  for (const CachedFile& file : versions) {
    if (!surely_same(file.header, remote)) continue;
    auto store = ChunkStore::open(file.path, file.header);
    if (store == nullptr) continue;
    if (versions.size() > 1 && store->has(0)) store->remove_others();
    return store;
  }
  Bytes head;
  if (!versions.empty() || (remote.etag.empty() && remote.last_modified.empty())) {
    Result<Bytes> read = read_head(client, kCacheHeadBytes);
    if (!read.ok()) return read.status();
    head = std::move(*read);
  }
  bool plausible = versions.empty();
  for (const CachedFile& file : versions) {
    auto store = ChunkStore::open(file.path, file.header);
    if (store == nullptr) {
      *gone = *gone || platform::names_in(file.path).empty();
      continue;
    }
    Bytes old(std::min<size_t>(kCacheHeadBytes, file.header.size));
    if (!store->read(0, old).ok()) old.clear();
    if (!old.empty() && old == head && is_same(file.header, remote)) return store;
    plausible = plausible || resembles(head, old, client.remote().ranges);
  }
  if (!plausible) {
    return error(Code::kNetwork,
                 "%s does not answer with the cached model or a newer version of it",
                 client.name().c_str());
  }
  auto store = ChunkStore::create(options.cache_dir, remote, head, limit);
  if (store.ok() && (*store)->has(0)) (*store)->remove_others();
  return store;
}

}  // namespace

Result<std::unique_ptr<ChunkStore>> open_entry(HttpClient& client, const std::string& url,
                                               const OpenOptions& options, uint64_t limit) {
  constexpr int kAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    bool gone = false;
    auto store = find_or_create(client, url, options, limit, &gone);
    if (store.ok() || !gone || attempt == kAttempts) return store;
  }
}

std::unique_ptr<ChunkStore> open_complete(const std::string& dir, const std::string& url) {
  for (const CachedFile& file : ChunkStore::versions(dir, url)) {
    if (file.stored_bytes != file.header.size) continue;
    if (auto store = ChunkStore::open(file.path, file.header)) return store;
  }
  return nullptr;
}

}  // namespace sluice::io
