// The GGUF parser: valid input is read exactly, everything else is a typed error. Prefixes are heap
// blocks of the exact size, so that the address sanitizer sees a read past the end.
#include "gguf/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>

#include "../file_contents.h"
#include "../paths.h"
#include "gguf_builder.h"

namespace sluice::gguf {
namespace {

using test::GgufBuilder;

std::string_view as_text(Code code) {
  return code_name(code);
}

// Calls parse_header like a loader, with growing exact-size prefixes of `file`.
struct Parsed {
  Status status;
  Header header;
  int rounds = 0;
  std::unique_ptr<uint8_t[]> prefix;
};

Parsed parse(const std::vector<uint8_t>& file, size_t first = 0) {
  Parsed p;
  size_t have = std::min(first, file.size());
  for (;;) {
    auto copy = std::make_unique<uint8_t[]>(have);
    std::copy_n(file.begin(), have, copy.get());
    const auto progress = parse_header({copy.get(), have}, file.size(), &p.header);
    p.prefix = std::move(copy);
    p.rounds++;
    if (!progress.ok()) {
      p.status = progress.status();
      return p;
    }
    if (progress->done) return p;
    if (progress->need_bytes <= have || progress->need_bytes > file.size()) {
      p.status = error(Code::kInternal, "no progress");
      return p;
    }
    have = static_cast<size_t>(progress->need_bytes);
  }
}

void expect_error(const std::vector<uint8_t>& file, Code code, std::string_view word) {
  const Parsed p = parse(file);
  EXPECT_EQ(as_text(p.status.code()), as_text(code)) << p.status.message();
  EXPECT_NE(p.status.message().find(word), std::string::npos) << p.status.message();
}

GgufBuilder small_model() {
  GgufBuilder b;
  b.string("general.architecture", "llama")
      .number("u8", uint8_t{200})
      .number("i8", int8_t{-3})
      .number("u16", uint16_t{60000})
      .number("i16", int16_t{-300})
      .number("u32", uint32_t{4000000000u})
      .number("i32", int32_t{-70000})
      .number("f32", 0.5f)
      .number("flag", true)
      .number("u64", uint64_t{1} << 63)
      .number("i64", int64_t{-5000000000})
      .number("f64", 1e-300)
      .strings("words", {"", "one", "zwei"})
      .numbers<float>("scores", {1.5f, -2.5f})
      .numbers<int64_t>("big", {-1, 1ll << 40})
      .f32("a.weight", {8, 3})
      .f32("b.weight", {5})
      .tensor("c.weight", 2, {64, 2}, std::vector<uint8_t>(2 * 2 * 18));
  return b;
}

TEST(Gguf, ReadsEveryValueType) {
  const auto file = small_model().build();
  const Parsed p = parse(file);
  ASSERT_TRUE(p.status.ok()) << p.status.message();
  const Header& h = p.header;
  EXPECT_EQ(h.version, 3u);
  EXPECT_EQ(h.get_string("general.architecture"), "llama");
  EXPECT_EQ(h.get_u64("u8"), 200u);
  EXPECT_EQ(h.find("i8")->as_i64(), -3);
  EXPECT_FALSE(h.get_u64("i8").has_value());
  EXPECT_EQ(h.get_u64("u16"), 60000u);
  EXPECT_EQ(h.find("i16")->as_i64(), -300);
  EXPECT_EQ(h.get_u64("u32"), 4000000000u);
  EXPECT_EQ(h.find("i32")->as_i64(), -70000);
  EXPECT_EQ(h.get_f64("f32"), 0.5);
  EXPECT_EQ(h.get_bool("flag"), true);
  EXPECT_EQ(h.get_u64("flag"), 1u);
  EXPECT_EQ(h.get_u64("u64"), uint64_t{1} << 63);
  EXPECT_FALSE(h.find("u64")->as_i64().has_value());
  EXPECT_EQ(h.find("i64")->as_i64(), -5000000000);
  EXPECT_EQ(h.get_f64("f64"), 1e-300);
  EXPECT_FALSE(h.get_u64("f32").has_value());
  EXPECT_FALSE(h.get_string("u8").has_value());
  EXPECT_EQ(h.find("nothing"), nullptr);

  const Value* words = h.find("words");
  ASSERT_NE(words, nullptr);
  EXPECT_EQ(words->count, 3u);
  StringCursor cursor(*words);
  std::string_view word;
  std::vector<std::string> got;
  while (cursor.next(&word)) got.emplace_back(word);
  EXPECT_EQ(got, (std::vector<std::string>{"", "one", "zwei"}));
  EXPECT_EQ(h.find("scores")->number_at(1), -2.5);
  EXPECT_EQ(h.find("scores")->number_at(2), 0.0);
  EXPECT_EQ(h.find("big")->number_at(1), static_cast<double>(1ll << 40));
  StringCursor not_strings(*h.find("scores"));
  EXPECT_FALSE(not_strings.next(&word));
}

TEST(Gguf, PlacesTensors) {
  const auto file = small_model().build();
  const Parsed p = parse(file);
  ASSERT_TRUE(p.status.ok());
  ASSERT_EQ(p.header.tensors.size(), 3u);
  const Tensor* a = p.header.find_tensor("a.weight");
  const Tensor* c = p.header.find_tensor("c.weight");
  ASSERT_TRUE(a != nullptr && c != nullptr);
  EXPECT_EQ(a->offset, p.header.data_offset);
  EXPECT_EQ(a->bytes, 96u);
  EXPECT_EQ(a->cols(), 8u);
  EXPECT_EQ(a->rows(), 3u);
  EXPECT_EQ(c->row_bytes(), 36u);
  EXPECT_EQ(c->offset + c->bytes, file.size());
  EXPECT_EQ(p.header.find_tensor("a.weigh"), nullptr);
  EXPECT_EQ(p.header.find_tensor(""), nullptr);
}

TEST(Gguf, ReadsVersion2AndOtherAlignments) {
  EXPECT_TRUE(parse(GgufBuilder(2).f32("x", {4}).build()).status.ok());
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    const auto file = GgufBuilder().alignment(alignment).f32("x", {3}).f32("y", {4}).build();
    const Parsed p = parse(file);
    ASSERT_TRUE(p.status.ok()) << p.status.message();
    EXPECT_EQ(p.header.alignment, alignment);
    EXPECT_EQ(p.header.find_tensor("y")->offset % alignment, 0u);
  }
}

TEST(Gguf, NestedArraysUpToTheCap) {
  // An array of n arrays of ... of one u8.
  const auto nested = [](uint64_t depth) {
    std::vector<uint8_t> v;
    for (uint64_t i = 0; i + 1 < depth; i++) {
      GgufBuilder::put(v, uint32_t{9});
      GgufBuilder::put(v, uint64_t{1});
    }
    GgufBuilder::put(v, uint32_t{0});
    GgufBuilder::put(v, uint64_t{1});
    v.push_back(7);
    return GgufBuilder().raw("nest", 9, v).number("after", uint32_t{5}).build();
  };
  const auto deepest = nested(kMaxArrayDepth);
  const Parsed p = parse(deepest);
  ASSERT_TRUE(p.status.ok()) << p.status.message();
  EXPECT_EQ(p.header.get_u64("after"), 5u);
  EXPECT_EQ(p.header.find("nest")->element, ValueType::kArray);
  EXPECT_EQ(p.header.find("nest")->number_at(0), 0.0);
  expect_error(nested(kMaxArrayDepth + 1), Code::kBadHeader, "nest");
  expect_error(nested(1000), Code::kBadHeader, "nest");
}

TEST(Gguf, EveryTruncatedLengthIsAnError) {
  const auto file = small_model().build();
  for (size_t n = 0; n < file.size(); n++) {
    const Parsed p = parse({file.begin(), file.begin() + static_cast<ptrdiff_t>(n)});
    const Code code = p.status.code();
    if (n < 4) {  // length 0 means "unknown", so parse_header asks for more
      EXPECT_NE(code, Code::kOk) << n;
    } else {
      EXPECT_EQ(as_text(code), as_text(Code::kTruncated)) << n << p.status.message();
    }
  }
}

TEST(Gguf, EveryPrefixLengthAsksForMoreAndThenSucceeds) {
  const auto file = small_model().build();
  for (size_t n = 0; n < file.size(); n++) {
    const Parsed p = parse(file, n);
    EXPECT_TRUE(p.status.ok()) << n << p.status.message();
    EXPECT_LE(p.rounds, 2) << n;
  }
}

TEST(Gguf, UnknownFileSizeAsksGeometrically) {
  Header h;
  auto more = parse_header({}, 0, &h);
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(more->need_bytes, kFirstHeaderRead);

  std::vector<std::string> words(60000, std::string(40, 'w'));
  const auto file = GgufBuilder().strings("words", words).build();
  size_t have = 0;
  int rounds = 0;
  for (;;) {
    more = parse_header({file.data(), have}, 0, &h);
    ASSERT_TRUE(more.ok());
    if (more->done) break;
    ASSERT_GE(more->need_bytes, 2 * have);
    have = std::min(file.size(), static_cast<size_t>(more->need_bytes));
    ASSERT_LT(++rounds, 10);
  }
  EXPECT_EQ(h.find("words")->count, 60000u);
}

TEST(Gguf, ALongArrayAsksForItsExactSize) {
  const std::vector<float> scores(1 << 20, 1.0f);
  const auto file = GgufBuilder().numbers("scores", scores).build();
  Header h;
  const auto more = parse_header(Bytes(file).first(100), 0, &h);
  ASSERT_TRUE(more.ok());
  EXPECT_GE(more->need_bytes, uint64_t{4} << 20);
  EXPECT_LE(more->need_bytes, file.size());
}

TEST(Gguf, RejectsOtherFiles) {
  const std::string html = "<!DOCTYPE html><html><body>404</body></html>";
  expect_error({html.begin(), html.end()}, Code::kNotGguf, "GGUF");
  expect_error({'G', 'G'}, Code::kNotGguf, "GGUF");
  expect_error({'G', 'G', 'M', 'L', 1, 0, 0, 0}, Code::kNotGguf, "GGUF");
  expect_error(GgufBuilder(1).build(), Code::kUnsupportedVersion, "1");
  expect_error(GgufBuilder(4).build(), Code::kUnsupportedVersion, "4");
  expect_error(GgufBuilder(0).build(), Code::kUnsupportedVersion, "0");
  expect_error(GgufBuilder(0x03000000).build(), Code::kUnsupportedVersion, "big-endian");
  expect_error(GgufBuilder(0x02000000).build(), Code::kUnsupportedVersion, "big-endian");
}

TEST(Gguf, RejectsHostileCounts) {
  for (const uint64_t n : {kMaxTensorCount + 1, uint64_t{1} << 32, ~uint64_t{0}}) {
    expect_error(GgufBuilder().claim_tensors(n).build(), Code::kBadHeader, "tensors");
  }
  for (const uint64_t n : {kMaxMetadataCount + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    expect_error(GgufBuilder().claim_metadata(n).build(), Code::kBadHeader, "metadata");
  }
  expect_error(GgufBuilder().claim_tensors(kMaxTensorCount).header(), Code::kTruncated, "header");
  for (const uint32_t element : {0u, 4u, 8u, 9u, 12u}) {
    for (const uint64_t n :
         {uint64_t{1} << 20, uint64_t{1} << 31, uint64_t{1} << 61, ~uint64_t{0}}) {
      std::vector<uint8_t> v;
      GgufBuilder::put(v, element);
      GgufBuilder::put(v, n);
      const Parsed p = parse(GgufBuilder().raw("array", 9, v).build());
      EXPECT_TRUE(p.status.code() == Code::kBadHeader || p.status.code() == Code::kTruncated)
          << p.status.message();
    }
  }
  for (const uint64_t n : {uint64_t{1} << 20, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::vector<uint8_t> v;
    GgufBuilder::put(v, n);
    const Parsed p = parse(GgufBuilder().raw("text", 8, v).build());
    EXPECT_TRUE(p.status.code() == Code::kBadHeader || p.status.code() == Code::kTruncated);
  }
  expect_error(GgufBuilder().raw("odd", 13, {0}).build(), Code::kBadHeader, "odd");
  expect_error(GgufBuilder().raw("odd", ~0u, {0}).build(), Code::kBadHeader, "odd");
}

TEST(Gguf, RejectsBadNames) {
  const std::string longest(kMaxNameBytes, 'k');
  EXPECT_TRUE(parse(GgufBuilder().number(longest, uint8_t{1}).build()).status.ok());
  expect_error(GgufBuilder().number(longest + "k", uint8_t{1}).build(), Code::kBadHeader, "key");
  expect_error(GgufBuilder().number("", uint8_t{1}).build(), Code::kBadHeader, "key");
  expect_error(GgufBuilder().f32("", {4}).build(), Code::kBadHeader, "tensor name");
  expect_error(GgufBuilder().f32("twin", {4}).f32("b", {4}).f32("twin", {4}).build(),
               Code::kBadHeader, "twin");
  expect_error(GgufBuilder().number("twin", 1.0f).number("b", 1.0f).number("twin", 2.0f).build(),
               Code::kBadHeader, "twin");
  // Control characters in the file do not reach the terminal.
  const Parsed p = parse(GgufBuilder().f32("\x1b[2J", {4}).f32("\x1b[2J", {4}).build());
  EXPECT_EQ(p.status.message().find('\x1b'), std::string::npos);
}

TEST(Gguf, RejectsBadTensors) {
  const uint64_t huge = uint64_t{1} << 40;
  expect_error(GgufBuilder().tensor_at("t", 0, {1, 1, 1, 1, 1}, 0).build(), Code::kBadHeader, "t");
  expect_error(GgufBuilder().tensor_at("t", 0, {0}, 0).build(), Code::kBadHeader, "impossible");
  expect_error(GgufBuilder().tensor_at("t", 0, {huge + 1}, 0).build(), Code::kBadHeader,
               "impossible");
  expect_error(GgufBuilder().tensor_at("t", 0, {huge, huge}, 0).build(), Code::kBadHeader,
               "impossible");
  expect_error(GgufBuilder().tensor_at("t", 0, {huge, 1u << 23}, 0).build(), Code::kBadHeader,
               "impossible");
  expect_error(GgufBuilder().tensor_at("t", 0, {~uint64_t{0}, 2}, 0).build(), Code::kBadHeader,
               "impossible");
  expect_error(GgufBuilder().tensor_at("t", 0, {huge}, 0).build(), Code::kTruncated, "\"t\"");
  expect_error(GgufBuilder().tensor_at("t", 2, {33}, 0).data(99).build(), Code::kBadHeader, "Q4_0");
  expect_error(GgufBuilder().tensor_at("t", 12, {128}, 0).data(999).build(), Code::kBadHeader,
               "Q4_K");
  for (const uint32_t type : {4u, 5u, 31u, 36u, 43u, 1000u, ~0u}) {
    expect_error(GgufBuilder().tensor_at("t", type, {256}, 0).data(9999).build(),
                 Code::kUnsupportedType, std::to_string(type));
  }
  expect_error(GgufBuilder().tensor_at("t", 0, {4}, 4).data(99).build(), Code::kBadHeader,
               "aligned");
  expect_error(GgufBuilder().tensor_at("t", 0, {4}, ~uint64_t{31}).data(99).build(),
               Code::kBadHeader, "offset");
  expect_error(GgufBuilder().tensor_at("a", 0, {9}, 0).tensor_at("b", 0, {4}, 32).data(99).build(),
               Code::kBadHeader, "overlap");
  expect_error(GgufBuilder().tensor_at("b", 0, {4}, 32).tensor_at("a", 0, {9}, 0).data(99).build(),
               Code::kBadHeader, "overlap");
  expect_error(GgufBuilder().tensor_at("a", 0, {4}, 0).tensor_at("b", 0, {4}, 0).data(99).build(),
               Code::kBadHeader, "overlap");
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 21, ~0u}) {
    expect_error(GgufBuilder().number("general.alignment", alignment).build(), Code::kBadHeader,
                 "general.alignment");
  }
  expect_error(GgufBuilder().string("general.alignment", "32").build(), Code::kBadHeader,
               "general.alignment");
}

TEST(Gguf, TensorsMayBeInAnyOrder) {
  const auto file =
      GgufBuilder().tensor_at("b", 0, {4}, 32).tensor_at("a", 0, {8}, 0).data(48).build();
  const Parsed p = parse(file);
  ASSERT_TRUE(p.status.ok()) << p.status.message();
  EXPECT_EQ(p.header.find_tensor("b")->offset, p.header.data_offset + 32);
}

TEST(Gguf, EveryTypeHasItsSize) {
  // Bytes of 256 weights, from the format definitions (scales, minimums and packed values).
  const std::pair<TensorType, uint64_t> kSizes[] = {
      {TensorType::kF32, 1024},
      {TensorType::kF16, 512},
      {TensorType::kBF16, 512},
      {TensorType::kF64, 2048},
      {TensorType::kI8, 256},
      {TensorType::kI16, 512},
      {TensorType::kI32, 1024},
      {TensorType::kI64, 2048},
      {TensorType::kQ4_0, 8 * (2 + 16)},
      {TensorType::kQ4_1, 8 * (4 + 16)},
      {TensorType::kQ5_0, 8 * (2 + 4 + 16)},
      {TensorType::kQ5_1, 8 * (4 + 4 + 16)},
      {TensorType::kQ8_0, 8 * (2 + 32)},
      {TensorType::kQ8_1, 8 * (4 + 32)},
      {TensorType::kQ2_K, 16 + 64 + 4},
      {TensorType::kQ3_K, 32 + 64 + 12 + 2},
      {TensorType::kQ4_K, 4 + 12 + 128},
      {TensorType::kQ5_K, 4 + 12 + 32 + 128},
      {TensorType::kQ6_K, 128 + 64 + 16 + 2},
      {TensorType::kQ8_K, 4 + 256 + 32},
      {TensorType::kIQ1_S, 2 + 32 + 16},
      {TensorType::kIQ1_M, 32 + 16 + 8},
      {TensorType::kIQ2_XXS, 2 + 64},
      {TensorType::kIQ2_XS, 2 + 64 + 8},
      {TensorType::kIQ2_S, 2 + 64 + 8 + 8},
      {TensorType::kIQ3_XXS, 2 + 64 + 32},
      {TensorType::kIQ3_S, 2 + 64 + 8 + 32 + 4},
      {TensorType::kIQ4_NL, 8 * (2 + 16)},
      {TensorType::kIQ4_XS, 2 + 2 + 4 + 128},
      {TensorType::kTQ1_0, 48 + 4 + 2},
      {TensorType::kTQ2_0, 64 + 2},
      {TensorType::kMXFP4, 8 * (1 + 16)},
      {TensorType::kNVFP4, 4 * (4 + 32)},
      {TensorType::kQ1_0, 2 * (2 + 16)},
      {TensorType::kQ2_0, 4 * (2 + 16)},
      {TensorType::kQSF2, 4 * (4 + 16)},
      {TensorType::kQSF3, 4 * (4 + 24)},
      {TensorType::kQSF4, 4 * (4 + 32)},
      {TensorType::kQSFT, 4 * (2 + 16)},
  };
  for (const auto& [type, bytes] : kSizes) {
    const TypeInfo* info = type_info(type);
    ASSERT_NE(info, nullptr) << static_cast<uint32_t>(type);
    EXPECT_EQ(256 / info->block_size * info->block_bytes, bytes) << info->name;
    EXPECT_EQ(256 % info->block_size, 0u);
  }
  for (const uint32_t id : {4u, 43u, 182u, 183u, 224u, 229u, 267u, 0xffffffffu}) {
    EXPECT_EQ(type_info(static_cast<TensorType>(id)), nullptr) << id;
  }
}

// --- splits

GgufBuilder split_part(uint16_t no, uint16_t count, int32_t total) {
  GgufBuilder b;
  b.number("split.no", no).number("split.count", count).number("split.tensors.count", total);
  for (const char* suffix : {".a", ".b"}) {
    b.f32(std::string("t").append(std::to_string(no)).append(suffix), {8});
  }
  return b;
}

TEST(GgufSplit, MergesInOrder) {
  const std::vector<uint8_t> files[] = {split_part(0, 3, 6).build(), split_part(1, 3, 6).build(),
                                        split_part(2, 3, 6).build()};
  Parsed first = parse(files[0]);
  const Parsed second = parse(files[1]);
  const Parsed third = parse(files[2]);
  ASSERT_EQ(split_count(first.header).value(), 3u);
  EXPECT_EQ(as_text(merge_split(&first.header, third.header, 2).code()),
            as_text(Code::kInvalidArgument));
  ASSERT_TRUE(merge_split(&first.header, second.header, 1).ok());
  EXPECT_EQ(as_text(merge_split(&first.header, second.header, 2).code()),
            as_text(Code::kBadHeader));
  ASSERT_TRUE(merge_split(&first.header, third.header, 2).ok());
  EXPECT_EQ(first.header.n_files, 3u);
  EXPECT_EQ(first.header.tensors.size(), 6u);
  EXPECT_EQ(first.header.find_tensor("t2.b")->file, 2u);
  EXPECT_EQ(first.header.find_tensor("t0.a")->file, 0u);
  EXPECT_EQ(split_count(second.header).status().code(), Code::kInvalidArgument);
}

TEST(GgufSplit, RejectsMismatches) {
  const auto a = split_part(0, 2, 5).build();
  const auto b = split_part(1, 2, 5).build();
  Parsed first = parse(a);
  EXPECT_EQ(merge_split(&first.header, parse(b).header, 1).code(), Code::kBadHeader);  // 4, not 5

  const auto c = split_part(0, 2, 4).build();
  Parsed again = parse(c);
  const auto twin = GgufBuilder()
                        .number("split.no", uint16_t{1})
                        .number("split.count", uint16_t{2})
                        .f32("t0.a", {8})
                        .build();
  const Status s = merge_split(&again.header, parse(twin).header, 1);
  EXPECT_NE(s.message().find("t0.a"), std::string::npos);

  EXPECT_EQ(split_count(parse(GgufBuilder().f32("x", {1}).build()).header).value(), 1u);
  const auto many = GgufBuilder().number("split.count", uint32_t{70000}).build();
  EXPECT_EQ(split_count(parse(many).header).status().code(), Code::kBadHeader);
  const auto text = GgufBuilder().string("split.count", "3").build();
  EXPECT_EQ(split_count(parse(text).header).status().code(), Code::kBadHeader);
}

// --- fixtures and mutations

std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  return sluice::test::file_contents<std::vector<uint8_t>>(path);
}

