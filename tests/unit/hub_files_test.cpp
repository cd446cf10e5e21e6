// hf: references, and which file of a repository one means.
#include "native/hub_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "../paths.h"

namespace sluice::native {
namespace {

TEST(HubFiles, TheSharedTable) {
  std::ifstream file(test::source_dir() + "/tests/data/hub-files.json");
  const nlohmann::json table = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(table.is_discarded());
  for (const auto& [name, quantization] : table["quantizations"].items()) {
    EXPECT_EQ(quantization_of(name), quantization.get<std::string>()) << name;
  }
  ASSERT_GT(table["repositories"].size(), 5u);
  for (const nlohmann::json& repository : table["repositories"]) {
    const auto files = repository["files"].get<std::map<std::string, uint64_t>>();
    const std::vector<HubModel> models = models_among(files);
    for (const auto& [tag, path] : repository["choices"].items()) {
      const std::optional<HubModel> model = choose(models, tag);
      EXPECT_EQ(model ? model->path : "", path.get<std::string>())
          << repository["files"] << " " << tag;
    }
  }
}

TEST(HubFiles, ASplitModelIsAsLargeAsItsParts) {
  const auto models = models_among({{"a-00001-of-00002.gguf", 5},
                                    {"a-00002-of-00002.gguf", 6},
                                    {"b-00002-of-00002.gguf", 7},
                                    {"c.gguf", 10}});
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].path, "c.gguf");
  EXPECT_EQ(models[1].path, "a-00001-of-00002.gguf");
  EXPECT_EQ(models[1].bytes, 11u);
}

TEST(HubFiles, References) {
  struct Row {
    const char *text, *repository, *tag, *path, *revision;
  };
  for (const Row& row :
       {Row{"hf:a/b", "a/b", "", "", "main"}, Row{"hf://a/b", "a/b", "", "", "main"},
        Row{"hf:a.1/b_2-c", "a.1/b_2-c", "", "", "main"},
        Row{"hf:a/b:Q4_K_M", "a/b", "Q4_K_M", "", "main"},
        Row{"hf:a/b:Q4_K_M@v1", "a/b", "Q4_K_M", "", "v1"},
        Row{"hf:a/b@refs/pr/1", "a/b", "", "", "refs/pr/1"},
        Row{"hf:a/b/c/d e.gguf@v1", "a/b", "", "c/d e.gguf", "v1"}}) {
    const Result<HubReference> found = HubReference::parse(row.text);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(found->repository, row.repository);
    EXPECT_EQ(found->tag, row.tag);
    EXPECT_EQ(found->path, row.path);
    EXPECT_EQ(found->revision, row.revision);
  }
  for (const char* wrong :
       {"hf:", "hf:a", "hf:a/", "hf:/b", "hf:a/b:", "hf:a/b@", "hf:a b/c", "hf:a/b?x", "hf:a/b#x",
        "hf:a/b/../c", "hf:../b", "hf:a/..", "hf:a/b:x/y", "hf:a:8080/b"}) {
    const Status status = HubReference::parse(wrong).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << wrong;
    EXPECT_NE(status.message().find("hf:owner/repo"), std::string::npos) << status.message();
  }
}

TEST(HubFiles, EveryBeginningOfAReferenceIsReadOrRejected) {
  const std::string whole = "hf://a/b:Q4_K_M@refs/pr/1";
  for (size_t n = 3; n <= whole.size(); ++n) {
    const Result<HubReference> found = HubReference::parse(whole.substr(0, n));
    if (found.ok()) {
      EXPECT_EQ(found->repository, "a/b");
    }
  }
  for (size_t n = 0; n <= whole.size(); ++n) (void)quantization_of(whole.substr(n));
}

TEST(HubFiles, AddressesAreThoseOfThePackage) {
  const HubReference reference = *HubReference::parse("hf:a/b@refs/pr/1");
  EXPECT_EQ(reference.url("https://h", "c/d e+(f).gguf"),
            "https://h/a/b/resolve/refs%2Fpr%2F1/c/d%20e%2B(f).gguf");
  EXPECT_EQ(reference.url("https://h", ""), "https://h/a/b/resolve/refs%2Fpr%2F1/");
  EXPECT_EQ(reference.list_url("https://h"),
            "https://h/api/models/a/b/tree/refs%2Fpr%2F1?recursive=true");
}

}  // namespace
}  // namespace sluice::native
