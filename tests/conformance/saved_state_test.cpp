// A saved state belongs to exactly one model as it runs. Whatever differs between the engine that
// saved it and the one that is to continue it (metadata, weights, rotation, adapters, KV cache
// types and policy, skipped layers): either the restored sequence continues like a fresh one, or
// the state is refused, with a message that names the difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../extent.h"
#include "fixtures_util.h"
#include "saved_state_util.h"

namespace sluice::test {
namespace {

using session::EngineOptions;
using Tokens = std::vector<int32_t>;

EngineOptions options_for(const Reference& r, int32_t n_ctx = 0) {
  EngineOptions options;
  options.n_ctx = n_ctx > 0 ? n_ctx : static_cast<int32_t>(r.prompt.size()) + 2;
  options.n_threads = 1;
  return options;
}

// A change of a model's metadata, in memory. Owns the new bytes of values.
class Metadata {
 public:
  using Value = gguf::Value;
  [[nodiscard]] static bool changeable(const Value& v) {
    return gguf::value_type_bytes(v.element) > 0 && v.count > 0;
  }
  // Applies one of several changes to all of its numbers. False: there are no more.
  bool change(Value* v, int how) {
    std::string& bytes =
        own_.emplace_back(reinterpret_cast<const char*>(v->bytes.data()), v->bytes.size());
    const size_t each = gguf::value_type_bytes(v->element);
    bool changed = false;
    for (size_t at = 0; at + each <= bytes.size(); at += each)
      changed |= change_number(v->element, &bytes[at], how);
    v->bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    return changed;
  }
  // A new value of this key.
  void add(gguf::Header* header, const std::string& key, float number) {
    const std::string& name = own_.emplace_back(key);
    std::string& bytes = own_.emplace_back(sizeof number, '\0');
    std::memcpy(bytes.data(), &number, sizeof number);
    Value value;
    value.type = value.element = gguf::ValueType::kF32;
    value.count = 1;
    value.bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    header->metadata.push_back({name, value});
  }

