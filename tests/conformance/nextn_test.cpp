// The multi-token prediction (MTP) head, compared with plain arithmetic. It changes no output,
// whatever the sampling, cancelling, rewinding or saving, resident or streamed; it saves forward
// passes where it is right; and unsupported uses are errors.
#include "session/nextn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "../file_contents.h"
#include "fixtures_util.h"
#include "generate/nextn_draft.h"
#include "generation_util.h"
#include "nextn_util.h"

namespace sluice::test {
namespace {

using generate::NextnDraft;
using generate::Options;
using session::Step;
using session::Token;
using Tokens = std::vector<Token>;

session::EngineOptions engine_options(bool nextn, int32_t n_ctx = 200) {
  session::EngineOptions options;
  options.n_ctx = n_ctx;
  options.n_batch = 16;
  options.n_threads = 1;
  options.draft_max = 7;
  options.nextn = nextn;
  return options;
}

Tokens some_prompt(size_t n, uint32_t seed = 3) {
  std::mt19937 random(seed);
  Tokens prompt;
  for (size_t i = 0; i < n; ++i) prompt.push_back(static_cast<Token>(random() % 900));
  return prompt;
}

// --- plain arithmetic

class Plain {
 public:
  explicit Plain(const std::string& path) {
    auto header = native::read_header(path, {});
    EXPECT_TRUE(header.ok());
    model_ = std::move(*header);
    bytes_ = sluice::test::file_contents(path);
  }
  [[nodiscard]] std::vector<double> tensor(const std::string& name) const {
    const gguf::Tensor* t = model_.header.find_tensor(name);
    EXPECT_NE(t, nullptr) << name;
    std::vector<double> out;
    for (uint64_t i = 0; t != nullptr && i < t->cols() * t->rows(); ++i) {
      float value;
      std::memcpy(&value, &bytes_[t->offset + i * 4], 4);
      out.push_back(static_cast<double>(value));
    }
    return out;
  }
  [[nodiscard]] std::vector<double> layer(const std::string& name) const {
    return tensor("blk.3." + name + ".weight");
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return model_.header.find_tensor(name) != nullptr;
  }

 private:
  native::ModelHeader model_;
  std::string bytes_;
};

using Row = std::vector<double>;

Row product(const Row& w, const Row& x) {
  Row y(w.size() / x.size());
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += w[i * x.size() + j] * x[j];
  }
  return y;
}

Row normed(const Row& x, const Row& w) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * w[i] / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
  }
  return y;
}

void rotate(double* x, size_t dim, double position) {
  for (size_t i = 0; i < dim / 2; ++i) {
    const double angle =
        position * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    const double a = x[i], b = x[i + dim / 2];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + dim / 2] = a * std::sin(angle) + b * std::cos(angle);
  }
}

