// Windows: C runtime descriptors over handles opened with full sharing, as POSIX files have.
#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "platform/file.h"
#include "platform/wide.h"

namespace sluice::platform {
namespace {

HANDLE handle_of(int fd) {
  return reinterpret_cast<HANDLE>(_get_osfhandle(fd));
}

// Sets errno from the system's last error. Returns false, for use in a return statement.
bool failed() {
  switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_PATHNAME:
      errno = ENOENT;
      break;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_WRITE_PROTECT:
      errno = EACCES;
      break;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS:
      errno = EEXIST;
      break;
    case ERROR_LOCK_VIOLATION:
      errno = EAGAIN;
      break;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL:
      errno = ENOSPC;
      break;
    default:
      errno = EIO;
  }
  return false;
}

int open_handle(const std::wstring& path, DWORD access, DWORD creation, DWORD flags) {
  constexpr DWORD kShare = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  HANDLE handle = CreateFileW(path.c_str(), access, kShare, nullptr, creation,
                              FILE_ATTRIBUTE_NORMAL | flags, nullptr);
  if (handle == INVALID_HANDLE_VALUE) {
    failed();
    return -1;
  }
  const int fd = _open_osfhandle(reinterpret_cast<intptr_t>(handle), _O_BINARY | _O_NOINHERIT);
  if (fd < 0) CloseHandle(handle);
  return fd;
}

OVERLAPPED at_offset(uint64_t offset) {
  OVERLAPPED place{};
  place.Offset = static_cast<DWORD>(offset);
  place.OffsetHigh = static_cast<DWORD>(offset >> 32);
  return place;
}

constexpr size_t kMaxAtOnce = 1u << 30;
constexpr uint64_t kWholeFile = 1ull << 62;  // Windows locks ranges: this byte stands for the file

bool lock_byte(int fd, uint64_t at, DWORD how) {
  OVERLAPPED place = at_offset(at);
  return LockFileEx(handle_of(fd), how, 0, 1, 0, &place) != 0 || failed();
}

// Replaces the file's current lock, if any.
bool lock_whole(int fd, LockKind kind, DWORD how) {
  OVERLAPPED place = at_offset(kWholeFile);
  (void)UnlockFileEx(handle_of(fd), 0, 1, 0, &place);
  return lock_byte(fd, kWholeFile,
                   how | (kind == LockKind::kExclusive ? LOCKFILE_EXCLUSIVE_LOCK : 0));
}

}  // namespace

File::~File() {
  if (fd_ >= 0) _close(fd_);
}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

File File::open(const std::string& path, Access access) {
  constexpr DWORD kReadWrite = GENERIC_READ | GENERIC_WRITE;
  constexpr struct {
    DWORD access, creation;
  } kHow[] = {{GENERIC_READ, OPEN_EXISTING},
              {kReadWrite, OPEN_EXISTING},
              {kReadWrite, OPEN_ALWAYS},
              {GENERIC_WRITE, CREATE_NEW}};
  const auto& how = kHow[static_cast<int>(access)];
  // FILE_FLAG_BACKUP_SEMANTICS opens directories too; info() tells them apart.
  const DWORD flags = access == Access::kRead ? FILE_FLAG_BACKUP_SEMANTICS : 0;
  return File(open_handle(to_wide(path), how.access, how.creation, flags));
}

File File::open_direct() const {
  return File();
}

File File::temporary(const std::string& directory) {
  static std::atomic<uint32_t> count{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string name = "/sluice-" + std::to_string(GetCurrentProcessId()) + "-" +
                             std::to_string(GetTickCount64()) + "-" + std::to_string(count++);
    const int fd = open_handle(to_wide(directory + name), GENERIC_READ | GENERIC_WRITE, CREATE_NEW,
                               FILE_FLAG_DELETE_ON_CLOSE);
    if (fd >= 0 || errno != EEXIST) return File(fd);
  }
  return File();
}

bool File::info(FileInfo* out) const {
  HANDLE handle = handle_of(fd_);
  BY_HANDLE_FILE_INFORMATION info{};
  const DWORD type = GetFileType(handle);
  if (type != FILE_TYPE_DISK) {
    *out = FileInfo{};
    return type != FILE_TYPE_UNKNOWN || failed();
  }
  if (GetFileInformationByHandle(handle, &info) == 0) return failed();
  const bool directory = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
  out->kind = directory ? Kind::kDirectory : Kind::kFile;
  out->size = static_cast<uint64_t>(info.nFileSizeHigh) << 32 | info.nFileSizeLow;
  const uint64_t ticks = static_cast<uint64_t>(info.ftLastWriteTime.dwHighDateTime) << 32 |
                         info.ftLastWriteTime.dwLowDateTime;  // of 100 ns, since 1601
  out->modified = static_cast<int64_t>(ticks / 10'000'000) - 11'644'473'600;
  return true;
}

