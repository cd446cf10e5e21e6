// The platform layer behaves the same on every system. Suite `windows` runs this under Wine.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "platform/available_memory.h"
#include "platform/calendar.h"
#include "platform/console.h"
#include "platform/file.h"
#include "platform/memory.h"
#include "platform/process.h"
#include "platform/socket.h"
#include "platform/threads.h"
#include "platform/unicode_case.h"
#include "platform/wakeup.h"

namespace sluice::platform {
namespace {

// A directory of the test's own, with a non-ASCII name.
class PlatformFiles : public testing::Test {
 protected:
  PlatformFiles()
      : dir_(testing::TempDir() + "sluice-pl\xc3\xa4tze-" + std::to_string(process_id()) + "/a") {
    EXPECT_TRUE(make_directories(dir_));
  }
  ~PlatformFiles() override {
    for (const std::string& name : names_in(dir_)) {
      if (name != "." && name != "..") remove_file(path(name));
    }
  }
  [[nodiscard]] std::string path(const std::string& name) const { return dir_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    const File file = File::open(path(name), Access::kCreate);
    ASSERT_TRUE(file.valid());
    ASSERT_TRUE(file.resize(0));
    ASSERT_TRUE(file.write_at(0, text.data(), text.size()));
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    const File file = File::open(path(name), Access::kRead);
    char text[64];
    const int64_t n = file.valid() ? file.read_at(0, text, sizeof text) : -1;
    return n < 0 ? "(nothing)" : std::string(text, static_cast<size_t>(n));
  }

  const std::string dir_;
};

TEST_F(PlatformFiles, ReadAndWriteAtPositions) {
  const File file = File::open(path("d\xc3\xa9j\xc3\xa0"), Access::kCreate);
  ASSERT_TRUE(file.valid());
  EXPECT_TRUE(file.write_at(3, "def", 3));
  EXPECT_TRUE(file.write_at(0, "abc", 3));
  char text[8];
  EXPECT_EQ(file.read_at(1, text, 8), 5);
  EXPECT_EQ(std::string(text, 5), "bcdef");
  EXPECT_EQ(file.read_at(6, text, 8), 0);
  EXPECT_EQ(file.read_at(100, text, 8), 0);

  constexpr uint64_t kFar = 5ull << 30;  // beyond 32 bits, in a sparse file
  EXPECT_TRUE(file.write_at(kFar, "end", 3));
  EXPECT_EQ(file.read_at(kFar - 1, text, 8), 4);
  EXPECT_EQ(std::memcmp(text, "\0end", 4), 0);
  EXPECT_TRUE(file.resize(2));
  file.will_need(0, 2);
  file.drop_cached(0, 0);
  FileInfo info;
  ASSERT_TRUE(file.info(&info));
  EXPECT_EQ(info.kind, Kind::kFile);
  EXPECT_EQ(info.size, 2u);
  file.touch();
  EXPECT_LT(std::abs(static_cast<double>(std::time(nullptr)) - static_cast<double>(info.modified)),
            3600.0);
  const auto names = names_in(dir_);
  EXPECT_EQ(std::count(names.begin(), names.end(), "d\xc3\xa9j\xc3\xa0"), 1);
}

TEST_F(PlatformFiles, OpenErrorsHaveAReason) {
  EXPECT_FALSE(File::open(path("none"), Access::kRead).valid());
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(File::open(path("none"), Access::kReadWrite).valid());
  write("there", "x");
  EXPECT_FALSE(File::open(path("there"), Access::kCreateNew).valid());
  EXPECT_EQ(errno, EEXIST);
  EXPECT_TRUE(File::open(path("new"), Access::kCreateNew).valid());

  const File directory = File::open(dir_, Access::kRead);
  FileInfo info;
  ASSERT_TRUE(directory.valid() && directory.info(&info));
  EXPECT_EQ(info.kind, Kind::kDirectory);
  EXPECT_TRUE(is_directory(dir_));
  EXPECT_FALSE(is_directory(path("there")));
  EXPECT_FALSE(is_directory(path("none")));
  EXPECT_FALSE(make_directories(path("there/below")));
  EXPECT_TRUE(names_in(path("none")).empty());
}

TEST_F(PlatformFiles, CanBeRenamedOverAnother) {
  write("old", "old");
  write("new", "new");
  EXPECT_TRUE(rename_file(path("new"), path("old")));
  EXPECT_EQ(read("old"), "new");
  EXPECT_EQ(read("new"), "(nothing)");
  EXPECT_FALSE(rename_file(path("none"), path("old")));
  EXPECT_TRUE(remove_file(path("old")));
  EXPECT_FALSE(remove_file(path("old")));
}

TEST_F(PlatformFiles, WriteStreamsWithoutConversion) {
  std::FILE* stream = File::open(path("out"), Access::kCreateNew).to_stream();
  ASSERT_NE(stream, nullptr);
  EXPECT_GE(std::fputs("one\ntwo\r\n", stream), 0);
  EXPECT_TRUE(sync(stream));
  EXPECT_EQ(std::fclose(stream), 0);
  EXPECT_EQ(read("out"), "one\ntwo\r\n");
}

TEST_F(PlatformFiles, LocksExcludeOtherHandles) {
  write("lock", "text");
  const File one = File::open(path("lock"), Access::kReadWrite);
  const File two = File::open(path("lock"), Access::kReadWrite);
  EXPECT_TRUE(one.try_lock(LockKind::kExclusive));
  EXPECT_FALSE(two.try_lock(LockKind::kShared));
  one.wait_lock(LockKind::kShared);
  EXPECT_TRUE(two.try_lock(LockKind::kShared));
  EXPECT_FALSE(one.try_lock(LockKind::kExclusive));
  EXPECT_EQ(read("lock"), "text");  // a reader without a lock is not blocked
}

#if !defined(__APPLE__)  // macOS locks belong to processes, not to files
TEST_F(PlatformFiles, ByteLocksAreIndependent) {
  write("lock", "text");
  const File one = File::open(path("lock"), Access::kReadWrite);
  const File two = File::open(path("lock"), Access::kReadWrite);
  constexpr uint64_t kFar = 1ull << 40;
  EXPECT_TRUE(one.try_lock_byte(kFar));
  EXPECT_FALSE(two.try_lock_byte(kFar));
  EXPECT_TRUE(two.try_lock_byte(kFar + 1));
  one.unlock_byte(kFar);
  EXPECT_TRUE(two.try_lock_byte(kFar));
}
#endif

TEST_F(PlatformFiles, TemporaryOnesHaveNoName) {
  const File one = File::temporary(temporary_directory());
  const File two = File::temporary(temporary_directory());
  ASSERT_TRUE(one.valid() && two.valid());
  EXPECT_TRUE(one.write_at(0, "1", 1) && two.write_at(0, "2", 1));
  char text = 0;
  EXPECT_EQ(one.read_at(0, &text, 1), 1);
  EXPECT_EQ(text, '1');
  uint64_t room = 0;
  EXPECT_TRUE(free_bytes(temporary_directory(), &room));
  EXPECT_GT(room, 0u);
  EXPECT_FALSE(free_bytes(path("none"), &room));
}

TEST(PlatformPaths, UseOneSeparator) {
  EXPECT_EQ(with_slashes("a/b.c"), "a/b.c");
#if defined(_WIN32)
  EXPECT_EQ(with_slashes("C:\\a\\b/c"), "C:/a/b/c");
  EXPECT_EQ(with_slashes("\\\\?\\C:\\a"), "\\\\?\\C:\\a");
#else
  EXPECT_EQ(with_slashes("a\\b"), "a\\b");  // a file name
#endif
}

TEST(PlatformMemory, IsAlignedForAnySize) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{300} << 10, size_t{5} << 20}) {
    auto* memory = static_cast<unsigned char*>(reserve(bytes));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    memory[0] = 1;
    memory[bytes - 1] = 2;
    discard(memory + bytes / 2, bytes / 4);
    EXPECT_EQ(memory[bytes - 1] + (bytes > 1 ? memory[0] : 1), 3);
    release(memory, bytes);
  }
}

