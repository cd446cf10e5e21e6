// Output of conversions in tests: a file on disk.
#pragma once

#include <cstdio>
#include <string>

#include "convert/convert.h"

namespace sluice::test {

class FileSink : public convert::Sink {
 public:
  explicit FileSink(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {}
  ~FileSink() override { std::fclose(file_); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;
  [[nodiscard]] Status write(std::span<const uint8_t> bytes) override {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size()) return {};
    return error(Code::kIo, "full");
  }
  [[nodiscard]] Status patch(uint64_t offset, std::span<const uint8_t> bytes) override {
    if (std::fseek(file_, static_cast<long>(offset), SEEK_SET) != 0)
      return error(Code::kIo, "full");
    SLUICE_RETURN_IF_ERROR(write(bytes));
    (void)std::fseek(file_, 0, SEEK_END);
    return {};
  }

 private:
  std::FILE* file_;
};

}  // namespace sluice::test
