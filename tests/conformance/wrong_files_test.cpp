// Files with one defect each (tests/data/wrong-files.json: bytes of a valid file and their
// replacement) give an error with the right code and a message that names the defect. The web suite
// tests the package with the same list.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "../file_contents.h"
#include "../paths.h"
#include "native/model_file.h"

namespace sluice::test {
namespace {

const std::string kRoot = source_dir() + "/";

std::string read_bytes(const std::string& path) {
  return sluice::test::file_contents(path);
}

TEST(WrongFiles, ErrorsNameTheDefect) {
  const auto cases = nlohmann::json::parse(read_bytes(kRoot + "tests/data/wrong-files.json"));
  ASSERT_GT(cases.size(), 10u);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("sluice-wrong-" + std::to_string(getpid())))
          .string();
  for (const auto& wrong : cases) {
    SCOPED_TRACE(wrong["name"].get<std::string>());
    std::string bytes = read_bytes(kRoot + wrong["file"].get<std::string>());
    const std::string good = wrong["find"], bad = wrong["replace"];
    const size_t at = bytes.find(good);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(good.size(), bad.size());
    bytes.replace(at, good.size(), bad);
    std::ofstream(path, std::ios::binary) << bytes;
    const auto model = native::Model::open(path, {});
    ASSERT_FALSE(model.ok());
    const std::string message = model.status().message();
    EXPECT_EQ(code_name(model.status().code()), wrong["code"].get<std::string>()) << message;
    EXPECT_NE(message.find(wrong["says"].get<std::string>()), std::string::npos) << message;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace sluice::test
