// KV cache types: the error on ../shared/fixtures/kv compared with llama.cpp's for the same type,
// on every instruction set. Results are bit-identical for any budget, threads and batch length, and
// after rewinding, saving and restoring. Prints its measurements.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../sanitized.h"
#include "fixtures_util.h"

namespace sluice::test {
namespace {

constexpr int32_t kPass = 200;  // tokens per pass; the longest batch has 256

struct KvModel {
  std::string name, path;
  std::vector<int32_t> prompt;
  std::vector<float> logits;  // of every `every`th position
  size_t every = 1;
  std::vector<std::pair<std::string, double>> llama;  // llama.cpp's error by type
};

const std::vector<KvModel>& models() {
  static const std::vector<KvModel> all = [] {
    std::vector<KvModel> out;
    const std::string folder = shared_folder("kv");
    std::ifstream file(folder + "/manifest.json");
    if (folder.empty() || !file) return out;
    for (const auto& entry : nlohmann::json::parse(file)) {
      KvModel m;
      m.name = entry["name"];
      m.path = folder + "/" + entry["file"].get<std::string>();
      m.prompt = entry["prompt"].get<std::vector<int32_t>>();
      m.logits = read_floats(folder + "/" + entry["logits"].get<std::string>());
      m.every = entry["every"];
      for (const auto& [type, error] : entry["llama_cpp_nmse"].items()) {
        m.llama.emplace_back(type, error);
      }
      out.push_back(std::move(m));
    }
    return out;
  }();
  return all;
}

kv::KvTypes types_of(const std::string& name) {
  const Result<kv::KvTypes> types = kv::parse_kv_types(name);
  EXPECT_TRUE(types.ok()) << types.status().message();
  return types.ok() ? *types : kv::KvTypes();
}

session::EngineOptions options_for(const KvModel& m, const char* kernels, const std::string& type) {
  session::EngineOptions options;
  options.n_ctx = static_cast<int32_t>(m.prompt.size());
  options.logits_rows = kPass;
  options.kernels = kernels;
  options.n_threads = 2;
  options.kv = types_of(type);
  return options;
}

double error_of(const KvModel& m, const char* kernels, const std::string& type) {
  Opened opened = open_model(m.path, options_for(m, kernels, type));
  if (opened.session == nullptr) return INFINITY;
  const std::vector<float> all = all_logits(opened, m.prompt, kPass);
  const size_t n_vocab = all.size() / m.prompt.size();
  std::vector<float> ours;
  for (size_t t = 0; t < m.prompt.size(); t += m.every) {
    ours.insert(ours.end(), all.begin() + static_cast<ptrdiff_t>(t * n_vocab),
                all.begin() + static_cast<ptrdiff_t>((t + 1) * n_vocab));
  }
  EXPECT_EQ(ours.size(), m.logits.size());
  return ours.size() == m.logits.size() ? nmse(ours.data(), m.logits.data(), ours.size())
                                        : INFINITY;
}

class KvTypeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (models().empty()) GTEST_SKIP() << "no ../shared/fixtures/kv";
  }
};

TEST_F(KvTypeTest, ErrorIsAtMostLlamaCppsAndOfFourBitsHalfOfIt) {
  for (const char* const* name = kernels::available(); *name != nullptr; ++name) {
    int halved = 0;
    for (const KvModel& m : models()) {
      for (const auto& [type, llama] : m.llama) {
        const double ours = error_of(m, *name, type);
        std::printf("%-12s %-20s %-5s NMSE %.3g, llama.cpp's %.3g\n", *name, m.name.c_str(),
                    type.c_str(), ours, llama);
        // f16 rounds what llama.cpp rounds; only the order of sums differs.
        EXPECT_LE(ours, type == "f16" ? 1.2 * llama : llama)
            << *name << " " << m.name << " " << type;
        if (type == "q4_0" && ours <= llama / 2) ++halved;
      }
    }
    EXPECT_GE(halved, 2) << *name;
  }
  for (const KvModel& m : models()) {
    std::printf("%-20s q2    NMSE %.3g\n", m.name.c_str(), error_of(m, "", "q2"));
  }
}

