// Linux and macOS.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "platform/file.h"

namespace sluice::platform {

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

File File::open(const std::string& path, Access access) {
  // O_NONBLOCK: opening a pipe must not wait for a writer. It has no effect on files.
  constexpr int kFlags[] = {O_RDONLY | O_NONBLOCK, O_RDWR, O_RDWR | O_CREAT,
                            O_WRONLY | O_CREAT | O_EXCL};
  return File(::open(path.c_str(), kFlags[static_cast<int>(access)] | O_CLOEXEC, 0666));
}

// Reads until `n` bytes are there or the file ends: after a part of a block, if not before.
static int64_t read_blocks(int fd, uint64_t offset, void* out, size_t n, size_t block) {
  size_t done = 0;
  while (done < n) {
    const ssize_t got =
        ::pread(fd, static_cast<uint8_t*>(out) + done, n - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    done += static_cast<size_t>(got);
    if (got == 0 || done % block != 0) break;
  }
  return static_cast<int64_t>(done);
}

#if defined(O_DIRECT)
File File::open_direct() const {  // not by its path, which may have another file by now
  const std::string path = "/proc/self/fd/" + std::to_string(fd_);
  return File(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
}
#else
File File::open_direct() const {
  return File();
}
#endif

File File::temporary(const std::string& directory) {
  std::string path = directory + "/sluice-XXXXXX";
  File file(::mkstemp(path.data()));
  if (!file.valid()) return file;
  ::fcntl(file.fd_, F_SETFD, FD_CLOEXEC);
  ::unlink(path.c_str());
  return file;
}

bool File::info(FileInfo* out) const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return false;
  out->kind = S_ISREG(info.st_mode)   ? Kind::kFile
              : S_ISDIR(info.st_mode) ? Kind::kDirectory
                                      : Kind::kOther;
  out->size = static_cast<uint64_t>(info.st_size);
  out->modified = info.st_mtime;
  return true;
}

int64_t File::read_at(uint64_t offset, void* out, size_t n) const {
  return read_blocks(fd_, offset, out, n, 1);
}

int64_t File::read_direct(uint64_t offset, void* out, size_t n) const {
  return read_blocks(fd_, offset, out, n, kDirectBlock);
}

bool File::write_at(uint64_t offset, const void* bytes, size_t n) const {
  const auto* from = static_cast<const uint8_t*>(bytes);
  while (n > 0) {
    const ssize_t put = ::pwrite(fd_, from, n, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    from += put;
    offset += static_cast<uint64_t>(put);
    n -= static_cast<size_t>(put);
  }
  return true;
}

bool File::resize(uint64_t size) const {
  return ::ftruncate(fd_, static_cast<off_t>(size)) == 0;
}

void File::touch() const {
  ::futimens(fd_, nullptr);
}

#if defined(__APPLE__)
void File::will_need(uint64_t offset, uint64_t length) const {
  radvisory advice{static_cast<off_t>(offset),
                   static_cast<int>(std::min<uint64_t>(length, 1 << 30))};
  ::fcntl(fd_, F_RDADVISE, &advice);
}

void File::drop_cached(uint64_t, uint64_t) const {
  ::fcntl(fd_, F_NOCACHE, 1);  // of the whole file, from now on
}
#else
void File::will_need(uint64_t offset, uint64_t length) const {
  constexpr uint64_t kStep = 512 << 10;  // Linux cuts longer ones off
  for (uint64_t at = offset; at < offset + length; at += kStep) {
    ::posix_fadvise(fd_, static_cast<off_t>(at),
                    static_cast<off_t>(std::min(kStep, offset + length - at)), POSIX_FADV_WILLNEED);
  }
}

void File::drop_cached(uint64_t offset, uint64_t length) const {
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_DONTNEED);
}
#endif

bool File::try_lock(LockKind kind) const {
  return ::flock(fd_, (kind == LockKind::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0;
}

void File::wait_lock(LockKind kind) const {
  while (::flock(fd_, kind == LockKind::kShared ? LOCK_SH : LOCK_EX) != 0 && errno == EINTR) {
  }
}

#if defined(F_OFD_SETLK)
namespace {

// Locks belong to the open file, not to the process, so two objects of one process exclude each
// other too.
bool set_byte(int fd, uint64_t at, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(at);
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

}  // namespace

bool File::try_lock_byte(uint64_t at) const {
  return set_byte(fd_, at, F_WRLCK);
}

void File::unlock_byte(uint64_t at) const {
  (void)set_byte(fd_, at, F_UNLCK);
}
#else
bool File::try_lock_byte(uint64_t) const {
  return true;
}

void File::unlock_byte(uint64_t) const {}
#endif

std::FILE* File::to_stream(const char* mode) && {
  std::FILE* stream = ::fdopen(fd_, mode);
  if (stream != nullptr) fd_ = -1;
  return stream;
}

bool sync(std::FILE* stream) {
  return std::fflush(stream) == 0 && ::fsync(::fileno(stream)) == 0;
}

std::string with_slashes(std::string path) {
  return path;
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool make_directories(const std::string& path) {
  for (size_t i = 1; i <= path.size(); i++) {
    if (i != path.size() && path[i] != '/') continue;
    if (::mkdir(path.substr(0, i).c_str(), 0755) != 0 && errno != EEXIST) return false;
  }
  return true;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* d = ::opendir(directory.c_str());
  if (d == nullptr) return names;
  while (const dirent* entry = ::readdir(d)) names.emplace_back(entry->d_name);
  ::closedir(d);
  return names;
}

bool remove_file(const std::string& path) {
  return ::unlink(path.c_str()) == 0;
}

bool remove_directory(const std::string& path) {
  return ::rmdir(path.c_str()) == 0;
}

bool rename_file(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str()) == 0;
}

bool free_bytes(const std::string& directory, uint64_t* out) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) return false;
  *out = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  return true;
}

std::string temporary_directory() {
  const char* dir = std::getenv("TMPDIR");
  return dir != nullptr ? dir : "/var/tmp";
}

}  // namespace sluice::platform