// Logits after the last of the states; row i is followed by token next[i].
Row plain_logits(const Plain& p, const std::vector<Row>& states, const Tokens& next) {
  constexpr size_t kEmbd = 64, kHeads = 4, kKvHeads = 2, kDim = 16;
  const Row embedding = p.tensor("token_embd.weight");
  std::vector<Row> keys, values;
  Row x, q;
  for (size_t i = 0; i < states.size(); ++i) {
    const auto at = embedding.begin() + next[i] * static_cast<std::ptrdiff_t>(kEmbd);
    Row both = normed(Row(at, at + kEmbd), p.layer("nextn.enorm"));
    const Row state = normed(states[i], p.layer("nextn.hnorm"));
    both.insert(both.end(), state.begin(), state.end());
    x = product(p.layer("nextn.eh_proj"), both);
    const Row h = normed(x, p.layer("attn_norm"));
    q = product(p.layer("attn_q"), h);
    keys.push_back(product(p.layer("attn_k"), h));
    values.push_back(product(p.layer("attn_v"), h));
    for (size_t k = 0; k < kHeads; ++k) rotate(&q[k * kDim], kDim, static_cast<double>(i));
    for (size_t k = 0; k < kKvHeads; ++k) {
      rotate(&keys[i][k * kDim], kDim, static_cast<double>(i));
    }
  }
  Row attended(kHeads * kDim);
  for (size_t head = 0; head < kHeads; ++head) {
    const size_t kv = head / (kHeads / kKvHeads) * kDim;
    Row weights;
    double sum = 0;
    for (const Row& key : keys) {
      double score = 0;
      for (size_t i = 0; i < kDim; ++i) score += q[head * kDim + i] * key[kv + i];
      weights.push_back(std::exp(score / 4));
      sum += weights.back();
    }
    for (size_t t = 0; t < keys.size(); ++t) {
      for (size_t i = 0; i < kDim; ++i) {
        attended[head * kDim + i] += weights[t] / sum * values[t][kv + i];
      }
    }
  }
  const Row out = product(p.layer("attn_output"), attended);
  for (size_t i = 0; i < kEmbd; ++i) x[i] += out[i];
  const Row h = normed(x, p.layer("post_attention_norm"));
  Row gate = product(p.layer("ffn_gate"), h);
  const Row up = product(p.layer("ffn_up"), h);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
  const Row down = product(p.layer("ffn_down"), gate);
  for (size_t i = 0; i < kEmbd; ++i) x[i] += down[i];
  const std::string own = "blk.3.nextn.shared_head_norm.weight";
  return product(p.tensor("output.weight"),
                 normed(x, p.tensor(p.has(own) ? own : "output_norm.weight")));
}

// The head's logits after the prompt and `token`, having processed the states of all of it.
std::vector<float> head_logits(Opened& opened, Token token) {
  session::NextnHead& head = *opened.model->engine().nextn();
  EXPECT_TRUE(head.start(&head));
  EXPECT_GT(head.missing(*opened.session, {&token, 1}), 0);
  head.begin();
  EXPECT_TRUE(opened.model->drive([&](int32_t ops) { return head.step(ops); }).ok());
  std::vector<float> out(head.logits().begin(), head.logits().end());
  head.end(&head);
  return out;
}

TEST(Nextn, EqualsPlainArithmetic) {
  for (const bool own_norm : {false, true}) {
    const MadeNextn made({.own_norm = own_norm});
    Opened plain = open_model(made.path, engine_options(false));
    Opened opened = open_model(made.path, engine_options(true));
    ASSERT_NE(opened.session, nullptr);
    const Tokens prompt = some_prompt(37);
    const int32_t size = static_cast<int32_t>(prompt.size());
    session::Session& session = *plain.session;
    std::vector<Row> states;
    for (int32_t from = 0; from < size; from += 16) {
      const Tokens part(prompt.begin() + from, prompt.begin() + std::min(size, from + 16));
      const int32_t n = static_cast<int32_t>(part.size());
      const session::EmbedPass pass{
          .ends = {&n, 1}, .begins = from == 0, .completes = from + n == size};
      const Status begun = session.begin_embedding(part, pass);
      ASSERT_TRUE(begun.ok()) << begun.message();
      ASSERT_TRUE(plain.model->run(session).ok());
      for (int32_t i = 0; i < n; ++i) {
        const auto row = session.embedding(i);
        states.emplace_back(row.begin(), row.end());
      }
    }
    ASSERT_TRUE(opened.session->begin(prompt).ok());
    ASSERT_TRUE(opened.model->run(*opened.session).ok());
    const Token token = 77;
    Tokens next(prompt.begin() + 1, prompt.end());
    next.push_back(token);
    const Row expected = plain_logits(Plain(made.path), states, next);
    const std::vector<float> wanted(expected.begin(), expected.end());
    const std::vector<float> found = head_logits(opened, token);
    ASSERT_EQ(found.size(), wanted.size());
    EXPECT_LT(nmse(found.data(), wanted.data(), found.size()), 1e-6);
    // Bit-identical if streamed through the smallest budget.
    session::EngineOptions small = engine_options(true);
    small.memory_budget = smallest_budget(made.path, small);
    Opened streamed = open_model(made.path, small);
    ASSERT_NE(streamed.session, nullptr);
    EXPECT_LE(streamed.model->engine().plan().total(), small.memory_budget);
    ASSERT_TRUE(streamed.session->begin(prompt).ok());
    ASSERT_TRUE(streamed.model->run(*streamed.session).ok());
    EXPECT_EQ(head_logits(streamed, token), found);
  }
}

