// The chunk store over two files. The header explains the layout.
#include "io/cache_native.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <thread>

#include "io/address.h"

namespace sluice::io {

namespace {

using platform::Access;
using platform::File;
using platform::LockKind;

constexpr char kMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'C', '1'};
constexpr uint64_t kRecordsOffset = 16 << 10;
constexpr size_t kMaxKeyBytes = 8 << 10;
constexpr uint32_t kPresent = 0x4b4e4843;        // "CHNK"
constexpr uint64_t kLockBase = 1ull << 40;       // byte locks lie beyond the end of the file
constexpr uint64_t kMaxStoreBytes = 1ull << 42;  // 4 TB bounds the table of records

struct MetaHeader {
  char magic[8];
  uint64_t size;
  uint64_t chunk_bytes;
  uint32_t key_bytes;
  uint32_t checksum;  // of the fields before it and of the key
};
static_assert(sizeof(MetaHeader) == 32);

Status io_error(const char* what, const std::string& path) {
  return error(Code::kIo, "%s %s: %s", what, path.c_str(), std::strerror(errno));
}

bool read_all(const File& file, void* out, size_t n, uint64_t offset) {
  return file.read_at(offset, out, n) == static_cast<int64_t>(n);
}

uint32_t checksum(uint32_t seed, const void* data, size_t n) {
  return static_cast<uint32_t>(::crc32_z(seed, static_cast<const Bytef*>(data), n));
}

// FNV-1a. It only names files; the full key is compared.
std::string hash_name(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(h));
  return name;
}

uint32_t header_checksum(const MetaHeader& header, std::string_view key) {
  const uint32_t fields = checksum(0, &header, offsetof(MetaHeader, checksum));
  return checksum(fields, key.data(), key.size());
}

// The key and size in a meta file; nullopt if it is damaged.
std::optional<std::string> read_meta(const File& file, uint64_t* size) {
  MetaHeader header{};
  if (!read_all(file, &header, sizeof header, 0)) return std::nullopt;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 ||
      header.chunk_bytes != ChunkStore::kChunkBytes || header.key_bytes > kMaxKeyBytes ||
      header.size > kMaxStoreBytes) {
    return std::nullopt;
  }
  std::string key(header.key_bytes, '\0');
  if (!read_all(file, key.data(), key.size(), sizeof header)) return std::nullopt;
  if (header_checksum(header, key) != header.checksum) return std::nullopt;
  *size = header.size;
  return key;
}

// Makes the two files an empty entry.
bool write_meta(const File& meta, const File& data, std::string_view key, uint64_t size) {
  MetaHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.size = size;
  header.chunk_bytes = ChunkStore::kChunkBytes;
  header.key_bytes = static_cast<uint32_t>(key.size());
  header.checksum = header_checksum(header, key);
  const uint64_t chunks = (size + ChunkStore::kChunkBytes - 1) / ChunkStore::kChunkBytes;
  return meta.resize(0) && meta.resize(kRecordsOffset + 8 * chunks) && data.resize(size) &&
         meta.write_at(sizeof header, key.data(), key.size()) &&
         meta.write_at(0, &header, sizeof header);
}

template <typename Fn>
void for_each_meta(const std::string& dir, const std::string& prefix, Fn&& fn) {
  for (const std::string& name : platform::names_in(dir)) {
    if (name.size() > 5 && name.substr(0, prefix.size()) == prefix &&
        name.substr(name.size() - 5) == ".meta") {
      fn(dir + "/" + name.substr(0, name.size() - 5));
    }
  }
}

// Removes an entry. False when it is in use.
bool remove_entry(const std::string& base) {
  const File meta = File::open(base + ".meta", Access::kReadWrite);
  if (!meta.valid() || !meta.try_lock(LockKind::kExclusive)) return false;
  platform::remove_file(base + ".data");
  platform::remove_file(base + ".meta");
  return true;
}

// Removes the other versions of the file in `keep`, unless another process is using them.
void remove_stale(const std::string& keep) {
  const size_t slash = keep.rfind('/');
  const std::string prefix = keep.substr(slash + 1, keep.find('-', slash) - slash);
  for_each_meta(keep.substr(0, slash), prefix, [&](const std::string& base) {
    if (base != keep) remove_entry(base);
  });
}

}  // namespace

