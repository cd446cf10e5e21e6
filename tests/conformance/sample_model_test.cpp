// The sample model of the repository compared with its trainer's forward pass: token ids, logits
// and greedy continuations (examples/models/reference, made in double precision by PyTorch from the
// F16 weights), and the cost of quantization.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../file_contents.h"
#include "../paths.h"
#include "native/model_file.h"

namespace sluice {
namespace {

using session::Token;

const std::string kFolder = sluice::test::source_dir() + "/examples/models/";

std::string read_file(const std::string& path) {
  EXPECT_TRUE(std::filesystem::exists(path)) << path;
  return sluice::test::file_contents(path);
}

nlohmann::json read_json(const std::string& path) {
  return nlohmann::json::parse(read_file(path));
}

std::vector<float> read_floats(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

// One of the three files, with `rows` rows of logits, and a session on it.
struct Loaded {
  std::unique_ptr<native::Model> model;
  std::unique_ptr<session::Session> session;
};

Loaded load(const std::string& type, int32_t rows) {
  native::LoadOptions options;
  options.engine.n_batch = options.engine.logits_rows = rows;
  auto model = native::Model::open(kFolder + "sluice-tales-" + type + ".gguf", options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  auto session = session::Session::create((*model)->engine().context());
  EXPECT_TRUE(session.ok()) << session.status().message();
  if (!session.ok()) return {};
  return {std::move(*model), std::move(*session)};
}

void run(Loaded& loaded, std::span<const Token> tokens, session::Wanted wanted) {
  const Status begun = loaded.session->begin(tokens, wanted);
  ASSERT_TRUE(begun.ok()) << begun.message();
  const Status done = loaded.model->run(*loaded.session);
  ASSERT_TRUE(done.ok()) << done.message();
}

TEST(SampleModel, TokenIdsMatchTheTrainers) {
  Loaded loaded = load("F16", 1);
  ASSERT_NE(loaded.model, nullptr);
  const tokenizer::Tokenizer& tokenizer = loaded.model->engine().tokenizer();
  const nlohmann::json cases = read_json(kFolder + "reference/tokens.json");
  ASSERT_GE(cases.size(), 20u);
  for (const auto& c : cases) {
    const std::string text = c["text"].get<std::string>();
    const auto expected = c["ids"].get<std::vector<Token>>();
    EXPECT_EQ(tokenizer.encode(text, {false, true}), expected) << text;
    EXPECT_EQ(tokenizer.decode(expected, true), text);
    std::vector<Token> with_bos = expected;
    with_bos.insert(with_bos.begin(), tokenizer.bos());
    EXPECT_EQ(tokenizer.encode(text), with_bos) << text;
  }
}

TEST(SampleModel, ChatTokensEndGeneration) {
  Loaded loaded = load("F16", 1);
  ASSERT_NE(loaded.model, nullptr);
  const tokenizer::Tokenizer& tokenizer = loaded.model->engine().tokenizer();
  for (const char* name : {"<|endoftext|>", "<|end|>"}) {
    const std::vector<Token> ids = tokenizer.encode(name, {false, true});
    ASSERT_EQ(ids.size(), 1u) << name;
    EXPECT_TRUE(tokenizer.is_control(ids[0])) << name;
    EXPECT_TRUE(tokenizer.is_end_of_generation(ids[0])) << name;
  }
  const std::vector<Token> user = tokenizer.encode("<|user|>", {false, true});
  ASSERT_EQ(user.size(), 1u);
  EXPECT_TRUE(tokenizer.is_control(user[0]));
  EXPECT_FALSE(tokenizer.is_end_of_generation(user[0]));
}

TEST(SampleModel, LogitsMatchTheTrainers) {
  const nlohmann::json reference = read_json(kFolder + "reference/outputs.json");
  size_t compared = 0;
  for (const auto& prompt : reference["prompts"]) {
    if (!prompt.contains("logits")) continue;
    const auto tokens = prompt["tokens"].get<std::vector<Token>>();
    Loaded loaded = load("F16", static_cast<int32_t>(tokens.size()));
    ASSERT_NE(loaded.model, nullptr);
    run(loaded, tokens, session::Wanted::kAllLogits);
    const std::vector<float> expected =
        read_floats(kFolder + "reference/" + prompt["logits"].get<std::string>());
    const size_t first = prompt["first_position"].get<size_t>();
    const size_t n_vocab = reference["n_vocab"].get<size_t>();
    ASSERT_EQ(expected.size(), (tokens.size() - first) * n_vocab);
    double difference = 0, power = 0;
    for (size_t t = first; t < tokens.size(); ++t) {
      const std::span<const float> row = loaded.session->logits(static_cast<int32_t>(t));
      ASSERT_EQ(row.size(), n_vocab);
      for (size_t i = 0; i < n_vocab; ++i) {
        const double e = expected[(t - first) * n_vocab + i];
        difference += (row[i] - e) * (row[i] - e);
        power += e * e;
      }
    }
    EXPECT_LE(difference / power, 1e-5) << prompt["name"];
    ++compared;
  }
  EXPECT_EQ(compared, 2u);
}

TEST(SampleModel, GreedyTokensMatchTheTrainers) {
  const nlohmann::json reference = read_json(kFolder + "reference/outputs.json");
  Loaded loaded = load("F16", 1);
  ASSERT_NE(loaded.model, nullptr);
  for (const auto& prompt : reference["prompts"]) {
    const auto expected = prompt["greedy"].get<std::vector<Token>>();
    std::vector<Token> next = prompt["tokens"].get<std::vector<Token>>(), drawn;
    loaded.session->clear();
    while (drawn.size() < expected.size()) {
      run(loaded, next, session::Wanted::kLastLogits);
      const std::span<const float> logits = loaded.session->logits();
      next = {static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin())};
      drawn.push_back(next[0]);
    }
    EXPECT_EQ(drawn, expected) << prompt["name"] << ", smallest lead " << prompt["min_gap"];
  }
}

constexpr size_t kTokens = 500;  // of the held-out text

// Mean nats per token over its beginning.
double held_out_loss(const std::string& type) {
  Loaded loaded = load(type, kTokens);
  if (loaded.model == nullptr) return 0;
  std::vector<Token> tokens =
      loaded.model->engine().tokenizer().encode(read_file(kFolder + "heldout.txt"));
  EXPECT_GT(tokens.size(), kTokens);
  tokens.resize(kTokens);
  constexpr size_t kStep = session::kMaxBatch;
  double sum = 0;
  for (size_t at = 0; at + 1 < tokens.size(); at += kStep) {
    const size_t n = std::min(kStep, tokens.size() - 1 - at);
    run(loaded, std::span(tokens).subspan(at, n), session::Wanted::kAllLogits);
    for (size_t row = 0; row < n; ++row) {
      const std::span<const float> logits = loaded.session->logits(static_cast<int32_t>(row));
      const double top = *std::max_element(logits.begin(), logits.end());
      double total = 0;
      for (const float value : logits) total += std::exp(value - top);
      sum += top + std::log(total) - logits[static_cast<size_t>(tokens[at + row + 1])];
    }
  }
  return sum / static_cast<double>(tokens.size() - 1);
}

TEST(SampleModel, QuantizedFilesPredictNearlyAsWell) {
  const nlohmann::json reference = read_json(kFolder + "reference/outputs.json");
  ASSERT_EQ(reference["held_out_tokens"].get<size_t>(), kTokens);
  const double f16 = held_out_loss("F16");
  EXPECT_NEAR(f16, reference["held_out_nats"].get<double>(), 1e-3);
  EXPECT_LT(f16, 1.0);  // untrained: log(1088) = 7.0
  EXPECT_LT(std::abs(held_out_loss("Q8_0") - f16), std::log(1.01));
  EXPECT_LT(std::abs(held_out_loss("Q4_0") - f16), std::log(1.03));
}

}  // namespace
}  // namespace sluice