// --- output

Options option_set(int which) {
  Options o;
  o.ignore_eos = true;
  o.max_tokens = 60;
  o.sampling.temperature = 0;
  if (which == 1) {
    o.sampling.temperature = 1.1f;
    o.sampling.top_p = 0.9f;
    o.sampling.seed = 5;
    o.logprobs = 2;
  } else if (which == 2) {
    o.constraint = generate::Constraint{
        .kind = grammar::Kind::kGbnf, .text = "root ::= \"the value is \" [a-z ]+", .options = {}};
  }
  return o;
}

class NextnAnswers : public testing::TestWithParam<NextnModel> {};

TEST_P(NextnAnswers, EqualTheOutputWithoutIt) {
  const MadeNextn made(GetParam());
  session::EngineOptions bare = engine_options(false);
  bare.structured_output = true;
  Opened plain = open_model(made.path, bare);
  ASSERT_NE(plain.session, nullptr);
  session::EngineOptions small = engine_options(true);
  small.structured_output = true;
  session::EngineOptions whole = small;
  small.memory_budget = smallest_budget(made.path, small);
  for (const session::EngineOptions& engine : {whole, small}) {
    Opened opened = open_model(made.path, engine);
    ASSERT_NE(opened.session, nullptr);
    NextnDraft draft(*opened.model->engine().nextn());
    Tokens prompt = some_prompt(90);
    for (int turn = 0; turn < 9; ++turn) {
      SCOPED_TRACE("turn " + std::to_string(turn));
      Options options = option_set(turn % 3);
      if (prompt.size() > 130) prompt.resize(20 + static_cast<size_t>(turn));
      const Answer expected = answer(plain, prompt, options);
      options.drafts = {.ngram = turn % 2 == 1, .model = &draft};
      make_it_pay(opened.model->engine());
      const Answer found = answer(opened, prompt, options, turn % 4 == 3 ? 5 : 0);
      ASSERT_TRUE(found.status.ok()) << found.status.message();
      ASSERT_EQ(found.tokens(), expected.tokens());
      for (size_t i = 0; i < found.pieces.size(); ++i) {
        ASSERT_EQ(found.pieces[i].logprob, expected.pieces[i].logprob);
      }
      if (turn % 6 == 0) {
        EXPECT_GT(found.counts.drafted, 0);
      }
      if (GetParam().right && turn % 6 == 0) {
        EXPECT_GT(found.counts.accepted, 20);
        EXPECT_LT(found.counts.passes, 45);
      }
      // The next prompt begins within this text or continues it; some generations are cancelled
      // mid-draft.
      prompt = found.held;
      prompt.resize(prompt.size() - static_cast<size_t>(turn % 4));
      if (turn % 2 == 1) {
        const Answer cut = answer(opened, prompt, options, 3, 10 + turn);
        ASSERT_TRUE(cut.status.ok()) << cut.status.message();
      }
    }
  }
}

