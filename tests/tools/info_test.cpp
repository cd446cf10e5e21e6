// `sluice info` for people: the kernels that would run, sizes, and a speed without exponents.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <regex>

#include "../paths.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), n);
  }
  EXPECT_EQ(pclose(pipe), 0) << text;
  return text;
}

TEST(Info, NamesKernelsAndPrintsPlainNumbers) {
  const fs::path model = fs::temp_directory_path() / ("info-" + std::to_string(getpid()) + ".gguf");
  output_of(program_path("sluice-make-model") + " -q " + model.string());
  const std::string text =
      output_of(program_path("sluice") + " info " + model.string() + " --kernels scalar -t 1");
  fs::remove(model);
  EXPECT_NE(text.find("kernels          scalar, 1 thread\n"), std::string::npos) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("\nweights          1\\.\\d\\d MB\n"))) << text;
  const std::string speed = text.substr(text.find("estimated speed"));
  EXPECT_TRUE(std::regex_search(speed, std::regex("\n  decode         [\\d.]+ tokens/s\n")))
      << speed;
  EXPECT_FALSE(std::regex_search(speed, std::regex("\\de[+-]\\d"))) << speed;
}

}  // namespace
}  // namespace sluice::test