 private:
  template <typename T>
  static void replace(char* at, T (*next)(T)) {
    T value;
    std::memcpy(&value, at, sizeof value);
    value = next(value);
    std::memcpy(at, &value, sizeof value);
  }
  static bool change_number(gguf::ValueType type, char* at, int how) {
    using enum gguf::ValueType;
    if (type == kF32) {
      if (how > 1) return false;
      how == 0 ? replace<float>(at, [](float x) { return x == 0 ? 0.5f : x * 1.5f; })
               : replace<float>(at, [](float x) { return x == 0 ? 2.0f : x / 20; });
    } else if (type == kBool) {
      if (how > 0) return false;
      *at = static_cast<char>(*at == 0 ? 1 : 0);
    } else if (type == kU32 || type == kI32) {
      if (how > 3) return false;
      if (how == 0) replace<uint32_t>(at, [](uint32_t x) { return x + 1; });
      if (how == 1) replace<uint32_t>(at, [](uint32_t x) { return x * 2; });
      if (how == 2) replace<uint32_t>(at, [](uint32_t x) { return x / 2; });
      if (how == 3) replace<uint32_t>(at, [](uint32_t x) { return x == 0 ? 3 : x - 1; });
    } else {
      return false;
    }
    return true;
  }
  std::deque<std::string> own_;
};

// The model with changed metadata; nothing if it is then refused.
Opened open_changed(const std::string& path, const EngineOptions& options,
                    const std::function<void(gguf::Header*)>& change) {
  Opened out;
  auto header = native::read_header(path, {});
  if (!header.ok()) return out;
  change(&header->header);
  auto model = native::Model::open(std::move(*header), options);
  if (!model.ok()) return out;
  out.model = std::move(*model);
  auto session = session::Session::create(out.model->engine().context());
  if (!session.ok()) return {};
  out.session = std::move(*session);
  return out;
}

// Keys that are hashed because a family reads them, though they change no logits of some models:
// a rank that tensors' shapes repeat, a scale that the family does not apply, a window longer than
// the prompt.
bool may_refuse_needlessly(std::string_view key) {
  static constexpr std::string_view kKeys[] = {
      "attention.decay_lora_rank",
      "attention.gate_lora_rank",
      "attention.head_count",
      "attention.head_count_kv",
      "attention.iclr_lora_rank",
      "attention.layer_norm_epsilon",
      "attention.q_lora_rank",
      "attention.scale",
      "attention.sliding_window",
      "attention.temperature_length",
      "attention.value_residual_mix_lora_rank",
      "attn_logit_softcapping",
      "embedding_scale",
      "expert_gating_func",
      "feed_forward_length",
      "residual_scale",
      "rope.dimension_count",
      "rope.freq_base",
      "rope.scaling.factor",
      "rope.scaling.original_context_length",
      "rope.scaling.yarn_beta_fast",
      "ssm.group_count",
      "time_decay_extra_dim",
      "time_mix_extra_dim",
      "use_parallel_residual",
      "xielu.eps",
  };
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [key](std::string_view end) { return key.ends_with(end); });
}

std::vector<Reference> saved_models() {
  std::vector<Reference> out = read_manifest(fixture_folder("arch"));
  const auto add = [&out](std::vector<Reference> more) {
    for (Reference& r : more) out.push_back(std::move(r));
  };
  add(read_manifest(own_folder("families")));
  if (long_suite()) {
    const std::vector<std::string> further = further_families();
    add(read_manifest(shared_folder("families"), &further));
  }
  std::erase_if(out, [](const Reference& r) { return !r.causal || r.source() > 0; });
  return out;
}

// What a state of the unchanged model does in one whose metadata was changed.
void check_change(const Reference& r, const std::vector<uint8_t>& state,
                  const std::vector<float>& unchanged, const std::string& key, int* opened_count,
                  const std::function<void(gguf::Header*)>& change) {
  Opened changed = open_changed(r.path, options_for(r), change);
  if (changed.session == nullptr) return;
  ++*opened_count;
  const Status restored = restore(changed, state);
  const bool accepted = restored.ok();
  std::vector<float> continued;
  if (accepted) continued = logits_after(changed, r.prompt);
  changed.session->clear();
  const std::vector<float> fresh = logits_after(changed, r.prompt);
  if (accepted) {
    EXPECT_EQ(continued, fresh) << r.name << ' ' << key << ": accepted, but continues otherwise";
    return;
  }
  EXPECT_EQ(restored.code(), Code::kCorrupt);
  EXPECT_NE(restored.message().find("the metadata differ"), std::string::npos)
      << restored.message();
  EXPECT_TRUE(fresh != unchanged || may_refuse_needlessly(key))
      << r.name << ' ' << key << ": refused, but nothing differs";
}

TEST(SavedState, EveryMetadataValueThatMattersIsPartOfIt) {
  const std::vector<Reference> all = saved_models();
  ASSERT_GE(all.size(), 20u);
  int refusable = 0;
  for (const Reference& r : all) {
    Opened own = open_model(r.path, options_for(r));
    ASSERT_NE(own.session, nullptr);
    const Tokens begin(r.prompt.begin(), r.prompt.end() - 2);
    logits_after(own, begin);
    const std::vector<uint8_t> state = save(own);
    const std::vector<float> unchanged = logits_after(own, r.prompt);
    std::vector<std::string> keys;
    {
      const auto header = native::read_header(r.path, {});
      ASSERT_TRUE(header.ok());
      for (const gguf::KeyValue& kv : header->header.metadata) {
        // The tokenizer decides which tokens are computed, not what they become.
        if (Metadata::changeable(kv.value) && !kv.key.starts_with("tokenizer."))
          keys.emplace_back(kv.key);
      }
    }
    for (const std::string& key : keys) {
      bool more = true;
      for (int how = 0; more; ++how) {
        Metadata metadata;
        check_change(r, state, unchanged, key, &refusable, [&](gguf::Header* header) {
          for (gguf::KeyValue& kv : header->metadata) {
            if (kv.key == key) more = metadata.change(&kv.value, how);
          }
        });
      }
    }
    const std::string arch = own.model->engine().program().hp.arch;
    for (const char* key : {"rope.freq_base", "rope.scaling.factor", "attention.scale",
                            "attn_logit_softcapping", "embedding_scale", "residual_scale"}) {
      const std::string full = arch + "." + key;
      if (std::find(keys.begin(), keys.end(), full) != keys.end()) continue;
      Metadata metadata;
      check_change(r, state, unchanged, full, &refusable,
                   [&](gguf::Header* header) { metadata.add(header, full, 4); });
    }
  }
  EXPECT_GT(refusable, 500);
}

TEST(SavedState, NameTemplateAndContextLengthAreNot) {
  const Reference r = read_manifest(fixture_folder("arch"))[0];
  Opened own = open_model(r.path, options_for(r));
  ASSERT_NE(own.session, nullptr);
  logits_after(own, r.prompt);
  const std::vector<uint8_t> state = save(own);
  Opened other = open_changed(r.path, options_for(r, 400), [](gguf::Header* header) {
    static constexpr char kOther[] = "another name, licence or template";
    for (gguf::KeyValue& kv : header->metadata) {
      const bool text = kv.value.type == gguf::ValueType::kString;
      if (text && (kv.key.starts_with("general.") || kv.key == "tokenizer.chat_template") &&
          kv.key != "general.architecture")
        kv.value.bytes = {reinterpret_cast<const uint8_t*>(kOther), sizeof kOther - 1};
    }
  });
  ASSERT_NE(other.session, nullptr);
  EXPECT_TRUE(restore(other, state).ok());
}

// Long factors are chosen by the context of a load, not by the position.
TEST(SavedState, ALongRotationIsNotContinuedByAShortOne) {
  for (const char* name : {"phi3-longrope-partial", "phi3-longrope-short"}) {
    std::vector<Reference> all = read_manifest(fixture_folder("arch"));
    for (Reference& r : read_manifest(own_folder("families"))) all.push_back(std::move(r));
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Reference& r) { return r.name == name; });
    ASSERT_NE(found, all.end()) << name;
    const auto header = native::read_header(found->path, {});
    ASSERT_TRUE(header.ok());
    const auto original = static_cast<int32_t>(
        header->header.get_u64("phi3.rope.scaling.original_context_length").value_or(0));
    constexpr int32_t n = 12;
    const Tokens prompt(found->prompt.begin(), found->prompt.begin() + n);
    ASSERT_GT(original, n);
    const auto open = [&](int32_t n_ctx) {
      return open_model(found->path, options_for(*found, n_ctx));
    };
    Opened narrow = open(n + 1), wider = open(original), longer = open(original + 1),
           longest = open(2 * original);
    const auto check = [&](Opened& from, Opened& to, bool same) {
      logits_after(from, prompt);
      const Status restored = restore(to, save(from));
      EXPECT_EQ(restored.ok(), same) << name;
      if (!same) {
        EXPECT_NE(restored.message().find("the RoPE factors differ"), std::string::npos);
      }
    };
    check(narrow, wider, true);
    check(narrow, longer, false);
    check(longer, narrow, false);
    check(longer, longest, true);
  }
}