int64_t File::read_at(uint64_t offset, void* out, size_t n) const {
  size_t done = 0;
  while (done < n) {
    OVERLAPPED place = at_offset(offset + done);
    const DWORD most = static_cast<DWORD>(std::min(n - done, kMaxAtOnce));
    DWORD got = 0;
    if (ReadFile(handle_of(fd_), static_cast<uint8_t*>(out) + done, most, &got, &place) == 0) {
      if (GetLastError() == ERROR_HANDLE_EOF) break;
      failed();
      return -1;
    }
    if (got == 0) break;
    done += got;
  }
  return static_cast<int64_t>(done);
}

int64_t File::read_direct(uint64_t, void*, size_t) const {
  errno = ENOTSUP;
  return -1;
}

bool File::write_at(uint64_t offset, const void* bytes, size_t n) const {
  for (size_t done = 0; done < n;) {
    OVERLAPPED place = at_offset(offset + done);
    const DWORD most = static_cast<DWORD>(std::min(n - done, kMaxAtOnce));
    DWORD put = 0;
    const auto* from = static_cast<const uint8_t*>(bytes) + done;
    if (WriteFile(handle_of(fd_), from, most, &put, &place) == 0 || put == 0) return failed();
    done += put;
  }
  return true;
}

bool File::resize(uint64_t size) const {
  FILE_END_OF_FILE_INFO end{};
  end.EndOfFile.QuadPart = static_cast<LONGLONG>(size);
  return SetFileInformationByHandle(handle_of(fd_), FileEndOfFileInfo, &end, sizeof end) != 0 ||
         failed();
}

void File::touch() const {
  FILETIME now{};
  GetSystemTimeAsFileTime(&now);
  SetFileTime(handle_of(fd_), nullptr, nullptr, &now);
}

void File::will_need(uint64_t, uint64_t) const {}  // no such hint: the system reads ahead itself

void File::drop_cached(uint64_t, uint64_t) const {}

bool File::try_lock(LockKind kind) const {
  return lock_whole(fd_, kind, LOCKFILE_FAIL_IMMEDIATELY);
}

void File::wait_lock(LockKind kind) const {
  (void)lock_whole(fd_, kind, 0);
}

bool File::try_lock_byte(uint64_t at) const {
  return lock_byte(fd_, at, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY) || errno != EAGAIN;
}

void File::unlock_byte(uint64_t at) const {
  OVERLAPPED place = at_offset(at);
  (void)UnlockFileEx(handle_of(fd_), 0, 1, 0, &place);
}

std::FILE* File::to_stream(const char* mode) && {
  std::FILE* stream = _fdopen(fd_, mode);
  if (stream != nullptr) fd_ = -1;
  return stream;
}

bool sync(std::FILE* stream) {
  return std::fflush(stream) == 0 && _commit(_fileno(stream)) == 0;
}

// The system does not normalize paths that begin with \\?\.
std::string with_slashes(std::string path) {
  if (!path.starts_with("\\\\?\\")) std::replace(path.begin(), path.end(), '\\', '/');
  return path;
}

bool is_directory(const std::string& path) {
  const DWORD attributes = GetFileAttributesW(to_wide(path).c_str());
  return attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

bool make_directories(const std::string& path) {
  for (size_t i = 1; i <= path.size(); i++) {
    if (i != path.size() && path[i] != '/' && path[i] != '\\') continue;
    const std::string part = path.substr(0, i);
    if (CreateDirectoryW(to_wide(part).c_str(), nullptr) == 0 && !is_directory(part)) {
      return failed();
    }
  }
  return true;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  WIN32_FIND_DATAW entry;
  HANDLE search = FindFirstFileW(to_wide(directory + "/*").c_str(), &entry);
  if (search == INVALID_HANDLE_VALUE) return names;
  do {
    names.push_back(from_wide(entry.cFileName));
  } while (FindNextFileW(search, &entry) != 0);
  FindClose(search);
  return names;
}

bool remove_file(const std::string& path) {
  return DeleteFileW(to_wide(path).c_str()) != 0 || failed();
}

bool remove_directory(const std::string& path) {
  return RemoveDirectoryW(to_wide(path).c_str()) != 0 || failed();
}

bool rename_file(const std::string& from, const std::string& to) {
  constexpr DWORD kHow = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
  return MoveFileExW(to_wide(from).c_str(), to_wide(to).c_str(), kHow) != 0 || failed();
}

bool free_bytes(const std::string& directory, uint64_t* out) {
  ULARGE_INTEGER room{};
  if (GetDiskFreeSpaceExW(to_wide(directory).c_str(), &room, nullptr, nullptr) == 0) {
    return failed();
  }
  *out = room.QuadPart;
  return true;
}

std::string temporary_directory() {
  wchar_t path[MAX_PATH + 2];
  const DWORD length = GetTempPathW(MAX_PATH + 2, path);
  std::string out = length > 0 && length < MAX_PATH + 2 ? from_wide(path) : ".";
  while (out.size() > 3 && out.back() == '\\') out.pop_back();
  return out;
}

}  // namespace sluice::platform