ChunkStore::ChunkStore(File meta, File data, uint64_t size, std::string base)
    : meta_(std::move(meta)),
      data_(std::move(data)),
      size_(size),
      base_(std::move(base)),
      checked_(static_cast<size_t>(n_chunks())) {}

Result<std::unique_ptr<ChunkStore>> ChunkStore::open(const std::string& dir, const std::string& url,
                                                     const std::string& version, uint64_t size) {
  const std::string key = url + '\n' + version;
  if (key.size() > kMaxKeyBytes || size > kMaxStoreBytes) {
    return error(Code::kIo, "the address or the size of the file is too long for the cache");
  }
  if (!platform::make_directories(dir)) {
    return io_error("cannot create the cache directory", dir);
  }
  const std::string prefix = hash_name(url) + '-';
  const std::string base = dir + "/" + prefix + hash_name(version + '\n' + std::to_string(size));
  File meta = File::open(base + ".meta", Access::kCreate);
  if (!meta.valid()) return io_error("cannot open", base + ".meta");
  File data = File::open(base + ".data", Access::kCreate);
  if (!data.valid()) return io_error("cannot open", base + ".data");
  const auto intact = [&] {
    uint64_t stored = 0;
    return read_meta(meta, &stored) == key && stored == size;
  };
  // With an exclusive lock, this process may create or repair the entry. Otherwise another process
  // is using it, so it must be intact already.
  if (meta.try_lock(LockKind::kExclusive) && !intact() && !write_meta(meta, data, key, size)) {
    return io_error("cannot write", base + ".meta");
  }
  meta.wait_lock(LockKind::kShared);
  if (!intact()) return error(Code::kIo, "the cache entry %s is damaged", base.c_str());
  meta.touch();  // its time of use
  std::unique_ptr<ChunkStore> store(new ChunkStore(std::move(meta), std::move(data), size, base));
  if (store->has(0)) remove_stale(base);
  return store;
}

std::optional<std::vector<uint8_t>> ChunkStore::beginning(const std::string& dir,
                                                          const std::string& url,
                                                          const std::string& version, uint64_t size,
                                                          size_t most, bool* same) {
  std::optional<std::vector<uint8_t>> found;
  *same = false;
  for_each_meta(dir, hash_name(url) + '-', [&](const std::string& base) {
    File meta = File::open(base + ".meta", Access::kReadWrite);
    File data = File::open(base + ".data", Access::kReadWrite);
    if (*same || !meta.valid() || !data.valid()) return;
    if (!meta.try_lock(LockKind::kShared)) return;
    uint64_t stored = 0;
    const std::optional<std::string> key = read_meta(meta, &stored);
    if (!key || key->substr(0, key->find('\n')) != url) return;
    ChunkStore store(std::move(meta), std::move(data), stored);
    std::vector<uint8_t> bytes(std::min<size_t>(most, stored));
    if (!store.has(0) || !store.read(0, 0, bytes).ok()) bytes.clear();
    *same = *key == url + '\n' + version && stored == size;
    if (*same || !found || found->empty()) found = std::move(bytes);
  });
  return found;
}

Result<std::unique_ptr<ChunkStore>> ChunkStore::open_complete(const std::string& dir,
                                                              const std::string& url) {
  std::unique_ptr<ChunkStore> found;
  for_each_meta(dir, hash_name(url) + '-', [&](const std::string& base) {
    File meta = File::open(base + ".meta", Access::kReadWrite);
    File data = File::open(base + ".data", Access::kReadWrite);
    if (found != nullptr || !meta.valid() || !data.valid()) return;
    if (!meta.try_lock(LockKind::kShared)) return;
    uint64_t size = 0;
    const std::optional<std::string> key = read_meta(meta, &size);
    if (!key || key->substr(0, key->find('\n')) != url) return;
    std::unique_ptr<ChunkStore> store(new ChunkStore(std::move(meta), std::move(data), size));
    for (uint64_t c = 0; c < store->n_chunks(); c++) {
      if (!store->has(c)) return;
    }
    found = std::move(store);
  });
  if (found == nullptr) return error(Code::kNotFound, "the file is not completely cached");
  return found;
}

