// Public forms of addresses never contain a password or a signature, for any characters in them.
#include "io/address.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "../paths.h"

namespace sluice::io {
namespace {

TEST(Address, MessagesShowNoSecret) {
  for (const char* user : {"", "token@", "u:p@", "u:p@ss@", "u:@@@", "u:p:q@", "u:p%40@", "u:p/w@",
                           "u:p?w@", "u:p#w@", "u:a/b@c?d@e#f@", "u:p\\w@"}) {
    for (const char* rest : {"", "?sig=secret", "#x"}) {
      const std::string url = std::string("https://") + user + "host/a/m.gguf" + rest;
      EXPECT_EQ(public_address(url), "https://host/a/m.gguf") << url;
      EXPECT_EQ(stored_address(url), "https://host/a/m.gguf") << url;
    }
  }
  for (const char* plain : {"http://h:8080/a@b/c.gguf", "http://[::1]:80/x@y", "http://h/@scope/m",
                            "https://h", "/a/b", "http://", ""}) {
    EXPECT_EQ(public_address(plain), plain);
  }
  EXPECT_EQ(public_address("http://h/x?url=http://u:p@h/"), "http://h/x");
  EXPECT_EQ(public_source("http://u:p@h/x?sig=s"), "http://h/x");
  EXPECT_EQ(public_source("/a?b#c@d"), "/a?b#c@d");
}

TEST(Address, TheCacheKeyIgnoresTheSignature) {
  std::ifstream file(test::source_dir() + "/tests/data/addresses.json");
  const nlohmann::json table = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(table.is_discarded());
  ASSERT_GT(table["keys"].size(), 40u);
  for (const nlohmann::json& row : table["keys"]) {
    const auto key = row["key"].get<std::string>();
    EXPECT_EQ(stored_address(row["address"].get<std::string>()), key) << row["note"];
    EXPECT_EQ(stored_address(key), key) << row["note"];
  }
}

TEST(Address, FilesBelongToAModel) {
  EXPECT_EQ(model_address("http://h/d/config.json?x=1"), "http://h/d/?x=1");
  EXPECT_EQ(model_address("http://h/d/model-00002-of-00003.safetensors"), "http://h/d/");
  EXPECT_EQ(model_address("http://h/d/chat_template.jinja"), "http://h/d/");
  EXPECT_EQ(model_address("http://h/d/"), "http://h/d/");
  EXPECT_EQ(model_address("http://h/d/m-00003-of-00003.gguf?a"),
            "http://h/d/m-00001-of-00003.gguf?a");
  EXPECT_EQ(model_address("http://h/d/m.gguf"), "http://h/d/m.gguf");
  EXPECT_EQ(model_address("m-0000x-of-00003.gguf"), "m-0000x-of-00003.gguf");
}

}  // namespace
}  // namespace sluice::io