TEST(PlatformThreads, RunAndWake) {
  std::atomic<uint32_t> word{0};
  Thread thread;
  const auto main = [](void* context) -> void* {
    auto& flag = *static_cast<std::atomic<uint32_t>*>(context);
    while (flag.load() == 0) futex_wait(flag, 0);
    flag = 2;
    futex_wake_all(flag);
    return nullptr;
  };
  ASSERT_TRUE(thread.start(1 << 20, main, &word));
  yield();
  word = 1;
  futex_wake_all(word);
  while (word.load() == 1) futex_wait(word, 1);
  thread.join();
  EXPECT_EQ(word.load(), 2u);
  EXPECT_GE(usable_cpus(false), 1);
  EXPECT_GE(usable_cpus(true), usable_cpus(false));
  const double before = thread_cpu_ms();
  for (int i = 0; i < 1000; ++i) word += 1;
  EXPECT_GE(thread_cpu_ms(), before);
}

TEST(PlatformUnicodeCase, HaveUpperCase) {
  EXPECT_EQ(upper_case('a'), uint32_t{'A'});
  EXPECT_EQ(upper_case(0xe9), 0xc9u);
  EXPECT_EQ(upper_case(0x436), 0x416u);
  EXPECT_EQ(upper_case(0x3042), 0x3042u);
}

TEST(PlatformMemory, SomeIsAvailable) {
  if (current_system() == System::kMac) GTEST_SKIP() << "unknown";
  EXPECT_GT(available_memory(), 1u << 20);
}

TEST(PlatformCalendar, ConvertsFromTheEpoch) {
  const std::tm epoch = utc_time(0);
  EXPECT_EQ(epoch.tm_year, 70);
  EXPECT_EQ(epoch.tm_yday, 0);
  EXPECT_EQ(epoch.tm_hour, 0);
  EXPECT_EQ(local_time(86400 * 200).tm_year, 70);
}

TEST(PlatformWakeup, CanBeWaitedForWithASocket) {
  Wakeup first, second;
  ASSERT_TRUE(first.usable() && second.usable());
  const auto woken = [&](int timeout_ms) {
    return wait_for(first.descriptor(), Until::kInput, second.descriptor(), timeout_ms);
  };
  EXPECT_FALSE(woken(0).socket || woken(0).other || woken(0).failed);
  for (int i = 0; i < 100'000; ++i) second.raise();  // more than a pipe or socket holds
  EXPECT_TRUE(woken(-1).other && !woken(-1).socket);
  second.lower();
  EXPECT_FALSE(woken(0).other);
  first.raise();
  EXPECT_TRUE(woken(-1).socket && !woken(-1).other);
  EXPECT_FALSE(wait_for(second.descriptor(), Until::kInput, -1, 0).socket);
}

TEST(PlatformWakeup, StaysRaisedUntilLowered) {
  Wakeup wakeup;
  ASSERT_TRUE(wakeup.usable());
  for (int i = 0; i < 3; ++i) wakeup.raise();
  EXPECT_TRUE(wakeup.raised());
  char byte = 0;
  EXPECT_EQ(read_input(&byte, 0, wakeup), -1);
  wakeup.lower();
  EXPECT_FALSE(wakeup.raised());
}

}  // namespace
}  // namespace sluice::platform
