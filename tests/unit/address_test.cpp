// Public forms of addresses never contain a password or a signature, for any characters in them.
#include "io/address.h"

#include <gtest/gtest.h>

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
}

TEST(Address, TheCacheKeyIgnoresTheSignature) {
  EXPECT_EQ(stored_address("http://h/m?download=true#x"), "http://h/m?download=true");
  EXPECT_EQ(stored_address("http://h/m?X-Amz-Signature=1&X-Amz-Date=2&versionId=3"),
            "http://h/m?versionId=3");
  EXPECT_EQ(stored_address("http://h/m?Expires=1&Signature=2&Key-Pair-Id=3"), "http://h/m");
  EXPECT_EQ(stored_address("http://h/m?file=a&access_token=t"), "http://h/m?file=a");
  EXPECT_EQ(stored_address("http://h/m?sv=1&sig=2"), "http://h/m?sv=1");
  EXPECT_EQ(stored_address("http://h/m?tokenizer=x&author=y&design=z"),
            "http://h/m?tokenizer=x&author=y&design=z");
  EXPECT_EQ(stored_address("http://h/m?"), "http://h/m");
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
