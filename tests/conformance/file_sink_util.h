// Where a conversion writes in tests: a file of the disk.
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
  // For files that are written front to back, as GGUF is.
  [[nodiscard]] Status patch(uint64_t, std::span<const uint8_t>) override {
    return error(Code::kInternal, "GGUF is written front to back");
  }

 protected:
  std::FILE* file_;
};

}  // namespace sluice::test
