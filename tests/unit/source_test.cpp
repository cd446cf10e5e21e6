// Memory and file sources: exact bytes, and every kind of wrong path.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "io/byte_source.h"
#include "io/direct_io_native.h"

namespace sluice::io {
namespace {

class FileSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("sluice-file-" + std::to_string(::getpid()));
    std::filesystem::create_directory(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  [[nodiscard]] std::string path(const char* name) const { return (dir_ / name).string(); }

  std::filesystem::path dir_;
};

std::vector<uint8_t> pattern(size_t n) {
  std::vector<uint8_t> v(n);
  for (size_t i = 0; i < n; i++) v[i] = static_cast<uint8_t>(i * 7 + (i >> 8));
  return v;
}

void check_reads(ByteSource& source, const std::vector<uint8_t>& bytes) {
  ASSERT_EQ(source.size(), bytes.size());
  for (const size_t offset : {size_t{0}, size_t{1}, size_t{999}, bytes.size()}) {
    for (const size_t length : {size_t{0}, size_t{1}, size_t{500}}) {
      std::vector<uint8_t> out(length);
      const Status status = source.read(offset, out);
      if (offset + length > bytes.size()) {
        EXPECT_EQ(status.code(), Code::kTruncated);
        continue;
      }
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(
          std::equal(out.begin(), out.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset)));
    }
  }
  std::vector<uint8_t> one(1);
  EXPECT_EQ(source.read(~uint64_t{0}, one).code(), Code::kTruncated);
}

TEST(MemorySource, Reads) {
  const auto bytes = pattern(5000);
  check_reads(*open_memory(bytes), bytes);
}

TEST_F(FileSourceTest, Reads) {
  const auto bytes = pattern(5000);
  std::ofstream(path("a"), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  auto source = open_file(path("a"));
  ASSERT_TRUE(source.ok()) << source.status().message();
  check_reads(**source, bytes);

  std::filesystem::resize_file(path("a"), 100);  // another program truncates it meanwhile
  std::vector<uint8_t> out(500);
  EXPECT_EQ((*source)->read(50, out).code(), Code::kTruncated);
}

class DirectIoTest : public FileSourceTest {
 protected:
  // A source of these bytes that reads without the page cache; null: the file system cannot.
  std::unique_ptr<ByteSource> open(const std::vector<uint8_t>& bytes) {
    std::ofstream(path("d"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    auto source = open_file(path("d"));
    auto buffers = DirectBuffers::make(2);
    EXPECT_TRUE(source.ok() && buffers.ok());
    EXPECT_EQ((*source)->place(7, 1), ByteSource::kNoPlace) << "the page cache joins reads itself";
    if (!(*source)->use_direct_io(*buffers)) return nullptr;
    return std::move(*source);
  }
};

TEST_F(DirectIoTest, ReadsAnyRange) {
  const auto bytes = pattern((5 << 20) + 777);
  const std::unique_ptr<ByteSource> source = open(bytes);
  if (source == nullptr) GTEST_SKIP() << "no direct I/O in " << dir_;
  check_reads(*source, bytes);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const size_t most = i % 4 == 0 ? bytes.size() : 20'000;
    const size_t length = 1 + random() % most;
    const size_t offset = random() % (bytes.size() - length + 1);
    std::vector<uint8_t> out(length);
    ASSERT_TRUE(source->read(offset, out).ok());
    ASSERT_TRUE(
        std::equal(out.begin(), out.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset)))
        << offset << ", " << length;
  }
  std::filesystem::resize_file(path("d"), 100);  // another program truncates it meanwhile
  std::vector<uint8_t> out(500);
  EXPECT_TRUE(source->read(50, std::span(out).first(50)).ok());
  EXPECT_EQ(source->read(50, out).code(), Code::kTruncated);
}

TEST_F(DirectIoTest, NeighboursAreOneRead) {
  const auto bytes = pattern(6 << 20);
  const std::unique_ptr<ByteSource> source = open(bytes);
  if (source == nullptr) GTEST_SKIP() << "no direct I/O in " << dir_;
  std::mt19937 random(5);
  for (int i = 0; i < 100; ++i) {
    std::vector<ReadPart> parts;
    std::vector<std::vector<uint8_t>> outs(1 + random() % 8);
    const bool split = i % 2 == 0 && outs.size() > 1;
    uint64_t at = random() % 100'000;
    for (size_t p = 0; p < outs.size(); ++p) {
      if (split && p == 1) at += 1;
      outs[p].resize(1 + random() % 100'000);
      EXPECT_EQ(source->place(at, outs[p].size()), at);
      parts.push_back({at, outs[p]});
      at += outs[p].size();
    }
    const uint64_t before = source->system_reads().count;
    ASSERT_TRUE(source->read_parts(parts).ok());
    EXPECT_EQ(source->system_reads().count - before, split ? 2u : 1u);
    for (const ReadPart& part : parts) {
      const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(part.offset);
      ASSERT_TRUE(std::equal(part.out.begin(), part.out.end(), from)) << part.offset;
    }
  }
  // Together they do not fit a buffer.
  std::vector<uint8_t> one(DirectBuffers::kBytes / 2 + 1), two(DirectBuffers::kBytes / 2);
  const std::vector<ReadPart> large = {{9, one}, {9 + one.size(), two}};
  const uint64_t before = source->system_reads().count;
  ASSERT_TRUE(source->read_parts(large).ok());
  EXPECT_EQ(source->system_reads().count - before, 2u);
}

TEST_F(DirectIoTest, ThreadsShareTheBuffers) {
  const auto bytes = pattern(3 << 20);
  const std::unique_ptr<ByteSource> source = open(bytes);
  if (source == nullptr) GTEST_SKIP() << "no direct I/O in " << dir_;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<uint8_t> out(300'000);
      for (int i = 0; i < 20; ++i) {
        const size_t offset = random() % (bytes.size() - out.size());
        EXPECT_TRUE(source->read(offset, out).ok());
        const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
        EXPECT_TRUE(std::equal(out.begin(), out.end(), from));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(DirectIoTest, OnlyFilesThatExceedMemoryAreMeasured) {
  const auto bytes = pattern(5000);
  const std::unique_ptr<ByteSource> source = open(bytes);
  const std::vector<std::string> files = {path("d")};
  OpenOptions options;
  EXPECT_FALSE(choose_direct_io(files, 2, options)) << "it fits the page cache";
  options.no_page_cache = true;
  EXPECT_FALSE(choose_direct_io(files, 2, options)) << "too small to measure";
  options.direct_io = DirectIo::kOn;
  EXPECT_TRUE(choose_direct_io(files, 2, options));
  options.direct_io = DirectIo::kOff;
  EXPECT_FALSE(choose_direct_io(files, 2, options));
}

TEST_F(FileSourceTest, ErrorsNameThePath) {
  EXPECT_EQ(open_file(path("missing")).status().code(), Code::kNotFound);
  EXPECT_NE(open_file(path("missing")).status().message().find("missing"), std::string::npos);
  EXPECT_EQ(open_file(path("missing/inner")).status().code(), Code::kNotFound);
  EXPECT_EQ(open_file("").status().code(), Code::kInvalidArgument);
  EXPECT_NE(open_file(dir_.string()).status().message().find("directory"), std::string::npos);
#if !defined(_WIN32)
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(open_file(path("pipe")).status().code(), Code::kInvalidArgument);
  if (::geteuid() != 0) {  // root can read everything
    std::ofstream(path("secret")) << "x";
    std::filesystem::permissions(path("secret"), std::filesystem::perms::none);
    EXPECT_EQ(open_file(path("secret")).status().code(), Code::kIo);
  }
#endif
}

}  // namespace
}  // namespace sluice::io