// A file that was replaced by one with the same header.
TEST(SavedState, OtherWeightsAreRefused) {
  const Reference r = read_manifest(fixture_folder("arch"))[0];
  std::ifstream in(r.path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  Opened own = open_model(r.path, options_for(r));
  ASSERT_NE(own.session, nullptr);
  logits_after(own, r.prompt);
  const std::vector<uint8_t> state = save(own);
  const auto header = native::read_header(r.path, {});
  ASSERT_TRUE(header.ok());
  const std::string path = testing::TempDir() + "sluice-other-weights.gguf";
  int refused = 0;
  for (const gguf::Tensor& t : header->header.tensors) {
    if (t.name == "output.weight") continue;
    std::string other = bytes;
    other[t.offset] = static_cast<char>(other[t.offset] ^ 1);
    std::ofstream(path, std::ios::binary) << other;
    Opened changed = open_model(path, options_for(r));
    ASSERT_NE(changed.session, nullptr);
    const Status restored = restore(changed, state);
    EXPECT_EQ(restored.code(), Code::kCorrupt) << t.name;
    EXPECT_NE(restored.message().find("the weights differ"), std::string::npos);
    ++refused;
  }
  std::filesystem::remove(path);
  EXPECT_GT(refused, 10);
}

// The fingerprint of the samples of a file, each byte of them changed.
session::Fingerprint sampled(session::WeightHash hash, io::ByteSource& file, uint8_t change) {
  std::vector<uint8_t> bytes;
  for (const session::WeightSample& s : hash.samples()) {
    bytes.resize(s.bytes);
    EXPECT_TRUE(file.read(s.offset, bytes).ok());
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(byte ^ change);
    hash.add(bytes);
  }
  EXPECT_TRUE(hash.complete());
  session::Fingerprint print;
  hash.set(&print);
  return print;
}

// Samples of a file on a slow source are a part of all samples.
TEST(SavedState, FewSamplesAreComparedWithAll) {
  const Reference r = read_manifest(fixture_folder("arch"))[0];
  Opened opened = open_model(r.path, options_for(r));
  ASSERT_NE(opened.session, nullptr);
  const auto hash = [&](bool all, uint8_t change) {
    return sampled({opened.model->engine().program(), all}, opened.model->source(), change);
  };
  EXPECT_LE(session::WeightHash(opened.model->engine().program(), false).samples().size(), 16u);
  EXPECT_EQ(hash(false, 0).difference(hash(true, 0)), nullptr);
  EXPECT_STREQ(hash(false, 0).difference(hash(true, 1)), "weights");
  EXPECT_STREQ(hash(true, 0).difference(hash(true, 1)), "weights");
  EXPECT_EQ(hash(true, 0).difference(session::Fingerprint()), nullptr);
}

// The same for a projector, whose files are numbered behind those of the model.
TEST(SavedState, SamplesOfAProjectorAreThoseOfItsFile) {
  const auto header = native::read_header(own_folder("vision") + "/qwen3vl.mmproj.gguf", {});
  ASSERT_TRUE(header.ok()) << header.status().message();
  const auto hash = [&](bool all, uint8_t change) {
    session::WeightHash samples(header->header, all, 7);
    for (const session::WeightSample& s : samples.samples()) EXPECT_EQ(s.file, 7u);
    return sampled(std::move(samples), *header->sources[0], change);
  };
  EXPECT_LE(session::WeightHash(header->header, false).samples().size(), 16u);
  EXPECT_EQ(hash(false, 0).difference(hash(true, 0)), nullptr);
  EXPECT_STREQ(hash(false, 0).difference(hash(true, 1)), "weights of the projectors");
  EXPECT_STREQ(hash(true, 0).difference(hash(true, 1)), "weights of the projectors");
  session::Fingerprint blind = hash(true, 0);
  blind.forget_projector();
  EXPECT_EQ(blind.difference(hash(true, 1)), nullptr);
}

}  // namespace
}  // namespace sluice::test
