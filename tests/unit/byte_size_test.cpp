// Sizes in bytes, by tests/data/byte-sizes.json, which the package's tests use too.
#include "base/byte_size.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "../paths.h"

namespace sluice {
namespace {

using nlohmann::json;

json cases() {
  std::ifstream file(test::source_dir() + "/tests/data/byte-sizes.json");
  return json::parse(file);
}

TEST(ByteSize, ReadsWhatPeopleWrite) {
  const json sizes = cases()["sizes"];
  ASSERT_GT(sizes.size(), 20u);
  for (const json& each : sizes) {
    const Result<uint64_t> size = parse_size(each[0].get<std::string>());
    ASSERT_TRUE(size.ok()) << each;
    EXPECT_EQ(*size, each[1].get<uint64_t>()) << each;
  }
}

TEST(ByteSize, RefusesTheRest) {
  const auto refused = [](const char* list, const char* message) {
    const json texts = cases()[list];
    ASSERT_GT(texts.size(), 2u);
    for (const json& each : texts) {
      const Result<uint64_t> size = parse_size(each.get<std::string>());
      EXPECT_EQ(size.status().code(), Code::kInvalidArgument) << each;
      EXPECT_NE(size.status().message().find(message), std::string::npos) << each;
    }
  };
  refused("wrong", "is not a size such as");
  refused("tooLarge", "is out of range");
}

}  // namespace
}  // namespace sluice
