// Runs the CLI in a directory of the test's own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../paths.h"

namespace sluice::tools {

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<float> floats_of(const std::filesystem::path& path) {
  const std::string bytes = bytes_of(path);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return values;
}

// |got - wanted|^2 / |wanted|^2.
inline double error_of(const std::vector<float>& got, const std::vector<float>& wanted) {
  if (got.size() != wanted.size() || got.empty()) return 1e9;
  double error = 0, power = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double by = static_cast<double>(got[i]) - wanted[i];
    error += by * by;
    power += static_cast<double>(wanted[i]) * wanted[i];
  }
  return error / power;
}

// A GGUF file with one more key, and with one that keeps the alignment of its tensors.
inline std::string with_key(std::string file, const std::string& key, uint32_t value) {
  constexpr uint32_t kUint32 = 4, kString = 8;
  constexpr size_t kCount = 16, kKeys = 24, kAlignment = 32;
  std::string added;
  const auto put = [&added](auto number) {
    added.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const auto put_text = [&](const std::string& text) {
    put(uint64_t{text.size()});
    added += text;
  };
  put_text(key);
  put(kUint32);
  put(value);
  put_text("test.padding");
  put(kString);
  const size_t end = added.size() + sizeof(uint64_t);
  put_text(std::string((kAlignment - end % kAlignment) % kAlignment, ' '));
  uint64_t count = 0;
  std::memcpy(&count, &file[kCount], sizeof count);
  count += 2;
  std::memcpy(&file[kCount], &count, sizeof count);
  return file.insert(kKeys, added);
}

struct Ran {
  int status = -1;
  std::string out, err;
};

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    base_ = std::filesystem::temp_directory_path() / ("sluice-tools-" + std::to_string(getpid()));
    std::filesystem::create_directories(base_);
  }
  void TearDown() override { std::filesystem::remove_all(base_); }

  [[nodiscard]] std::string at(const std::string& name) const { return (base_ / name).string(); }

  [[nodiscard]] Ran run(const std::vector<std::string>& arguments,
                        const std::string& redirect = "") const {
    std::string command = sluice::test::program_path("sluice");
    for (const std::string& a : arguments) command += " '" + a + "'";
    command += " 2>" + at("stderr") + (redirect.empty() ? "" : " >" + redirect);
    Ran ran;
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> part;
    for (size_t n; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) {
      ran.out.append(part.data(), n);
    }
    const int status = pclose(pipe);
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ran.err = bytes_of(at("stderr"));
    return ran;
  }
  std::filesystem::path base_;
};

}  // namespace sluice::tools
