// A header whose tensors are in several files is serialized and parsed unchanged, and an opener
// accepts it. Truncated bytes and unknown files are errors.
#include <gtest/gtest.h>

#include "gguf/metadata_writer.h"
#include "gguf/write.h"
#include "open/opener.h"

namespace sluice::gguf {
namespace {

Header two_files() {
  Header h;
  MetadataWriter writer(&h);
  writer.string("general.architecture", "llama");
  writer.number("llama.block_count", 2u);
  for (uint32_t file = 0; file < 2; ++file) {
    Tensor t;
    t.name = writer.keep_text("t" + std::to_string(file));
    t.n_dims = 2;
    t.ne = {3, 5 + file, 1, 1};
    t.file = file;
    t.offset = 7 + 1000 * uint64_t{file};  // unaligned
    EXPECT_TRUE(set_tensor_bytes(&t).ok());
    h.tensors.push_back(t);
  }
  h.n_files = 2;
  return h;
}

Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(SplitHeader, RoundTrips) {
  Header from = two_files();
  const Result<std::string> bytes = write_placed(&from);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  Header to;
  ASSERT_TRUE(parse_placed(bytes_of(*bytes), 2, &to).ok());
  EXPECT_EQ(to.n_files, 2u);
  EXPECT_EQ(to.get_string("general.architecture"), "llama");
  ASSERT_EQ(to.tensors.size(), 2u);
  for (uint32_t file = 0; file < 2; ++file) {
    const Tensor* t = to.find_tensor("t" + std::to_string(file));
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(t->file, file);
    EXPECT_EQ(t->offset, 7 + 1000 * uint64_t{file});
    EXPECT_EQ(t->ne[1], 5 + file);
  }
}

TEST(SplitHeader, RejectsWhatItCannotRepresent) {
  Header far = two_files();
  far.tensors[1].offset = uint64_t{1} << kPlacedBits;
  EXPECT_EQ(write_placed(&far).status().code(), Code::kBadHeader);
  Header from = two_files(), to;
  const Result<std::string> bytes = write_placed(&from);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(parse_placed(bytes_of(*bytes), 1, &to).code(), Code::kBadHeader);
  for (size_t n = 0; n < bytes->size(); ++n) {
    EXPECT_FALSE(parse_placed(bytes_of(*bytes).first(n), 2, &to).ok()) << n;
  }
}

TEST(SplitHeader, AnOpenerAcceptsIt) {
  Header from = two_files();
  const Result<std::string> bytes = write_placed(&from);
  ASSERT_TRUE(bytes.ok());
  open::Source source;
  source.address = "anything/";
  source.described = 2;
  open::Opener opener = open::Opener::of_file(source);
  ASSERT_EQ(opener.need()->want, open::FileRequestKind::kFile);
  ASSERT_TRUE(opener.opened(bytes->size()).ok());
  const Result<open::FileRequest> need = opener.need();
  ASSERT_TRUE(need.ok());
  EXPECT_EQ(need->length, bytes->size());
  const auto place = opener.reserve(need->length);
  ASSERT_TRUE(place.ok());
  std::copy(bytes->begin(), bytes->end(), place->begin());
  ASSERT_TRUE(opener.supply().ok());
  EXPECT_EQ(opener.need()->want, open::FileRequestKind::kDone);
  EXPECT_EQ(opener.header().find_tensor("t1")->file, 1u);
}

}  // namespace
}  // namespace sluice::gguf
