// The opener requests the right ranges of the right files for any source. It handles files that end
// at any length and rejects invalid answers.
#include "open/opener.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "gguf_builder.h"
#include "hf_directory.h"
#include "open/address.h"

namespace sluice::open {
namespace {

using test::GgufBuilder;
using Files = std::map<std::string, std::string>;

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// A driver with files in memory; records every request.
struct Driver {
  explicit Driver(Files from) : files(std::move(from)) {}

  Status answer(Opener& opener, const FileRequest& need) {
    const std::string name =
        need.want == FileRequestKind::kBytes ? opened.at(need.file) : need.name;
    const auto found = files.find(name);
    asked.push_back(name);
    if (need.want != FileRequestKind::kBytes && found == files.end())
      return opener.absent("nothing there.");
    if (need.want == FileRequestKind::kFile) {
      EXPECT_EQ(need.file, opened.size());
      opened.push_back(need.name);
      return opener.opened(found->second.size());
    }
    std::string bytes = found->second;
    if (need.want == FileRequestKind::kBytes) {
      EXPECT_GT(need.length, 0u);
      EXPECT_LE(need.offset + need.length, bytes.size());
      bytes = bytes.substr(static_cast<size_t>(need.offset), static_cast<size_t>(need.length));
      n_read += bytes.size();
    }
    const Result<std::span<uint8_t>> place = opener.reserve(bytes.size());
    if (!place.ok()) return place.status();
    EXPECT_EQ(place->size(), bytes.size());
    std::copy(bytes.begin(), bytes.end(), place->begin());
    return opener.supply();
  }

  Status drive(Opener& opener) {
    for (int step = 0; step < 5000; step++) {
      const Result<FileRequest> need = opener.need();
      if (!need.ok()) return need.status();
      if (need->want == FileRequestKind::kDone) return {};
      if (const Status status = answer(opener, *need); !status.ok()) return status;
    }
    return error(Code::kInternal, "it never ends");
  }

