// Reads and writes entries. Nothing in an entry is used before its checksum is verified.
#include "native/prompt_cache.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/hash.h"
#include "platform/file.h"
#include "platform/utf8_path.h"

namespace sluice::native {
namespace {

namespace fs = std::filesystem;
using session::Token;

constexpr uint32_t kMagic = 0x33435053;  // "SPC3"
constexpr size_t kPiece = 64 << 10;
constexpr const char *kSuffix = ".session", *kPart = ".part";

struct Header {
  uint32_t magic = kMagic;
  uint32_t n_tokens = 0;
  session::Fingerprint fingerprint;
  uint64_t state_bytes = 0;
  uint64_t sum = 0;  // checksum of the fields above and of the tokens, which follow
};
static_assert(sizeof(Header) == 24 + sizeof(session::Fingerprint));

uint64_t sum_of(const Header& header, std::span<const Token> tokens) {
  Hash64 sum;
  sum.add(uint64_t{header.n_tokens} << 32 | header.magic);
  sum.add({reinterpret_cast<const uint8_t*>(&header.fingerprint), sizeof header.fingerprint});
  sum.add(header.state_bytes);
  sum.add({reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()});
  return sum.value();
}

struct Close {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

File open_file(const fs::path& path) {
  platform::File file = platform::File::open(platform::to_utf8(path), platform::Access::kRead);
  return file.valid() ? File(std::move(file).to_stream("rb")) : nullptr;
}

bool get(const File& file, void* out, size_t bytes) {
  return std::fread(out, 1, bytes, file.get()) == bytes;
}

// Reads header and tokens. False if they do not match the file's length or the checksum.
bool read_head(const File& file, uint64_t file_bytes, Header* header, std::vector<Token>* tokens) {
  if (!file || !get(file, header, sizeof *header) || header->magic != kMagic) return false;
  const uint64_t room = file_bytes - std::min<uint64_t>(file_bytes, sizeof *header);
  const uint64_t listed = uint64_t{header->n_tokens} * sizeof(Token);
  if (header->n_tokens > static_cast<uint64_t>(model::kMaxContext) || listed > room ||
      header->state_bytes != room - listed) {
    return false;
  }
  tokens->resize(header->n_tokens);
  return get(file, tokens->data(), tokens->size() * sizeof(Token)) &&
         header->sum == sum_of(*header, *tokens);
}

int32_t shared(std::span<const Token> a, std::span<const Token> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<int32_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first - a.begin());
}

struct Stored {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type used;
};

// The directory's entries, most recently used first.
std::vector<Stored> stored(const std::string& directory, const char* suffix = kSuffix) {
  std::vector<Stored> out;
  std::error_code bad;
  for (fs::directory_iterator it(platform::to_path(directory), bad), end; !bad && it != end;
       it.increment(bad)) {
    if (it->path().extension() != suffix) continue;
    std::error_code gone;
    Stored entry{it->path(), it->file_size(gone), {}};
    if (!gone) entry.used = it->last_write_time(gone);
    if (!gone) out.push_back(std::move(entry));
  }
  std::sort(out.begin(), out.end(),
            [](const Stored& a, const Stored& b) { return a.used > b.used; });
  return out;
}

void forget(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

// A new entry while it is written, under a name that no other process uses. Its lock ends with this
// object or the process, which tells the others whether it is abandoned.
class Part {
 public:
  // `entry`: the path when it is complete.
  explicit Part(fs::path entry) : entry_(std::move(entry)) {
    constexpr int kAttempts = 16;
    for (int attempt = 0; attempt < kAttempts && !file_.valid(); ++attempt) {
      char name[32];
      const auto now = std::chrono::system_clock::now().time_since_epoch().count();
      std::snprintf(name, sizeof name, ".%016llx", static_cast<unsigned long long>(now));
      path_ = entry_;
      path_ += std::string(name) + kPart;
      platform::File file =
          platform::File::open(platform::to_utf8(path_), platform::Access::kCreateNew);
      if (!file.valid()) continue;
      // Another process may have taken it for abandoned before it was locked.
      std::error_code gone;
      if (file.try_lock(platform::LockKind::kExclusive) && fs::exists(path_, gone)) {
        file_ = std::move(file);
      }
    }
  }
  ~Part() {
    if (file_.valid() && !complete_) forget(path_);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  [[nodiscard]] bool put(const void* from, size_t bytes) {
    if (!file_.valid() || !file_.write_at(size_, from, bytes)) return false;
    size_ += bytes;
    return true;
  }
  // While it is still locked.
  [[nodiscard]] bool complete() {
    std::error_code bad;
    fs::rename(path_, entry_, bad);
    return complete_ = !bad;
  }

 private:
  fs::path entry_, path_;
  platform::File file_;
  uint64_t size_ = 0;
  bool complete_ = false;
};

// Deletes what processes left that ended while they wrote an entry.
void forget_abandoned(const std::string& directory) {
  constexpr auto kAbandoned = std::chrono::hours(1);  // where files cannot be locked
  for (const Stored& part : stored(directory, kPart)) {
    const std::string path = platform::to_utf8(part.path);
    const auto file = platform::File::open(path, platform::Access::kReadWrite);
    const bool locked = file.valid() && file.try_lock(platform::LockKind::kExclusive);
    const auto again = platform::File::open(path, platform::Access::kReadWrite);
    const bool locks = locked && again.valid() && !again.try_lock(platform::LockKind::kExclusive);
    if (locks || part.used < fs::file_time_type::clock::now() - kAbandoned) forget(part.path);
  }
}

Status unusable(const std::string& path) {
  return error(Code::kCorrupt, "the saved prompt \"%.256s\" is damaged and was deleted",
               path.c_str());
}

}  // namespace

Result<PromptCache> PromptCache::open(const std::string& directory, uint64_t max_bytes,
                                      Model& model) {
  if (max_bytes == 0)
    return error(Code::kInvalidArgument, "a prompt cache needs a size of at least 1 byte");
  std::error_code bad;
  fs::create_directories(platform::to_path(directory), bad);
  if (bad || !fs::is_directory(platform::to_path(directory), bad)) {
    return error(Code::kIo, "the prompt cache directory \"%.256s\" cannot be created",
                 directory.c_str());
  }
  forget_abandoned(directory);
  SLUICE_RETURN_IF_ERROR(model.identify());
  return PromptCache(directory, max_bytes);
}

void PromptCache::visit(const session::SessionContext& context, const Visit& visit) const {
  std::vector<Token> tokens;
  for (const Stored& file : stored(directory_)) {
    Header header;
    if (!read_head(open_file(file.path), file.bytes, &header, &tokens)) {
      forget(file.path);
    } else if (context.fingerprint().difference(header.fingerprint) == nullptr) {
      visit(platform::to_utf8(file.path), tokens);
    }
  }
}

Status PromptCache::load(const std::string& path, session::Session& session) const {
  const File file = open_file(platform::to_path(path));
  Header header;
  std::vector<Token> tokens;
  std::error_code bad;
  if (!read_head(file, fs::file_size(platform::to_path(path), bad), &header, &tokens) || bad)
    return unusable(path);
  SLUICE_RETURN_IF_ERROR(session.begin_restore(header.state_bytes));
  std::vector<uint8_t> piece(kPiece);
  for (uint64_t left = header.state_bytes; left > 0;) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(left, kPiece));
    if (!get(file, piece.data(), n)) {
      session.clear();
      return unusable(path);
    }
    if (Status written = session.write_state({piece.data(), n}); !written.ok()) {
      // restore() chose an entry that fits, so the state is not the one of its head.
      return written.code() == Code::kContextFull ? unusable(path) : written;
    }
    left -= n;
  }
  const auto held = session.tokens();
  if (!std::equal(held.begin(), held.end(), tokens.begin(), tokens.end())) {
    session.clear();
    return unusable(path);
  }
  return {};
}

Result<int32_t> PromptCache::restore(session::Session& session, std::span<const Token> tokens) {
  std::string best;
  int32_t most = shared(session.tokens(), tokens) + kMinReuse - 1;
  const auto room = static_cast<size_t>(session.context().plan.context.n_ctx);
  visit(session.context(), [&](const std::string& path, std::span<const Token> held) {
    const int32_t n = shared(held, tokens);
    if (n <= most || held.size() > room) return;
    most = n;
    best = path;
  });
  if (best.empty()) return 0;
  if (Status loaded = load(best, session); !loaded.ok()) {
    if (loaded.code() == Code::kCorrupt) forget(platform::to_path(best));
    return loaded;
  }
  std::error_code ignored;
  fs::last_write_time(platform::to_path(best), fs::file_time_type::clock::now(), ignored);
  return most;
}

// Deletes the least recently used entries until `room` bytes are free.
void PromptCache::evict(uint64_t room) const {
  uint64_t bytes = room;
  size_t n = 1;
  for (const Stored& file : stored(directory_)) {
    bytes += file.bytes;
    if (bytes > max_bytes_ || ++n > kMaxPromptCacheEntries) forget(file.path);
  }
}

Status PromptCache::save(const session::Session& session) {
  const auto tokens = session.tokens();
  if (tokens.size() < static_cast<size_t>(kMinReuse)) return {};
  Header header;
  header.n_tokens = static_cast<uint32_t>(tokens.size());
  header.fingerprint = session.context().fingerprint();
  if (session.sequence().media().empty()) header.fingerprint.forget_projector();
  header.state_bytes = session.sequence().state_bytes();
  header.sum = sum_of(header, tokens);
  const uint64_t bytes = sizeof header + tokens.size_bytes() + header.state_bytes;
  if (bytes > max_bytes_) return {};
  std::vector<std::string> replaced;
  bool held = false;
  visit(session.context(), [&](const std::string& path, std::span<const Token> other) {
    const size_t n = static_cast<size_t>(shared(other, tokens));
    held |= n == tokens.size();
    // A recurrent state cannot be rewound to an arbitrary prefix, so shorter entries stay useful.
    const bool within = n == other.size() && !session.context().plan.kv.shape.recurrent();
    if (within && n < tokens.size()) replaced.push_back(path);
  });
  if (held) return {};
  char name[32];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(header.sum));
  forget_abandoned(directory_);
  Part part(platform::to_path(directory_) / (std::string(name) + kSuffix));
  const auto fail = [&] {
    return error(Code::kIo, "the prompt could not be saved in \"%.256s\"", directory_.c_str());
  };
  if (!part.put(&header, sizeof header) || !part.put(tokens.data(), tokens.size_bytes())) {
    return fail();
  }
  std::vector<uint8_t> piece(kPiece);
  for (uint64_t at = 0; at < header.state_bytes;) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(header.state_bytes - at, kPiece));
    SLUICE_RETURN_IF_ERROR(session.read_state(at, {piece.data(), n}));
    if (!part.put(piece.data(), n)) return fail();
    at += n;
  }
  for (const std::string& entry : replaced) forget(platform::to_path(entry));
  evict(bytes);
  return part.complete() ? Status() : fail();
}

}  // namespace sluice::native