TEST_P(NextnAnswers, AfterForkingSavingAndASmallerBudget) {
  const MadeNextn made(GetParam());
  session::EngineOptions engine = engine_options(true);
  engine.n_sessions = engine.n_checkpoints = 2;
  Opened plain = open_model(made.path, engine_options(false));
  Opened opened = open_model(made.path, engine);
  ASSERT_NE(opened.session, nullptr);
  NextnDraft draft(*opened.model->engine().nextn());
  Options options = option_set(0);
  options.max_tokens = 20;
  Tokens prompt = some_prompt(40);
  auto other = session::Session::create(opened.model->engine().context());
  ASSERT_TRUE(other.ok());
  std::unique_ptr<session::Session> second = std::move(*other);
  for (int turn = 0; turn < 6; ++turn) {
    options.drafts = {};
    const Answer expected = answer(plain, prompt, options);
    options.drafts = {.model = &draft};
    make_it_pay(opened.model->engine());
    const Answer found = answer(opened, prompt, options);
    ASSERT_EQ(found.tokens(), expected.tokens()) << turn;
    ASSERT_TRUE(second->fork_from(*opened.session).ok());
    std::swap(second, opened.session);
    const uint64_t least = opened.model->engine().plan().budget.minimum;
    ASSERT_TRUE(opened.model->set_memory_budget(turn % 2 == 0 ? least : 0).ok());
    prompt = found.held;
    prompt.push_back(static_cast<Token>(turn));
    if (prompt.size() > 150) prompt.resize(30);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, NextnAnswers,
                         testing::Values(NextnModel{}, NextnModel{.right = true},
                                         NextnModel{.recurrent = true},
                                         NextnModel{.recurrent = true, .right = true}),
                         [](const auto& info) {
                           return std::string(info.param.recurrent ? "States" : "Attention") +
                                  (info.param.right ? "Right" : "Random");
                         });

TEST(Nextn, DraftsForOneSequenceAtATime) {
  const MadeNextn made({.right = true});
  session::EngineOptions engine = engine_options(true);
  engine.n_sessions = 2;
  Opened opened = open_model(made.path, engine);
  ASSERT_NE(opened.session, nullptr);
  session::NextnHead& head = *opened.model->engine().nextn();
  const Token token = 5;
  EXPECT_TRUE(head.start(&engine));
  EXPECT_FALSE(head.start(&head));
  EXPECT_EQ(head.missing(*opened.session, {&token, 1}), 0);  // nothing is missing
  head.end(&head);
  EXPECT_FALSE(head.start(&head));
  head.end(&engine);
  EXPECT_TRUE(head.start(&head));
  head.end(&head);
}

TEST(Nextn, IsPlannedOnlyOnRequest) {
  const MadeNextn made({});
  Opened plain = open_model(made.path, engine_options(false));
  Opened opened = open_model(made.path, engine_options(true));
  ASSERT_NE(opened.session, nullptr);
  const session::MemoryPlan &without = plain.model->engine().plan(),
                            &with = opened.model->engine().plan();
  EXPECT_EQ(plain.model->engine().nextn(), nullptr);
  EXPECT_EQ(without.bytes.nextn, 0u);
  EXPECT_GT(with.bytes.nextn, 0u);
  EXPECT_GT(with.weights.total_bytes, without.weights.total_bytes);
  EXPECT_EQ(with.bytes.kv, without.bytes.kv);
  EXPECT_GT(with.budget.minimum, without.budget.minimum);
}

Status opened_with(const std::string& path, const session::EngineOptions& options) {
  native::LoadOptions load;
  load.engine = options;
  return native::Model::open(path, load).status();
}

TEST(Nextn, ErrorsNameWhatIsUnsupported) {
  const Status none = opened_with(own_folder("arch") + "/qwen3.gguf", engine_options(true));
  EXPECT_EQ(none.code(), Code::kInvalidArgument);
  EXPECT_NE(none.message().find("no multi-token prediction (MTP) layer"), std::string::npos)
      << none.message();
  const MadeNextn made({});
  session::EngineOptions evicts = engine_options(true);
  evicts.kv_policy.window = true;
  EXPECT_EQ(opened_with(made.path, evicts).code(), Code::kInvalidArgument);
  session::EngineOptions leaves = engine_options(true);
  leaves.approximate.exits.measures = true;
  EXPECT_EQ(opened_with(made.path, leaves).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::test