Result<std::unique_ptr<ChunkStore>> ChunkStore::open_temporary(uint64_t size) {
  if (size > kMaxStoreBytes) return error(Code::kIo, "the file is too large for the cache");
  File meta = File::temporary(platform::temporary_directory());
  File data = meta.valid() ? File::temporary(platform::temporary_directory()) : File();
  if (!data.valid()) {
    return io_error("cannot create a temporary file in", platform::temporary_directory());
  }
  if (!write_meta(meta, data, "", size)) return io_error("cannot write", "a temporary file");
  std::unique_ptr<ChunkStore> store(new ChunkStore(std::move(meta), std::move(data), size));
  return store;
}

uint64_t ChunkStore::chunk_bytes(uint64_t chunk) const {
  return std::min(kChunkBytes, size_ - chunk * kChunkBytes);
}

bool ChunkStore::read_record(uint64_t chunk, Record* record) const {
  return read_all(meta_, record, sizeof *record, kRecordsOffset + 8 * chunk) &&
         record->mark == kPresent;
}

bool ChunkStore::has(uint64_t chunk) const {
  Record record{};
  return read_record(chunk, &record);
}

bool ChunkStore::is_checked(uint64_t chunk) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return checked_[static_cast<size_t>(chunk)];
}

void ChunkStore::set_checked(uint64_t chunk, bool value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  checked_[static_cast<size_t>(chunk)] = value;
}

void ChunkStore::drop(uint64_t chunk) {
  const Record none{};
  set_checked(chunk, false);
  (void)meta_.write_at(kRecordsOffset + 8 * chunk, &none, sizeof none);
}

void ChunkStore::clear() {
  for (uint64_t c = 0; c < n_chunks(); c++) drop(c);
}

Status ChunkStore::check(uint64_t chunk) {
  Record record{};
  uint32_t sum = 0;
  bool good = read_record(chunk, &record);
  std::vector<uint8_t> buffer(256 << 10);
  uint64_t left = chunk_bytes(chunk);
  for (uint64_t at = chunk * kChunkBytes; good && left > 0;) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(left, buffer.size()));
    good = read_all(data_, buffer.data(), n, at);
    if (good) sum = checksum(sum, buffer.data(), n);
    at += n;
    left -= n;
  }
  if (good && sum == record.checksum) {
    set_checked(chunk, true);
    return {};
  }
  drop(chunk);
  return error(Code::kCorrupt, "chunk %llu of the cache was damaged",
               static_cast<unsigned long long>(chunk));
}

Status ChunkStore::read(uint64_t chunk, uint64_t offset, std::span<uint8_t> out) {
  if (!is_checked(chunk)) SLUICE_RETURN_IF_ERROR(check(chunk));
  if (read_all(data_, out.data(), out.size(), chunk * kChunkBytes + offset)) return {};
  drop(chunk);
  return error(Code::kCorrupt, "chunk %llu of the cache could not be read",
               static_cast<unsigned long long>(chunk));
}

