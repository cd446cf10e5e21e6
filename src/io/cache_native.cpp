// The model cache over directories with two files each. The header explains the layout.
#include "io/cache_native.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <map>
#include <string_view>
#include <thread>

#include "io/address.h"
#include "io/byte_source.h"

namespace sluice::io {

namespace {

using platform::Access;
using platform::File;

constexpr int64_t kLeftoverSeconds = 3600;  // age of a temporary directory that is deleted

Status io_error(const char* what, const std::string& path) {
  return error(Code::kIo, "%s %s: %s", what, path.c_str(), std::strerror(errno));
}

bool read_all(const File& file, void* out, size_t n, uint64_t offset) {
  return file.read_at(offset, out, n) == static_cast<int64_t>(n);
}

int64_t now_ms() {
  using std::chrono::milliseconds;
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::optional<CacheHeader> read_header(const File& index) {
  std::vector<uint8_t> bytes(kCacheHeaderBytes);
  if (!index.valid() || !read_all(index, bytes.data(), bytes.size(), 0)) return std::nullopt;
  return decode_cache_header(bytes);
}

bool same_file(const CacheHeader& a, const CacheHeader& b) {
  return a.url == b.url && a.size == b.size && a.etag == b.etag &&
         a.last_modified == b.last_modified;
}

// Deletes a directory and its files.
void remove_tree(const std::string& path) {
  for (const std::string& name : platform::names_in(path)) platform::remove_file(path + "/" + name);
  platform::remove_directory(path);
}

// Deletes an entry: it vanishes at once, and readers that have it open keep its bytes.
bool discard(const std::string& path) {
  const std::string gone = path.substr(0, path.rfind('/') + 1) + temporary_name();
  if (!platform::rename_file(path, gone)) return false;
  remove_tree(gone);
  return true;
}

// False when it is in use.
bool remove_entry(const std::string& path) {
  return !is_in_use(path) && discard(path);
}

// Makes an entry under another name first, so that it never exists without its header.
bool make_entry(const std::string& dir, const std::string& path, std::span<const uint8_t> header) {
  const std::string made = dir + "/" + temporary_name();
  if (!platform::make_directories(made)) return false;
  const File index = File::open(made + "/index", Access::kCreateNew);
  const bool good = index.valid() && index.write_at(0, header.data(), header.size());
  if (good && platform::rename_file(made, path)) return true;
  const int why = errno;
  remove_tree(made);
  errno = why;
  return good;  // another process was faster
}

std::optional<CachedFile> describe(const std::string& path) {
  const File index = File::open(path + "/index", Access::kRead);
  std::optional<CacheHeader> header = read_header(index);
  if (!header) return std::nullopt;
  CachedFile file{path, std::move(*header), 0};
  platform::FileInfo info;
  if (!index.info(&info)) return std::nullopt;
  const uint64_t present = (std::max(info.size, kCacheHeaderBytes) - kCacheHeaderBytes) / 8;
  std::vector<CacheRecord> records(std::min(present, file.header.n_chunks()));
  (void)index.read_at(kCacheHeaderBytes, records.data(), records.size() * sizeof(CacheRecord));
  const uint64_t chunk = file.header.chunk_bytes;
  for (uint64_t i = 0; i < records.size(); ++i) {
    if (records[i].mark != CacheRecord::kMark) continue;
    file.stored_bytes += std::min(chunk, file.header.size - i * chunk);
  }
  return file;
}

std::vector<CachedFile> files_in(const std::string& dir, const std::string& prefix) {
  std::vector<CachedFile> files;
  for (const std::string& name : platform::names_in(dir)) {
    if (!is_cache_name(name) || !name.starts_with(prefix)) continue;
    if (auto file = describe(dir + "/" + name)) files.push_back(std::move(*file));
  }
  return files;
}

// Deletes what killed processes left, damaged entries, and those of earlier formats.
void clean(const std::string& dir) {
  for (const std::string& name : platform::names_in(dir)) {
    const std::string path = dir + "/" + name;
    if (name.starts_with("tmp-")) {
      platform::FileInfo info;
      const File file = File::open(path, Access::kRead);
      if (file.valid() && file.info(&info) &&
          std::time(nullptr) - info.modified >= kLeftoverSeconds) {
        remove_tree(path);
      }
    } else if (is_cache_name(name) && !describe(path)) {
      (void)remove_entry(path);
    }
  }
}

}  // namespace

ChunkStore::ChunkStore(File index, File data, CacheHeader header, std::string path,
                       std::unique_ptr<UseLock> in_use)
    : index_(std::move(index)),
      data_(std::move(data)),
      header_(std::move(header)),
      path_(std::move(path)),
      in_use_(std::move(in_use)),
      checked_(static_cast<size_t>(n_chunks())) {}

std::vector<CachedFile> ChunkStore::versions(const std::string& dir, const std::string& url) {
  std::vector<CachedFile> files = files_in(dir, cache_prefix(url));
  std::erase_if(files, [&](const CachedFile& file) { return file.header.url != url; });
  return files;
}

std::unique_ptr<ChunkStore> ChunkStore::open(const std::string& path, const CacheHeader& header) {
  auto in_use = std::make_unique<UseLock>(path);
  // A cache that cannot be written still serves what it has.
  File index = File::open(path + "/index", Access::kReadWrite);
  if (!index.valid()) index = File::open(path + "/index", Access::kRead);
  std::optional<CacheHeader> found = read_header(index);
  if (!found || !same_file(*found, header)) return nullptr;
  File data = File::open(path + "/data", Access::kCreate);
  if (!data.valid()) data = File::open(path + "/data", Access::kRead);
  if (!data.valid()) return nullptr;
  const auto now = static_cast<double>(now_ms());
  (void)index.write_at(kCacheUsedOffset, &now, sizeof now);
  return std::unique_ptr<ChunkStore>(new ChunkStore(std::move(index), std::move(data),
                                                    std::move(*found), path, std::move(in_use)));
}

Result<std::unique_ptr<ChunkStore>> ChunkStore::create(const std::string& dir, CacheHeader header,
                                                       std::span<const uint8_t> head,
                                                       uint64_t max_bytes) {
  header.chunk_bytes = kCacheChunkBytes;
  header.created = header.used = now_ms();
  const std::vector<uint8_t> bytes = encode_cache_header(header);
  if (bytes.empty() || header.size > kMaxCachedBytes) {
    return error(Code::kIo, "the address or the size of the file is too long for the cache");
  }
  if (!platform::make_directories(dir)) {
    return io_error("cannot create the cache directory", dir);
  }
  const std::string path = dir + "/" + cache_name(header, head);
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (std::unique_ptr<ChunkStore> store = open(path, header)) return store;
    if (attempt == 0) {
      clean(dir);
      if (max_bytes > 0) {
        if (header.size > max_bytes) {
          return error(Code::kIo, "the file is larger than the cache may be");
        }
        (void)evict_cache(dir, max_bytes - header.size);
      }
    } else {
      (void)discard(path);  // damaged, or another file's
    }
    if (!make_entry(dir, path, bytes)) return io_error("cannot write", path);
  }
  return error(Code::kIo, "cannot open %s", path.c_str());
}

Result<std::unique_ptr<ChunkStore>> ChunkStore::open_temporary(uint64_t size) {
  if (size > kMaxCachedBytes) return error(Code::kIo, "the file is too large for the cache");
  const std::string dir = platform::temporary_directory();
  File index = File::temporary(dir);
  File data = index.valid() ? File::temporary(dir) : File();
  if (!data.valid()) return io_error("cannot create a temporary file in", dir);
  CacheHeader header;
  header.size = size;
  header.chunk_bytes = kCacheChunkBytes;
  return std::unique_ptr<ChunkStore>(
      new ChunkStore(std::move(index), std::move(data), std::move(header), "", nullptr));
}

uint64_t ChunkStore::chunk_bytes(uint64_t chunk) const {
  return std::min<uint64_t>(header_.chunk_bytes, size() - chunk * header_.chunk_bytes);
}

uint64_t ChunkStore::block_bytes(uint64_t block) const {
  return std::min(kBlockBytes, size() - block * kBlockBytes);
}

std::vector<CacheRecord> ChunkStore::records(uint64_t first, uint64_t end) const {
  std::vector<CacheRecord> out(static_cast<size_t>(end - first));
  (void)index_.read_at(kCacheHeaderBytes + first * sizeof(CacheRecord), out.data(),
                       out.size() * sizeof(CacheRecord));  // what is past the end is missing
  return out;
}

bool ChunkStore::has(uint64_t chunk) const {
  return records(chunk, chunk + 1)[0].mark == CacheRecord::kMark;
}

std::vector<ChunkStore::Run> ChunkStore::missing(uint64_t block) const {
  const uint64_t each = kBlockBytes / header_.chunk_bytes;
  const uint64_t first = block * each;
  const uint64_t end = std::min(first + each, n_chunks());
  const std::vector<CacheRecord> found = records(first, end);
  std::vector<Run> runs;
  for (uint64_t i = first; i < end; ++i) {
    if (found[i - first].mark == CacheRecord::kMark) continue;
    if (!runs.empty() && runs.back().end == i) {
      runs.back().end = i + 1;
    } else {
      runs.push_back({i, i + 1});
    }
  }
  return runs;
}

bool ChunkStore::has_block(uint64_t block) const {
  return missing(block).empty();
}

uint64_t ChunkStore::missing_bytes() const {
  uint64_t bytes = 0;
  for (uint64_t block = 0; block < n_blocks(); ++block) {
    for (const Run& run : missing(block)) {
      bytes += (run.end - run.first - 1) * header_.chunk_bytes + chunk_bytes(run.end - 1);
    }
  }
  return bytes;
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
  const CacheRecord none{};
  set_checked(chunk, false);
  (void)index_.write_at(kCacheHeaderBytes + chunk * sizeof none, &none, sizeof none);
}

void ChunkStore::remove_others() const {
  if (path_.empty()) return;
  for (const CachedFile& file : versions(path_.substr(0, path_.rfind('/')), header_.url)) {
    if (file.path != path_) (void)remove_entry(file.path);
  }
}

Status ChunkStore::check(uint64_t chunk) {
  const CacheRecord record = records(chunk, chunk + 1)[0];
  std::vector<uint8_t> bytes(static_cast<size_t>(chunk_bytes(chunk)));
  if (record.mark == CacheRecord::kMark &&
      read_all(data_, bytes.data(), bytes.size(), chunk * header_.chunk_bytes) &&
      xxh32(bytes) == record.checksum) {
    set_checked(chunk, true);
    return {};
  }
  drop(chunk);
  return error(Code::kCorrupt, "chunk %llu of the cache was damaged",
               static_cast<unsigned long long>(chunk));
}

Status ChunkStore::read(uint64_t offset, std::span<uint8_t> out) {
  if (out.empty()) return {};
  const uint64_t first = offset / header_.chunk_bytes;
  const uint64_t last = (offset + out.size() - 1) / header_.chunk_bytes;
  Status damaged;  // all of them are dropped, so that one request replaces them
  for (uint64_t chunk = first; chunk <= last; ++chunk) {
    if (is_checked(chunk)) continue;
    Status status = check(chunk);
    if (!status.ok()) damaged = std::move(status);
  }
  SLUICE_RETURN_IF_ERROR(damaged);
  const int64_t got = data_.read_at(offset, out.data(), out.size());
  if (got == static_cast<int64_t>(out.size())) return {};
  // The data was shortened.
  const uint64_t end = offset + static_cast<uint64_t>(std::max<int64_t>(got, 0));
  for (uint64_t chunk = end / header_.chunk_bytes; chunk <= last; ++chunk) drop(chunk);
  return error(Code::kCorrupt, "chunk %llu of the cache could not be read",
               static_cast<unsigned long long>(end / header_.chunk_bytes));
}

std::unique_ptr<BlockLock> ChunkStore::lock(uint64_t block, const std::function<bool()>& give_up) {
  for (;;) {
    if (auto lock = BlockLock::try_take(path_, block)) return lock;
    if (give_up()) return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Status ChunkStore::write(uint64_t chunk, std::span<const uint8_t> bytes) {
  const CacheRecord record{CacheRecord::kMark, xxh32(bytes)};
  if (!data_.write_at(chunk * header_.chunk_bytes, bytes.data(), bytes.size()) ||
      !index_.write_at(kCacheHeaderBytes + chunk * sizeof record, &record, sizeof record)) {
    return error(Code::kIo, "the cache cannot be written: %s", std::strerror(errno));
  }
  set_checked(chunk, true);
  if (chunk == 0) remove_others();
  return {};
}

bool ChunkStore::Writer::append(std::span<const uint8_t> bytes) {
  while (!bytes.empty() && status_.ok()) {
    if (chunk_ >= store_->n_chunks()) {
      status_ = error(Code::kIo, "the file is longer than the cache expects");
      break;
    }
    const uint64_t whole = store_->chunk_bytes(chunk_);
    const size_t n = std::min(bytes.size(), static_cast<size_t>(whole) - bytes_.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (bytes_.size() < whole) break;
    status_ = store_->write(chunk_++, bytes_);
    bytes_.clear();
  }
  return status_.ok();
}

namespace {

bool is_text(std::string_view url) {
  const std::string_view path = url.substr(0, url.find('?'));
  return path.ends_with(".json") || path.ends_with(".jinja");
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

CacheEntry summarize(const std::string& url, std::vector<CachedFile> files) {
  std::sort(files.begin(), files.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.header.size > b.header.size; });
  CacheEntry entry;
  entry.url = url;
  entry.created = files[0].header.created;
  size_t weights = 0;
  size_t parts = 1;
  for (const CachedFile& file : files) {
    entry.size += file.header.size;
    entry.stored_bytes += file.stored_bytes;
    entry.created = std::min(entry.created, file.header.created);
    entry.used = std::max(entry.used, file.header.used);
    if (is_text(file.header.url)) continue;
    if (weights++ == 0) parts = parts_of(file.header.url);
  }
  entry.complete = entry.stored_bytes == entry.size && weights >= parts;
  entry.files = std::move(files);
  return entry;
}

// False when one of its files is in use; all of them then stay.
bool remove_files(const CacheEntry& entry) {
  const auto used = [](const CachedFile& file) { return is_in_use(file.path); };
  if (std::any_of(entry.files.begin(), entry.files.end(), used)) return false;
  bool removed = true;
  for (const CachedFile& file : entry.files) removed = remove_entry(file.path) && removed;
  return removed;
}

}  // namespace

std::vector<CacheEntry> list_cache(const std::string& dir) {
  std::map<std::string, std::vector<CachedFile>> models;
  for (CachedFile& file : files_in(dir, "")) {
    models[model_address(stored_address(file.header.url))].push_back(std::move(file));
  }
  std::vector<CacheEntry> entries;
  for (auto& [url, files] : models) entries.push_back(summarize(url, std::move(files)));
  std::sort(entries.begin(), entries.end(),
            [](const CacheEntry& a, const CacheEntry& b) { return a.used > b.used; });
  return entries;
}

std::vector<CachedModel> cached_models(const std::string& cache_dir) {
  std::vector<CachedModel> out;
  if (cache_dir.empty()) return out;
  for (const CacheEntry& entry : list_cache(cache_dir)) {
    if (entry.complete) out.push_back({entry.url, entry.size});
  }
  return out;
}

std::optional<CacheEntry> find_cached(const std::string& dir, const std::string& url) {
  const std::string model = model_address(stored_address(url));
  for (CacheEntry& entry : list_cache(dir)) {
    if (entry.url == model) return std::move(entry);
  }
  return std::nullopt;
}

Result<bool> delete_cached(const std::string& dir, const std::string& url) {
  const std::optional<CacheEntry> entry = find_cached(dir, url);
  if (!entry) return false;
  if (remove_files(*entry)) return true;
  return error(Code::kCacheLocked, "%s is in use", public_address(url).c_str());
}

std::vector<std::string> evict_cache(const std::string& dir, uint64_t max_bytes) {
  clean(dir);
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
