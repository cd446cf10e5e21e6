// QSF files contain the same bytes as the GGUF file, for any compression. Every flipped bit and
// every truncated length is an error or changes nothing. A layer that arrives damaged is fetched
// again, and only that layer.
#include "qsf/qsf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "../extent.h"
#include "../sanitized.h"
#include "http_test_server.h"
#include "kernels/reference/reference.h"
#include "native/model_file.h"
#include "native/qsf_source.h"
#include "qsf/crc32.h"
#include "qsf_file.h"

namespace sluice {
namespace {

using convert::Packing;
using test::gguf_file;
using test::kSanitized;
using test::qsf_file;
using Bytes = std::vector<uint8_t>;

constexpr Packing kPackings[] = {Packing::kNone, Packing::kLz4, Packing::kLz4Hc, Packing::kZstd,
                                 Packing::kAuto};

struct Contents {
  std::map<std::string, Bytes> metadata;
  std::map<std::string, std::pair<std::string, Bytes>> tensors;  // type and shape; bytes
  bool operator==(const Contents&) const = default;
};

Result<Contents> contents_of(native::ModelHeader& model) {
  Contents out;
  for (const gguf::KeyValue& kv : model.header.metadata) {
    out.metadata[std::string(kv.key)].assign(kv.value.bytes.begin(), kv.value.bytes.end());
  }
  for (const gguf::Tensor& t : model.header.tensors) {
    std::string what = std::to_string(static_cast<uint32_t>(t.type));
    for (uint32_t d = 0; d < t.n_dims; ++d) what += "," + std::to_string(t.ne[d]);
    Bytes bytes(t.bytes);
    // In two parts, so that neither is a whole frame.
    const size_t half = bytes.size() / 3;
    SLUICE_RETURN_IF_ERROR(model.sources[0]->read(t.offset, std::span(bytes).first(half)));
    SLUICE_RETURN_IF_ERROR(model.sources[0]->read(t.offset + half, std::span(bytes).subspan(half)));
    out.tensors[std::string(t.name)] = {what, std::move(bytes)};
  }
  return out;
}
Result<Contents> read_all(std::span<const uint8_t> file) {
  Result<native::ModelHeader> model = native::read_header(io::open_memory(file));
  if (!model.ok()) return model.status();
  return contents_of(*model);
}

TEST(QsfCrc, MatchesZlib) {
  const std::string text = "123456789";
  const std::span<const uint8_t> bytes{reinterpret_cast<const uint8_t*>(text.data()), 9};
  EXPECT_EQ(qsf::crc32(bytes), 0xCBF43926u);
  EXPECT_EQ(qsf::crc32({}), 0u);
  for (size_t n = 0; n <= 9; ++n) {
    const uint32_t a = qsf::crc32(bytes.first(n)), b = qsf::crc32(bytes.subspan(n));
    EXPECT_EQ(qsf::crc32(bytes.subspan(n), a), 0xCBF43926u);
    EXPECT_EQ(qsf::crc32_joined(a, b, 9 - n), 0xCBF43926u);
  }
}

// Of all lengths around the blocks of the fast implementations, at all alignments.
TEST(QsfCrc, EveryImplementationMatchesTheDefinition) {
  std::mt19937 random(17);
  Bytes bytes(2000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const auto defined = [](std::span<const uint8_t> of, uint32_t before) {
    uint32_t sum = ~before;
    for (const uint8_t byte : of) {
      sum ^= byte;
      for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0xEDB88320u : 0);
    }
    return ~sum;
  };
  for (size_t n = 0; n < 400; ++n) {
    const size_t length = n < 300 ? n : 300 + random() % 1600;
    const auto part = std::span(bytes).subspan(n % 37, length);
    const uint32_t before = n % 3 == 0 ? 0 : static_cast<uint32_t>(random());
    const uint32_t wanted = defined(part, before);
    EXPECT_EQ(qsf::crc32(part, before), wanted) << length;
    EXPECT_EQ(qsf::crc32_by_tables(part, before), wanted) << length;
  }
}

TEST(QsfFile, ContainsTheGgufsBytes) {
  for (const size_t rows : {size_t{2}, size_t{3000}}) {  // 3000: several frames, the last one short
    const Bytes gguf = gguf_file(rows);
    const Result<Contents> wanted = read_all(gguf);
    ASSERT_TRUE(wanted.ok());
    ASSERT_EQ(wanted->tensors.size(), 10u);
    for (const Packing packing : kPackings) {
      if (!test::can_pack(packing)) continue;
      const Bytes file = qsf_file(gguf, packing);
      EXPECT_EQ(qsf_file(gguf, packing), file);
      const Result<Contents> got = read_all(file);
      ASSERT_TRUE(got.ok()) << got.status().message();
      EXPECT_TRUE(*got == *wanted) << static_cast<int>(packing) << " rows " << rows;
      if (rows == 3000 && packing >= Packing::kZstd) {
        EXPECT_LT(file.size(), gguf.size() * 9 / 10);
      }
    }
  }
}

constexpr const char* kOwnTypes[] = {"qsf2", "qsf3", "qsf4", "qsft"};

// QSF's own types have their own codes and round-trip.
TEST(QsfFile, ContainsQsfTypes) {
  const Bytes gguf = gguf_file(2);
  const Result<Contents> wanted = read_all(gguf);
  for (size_t i = 0; i < std::size(kOwnTypes); ++i) {
    const Bytes file = qsf_file(gguf, Packing::kNone, kOwnTypes[i]);
    const Result<Contents> got = read_all(file);
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_EQ(got->tensors.size(), wanted->tensors.size());
    const auto& [what, bytes] = got->tensors.at("blk.1.attn_q.weight");
    EXPECT_EQ(what, std::to_string(225 + i) + ",64,2");
    const size_t block = kernels::reference::block_bytes(static_cast<kernels::Type>(225 + i));
    ASSERT_EQ(bytes.size(), 2 * block);
    std::vector<float> x(128), y(128);
    kernels::reference::dequantize(kernels::Type::kBF16,
                                   wanted->tensors.at("blk.1.attn_q.weight").second.data(), 128,
                                   x.data());
    kernels::reference::dequantize(static_cast<kernels::Type>(225 + i), bytes.data(), 128,
                                   y.data());
    double error = 0, power = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      error += std::pow(x[j] - y[j], 2);
      power += std::pow(x[j], 2);
    }
    EXPECT_LT(error, 0.3 * power) << kOwnTypes[i];
    // The type code in the tensor header, which precedes these bytes and its padding.
    const auto at = std::search(file.begin(), file.end(), bytes.begin(), bytes.end());
    ASSERT_NE(at, file.end());
    EXPECT_EQ(*(at - 64 + 12), 1 + i);
  }
}

// GGUF cannot represent these types.
TEST(QsfFile, QsfTypesCannotBeWrittenToGguf) {
  const Bytes gguf = gguf_file(2);
  gguf::Header header;
  ASSERT_TRUE(gguf::parse_header(gguf, gguf.size(), &header)->done);
  std::vector<std::unique_ptr<io::ByteSource>> sources;
  sources.push_back(io::open_memory(gguf));
  const Result<convert::Source> source = convert::Source::create(header, sources);
  ASSERT_TRUE(source.ok());
  test::MemoryFile out;
  convert::Options options;
  options.type = "qsf4";
  const Result<convert::Report> made = convert::to_gguf(*source, options, &out);
  EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  EXPECT_NE(made.status().message().find("QSF4"), std::string::npos);
}

TEST(QsfFile, EveryTruncationIsAnError) {
  for (const Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    if (!test::can_pack(packing)) continue;
    const Bytes file = qsf_file(gguf_file(2), packing, packing == Packing::kNone ? "qsf3" : "");
    for (size_t n = 0; n < file.size(); n += kSanitized ? 7 : 1) {
      ASSERT_FALSE(read_all(std::span(file).first(n)).ok()) << n;
    }
  }
}

// Padding may be anything; all other bits are covered by a checksum.
TEST(QsfFile, EveryFlippedBitIsAnErrorOrChangesNothing) {
  for (const Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    if (!test::can_pack(packing)) continue;
    Bytes file = qsf_file(gguf_file(2), packing, packing == Packing::kNone ? "qsf2" : "");
    const Result<Contents> wanted = read_all(file);
    ASSERT_TRUE(wanted.ok());
    size_t harmless = 0;
    const int some = packing == Packing::kNone ? 7 : 19;  // odd: all bits of a byte are met
    const int step = kSanitized ? 61 : test::extent(some, packing == Packing::kLz4 ? 7 : 1);
    for (size_t bit = 0; bit < 8 * file.size(); bit += static_cast<size_t>(step)) {
      file[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const Result<Contents> got = read_all(file);
      if (got.ok()) {
        ++harmless;
        EXPECT_TRUE(*got == *wanted) << "bit " << bit;
        EXPECT_EQ(file[bit / 8] & (file[bit / 8] - 1), 0) << "not a padding bit: " << bit;
      } else {
        EXPECT_FALSE(got.status().message().empty());
      }
      file[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    }
    EXPECT_GT(harmless, 0u);
  }
}

// Constant weights compress to a few bytes per frame.
TEST(QsfFile, ContainsHighlyCompressibleLayers) {
  test::GgufBuilder file;
  file.string("general.architecture", "llama")
      .number("llama.embedding_length", uint32_t{64})
      .f32("token_embd.weight", {64, 2})
      .f32("blk.0.ffn_up.weight", {64, 20000});
  const Bytes gguf = file.build();
  const Result<Contents> wanted = read_all(gguf);
  for (const Packing packing : {Packing::kLz4, Packing::kLz4Hc, Packing::kZstd}) {
    if (!test::can_pack(packing)) continue;
    const Bytes packed = qsf_file(gguf, packing);
    EXPECT_LT(packed.size(), gguf.size() / 50);
    const Result<Contents> got = read_all(packed);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_TRUE(*got == *wanted);
  }
}

Status opening(Bytes file, size_t at, uint8_t value) {
  file[at] = value;
  const uint32_t sum = qsf::crc32(std::span(file).first(96));
  std::memcpy(file.data() + 96, &sum, 4);
  return read_all(file).status();
}

TEST(QsfFile, ErrorsNameFalseFields) {
  const Bytes file = qsf_file(gguf_file(2), Packing::kNone);
  EXPECT_EQ(opening(file, 4, 3).code(), Code::kUnsupportedVersion);
  EXPECT_EQ(opening(file, 4, 2).code(), Code::kBadHeader);  // without a table of experts
  EXPECT_EQ(opening(file, 0, 'X').code(), Code::kNotGguf);
  EXPECT_EQ(opening(file, 8, 64).code(), Code::kBadHeader);
  EXPECT_EQ(opening(file, 17, 0xff).code(), Code::kBadHeader);  // layers
  EXPECT_EQ(opening(file, 20, 32).code(), Code::kBadShape);     // hidden size
  EXPECT_EQ(opening(file, 32, 9).code(), Code::kBadShape);      // vocabulary
  EXPECT_EQ(opening(file, 92, 1).code(), Code::kTruncated);     // file size
  EXPECT_EQ(opening(file, 56, 129).code(), Code::kCorrupt);     // the index is elsewhere
}

// The header and runs of a file.
struct Parsed {
  explicit Parsed(const Bytes& file) : front(file) {
    const auto parsed = qsf::parse(front, file.size(), &header, &runs);
    done = parsed.ok() && parsed->done;
  }
  Bytes front;  // the header's strings lie here
  gguf::Header header;
  std::vector<qsf::Run> runs;
  bool done = false;
};

TEST(QsfFile, OnlyADamagedLayerIsFetchedAgain) {
  for (const Packing packing : {Packing::kNone, Packing::kZstd}) {
    if (!test::can_pack(packing)) continue;
    const Bytes file = qsf_file(gguf_file(3000), packing);
    const Parsed parsed(file);
    ASSERT_TRUE(parsed.done);
    const std::vector<qsf::Run>& runs = parsed.runs;
    const auto layer =
        std::find_if(runs.begin(), runs.end(), [](const auto& r) { return r.layer; });
    for (const int times : {1, 2}) {
      auto damaged =
          std::make_unique<test::DamagedSource>(file, layer->offset + layer->stored / 2, times);
      test::DamagedSource* raw = damaged.get();
      Result<native::ModelHeader> model = native::read_header(std::move(damaged));
      ASSERT_TRUE(model.ok());
      const Result<Contents> got = contents_of(*model);
      ASSERT_EQ(raw->refreshed.size(), 1u);
      EXPECT_EQ(raw->refreshed[0], std::pair(layer->offset, layer->stored));
      EXPECT_EQ(got.ok(), times == 1);
      if (times == 1) {
        EXPECT_TRUE(*got == *read_all(file));
      } else {
        EXPECT_EQ(got.status().code(), Code::kCorrupt);
        EXPECT_TRUE(contents_of(*model).ok());  // a later read does not report the past error
      }
    }
  }
}

TEST(QsfFile, ManyThreadsReadTheSame) {
  for (const Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    if (!test::can_pack(packing)) continue;
    const Bytes file = qsf_file(gguf_file(5000), packing);
    const Parsed parsed(file);
    ASSERT_TRUE(parsed.done);
    const std::vector<qsf::Run>& runs = parsed.runs;
    auto source = native::QsfSource::open(io::open_memory(file), runs, 3);
    ASSERT_TRUE(source.ok());
    const Result<Contents> wanted = read_all(file);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int n = 0; n < 5; ++n) {
      threads.emplace_back([&, n] {
        const gguf::Tensor& t = *parsed.header.find_tensor("blk.1.attn_q.weight");
        const Bytes& all = wanted->tensors.at("blk.1.attn_q.weight").second;
        for (size_t i = 0; i < 40; ++i) {
          const size_t at = (i * 37 + static_cast<size_t>(n) * 91) * 997 % (all.size() - 200000);
          Bytes part(100 + (i % 3) * 90000);
          if (!(*source)->read(t.offset + at, part).ok() ||
              !std::equal(part.begin(), part.end(), all.begin() + static_cast<ptrdiff_t>(at))) {
            ++wrong;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
}

qsf::Run layer_of(const std::vector<qsf::Run>& runs, const gguf::Tensor& t) {
  for (const qsf::Run& run : runs) {
    if (t.offset >= run.address && t.offset - run.address < run.bytes) return run;
  }
  return {};
}

// Reads ranges that cover most of a layer, in any order and from several threads.
Status read_scattered(io::ByteSource& source, const gguf::Tensor& t, const Bytes& wanted) {
  constexpr size_t kPart = 700;
  std::vector<size_t> starts;
  for (size_t at = 0; at < wanted.size(); at += kPart) starts.push_back(at);
  std::shuffle(starts.begin(), starts.end(), std::mt19937(9));
  Status failure;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (size_t n = 0; n < 3; ++n) {
    threads.emplace_back([&, n] {
      for (size_t i = n; i < starts.size(); i += 3) {
        Bytes part(std::min(kPart, wanted.size() - starts[i]));
        const Status read = source.read(t.offset + starts[i], part);
        const auto from = wanted.begin() + static_cast<ptrdiff_t>(starts[i]);
        const std::lock_guard<std::mutex> lock(mutex);
        if (!read.ok() || !std::equal(part.begin(), part.end(), from)) {
          failure = error(Code::kInternal, "wrong bytes");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failure;
}

// With deferred checks each byte is read once, and damage is found at the end.
TEST(QsfFile, DeferredChecksReadOnce) {
  const Bytes file = qsf_file(gguf_file(3000), Packing::kNone);
  const Parsed parsed(file);
  ASSERT_TRUE(parsed.done);
  const std::vector<qsf::Run>& runs = parsed.runs;
  const gguf::Tensor& t = *parsed.header.find_tensor("blk.1.attn_q.weight");
  const Bytes wanted = read_all(file)->tensors.at("blk.1.attn_q.weight").second;
  auto counted = std::make_unique<test::CountedSource>(file);
  const test::CountedSource& counts = *counted;
  auto source = native::QsfSource::open(std::move(counted), runs, 2);
  ASSERT_TRUE(source.ok());
  (*source)->defer_checks();
  const Status read = read_scattered(**source, t, wanted);
  EXPECT_TRUE(read.ok()) << read.message();
  const Status checked = (*source)->run_deferred_checks();
  EXPECT_TRUE(checked.ok()) << checked.message();
  EXPECT_EQ(*std::max_element(counts.counts.begin(), counts.counts.end()), 1);
  // The layer is verified now: a read is a read of what is asked for.
  Bytes some(100);
  ASSERT_TRUE((*source)->read(t.offset, some).ok());
  EXPECT_EQ(std::accumulate(counts.counts.begin(), counts.counts.end(), 0),
            static_cast<int>(layer_of(runs, t).stored + some.size()));
}

TEST(QsfFile, DeferredChecksFindDamage) {
  const Bytes file = qsf_file(gguf_file(3000), Packing::kNone);
  const Parsed parsed(file);
  ASSERT_TRUE(parsed.done);
  const std::vector<qsf::Run>& runs = parsed.runs;
  const gguf::Tensor& t = *parsed.header.find_tensor("blk.1.attn_q.weight");
  const qsf::Run layer = layer_of(runs, t);
  // In what is read, and between it: the header of the layer's first tensor.
  for (const uint64_t at : {t.offset + t.bytes / 2, layer.offset}) {
    auto source = native::QsfSource::open(
        std::make_unique<test::DamagedSource>(file, static_cast<size_t>(at), 1), runs, 2);
    ASSERT_TRUE(source.ok());
    (*source)->defer_checks();
    Bytes out(t.bytes);
    ASSERT_TRUE((*source)->read(t.offset, out).ok());
    const Status checked = (*source)->run_deferred_checks();
    EXPECT_EQ(checked.code(), Code::kCorrupt);
    EXPECT_NE(checked.message().find("a layer"), std::string::npos) << checked.message();
  }
}

// A layer is decoded from its start, without memory for all of it.
TEST(QsfFile, LayersOfOneBlockAreDecodedInPieces) {
  if (!test::can_pack(Packing::kLz4)) GTEST_SKIP() << "no LZ4 library";
  const Bytes file = qsf_file(gguf_file(20000), Packing::kLz4);
  const Parsed parsed(file);
  ASSERT_TRUE(parsed.done);
  const std::vector<qsf::Run>& runs = parsed.runs;
  auto source = native::QsfSource::open(io::open_memory(file), runs, 1);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ((*source)->decompression(), native::Decompression::kBlocks);
  const gguf::Tensor& t = *parsed.header.find_tensor("blk.1.attn_q.weight");
  EXPECT_LT((*source)->memory(), t.bytes / 4);
  const Bytes all = read_all(file)->tensors.at("blk.1.attn_q.weight").second;
  // Onwards with and without gaps, back, and across the end of the layer.
  for (const auto& [at, n] : {std::pair<size_t, size_t>{0, 10},
                              {10, 100000},
                              {900000, 5},
                              {all.size() - 7, 7},
                              {100010, 70000},
                              {3, 1}}) {
    Bytes part(n);
    ASSERT_TRUE((*source)->read(t.offset + at, part).ok());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<ptrdiff_t>(at)))
        << at;
  }
}

// The same over HTTP with a cache: a damaged cached layer is deleted and downloaded again.
TEST(QsfFile, ADamagedCachedLayerIsDownloadedAgain) {
  const Bytes file =
      qsf_file(gguf_file(3000), test::can_pack(Packing::kZstd) ? Packing::kZstd : Packing::kNone);
  std::atomic<int> damaged{0};
  test::HttpTestServer server([&](const test::HttpRequest& request) {
    const auto range = request.range().value_or(std::pair<uint64_t, uint64_t>(0, file.size() - 1));
    const uint64_t last = std::min<uint64_t>(range.second, file.size() - 1);
    test::HttpReply reply;
    reply.status = 206;
    reply.body.assign(file.begin() + static_cast<ptrdiff_t>(range.first),
                      file.begin() + static_cast<ptrdiff_t>(last + 1));
    const size_t at = file.size() - 20000;  // in the second layer
    if (range.first <= at && at <= last && damaged++ == 0) reply.body[at - range.first] ^= 1;
    reply.headers = {
        {"Content-Range", "bytes " + std::to_string(range.first) + "-" + std::to_string(last) +
                              "/" + std::to_string(file.size())},
        {"ETag", "\"one\""}};
    return reply;
  });
  std::string dir = (std::filesystem::temp_directory_path() / "sluice-qsf-XXXXXX").string();
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  {
    io::OpenOptions options;
    options.cache_dir = dir;
    Result<native::ModelHeader> model = native::read_header(server.url("/model.qsf"), options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Result<Contents> got = contents_of(*model);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_TRUE(*got == *read_all(file));
    EXPECT_GE(damaged, 2);
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sluice
