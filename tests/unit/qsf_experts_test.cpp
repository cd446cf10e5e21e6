// QSF files with experts side by side: the same tensors as in the GGUF file, a record per expert
// with a checksum of its own, and an error for every damage and every impossible field.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../sanitized.h"
#include "convert/convert.h"
#include "gguf_builder.h"
#include "native/expert_source.h"
#include "native/model_file.h"
#include "qsf/crc32.h"
#include "qsf/experts.h"
#include "qsf/index.h"
#include "qsf_file.h"

namespace sluice::qsf_experts {
namespace {

using convert::Packing;
using Bytes = std::vector<uint8_t>;

constexpr size_t kExperts = 5, kColumns = 64;
// Rows of the tensors of an expert. Sizes are no multiples of the alignment.
constexpr std::pair<const char*, size_t> kTensors[] = {{"gate", 7}, {"up", 7}, {"down", 9}};

Bytes noise(size_t n) {
  static std::mt19937 random(3);
  Bytes bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() & 0x3f);  // finite numbers
  return bytes;
}

// Two layers of a mixture, with a dense one between them.
Bytes mixture() {
  constexpr uint32_t kQ80 = 8;
  constexpr size_t kRow = kColumns / 32 * 34;
  test::GgufBuilder file;
  file.string("general.architecture", "llama")
      .number("llama.block_count", uint32_t{3})
      .number("llama.embedding_length", uint32_t{kColumns})
      .tensor("token_embd.weight", kQ80, {kColumns, 3}, noise(3 * kRow))
      .tensor("output_norm.weight", 0, {kColumns}, noise(4 * kColumns));
  for (const std::string layer : {"blk.0.", "blk.1.", "blk.2."}) {
    file.tensor(layer + "attn_norm.weight", 0, {kColumns}, noise(4 * kColumns));
    for (const auto& [name, rows] : kTensors) {
      const bool dense = layer == "blk.1.";
      const std::string full = layer + "ffn_" + name + (dense ? ".weight" : "_exps.weight");
      const Bytes bytes = noise(rows * kRow * (dense ? 1 : kExperts));
      if (dense) {
        file.tensor(full, kQ80, {kColumns, rows}, bytes);
      } else {
        file.tensor(full, kQ80, {kColumns, rows, kExperts}, bytes);
      }
    }
    file.tensor(layer + "post_ffw_norm.weight", 0, {kColumns}, noise(4 * kColumns));
  }
  return file.build();
}

Bytes records_of(const Bytes& gguf, Packing packing = Packing::kNone) {
  convert::Options options;
  options.expert_records = true;
  return test::qsf_file(gguf, packing, options);
}

using Tensors = std::map<std::string, Bytes>;

// All tensors, read in two parts each.
Result<Tensors> tensors_of(native::ModelHeader& model) {
  Tensors out;
  for (const gguf::Tensor& t : model.header.tensors) {
    Bytes& bytes = out[std::string(t.name)];
    bytes.resize(t.bytes);
    const size_t part = bytes.size() * 2 / 5 + 1;
    SLUICE_RETURN_IF_ERROR(model.sources[0]->read(t.offset, std::span(bytes).first(part)));
    SLUICE_RETURN_IF_ERROR(model.sources[0]->read(t.offset + part, std::span(bytes).subspan(part)));
  }
  return out;
}
Result<Tensors> read_all(std::span<const uint8_t> file) {
  Result<native::ModelHeader> model = native::read_header(io::open_memory(file));
  if (!model.ok()) return model.status();
  return tensors_of(*model);
}

std::vector<qsf::Run> records(const Bytes& file) {
  const Result<qsf::ExpertTable> table = qsf::find_experts(std::span(file).first(128));
  EXPECT_TRUE(table.ok());
  const Result<qsf::Experts> experts =
      qsf::read_experts(std::span(file).subspan(table->offset, table->bytes));
  EXPECT_TRUE(experts.ok()) << experts.status().message();
  return experts->records;
}

TEST(QsfExperts, ContainTheGgufsBytes) {
  const Bytes gguf = mixture();
  const Result<Tensors> wanted = read_all(gguf);
  ASSERT_TRUE(wanted.ok());
  ASSERT_EQ(wanted->size(), 2u + 3 * 5);
  for (const Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    if (!test::can_pack(packing)) continue;
    const Bytes file = records_of(gguf, packing);
    const Result<Tensors> got = read_all(file);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_TRUE(*got == *wanted) << static_cast<int>(packing);
  }
}

TEST(QsfExperts, AreSideBySide) {
  const Bytes gguf = mixture(), file = records_of(gguf);
  const Result<Tensors> tensors = read_all(gguf);
  const std::vector<qsf::Run> found = records(file);
  ASSERT_EQ(found.size(), 2 * kExperts);
  for (size_t i = 0; i < found.size(); ++i) {
    Bytes record;
    for (const auto& [name, rows] : kTensors) {
      const Bytes& whole = tensors->at((i < kExperts ? "blk.0.ffn_" : "blk.2.ffn_") +
                                       std::string(name) + "_exps.weight");
      const size_t slice = whole.size() / kExperts;
      record.resize((record.size() + 63) / 64 * 64);
      const auto from = whole.begin() + static_cast<ptrdiff_t>(i % kExperts * slice);
      record.insert(record.end(), from, from + static_cast<ptrdiff_t>(slice));
    }
    EXPECT_EQ(found[i].offset % 4096, 0u);
    ASSERT_EQ(found[i].stored, record.size());
    EXPECT_TRUE(std::equal(record.begin(), record.end(),
                           file.begin() + static_cast<ptrdiff_t>(found[i].offset)));
    EXPECT_EQ(found[i].crc, qsf::crc32(record));
  }
}

// Without the option, and without experts, files are as before.
TEST(QsfExperts, ChangeNoOtherFile) {
  const Bytes plain = test::qsf_file(mixture(), Packing::kNone);
  EXPECT_EQ(plain[4], 1);
  EXPECT_TRUE(records(plain).empty());
  test::GgufBuilder dense;
  dense.string("general.architecture", "llama")
      .number("llama.embedding_length", uint32_t{kColumns})
      .f32("token_embd.weight", {kColumns, 2})
      .f32("blk.0.ffn_up.weight", {kColumns, 20});
  const Bytes gguf = dense.build();
  EXPECT_EQ(records_of(gguf), test::qsf_file(gguf, Packing::kNone));
}

TEST(QsfExperts, OnlyADamagedExpertIsFetchedAgain) {
  const Bytes file = records_of(mixture());
  const qsf::Run record = records(file)[3];  // of expert 3 of layer 0
  for (const int times : {1, 2}) {
    auto damaged =
        std::make_unique<test::DamagedSource>(file, record.offset + record.stored / 2, times);
    test::DamagedSource* raw = damaged.get();
    Result<native::ModelHeader> model = native::read_header(std::move(damaged));
    ASSERT_TRUE(model.ok()) << model.status().message();
    const gguf::Tensor& t = *model->header.find_tensor("blk.0.ffn_gate_exps.weight");
    Bytes slice(t.bytes / kExperts);
    for (size_t e = 0; e < kExperts; ++e) {
      const Status read = model->sources[0]->read(t.offset + e * slice.size(), slice);
      EXPECT_EQ(read.ok(), e != 3 || times == 1) << read.message();
      if (read.ok()) continue;
      EXPECT_EQ(read.code(), Code::kCorrupt);
      EXPECT_NE(read.message().find("an expert"), std::string::npos);
    }
    ASSERT_EQ(raw->refreshed.size(), 1u);
    EXPECT_EQ(raw->refreshed[0], std::pair(record.offset, record.stored));
  }
}

int most_reads(const test::CountedSource& file, const qsf::Run& record) {
  const auto first = file.counts.begin() + static_cast<ptrdiff_t>(record.offset);
  return *std::max_element(first, first + static_cast<ptrdiff_t>(record.stored));
}

// What a use of an expert reads: its slice of each tensor.
Status read_expert(native::ModelHeader& model, const std::string& layer, size_t e) {
  for (const auto& [name, rows] : kTensors) {
    const gguf::Tensor& t = *model.header.find_tensor(layer + "ffn_" + name + "_exps.weight");
    Bytes slice(t.bytes / kExperts);
    SLUICE_RETURN_IF_ERROR(model.sources[0]->read(t.offset + e * slice.size(), slice));
  }
  return {};
}

// The read that verifies a record is the one that serves its slices.
TEST(QsfExperts, ARecordIsReadOnce) {
  const Bytes file = records_of(mixture());
  const std::vector<qsf::Run> all = records(file);
  auto counted = std::make_unique<test::CountedSource>(file);
  test::CountedSource& counts = *counted;
  Result<native::ModelHeader> model = native::read_header(std::move(counted));
  ASSERT_TRUE(model.ok());
  counts.restart();
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(read_expert(*model, i < kExperts ? "blk.0." : "blk.2.", i % kExperts).ok());
    EXPECT_EQ(most_reads(counts, all[i]), 1) << i;
  }
  // Later uses read their slices only, and no other record.
  ASSERT_TRUE(read_expert(*model, "blk.0.", 2).ok());
  EXPECT_EQ(most_reads(counts, all[2]), 2);
  EXPECT_EQ(most_reads(counts, all[3]), 1);
}

