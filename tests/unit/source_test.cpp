// Memory and file sources: exact bytes, and every kind of wrong path.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "io/byte_source.h"

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