TEST(Gguf, ParsesEveryFixture) {
  const std::filesystem::path dir = std::filesystem::path(sluice::test::shared_dir()) / "fixtures";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "no fixtures";
  int n = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (entry.path().extension() != ".gguf") continue;
    n++;
    const Parsed p = parse(read_file(entry.path()), 1 << 20);
    EXPECT_TRUE(p.status.ok()) << entry.path() << ": " << p.status.message();
    EXPECT_TRUE(p.header.get_string("general.architecture").has_value()) << entry.path();
  }
  EXPECT_GT(n, 0);
}

TEST(Gguf, RandomDamageNeverCrashes) {
  const auto file = small_model().build();
  std::mt19937 rng(42);
  int refused = 0;
  for (int i = 0; i < 20000; i++) {
    auto damaged = file;
    for (uint32_t k = rng() % 4 + 1; k > 0; k--) {
      damaged[rng() % damaged.size()] = static_cast<uint8_t>(rng());
    }
    if (rng() % 4 == 0) damaged.resize(rng() % damaged.size() + 1);
    const Parsed p = parse(damaged);
    if (!p.status.ok()) {
      EXPECT_NE(p.status.code(), Code::kInternal) << p.status.message();
      refused++;
      continue;
    }
    for (const Tensor& t : p.header.tensors) EXPECT_LE(t.offset + t.bytes, damaged.size());
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace sluice::gguf
