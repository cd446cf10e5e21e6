// PyTorch checkpoints: saved tensors are read as a safetensors file has them. Anything else in a
// pickle is an error that names it, and nothing is executed. Every truncated length is an error.
#include <gtest/gtest.h>

#include "../sanitized.h"
#include "hf/safetensors.h"
#include "pytorch/pickle.h"
#include "pytorch/torch_source.h"
#include "torch_file.h"

namespace sluice::pytorch {
namespace {

using test::pickled;
using test::pickled_tensor;
using test::pickled_text;
using test::TorchTensor;
using test::ZipBuilder;

gguf::Bytes as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string ramp(size_t n, int first) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += static_cast<char>(first + static_cast<int>(i));
  return out;
}

// Two tensors share a storage, one of them a part of it; a third has its own.
const std::vector<TorchTensor> kTensors = {
    {"whole", "BFloat16Storage", "0", {2, 3}, {}, 0, 6},
    {"tied", "BFloat16Storage", "0", {2, 3}, {}, 0, 6},
    {"part", "BFloat16Storage", "0", {1, 3}, {7, 1}, 3, 6},
    {"own", "FloatStorage", "1", {2}, {}, 0, 2},
    {"scalar", "LongStorage", "2", {}, {}, 0, 1},
};

ZipBuilder members(const std::string& pickle) {
  ZipBuilder zip;
  zip.add("archive/data.pkl", pickle).add("archive/byteorder", "little");
  zip.add("archive/data/0", ramp(12, 1)).add("archive/data/1", ramp(8, 40));
  zip.add("archive/data/2", ramp(8, 80)).add("archive/version", "3\n");
  return zip;
}

Result<std::unique_ptr<TorchSource>> opened(const std::string& file) {
  return TorchSource::open(io::open_memory(as_bytes(file)), "pytorch_model.bin");
}

Status status_of(const std::string& pickle) {
  return pytorch::parse_pickle(as_bytes(pickle), "pytorch_model.bin").status();
}

void expect_refused(const std::string& pickle, Code code, std::string_view word) {
  const Status status = status_of(pickle);
  EXPECT_EQ(status.code(), code) << word << ": " << status.message();
  EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
}

TEST(Torch, ReadsAsSafetensors) {
  for (const bool zip64 : {false, true}) {
    const std::string file = members(pickled(kTensors)).build(zip64);
    const auto source = opened(file);
    ASSERT_TRUE(source.ok()) << source.status().message();
    std::string all((*source)->size(), '\0');
    ASSERT_TRUE((*source)->read(0, {reinterpret_cast<uint8_t*>(all.data()), all.size()}).ok());
    hf::SafetensorsFile parsed;
    const auto progress = hf::parse_safetensors(as_bytes(all), all.size(), "x", &parsed);
    ASSERT_TRUE(progress.ok() && progress->done) << progress.status().message();
    ASSERT_EQ(parsed.entries.size(), kTensors.size());
    const std::string wanted[] = {ramp(12, 1), ramp(12, 1), ramp(12, 1).substr(6), ramp(8, 40),
                                  ramp(8, 80)};
    const char* const dtypes[] = {"BF16", "BF16", "BF16", "F32", "I64"};
    for (size_t i = 0; i < kTensors.size(); ++i) {
      const hf::SafetensorsEntry& e = parsed.entries[i];
      EXPECT_EQ(e.name, kTensors[i].name);
      EXPECT_EQ(e.dtype, dtypes[i]);
      EXPECT_EQ(e.shape, kTensors[i].shape);
      EXPECT_EQ(all.substr(e.begin, e.end - e.begin), wanted[i]);
    }
    // Any part of it, also across tensors.
    for (size_t from = 0; from < all.size(); from += 5) {
      for (const size_t n : {size_t{1}, size_t{13}, all.size() - from}) {
        std::string part(std::min(n, all.size() - from), '\0');
        ASSERT_TRUE(
            (*source)->read(from, {reinterpret_cast<uint8_t*>(part.data()), part.size()}).ok());
        EXPECT_EQ(part, all.substr(from, part.size()));
      }
    }
    uint8_t beyond[2];
    EXPECT_FALSE((*source)->read(all.size() - 1, beyond).ok());
  }
}

TEST(Torch, EveryTruncatedLengthIsAnError) {
  const std::string pickle = pickled(kTensors), file = members(pickle).build();
  for (size_t n = 0; n < pickle.size(); ++n) {
    const std::string cut = pickle.substr(0, n);  // of the exact size
    ASSERT_FALSE(status_of(cut).ok()) << n;
  }
  for (size_t n = 0; n < file.size(); n += test::kSanitized ? 3 : 1) {
    const auto source = opened(file.substr(0, n));
    ASSERT_FALSE(source.ok()) << n;
    EXPECT_FALSE(source.status().message().empty());
  }
}

// Every byte of the pickle and of the records, flipped: an error or another description, never an
// out-of-bounds read.
TEST(Torch, EveryFlippedByteIsHarmless) {
  std::string file = members(pickled(kTensors)).build();
  for (size_t at = 0; at < file.size(); at += test::kSanitized ? 5 : 1) {
    for (const char with : {'\xff', '\x01', '\x80'}) {
      file[at] ^= with;
      if (const auto source = opened(file); source.ok()) {
        std::vector<uint8_t> all((*source)->size());
        EXPECT_TRUE((*source)->read(0, all).ok()) << at;
      }
      file[at] ^= with;
    }
  }
}

TEST(Torch, ExecutesNothing) {
  const std::string begin = "\x80\x02";
  expect_refused(begin + "cos\nsystem\n" + pickled_text("true") + "\x85R.", Code::kUnsupportedType,
                 "os.system");
  expect_refused(begin + "cbuiltins\neval\n.", Code::kUnsupportedType, "builtins.eval");
  expect_refused(begin + "ctorch\nload\n.", Code::kUnsupportedType, "torch.load");
  expect_refused(begin + "ctorch._utils\n_rebuild_sparse_tensor\n.", Code::kUnsupportedType,
                 "_rebuild_sparse_tensor");
  for (const char op : std::string_view("iIoVSFdglpP0122\x81\x82\x92\x93\x8b\x8c\x94")) {
    char name[8];
    std::snprintf(name, sizeof name, "0x%02x", static_cast<uint8_t>(op));
    expect_refused(begin + op + "x\ny\n.", Code::kBadHeader, name);
  }
}

TEST(Torch, RejectsNonsense) {
  const auto tensor = [](TorchTensor t) { return pickled({std::move(t)}); };
  const std::string begin = "\x80\x02";
  expect_refused(tensor({"t", "HalfStorage", "0", {2, 3}, {1, 2}, 0, 6}), Code::kBadShape,
                 "not contiguous");
  expect_refused(tensor({"t", "HalfStorage", "0", {2, 3}, {}, 1, 6}), Code::kBadShape, "storage");
  expect_refused(
      tensor({"t", "HalfStorage", "0", {uint64_t{1} << 40, uint64_t{1} << 40}, {}, 0, 6}),
      Code::kBadShape, "shape");
  expect_refused(tensor({"t\"", "HalfStorage", "0", {2}, {}, 0, 6}), Code::kBadHeader, "name");
  expect_refused(pickled({kTensors[0], kTensors[0]}), Code::kBadHeader, "two tensors");
  expect_refused(pickled({}), Code::kBadHeader, "without tensors");
  expect_refused(begin + "K\x01.", Code::kBadHeader, "not a dictionary");
  expect_refused(begin + "}}.", Code::kBadHeader, "not a dictionary");
  expect_refused(begin + "h\x05.", Code::kBadHeader, "memo entry");
  expect_refused(begin + "t.", Code::kBadHeader, "no mark");
  expect_refused(begin + "R.", Code::kBadHeader, "stack");
  expect_refused(begin + "}K\x01R.", Code::kBadHeader, "arguments");
  expect_refused(begin + "K\x01)R.", Code::kBadHeader, "function");
  expect_refused(begin + "K\x01Q.", Code::kBadHeader, "storage");
  expect_refused(begin + "K\x01K\x02K\x03s.", Code::kBadHeader, "dictionary");
  expect_refused("\x80\x09}.", Code::kBadHeader, "protocol");
}

TEST(Torch, ArchivesThatAreNotCheckpointsAreErrors) {
  const auto refused = [](const std::string& file, Code code, std::string_view word) {
    const auto source = opened(file);
    ASSERT_FALSE(source.ok()) << word;
    EXPECT_EQ(source.status().code(), code) << source.status().message();
    EXPECT_NE(source.status().message().find(word), std::string::npos) << source.status().message();
  };
  refused("\x80\x02}.", Code::kTruncated, "older form");
  refused(ZipBuilder().add("archive/x", "y").build(), Code::kBadHeader, "data.pkl");
  refused(ZipBuilder().add("archive/data.pkl", pickled(kTensors), 8).build(),
          Code::kUnsupportedType, "compressed");
  refused(ZipBuilder().add("archive/data.pkl", pickled(kTensors)).build(), Code::kTruncated,
          "storage");
  refused(ZipBuilder().add("a/data.pkl", pickled(kTensors)).add("a/byteorder", "big").build(),
          Code::kUnsupportedType, "order");
}

}  // namespace
}  // namespace sluice::pytorch
