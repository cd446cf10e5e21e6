// Writes a temporary file beside the target, then renames it.
#include "cli/atomic_file.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>

#include "cli/cli.h"
#include "gguf/gguf.h"
#include "open/address.h"
#include "platform/file.h"
#include "platform/process.h"
#include "platform/utf8_path.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// Whether both paths name one file, by device and inode.
bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

// Whether `path` belongs to MODEL: the file itself, a part of a split model, or a file in a
// directory.
bool is_part_of(const std::string& model, const fs::path& path) {
  const fs::path whole = platform::to_path(model);
  if (same_file(whole, path)) return true;
  std::error_code ignored;
  if (fs::is_directory(whole, ignored)) {
    for (const auto& entry : fs::directory_iterator(whole, ignored)) {
      if (same_file(entry.path(), path)) return true;
    }
    return false;
  }
  uint32_t count = 0;
  const size_t of = model.rfind("-of-");
  if (of != std::string::npos) {
    std::from_chars(model.data() + of + 4, model.data() + model.size(), count);
  }
  for (uint32_t i = 0; i < count && i < gguf::kMaxSplits; ++i) {
    const std::string part = open::split_name(model, i, count);
    if (!part.empty() && same_file(platform::to_path(part), path)) return true;
  }
  return false;
}

Status unwritable(const std::string& path) {
  const fs::path place = platform::to_path(path);
  const fs::path parent = place.has_parent_path() ? place.parent_path() : fs::path(".");
  std::error_code ignored;
  const char* const why = fs::is_directory(place, ignored)     ? ": it is a directory"
                          : !fs::is_directory(parent, ignored) ? ": its directory does not exist"
                                                               : "";
  return error(Code::kIo, "cannot write the file \"%.256s\"%s", path.c_str(), why);
}

// Temporary names of the files that are being written. Never destroyed: a signal may arrive while
// the process exits.
struct Unfinished {
  std::mutex mutex;
  std::set<std::string> names;
};
Unfinished& unfinished() {
  static auto* all = new Unfinished;
  return *all;
}
void remove_unfinished(const std::string& name) {
  const std::lock_guard<std::mutex> lock(unfinished().mutex);
  platform::remove_file(name);
  unfinished().names.erase(name);
}

}  // namespace

void end_interrupted() {
  unfinished().mutex.lock();  // never unlocked: no file is renamed or created from here on
  for (const std::string& name : unfinished().names) platform::remove_file(name);
  fail(error(Code::kAborted, "interrupted"));
  std::_Exit(130);
}

Result<AtomicFile> AtomicFile::create(const std::string& path, const std::string& model,
                                      Existing existing) {
  const fs::path place = platform::to_path(path);
  if (is_part_of(model, place)) {
    return error(Code::kInvalidArgument,
                 "the output \"%.256s\" is a file of the model; choose another name", path.c_str());
  }
  AtomicFile out;
  out.path_ = path;
  std::error_code ignored;
  const fs::file_status there = fs::status(place, ignored);
  const bool exists = fs::exists(there);
  const bool device = path.rfind("/dev/", 0) == 0 || path.rfind("/proc/", 0) == 0;
  if (device || (exists && !fs::is_regular_file(there))) {
    out.file_.reset(std::fopen(path.c_str(), "wb"));
    if (out.file_ == nullptr) return unwritable(path);
    return out;
  }
  if (exists && existing == Existing::kKeep) {
    return error(Code::kInvalidArgument, "\"%.256s\" exists; --force overwrites it", path.c_str());
  }
  const fs::path target = exists ? fs::canonical(place, ignored) : place;  // follows a link
  if (exists && !platform::File::open(path, platform::Access::kReadWrite).valid()) {
    return unwritable(path);
  }
  out.target_ = platform::to_utf8(target);
  out.beside_ = out.target_ + "." + std::to_string(platform::process_id()) + ".part";
  const std::lock_guard<std::mutex> lock(unfinished().mutex);
  platform::File beside = platform::File::open(out.beside_, platform::Access::kCreateNew);
  if (beside.valid() && exists)
    fs::permissions(platform::to_path(out.beside_), there.permissions() & fs::perms::all, ignored);
  if (beside.valid()) out.file_.reset(std::move(beside).to_stream());
  if (out.file_ == nullptr) {
    out.beside_.clear();
    return unwritable(path);
  }
  unfinished().names.insert(out.beside_);
  return out;
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr && !beside_.empty()) remove_unfinished(beside_);
}

void AtomicFile::write(const void* bytes, size_t n) {
  failed_ = std::fwrite(bytes, 1, n, file_.get()) != n || failed_;
}

void AtomicFile::write_at(uint64_t offset, const void* bytes, size_t n) {
  std::FILE* file = file_.get();
  failed_ = ::fseeko(file, static_cast<off_t>(offset), SEEK_SET) != 0 || failed_;
  write(bytes, n);
  failed_ = ::fseeko(file, 0, SEEK_END) != 0 || failed_;
}

bool AtomicFile::take_name() {
  const std::lock_guard<std::mutex> lock(unfinished().mutex);
  if (!platform::rename_file(beside_, target_)) return false;
  unfinished().names.erase(beside_);
  return true;
}

Status AtomicFile::finish() {
  if (!failed_ && !beside_.empty()) {
    failed_ = !platform::sync(file_.get());
  }
  failed_ = std::fclose(file_.release()) != 0 || failed_;
  if (!failed_ && (beside_.empty() || take_name())) return {};
  if (!beside_.empty()) remove_unfinished(beside_);
  return error(Code::kIo, "cannot write \"%.256s\"", path_.c_str());
}

}  // namespace sluice::cli