TEST_F(KvTypeTest, BudgetThreadsAndPassLengthChangeNoBit) {
  const char* const types[] = {"q8_0", "q4_0", "q2", "q8_0,q2", "q2,f16", "f16,q4_0"};
  for (const KvModel& m : models()) {
    for (const char* type : types) {
      const bool apart = std::strchr(type, ',') != nullptr;
      if ((apart || kSanitized) && &m != &models().back()) continue;  // the one with windows
      if (type != types[0] && kSanitized) continue;
      for (const char* const* name = kernels::available(); *name != nullptr; ++name) {
        if ((apart || kSanitized) && name != kernels::available()) break;
        session::EngineOptions options = options_for(m, *name, type);
        const auto logits = [&](size_t step) {
          Opened opened = open_model(m.path, options);
          return opened.session == nullptr ? std::vector<float>()
                                           : all_logits(opened, m.prompt, step);
        };
        const std::vector<float> expected = logits(kPass);
        const auto same = [&](size_t step, const char* what) {
          const std::vector<float> ours = logits(step);
          ASSERT_EQ(ours.size(), expected.size());
          EXPECT_EQ(std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)), 0)
              << m.name << " " << type << " " << *name << ": " << what;
        };
        options.n_threads = 1;
        same(101, "one thread, 101 tokens a pass");
        if (name != kernels::available()) continue;
        options.logits_rows = 1;
        options.memory_budget = smallest_budget(m.path, options);
        same(1, "the smallest budget, token by token");
      }
    }
  }
}

// Rewinds to where f16 copies still exist, and to before that; saves and restores within a group.
TEST_F(KvTypeTest, RewindingAndRestoringChangeNoBit) {
  for (const KvModel& m : models()) {
    if (kSanitized && &m != &models().back()) continue;
    for (const char* type : {"q8_0", "q4_0", "q2"}) {
      session::EngineOptions options = options_for(m, "", type);
      options.logits_rows = 1;
      options.n_ctx = 1200;
      Opened fresh = open_model(m.path, options), opened = open_model(m.path, options);
      ASSERT_NE(opened.session, nullptr);
      std::vector<int32_t> text = m.prompt;
      text.insert(text.end(), m.prompt.begin(), m.prompt.end());
      logits_after(opened, text);
      for (const size_t length : {790, 600, 130, 333, 1}) {
        text.resize(length);
        text.push_back(7);
        text.push_back(9);
        const std::vector<float> ours = logits_after(opened, text);
        fresh.session->clear();
        EXPECT_EQ(ours, logits_after(fresh, text)) << m.name << " " << type << " " << length;
        std::vector<uint8_t> saved(opened.session->sequence().state_bytes());
        ASSERT_TRUE(opened.session->read_state(0, saved).ok());
        ASSERT_TRUE(fresh.session->begin_restore(saved.size()).ok());
        ASSERT_TRUE(fresh.session->write_state(saved).ok());
        ASSERT_EQ(fresh.session->position(), opened.session->position());
        const std::vector<float> restored = logits_after(fresh, {text.begin(), text.end()});
        EXPECT_EQ(restored, ours) << m.name << " " << type << " " << length;
        text.insert(text.end(), m.prompt.begin(), m.prompt.begin() + 300);
        EXPECT_EQ(logits_after(fresh, text), logits_after(opened, text)) << m.name << " " << type;
      }
    }
  }
}

// A saved session can only be restored with the same types.
TEST_F(KvTypeTest, StatesOfOtherTypesAreErrors) {
  const KvModel& m = models().front();
  Opened f16 = open_model(m.path, options_for(m, "", "f16"));
  Opened q8 = open_model(m.path, options_for(m, "", "q8_0"));
  ASSERT_NE(q8.session, nullptr);
  logits_after(f16, {1, 2, 3});
  std::vector<uint8_t> saved(f16.session->sequence().state_bytes());
  ASSERT_TRUE(f16.session->read_state(0, saved).ok());
  ASSERT_TRUE(q8.session->begin_restore(saved.size()).ok());
  EXPECT_EQ(q8.session->write_state(saved).code(), Code::kCorrupt);
  EXPECT_EQ(q8.session->position(), 0);
}

}  // namespace
}  // namespace sluice::test