std::unique_ptr<ChunkStore::Lock> ChunkStore::lock(uint64_t chunk,
                                                   const std::function<bool()>& give_up) {
  while (!meta_.try_lock_byte(kLockBase + chunk)) {
    if (give_up()) return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::make_unique<Lock>(meta_, chunk);
}

ChunkStore::Lock::~Lock() {
  meta_.unlock_byte(kLockBase + chunk_);
}

bool ChunkStore::Writer::append(std::span<const uint8_t> bytes) {
  if (bytes.size() > store_->chunk_bytes(chunk_) - written_) return false;
  if (!store_->data_.write_at(chunk_ * kChunkBytes + written_, bytes.data(), bytes.size())) {
    error_ = errno;
    return false;
  }
  checksum_ = checksum(checksum_, bytes.data(), bytes.size());
  written_ += bytes.size();
  return true;
}

Status ChunkStore::Writer::commit() {
  if (error_ != 0 || written_ != store_->chunk_bytes(chunk_)) {
    return error(Code::kIo, "the cache cannot be written: %s",
                 error_ != 0 ? std::strerror(error_) : "the chunk is incomplete");
  }
  const Record record{checksum_, kPresent};
  if (!store_->meta_.write_at(kRecordsOffset + 8 * chunk_, &record, sizeof record)) {
    return error(Code::kIo, "the cache cannot be written: %s", std::strerror(errno));
  }
  store_->set_checked(chunk_, true);
  if (chunk_ == 0 && !store_->base_.empty()) remove_stale(store_->base_);
  return {};
}

namespace {

// One file in one version.
struct StoredFile {
  std::string url, base;
  uint64_t size = 0;
  uint64_t stored_bytes = 0;
  int64_t used = 0;
};

std::optional<StoredFile> describe(const std::string& base) {
  const File meta = File::open(base + ".meta", Access::kRead);
  platform::FileInfo info;
  StoredFile file;
  if (!meta.valid() || !meta.info(&info)) return std::nullopt;
  const std::optional<std::string> key = read_meta(meta, &file.size);
  if (!key) return std::nullopt;
  file.url = stored_address(key->substr(0, key->find('\n')));
  file.base = base;
  file.used = info.modified;
  const uint64_t chunks = (file.size + ChunkStore::kChunkBytes - 1) / ChunkStore::kChunkBytes;
  for (uint64_t i = 0; i < chunks; ++i) {
    uint32_t record[2] = {0, 0};
    if (!read_all(meta, record, sizeof record, kRecordsOffset + 8 * i)) break;
    if (record[1] != kPresent) continue;
    file.stored_bytes += std::min(ChunkStore::kChunkBytes, file.size - i * ChunkStore::kChunkBytes);
  }
  return file;
}

bool is_text(std::string_view url) {
  const std::string_view path = url.substr(0, url.find('?'));
  const auto ends = [&](std::string_view end) {
    return path.size() > end.size() && path.substr(path.size() - end.size()) == end;
  };
  return ends(".json") || ends(".jinja");
}

// The number of weight files of the model that this file belongs to: N of "-of-0000N.".
size_t parts_of(std::string_view url) {
  const size_t of = url.rfind("-of-");
  if (of == std::string_view::npos || url.size() < of + 10 || url[of + 9] != '.') return 1;
  size_t n = 0;
  for (const char c : url.substr(of + 4, 5)) {
    if (c < '0' || c > '9') return 1;
    n = 10 * n + static_cast<size_t>(c - '0');
  }
  return n;
}

CacheEntry summarize(const std::string& url, std::vector<StoredFile> files) {
  std::sort(files.begin(), files.end(),
            [](const StoredFile& a, const StoredFile& b) { return a.size > b.size; });
  CacheEntry entry;
  entry.url = url;
  size_t weights = 0;
  size_t parts = 1;
  for (const StoredFile& file : files) {
    entry.size += file.size;
    entry.stored_bytes += file.stored_bytes;
    entry.used = std::max(entry.used, file.used);
    entry.bases.push_back(file.base);
    if (is_text(file.url)) continue;
    if (weights++ == 0) parts = parts_of(file.url);
  }
  entry.complete = entry.stored_bytes == entry.size && weights >= parts;
  return entry;
}

// False when the largest of its files is in use; that file then stays.
bool remove_files(const CacheEntry& entry) {
  return std::all_of(entry.bases.begin(), entry.bases.end(), remove_entry);
}

}  // namespace

std::vector<CacheEntry> list_cache(const std::string& dir) {
  std::map<std::string, std::vector<StoredFile>> models;
  for_each_meta(dir, "", [&](const std::string& base) {
    if (auto file = describe(base)) models[model_address(file->url)].push_back(std::move(*file));
  });
  std::vector<CacheEntry> entries;
  for (auto& [url, files] : models) entries.push_back(summarize(url, std::move(files)));
  std::sort(entries.begin(), entries.end(),
            [](const CacheEntry& a, const CacheEntry& b) { return a.used > b.used; });
  return entries;
}

Result<bool> delete_cached(const std::string& dir, const std::string& url) {
  const std::string model = model_address(stored_address(url));
  for (const CacheEntry& entry : list_cache(dir)) {
    if (entry.url != model) continue;
    if (remove_files(entry)) return true;
    return error(Code::kCacheLocked, "%s is in use", public_address(url).c_str());
  }
  return false;
}

std::vector<std::string> evict_cache(const std::string& dir, uint64_t max_bytes) {
  const std::vector<CacheEntry> entries = list_cache(dir);
  uint64_t total = 0;
  for (const CacheEntry& entry : entries) total += entry.stored_bytes;
  std::vector<std::string> evicted;
  for (size_t i = entries.size(); i-- > 0 && total > max_bytes;) {
    if (!remove_files(entries[i])) continue;
    total -= entries[i].stored_bytes;
    evicted.push_back(entries[i].url);
  }
  return evicted;
}

}  // namespace sluice::io