  Files files;
  std::vector<std::string> opened, asked;
  uint64_t n_read = 0;
};

std::string opened_as(Files files, const Source& source, Code code = Code::kOk) {
  Opener opener(source);
  Driver driver(std::move(files));
  const Status status = driver.drive(opener);
  EXPECT_STREQ(code_name(status.code()), code_name(code)) << status.message();
  return status.message();
}

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

std::string part(uint16_t no, uint16_t count, size_t pad = 0) {
  GgufBuilder b;
  b.number("split.no", no).number("split.count", count);
  if (pad > 0) b.string("pad", std::string(pad, 'x'));
  return text_of(b.f32("t" + std::to_string(no), {8}).build());
}

Files directory(const std::string& place, const std::string& query = "") {
  return {{place + "config.json" + query, test::tiny_config("qwen3")},
          {place + "tokenizer.json" + query, test::byte_level_tokenizer()},
          {place + "model.safetensors" + query, test::tiny_tensors(true, false, true).build()}};
}

// The same with its tensors in two shards.
Files sharded(const std::string& place) {
  Files files = directory(place);
  files.erase(place + "model.safetensors");
  files[place + "model-00001-of-00002.safetensors"] =
      test::tiny_tensors(true, false, false).build();
  files[place + "model-00002-of-00002.safetensors"] =
      test::SafetensorsBuilder().bf16("lm_head.weight", {260, 8}).build();
  files[place + "model.safetensors.index.json"] =
      R"({"weight_map":{"b":"model-00002-of-00002.safetensors",)"
      R"("a":"model-00001-of-00002.safetensors"}})";
  return files;
}

TEST(Address, SplitNames) {
  EXPECT_EQ(split_name("m-00001-of-00003.gguf", 1, 3), "m-00002-of-00003.gguf");
  EXPECT_EQ(split_name("/a/b-00001-of-00003.gguf", 2, 3), "/a/b-00003-of-00003.gguf");
  EXPECT_EQ(split_name("https://h/m-00001-of-00003.gguf?download=true", 1, 3),
            "https://h/m-00002-of-00003.gguf?download=true");
  EXPECT_EQ(split_name("m.gguf", 1, 3), "");
  EXPECT_EQ(split_name("m-00001-of-00003.gguf", 3, 3), "");
  EXPECT_EQ(split_name("m-00001-of-00004.gguf", 1, 3), "");
  EXPECT_EQ(split_name("m-0001-of-00003.gguf", 1, 3), "");
  EXPECT_EQ(split_name("m-00001-of-99999.gguf", 1, 99999), "");
  EXPECT_EQ(split_name("", 0, 1), "");
  EXPECT_EQ(first_part("a/m-00003-of-00003.gguf"), "a/m-00001-of-00003.gguf");
  EXPECT_EQ(first_part("m.gguf"), "");
}

TEST(Address, Directories) {
  for (const char* yes :
       {"https://host/org/model/resolve/main/", "https://host/model/config.json?download=true",
        "dir/", "config.json", "/a/model.safetensors", "http://h/x-00001-of-2.safetensors#a"}) {
    EXPECT_TRUE(names_directory(yes)) << yes;
  }
  for (const char* no : {"https://host/model.gguf?x=config.json", "https://h/m.gguf?a/", "m.gguf",
                         "/no/such/place", "", "dir/config.json?x"}) {
    EXPECT_FALSE(names_directory(no)) << no;
  }
  EXPECT_EQ(place_of("config.json").file("a"), "a");
  EXPECT_EQ(place_of("d/config.json").file("a"), "d/a");
  EXPECT_EQ(place_of("d").file("a"), "d/a");
  EXPECT_EQ(place_of("https://h/o/m/model.safetensors?t=1/2").file("a"), "https://h/o/m/a?t=1/2");
  EXPECT_EQ(place_of("https://h/org/m/resolve/main/").model_name(), "m");
  EXPECT_EQ(place_of("/x/resolve/m//").model_name(), "m");
  EXPECT_EQ(place_of("https://h/100%zz/").model_name(), "100%zz");
  EXPECT_EQ(base_name("https://h/a/100%.gguf?key=secret"), "100%.gguf");
}

TEST(Opener, OneFile) {
  const std::string bytes = text_of(GgufBuilder().string("a", "b").f32("x", {64}).build());
  for (const char* name : {"m.gguf", "https://h/100%zz.gguf?x=/", "no name"}) {
    Opener opener({name, false, {}});
    Driver driver({{name, bytes}});
    ASSERT_TRUE(driver.drive(opener).ok());
    EXPECT_EQ(driver.asked, (std::vector<std::string>{name, name}));
    EXPECT_EQ(opener.header().get_string("a"), "b");
    EXPECT_TRUE(opener.synthesized_file().empty());
    EXPECT_EQ(opener.need()->want, FileRequestKind::kDone);
  }
}

TEST(Opener, RequestsAsMuchAsTheParserNeeds) {
  for (const size_t pad : {size_t{100}, size_t{3 << 20}}) {
    GgufBuilder b;
    b.string("pad", std::string(pad, 'x')).f32("x", {8}).data(8 << 20);
    Opener opener({"m.gguf", false, {}});
    Driver driver({{"m.gguf", text_of(b.build())}});
    ASSERT_TRUE(driver.drive(opener).ok());
    EXPECT_EQ(opener.header().get_string("pad")->size(), pad);
    EXPECT_GE(driver.n_read, b.header().size());
    EXPECT_LE(driver.n_read, pad == 100 ? 1u << 20 : 7u << 20);
  }
  GgufBuilder small;  // a small model may have little memory
  Opener opener({"m.gguf", false, {}});
  Driver driver({{"m.gguf", text_of(small.f32("x", {8}).data(500'000).build())}});
  ASSERT_TRUE(driver.drive(opener).ok());
  EXPECT_EQ(driver.n_read, 65536u);
}

TEST(Opener, PartsOfASplitModel) {
  Files files;
  for (uint16_t i = 0; i < 3; i++) {
    files["https://h/m-0000" + std::to_string(i + 1) + "-of-00003.gguf?t"] =
        part(i, 3, i == 1 ? 3 << 20 : 0);
  }
  Opener opener({"https://h/m-00001-of-00003.gguf?t", false, {}});
  Driver driver(files);
  ASSERT_TRUE(driver.drive(opener).ok());
  EXPECT_EQ(opener.header().n_files, 3u);
  EXPECT_EQ(opener.header().find_tensor("t2")->file, 2u);
  EXPECT_EQ(driver.opened.size(), 3u);

  expect_words(
      opened_as(files, {"https://h/m-00002-of-00003.gguf?t", false, {}}, Code::kInvalidArgument),
      {"file 2", "name the first"});
  expect_words(opened_as({{"m.gguf", part(0, 3)}}, {"m.gguf", false, {}}, Code::kInvalidArgument),
               {"3 files", "-00001-of-00003.gguf"});
  Files wrong = files;
  wrong["https://h/m-00002-of-00003.gguf?t"] = part(2, 3);
  expect_words(opened_as(wrong, {"https://h/m-00001-of-00003.gguf?t", false, {}}, Code::kBadHeader),
               {"m-00002-of-00003.gguf: ", "another part"});
  wrong["https://h/m-00002-of-00003.gguf?t"] = "GGUF";
  expect_words(opened_as(wrong, {"https://h/m-00001-of-00003.gguf?t", false, {}}, Code::kTruncated),
               {"m-00002-of-00003.gguf: "});
  wrong.erase("https://h/m-00002-of-00003.gguf?t");
  expect_words(opened_as(wrong, {"https://h/m-00001-of-00003.gguf?t", false, {}}, Code::kNotFound),
               {"m-00002-of-00003.gguf", "nothing there"});
}

TEST(Opener, ChosenFiles) {
  // In any order if names say the part; otherwise in the order given.
  const std::vector<std::string> names = {"x", "b/m-00002-of-00002.gguf", "m-00001-of-00002.gguf"};
  for (const std::vector<std::string>& order :
       {names, {names[2], names[0], names[1]}, {names[1], names[2]}, {"one", "two"}}) {
    const bool named = order[0] != "one";
    Files files = {{"x", "no model"}};
    files[named ? names[2] : "one"] = part(0, 2);
    files[named ? names[1] : "two"] = part(1, 2);
    Opener opener({"", false, order});
    Driver driver(files);
    if (order[0] == "x") {  // the first is opened, unless it is a later part
      EXPECT_EQ(driver.drive(opener).code(), Code::kNotGguf);
      continue;
    }
    ASSERT_TRUE(driver.drive(opener).ok());
    EXPECT_EQ(opener.header().n_files, 2u);
  }
  expect_words(opened_as({{"m-00001-of-00002.gguf", part(0, 2)}},
                         {"", false, {"m-00001-of-00002.gguf"}}, Code::kNotFound),
               {"part 2 of 2"});
  expect_words(opened_as({{"m-00002-of-00002.gguf", part(1, 2)}},
                         {"", false, {"m-00002-of-00002.gguf"}}, Code::kInvalidArgument),
               {"name the first"});
}

TEST(Opener, Directories) {
  const struct {
    const char* address;
    bool folder;
    const char* place;
    const char* query;
  } forms[] = {
      {"/models/tiny", true, "/models/tiny/", ""},
      {"/models/tiny/", false, "/models/tiny/", ""},
      {"/models/tiny/config.json", false, "/models/tiny/", ""},
      {"model.safetensors", false, "", ""},
      {"https://h/o/tiny/resolve/main/?t=1", false, "https://h/o/tiny/resolve/main/", "?t=1"}};
  for (const auto& [address, folder, place, query] : forms) {
    Opener opener({address, folder, {}});
    Driver driver(directory(place, query));
    const Status status = driver.drive(opener);
    ASSERT_TRUE(status.ok()) << status.message();
    const gguf::Header& header = opener.header();
    EXPECT_EQ(header.get_string("general.architecture"), "qwen3");
    if (*place != '\0') {
      EXPECT_EQ(header.get_string("general.name"), "tiny");
    }
    EXPECT_EQ(driver.opened,
              (std::vector<std::string>{std::string(place) + "model.safetensors" + query}));
    EXPECT_EQ(driver.asked[1], std::string(place) + "model.safetensors.index.json" + query);
  }
  Opener opener({"", false, {"sub/tokenizer.json", "model.safetensors", "config.json"}});
  Driver driver(directory(""));
  driver.files["sub/tokenizer.json"] = driver.files["tokenizer.json"];
  driver.files.erase("tokenizer.json");
  ASSERT_TRUE(driver.drive(opener).code() ==
              Code::kNotFound);  // this driver looks files up by FileRequest::name
}

TEST(Opener, ChosenDirectory) {
  const std::vector<std::string> names = {"a/tokenizer.json", "model.safetensors", "a/config.json"};
  const Files files = directory("");
  Opener opener({"", false, names});
  for (;;) {
    const Result<FileRequest> need = opener.need();
    ASSERT_TRUE(need.ok()) << need.status().message();
    if (need->want == FileRequestKind::kDone) break;
    ASSERT_LT(need->choice, names.size());
    const bool shard = need->want == FileRequestKind::kBytes;
    const std::string_view name = shard ? "model.safetensors" : base_name(names[need->choice]);
    const std::string& bytes = files.at(std::string(name));
    if (need->want == FileRequestKind::kFile) {
      ASSERT_TRUE(opener.opened(bytes.size()).ok());
      continue;
    }
    const auto place = opener.reserve(shard ? need->length : bytes.size());
    ASSERT_TRUE(place.ok());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(need->offset), place->size(),
                place->begin());
    ASSERT_TRUE(opener.supply().ok());
  }
  EXPECT_EQ(opener.header().get_string("general.architecture"), "qwen3");
  for (const char* missing : {"tokenizer.json", "model.safetensors"}) {
    std::vector<std::string> fewer = {"config.json", "tokenizer.json", "model.safetensors"};
    std::erase(fewer, missing);
    expect_words(opened_as(files, {"", false, fewer}, Code::kNotFound), {missing, "chosen"});
  }
}

TEST(Opener, ShardsAndSynthesizedTensors) {
  Opener opener({"d/", false, {}});
  Driver driver(sharded("d/"));
  Status status = driver.drive(opener);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(driver.opened, (std::vector<std::string>{"d/model-00001-of-00002.safetensors",
                                                     "d/model-00002-of-00002.safetensors"}));
  EXPECT_EQ(opener.header().n_files, 2u);

  Files llama3 = directory("d/");
  llama3["d/config.json"] = test::tiny_config(
      "llama",
      R"(,"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,)"
      R"("low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":32})");
  llama3["d/model.safetensors"] = test::tiny_tensors(false, false, true).build();
  Opener made({"d/", false, {}});
  Driver again(llama3);
  status = again.drive(made);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(made.header().n_files, 2u);
  EXPECT_EQ(made.synthesized_file().size(), 8u);  // RoPE factors of a head of four
}

TEST(Opener, NamesTheMissingFilesOfADirectory) {
  for (const char* missing :
       {"config.json", "tokenizer.json", "model-00002-of-00002.safetensors"}) {
    Files files = sharded("d/");
    files.erase(std::string("d/") + missing);
    const std::string told = opened_as(files, {"d/", false, {}}, Code::kNotFound);
    expect_words(told, {missing, "nothing there."});
    const bool hint =
        told.find(". To open a GGUF file, name the file itself.") != std::string::npos;
    EXPECT_EQ(hint, std::string_view(missing) == "config.json") << told;
  }
}

TEST(Opener, HostileIndexes) {
  for (const char* name :
       {"../model.safetensors", "/etc/passwd", "https://h/a.safetensors", "a\\b.safetensors",
        "a?b.safetensors", "%2e%2e.safetensors", ".safetensors", "tokenizer.json", ""}) {
    Files files = directory("d/");
    files["d/model.safetensors.index.json"] =
        R"({"weight_map":{"a":)" + test::json_text(name) + "}}";
    expect_words(opened_as(files, {"d/", false, {}}, Code::kBadHeader), {"index.json"});
  }
  for (const char* index : {"{", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})"}) {
    Files files = directory("d/");
    files["d/model.safetensors.index.json"] = index;
    expect_words(opened_as(files, {"d/", false, {}}, Code::kBadHeader), {"index.json"});
  }
}

// A file that ends at any length gives an error, and nothing past its end is requested.
TEST(Opener, EveryTruncatedLength) {
  const std::string gguf = text_of(GgufBuilder()
                                       .string("general.architecture", "llama")
                                       .strings("list", {"a", "", "long"})
                                       .f32("x", {8})
                                       .build());
  for (size_t n = 0; n < gguf.size(); n++) {
    const bool nameless = n > 0 && n < 4;
    opened_as({{"m", gguf.substr(0, n)}}, {"m", false, {}},
              nameless ? Code::kNotGguf : Code::kTruncated);
  }
  const std::string second = part(1, 2);
  for (size_t n = 0; n < second.size(); n++) {
    const Files files = {{"m-00001-of-00002.gguf", part(0, 2)},
                         {"m-00002-of-00002.gguf", second.substr(0, n)}};
    const bool nameless = n > 0 && n < 4;
    expect_words(opened_as(files, {"m-00001-of-00002.gguf", false, {}},
                           nameless ? Code::kNotGguf : Code::kTruncated),
                 {"m-00002-of-00002.gguf: "});
  }
  const Files whole = directory("");
  for (const auto& [name, bytes] : whole) {
    const bool shard = name == "model.safetensors";
    for (size_t n = 0; n < bytes.size(); n += shard && n < 3000 ? 1 : 29) {
      Files files = whole;
      files[name] = bytes.substr(0, n);
      Opener opener({"config.json", false, {}});
      Driver driver(files);
      EXPECT_FALSE(driver.drive(opener).ok()) << name << " of " << n << " bytes";
    }
  }
}

TEST(Opener, RejectsInvalidAnswers) {
  const std::string gguf = text_of(GgufBuilder().f32("x", {8}).build());
  const auto refused = [](const Status& status) {
    return status.code() == Code::kInvalidArgument && !status.message().empty();
  };
  Opener opener({"m", false, {}});
  EXPECT_TRUE(refused(opener.supply()));
  EXPECT_TRUE(refused(opener.reserve(1).status()));
  EXPECT_EQ(opener.need()->want, FileRequestKind::kFile);
  ASSERT_TRUE(opener.opened(gguf.size()).ok());
  EXPECT_TRUE(refused(opener.opened(gguf.size())));  // twice
  EXPECT_TRUE(refused(opener.absent("gone")));
  EXPECT_TRUE(refused(opener.supply()));  // nothing was written
  const FileRequest need = *opener.need();
  ASSERT_EQ(need.want, FileRequestKind::kBytes);
  EXPECT_TRUE(refused(opener.reserve(need.length - 1).status()));
  EXPECT_TRUE(refused(opener.reserve(need.length + 1).status()));
  EXPECT_EQ(opener.need()->length, need.length);
  const auto place = opener.reserve(need.length);
  ASSERT_TRUE(place.ok());
  std::copy(gguf.begin(), gguf.end(), place->begin());
  ASSERT_TRUE(opener.supply().ok());
  ASSERT_EQ(opener.need()->want, FileRequestKind::kDone);
  EXPECT_TRUE(refused(opener.supply()));
  EXPECT_TRUE(refused(opener.opened(5)));
  EXPECT_TRUE(refused(opener.reserve(0).status()));
  EXPECT_EQ(opener.need()->want, FileRequestKind::kDone);

  Opener absent({"m", false, {}});
  ASSERT_TRUE(absent.absent("gone").ok());
  EXPECT_EQ(absent.need().status().code(), Code::kNotFound);
  EXPECT_TRUE(refused(absent.opened(5)));  // an error is final
  EXPECT_EQ(absent.need().status().code(), Code::kNotFound);
}

TEST(Opener, CapsUntrustedSizes) {
  Opener text({"d/", false, {}});
  EXPECT_EQ(text.reserve(kMaxSmallFile + 1).status().code(), Code::kBadHeader);
  EXPECT_EQ(text.need()->want, FileRequestKind::kText);
  EXPECT_EQ(text.need()->length, kMaxSmallFile);

  // All parts together may not exceed the limit of one header.
  std::vector<uint8_t> endless;
  GgufBuilder::put(endless, gguf::kMaxHeaderBytes - 1000);
  Driver driver(
      {{"m-00001-of-00002.gguf", part(0, 2, 5000)},
       {"m-00002-of-00002.gguf", text_of(GgufBuilder().raw("endless", 8, endless).header())}});
  driver.files["m-00002-of-00002.gguf"].resize(70'000);
  Opener parts({"m-00001-of-00002.gguf", false, {}});
  for (int file = 0; file < 2; file++) {
    ASSERT_EQ(parts.need()->want, FileRequestKind::kFile);
    driver.opened.push_back(parts.need()->name);
    ASSERT_TRUE(
        parts.opened(file == 0 ? driver.files["m-00001-of-00002.gguf"].size() : uint64_t{1} << 40)
            .ok());
    ASSERT_TRUE(driver.answer(parts, *parts.need()).ok());
  }
  EXPECT_EQ(parts.need().status().code(), Code::kBadHeader);
  expect_words(parts.need().status().message(), {"headers of the model's files"});
}

}  // namespace
}  // namespace sluice::open
