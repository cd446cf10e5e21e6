// The recurrent families' fixtures with wrong sizes: metadata about convolutions, states and heads
// must agree with the tensors' shapes. State sizes follow from these, so nothing is planned from an
// unchecked number.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "../paths.h"
#include "model/program.h"

namespace sluice::model {
namespace {

struct Fixture {
  std::string name;
  std::vector<uint8_t> bytes;
  gguf::Header header;
};

// The fixtures of ../shared/fixtures/families; empty if that is absent.
std::vector<Fixture> fixtures() {
  const auto folder = std::filesystem::path(sluice::test::shared_dir()) / "fixtures/families";
  std::vector<Fixture> out;
  if (!std::filesystem::exists(folder)) return out;
  for (const char* name : {"mamba", "mamba2", "falcon-h1", "granitehybrid-dense", "granitehybrid",
                           "nemotron_h", "nemotron_h_moe", "jamba", "qwen35", "qwen35moe",
                           "qwen3next", "rwkv6", "rwkv7", "plamo2"}) {
    std::ifstream file(folder / (std::string(name) + ".gguf"), std::ios::binary);
    EXPECT_TRUE(file) << name << " is missing";
    Fixture& f = out.emplace_back();
    f.name = name;
    f.bytes = {std::istreambuf_iterator<char>(file), {}};
  }
  for (Fixture& f : out) {
    EXPECT_TRUE(gguf::parse_header(f.bytes, f.bytes.size(), &f.header).ok()) << f.name;
  }
  return out;
}

#define FIXTURES_OR_SKIP(name)                  \
  const std::vector<Fixture> name = fixtures(); \
  if (name.empty()) GTEST_SKIP() << "no ../shared/fixtures/families"

bool is_refusal(const Status& status) {
  switch (status.code()) {
    case Code::kBadHeader:
    case Code::kBadShape:
    case Code::kMissingTensor:
    case Code::kUnsupportedArchitecture:
      return true;
    default:
      return false;
  }
}

TEST(RecurrentModel, EveryFixtureBuilds) {
  FIXTURES_OR_SKIP(all);
  for (const Fixture& f : all) {
    const auto program = build_program(f.header);
    ASSERT_TRUE(program.ok()) << f.name << ": " << program.status().message();
    // The parts of a layer's state are contiguous.
    std::map<int32_t, int64_t> end;
    for (const Op& op : program->ops) {
      const Carried* state = op.carried();
      if (state == nullptr) continue;
      EXPECT_GT(state->size, 0) << f.name << ", layer " << op.layer;
      EXPECT_EQ(state->at, end[op.layer]) << f.name << ", layer " << op.layer;
      end[op.layer] = state->at + state->size;
    }
    EXPECT_FALSE(end.empty()) << f.name;
  }
}

TEST(RecurrentModel, SizesThatContradictTheTensorsAreErrors) {
  constexpr uint32_t kSizes[] = {0, 1, 2, 3, 5, 7, 100, 4095, 4096, 4097, 1u << 20, UINT32_MAX};
  FIXTURES_OR_SKIP(all);
  for (const Fixture& f : all) {
    size_t tried = 0;
    for (size_t i = 0; i < f.header.metadata.size(); ++i) {
      const std::string key(f.header.metadata[i].key);
      const std::string own = key.substr(std::min(key.size(), key.find('.') + 1));
      const bool size = own.starts_with("ssm.") || own == "wkv.head_size" ||
                        own == "full_attention_interval" || own == "token_shift_count";
      if (!size || (f.name == "plamo2" && own == "ssm.group_count")) continue;
      for (const uint32_t n : kSizes) {
        gguf::Header changed = f.header;
        gguf::Value& value = changed.metadata[i].value;
        if (value.as_u64() == n) continue;
        // Any head size that divides the width fits the tensors.
        if (own == "wkv.head_size" && n > 0 && 64 % n == 0) continue;
        const uint8_t* bytes = reinterpret_cast<const uint8_t*>(&n);
        value = {gguf::ValueType::kU32, gguf::ValueType::kU32, 1, {bytes, bytes + sizeof n}};
        const Status status = build_program(changed).status();
        EXPECT_TRUE(is_refusal(status)) << f.name << " with " << key << " = " << n << ": "
                                        << (status.ok() ? "accepted" : status.message());
        ++tried;
      }
    }
    EXPECT_GT(tried, 0u) << f.name;
  }
}

TEST(RecurrentModel, TensorsOfWrongShapeAreErrors) {
  FIXTURES_OR_SKIP(all);
  for (const Fixture& f : all) {
    for (size_t i = 0; i < f.header.tensors.size(); ++i) {
      // The first layer computes the values that others mix in, so it does not use these.
      if (f.header.tensors[i].name.starts_with("blk.0.time_mix_v") && f.name == "rwkv7" &&
          f.header.tensors[i].name != "blk.0.time_mix_value.weight") {
        continue;
      }
      for (const size_t side : {0, 1}) {
        if (side == 1 && f.header.tensors[i].name == "token_embd.weight") continue;
        gguf::Header changed = f.header;
        changed.tensors[i].ne[side] += 32;
        ASSERT_TRUE(gguf::index_tensors(&changed).ok());
        const Status status = build_program(changed).status();
        EXPECT_EQ(status.code(), Code::kBadShape)
            << f.name << " " << f.header.tensors[i].name << ", side " << side;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::model