TEST(QsfExperts, ThreadsShareTheReadsOfARecord) {
  const Bytes file = records_of(mixture());
  const Result<Tensors> wanted = read_all(file);
  ASSERT_TRUE(wanted.ok());
  for (int round = 0; round < (test::kSanitized ? 10 : 100); ++round) {
    auto counted = std::make_unique<test::CountedSource>(file);
    test::CountedSource& counts = *counted;
    Result<native::ModelHeader> model = native::read_header(std::move(counted));
    ASSERT_TRUE(model.ok());
    counts.restart();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (size_t n = 0; n < 4; ++n) {
      threads.emplace_back([&, n] {
        for (const std::string name : {"gate", "up", "down"}) {
          const std::string full = "blk.0.ffn_" + name + "_exps.weight";
          const gguf::Tensor& t = *model->header.find_tensor(full);
          const Bytes& all = wanted->at(full);
          Bytes slice(t.bytes / kExperts);
          for (const size_t e : {size_t{1}, 2 + n % 2}) {
            const auto from = all.begin() + static_cast<ptrdiff_t>(e * slice.size());
            const Status read = model->sources[0]->read(t.offset + e * slice.size(), slice);
            if (!read.ok() || !std::equal(slice.begin(), slice.end(), from)) ++wrong;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(most_reads(counts, records(file)[4]), 0);
    EXPECT_GE(most_reads(counts, records(file)[1]), 1);
  }
}

TEST(QsfExperts, EveryTruncationIsAnError) {
  const Bytes file = records_of(mixture());
  for (size_t n = 0; n < file.size(); n += test::kSanitized ? 97 : 11) {
    ASSERT_FALSE(read_all(std::span(file).first(n)).ok()) << n;
  }
}

TEST(QsfExperts, EveryFlippedBitIsAnErrorOrChangesNothing) {
  Bytes file = records_of(mixture());
  const Result<Tensors> wanted = read_all(file);
  ASSERT_TRUE(wanted.ok());
  size_t errors = 0;
  for (size_t bit = 0; bit < 8 * file.size(); bit += test::kSanitized ? 1009 : 101) {
    file[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const Result<Tensors> got = read_all(file);
    EXPECT_TRUE(!got.ok() || *got == *wanted) << "bit " << bit;
    errors += !got.ok();
    file[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  EXPECT_GT(errors, 100u);
}

// The file with the 32-bit field at `at` changed, and right checksums.
Bytes changed(Bytes file, size_t at, uint32_t value) {
  std::memcpy(file.data() + at, &value, sizeof value);
  qsf::Front front;
  const uint32_t head = qsf::crc32(std::span(file).first(96));
  std::memcpy(file.data() + 96, &head, sizeof head);
  if (!qsf::read_front(file, file.size(), &front).ok()) return file;
  const std::span<const uint8_t> all(file);
  const uint64_t end = front.metadata + front.metadata_bytes;
  const uint32_t sum = qsf::crc32(
      all.subspan(front.metadata, front.metadata_bytes - 8),
      qsf::crc32(all.subspan(front.index, front.index_bytes()), qsf::crc32(all.subspan(100, 28))));
  std::memcpy(file.data() + end - 8, &sum, sizeof sum);
  return file;
}

TEST(QsfExperts, EveryImpossibleFieldIsAnError) {
  const Bytes file = records_of(mixture());
  const Result<qsf::ExpertTable> place = qsf::find_experts(std::span(file).first(128));
  ASSERT_TRUE(place.ok());
  const auto bytes = static_cast<uint32_t>(place->bytes);
  const auto table = static_cast<uint32_t>(place->offset);
  ASSERT_EQ(bytes, 2 * (qsf::kExpertEntryBytes + 4 * (std::size(kTensors) + kExperts)));
  const std::pair<size_t, std::vector<uint32_t>> fields[] = {
      {112, {0, 100, table - 4, table + 4, 0xffffffffu}},
      {116, {1, 0xffffffffu}},                                    // its high half
      {120, {0, 23, bytes / 2, bytes - 4, bytes + 4, 1u << 30}},  // bytes of the table
      {table, {0, 4096, 0xfffff000u}},                            // the first record
      {table + 4, {1, 0x80000000u, 0xffffffffu}},                 // its high half
      {table + 8, {0, 1, 64, 0xffffffffu}},                       // bytes of a record
      {table + 12, {0, 1, 4, 6, 9, 0x10000u, 0xffffffffu}},       // experts
      {table + 16, {0, 1, 2, 4, 65, 0xffffffffu}},                // tensors
      {table + 20, {0, 1, 32, 63, 65, 4096, 0x80000000u}},        // alignment
      {table + 24, {0, 1, 475, 477, 0xffffffffu}},                // a slice
      {table + 36, {0}},                                          // a checksum
  };
  for (const auto& [at, values] : fields) {
    for (const uint32_t value : values) {
      const Status read = read_all(changed(file, at, value)).status();
      EXPECT_FALSE(read.ok()) << "field " << at << ", value " << value;
      EXPECT_FALSE(read.message().empty());
    }
  }
  EXPECT_TRUE(read_all(changed(file, table + 12, kExperts)).ok());
  EXPECT_EQ(read_all(changed(file, 4, 3)).status().code(), Code::kUnsupportedVersion);
  EXPECT_FALSE(read_all(changed(file, 4, 1)).ok());  // nothing says where the experts are
}

// Ranges that no tensor has.
TEST(QsfExperts, ReadsOutsideTensorsAreErrors) {
  const Bytes file = records_of(mixture());
  Result<native::ModelHeader> model = native::read_header(io::open_memory(file));
  ASSERT_TRUE(model.ok());
  const gguf::Tensor& t = *model->header.find_tensor("blk.2.ffn_down_exps.weight");
  Bytes out(t.bytes + 1);
  io::ByteSource& source = *model->sources[0];
  EXPECT_TRUE(source.read(t.offset, std::span(out).first(t.bytes)).ok());
  for (const uint64_t at :
       {t.offset, t.offset + t.bytes, t.offset + (uint64_t{1} << 41), UINT64_MAX}) {
    EXPECT_EQ(source.read(at, out).code(), Code::kTruncated);
  }
}

}  // namespace
}  // namespace sluice::qsf_experts
