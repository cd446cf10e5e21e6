// Partial forward passes, which measure layers. Run one after another they equal the full pass, and
// with a layer skipped they equal the model without that layer, bit-identically, for every family
// with a skippable layer.
#include "session/partial_forward.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "../paths.h"
#include "approximate/layer_skipping.h"
#include "deep_util.h"
#include "fixtures_util.h"

namespace sluice::test {
namespace {

constexpr size_t kPassTokens = 11;

struct Parts {
  Opened opened;
  std::vector<int32_t> tokens;
  size_t tail = 0;
  std::vector<size_t> first;  // first row of each layer

  Parts(const std::string& path, const session::EngineOptions& options, std::vector<int32_t> text)
      : opened(open_model(path, options)), tokens(std::move(text)) {
    if (opened.session == nullptr) return;
    const model::Program& p = program();
    first.assign(static_cast<size_t>(p.hp.n_layer), SIZE_MAX);
    for (size_t i = 0; i < static_cast<size_t>(p.pool); ++i) {
      if (p.ops[i].layer < 0) continue;
      tail = i + 1;
      size_t& at = first[static_cast<size_t>(p.ops[i].layer)];
      at = std::min(at, i);
    }
  }
  [[nodiscard]] const model::Program& program() const { return opened.model->engine().program(); }
  [[nodiscard]] size_t behind(size_t layer) const {
    return layer + 1 < first.size() ? first[layer + 1] : tail;
  }
  Status run(const session::PartialForward& part) {
    opened.session->clear();
    SLUICE_RETURN_IF_ERROR(opened.session->begin_part(tokens, part));
    return opened.model->run(*opened.session);
  }
  std::vector<float> logits(const std::vector<float>& states) {
    EXPECT_TRUE(run({tail, static_cast<size_t>(program().pool), states, nullptr}).ok());
    std::vector<float> out;
    for (size_t i = 0; i < kPassTokens; ++i) {
      const auto row = opened.session->logits(static_cast<int32_t>(i));
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }
};

TEST(PartialForward, EqualsThePassAndTheModelWithoutALayer) {
  std::vector<Reference> all = read_manifest(own_folder("families"));
  for (Reference& r : read_manifest(fixture_folder("families"))) all.push_back(r);
  size_t families = 0, layers = 0;
  for (const Reference& reference : all) {
    SCOPED_TRACE(reference.name);
    session::EngineOptions options;
    options.n_ctx = 64;
    options.logits_rows = options.n_batch = options.min_batch = kPassTokens;
    options.n_threads = 2;
    Result<native::ModelHeader> model = native::read_header(reference.path, {});
    ASSERT_TRUE(model.ok());
    const auto found = session::inspect(model->header, options);
    if (!found.ok()) continue;
    const std::vector<int32_t> may = approximate::skippable_layers(found->program);
    if (may.empty() || reference.prompt.size() < kPassTokens) continue;
    const std::vector<int32_t> text(reference.prompt.begin(),
                                    reference.prompt.begin() + kPassTokens);
    std::vector<std::vector<float>> wanted;
    for (size_t i = 0; i <= may.size(); ++i) {
      options.approximate.skip =
          i == 0 ? std::span<const int32_t>() : std::span(may).subspan(i - 1, 1);
      Opened opened = open_model(reference.path, options);
      ASSERT_NE(opened.session, nullptr);
      wanted.push_back(all_logits(opened, text, kPassTokens));
    }
    options.approximate.skip = {};
    for (const bool streaming : {false, true}) {
      options.memory_budget = streaming ? found->plan.budget.minimum : 0;
      Parts parts(reference.path, options, text);
      ASSERT_NE(parts.opened.session, nullptr);
      std::vector<float> before, now, other;
      ASSERT_TRUE(parts.run({0, parts.first[0], {}, &now}).ok());
      for (size_t l = 0; l < parts.first.size(); ++l) {
        before = now;
        ASSERT_TRUE(parts.run({parts.first[l], parts.behind(l), before, &now}).ok());
        const auto at = std::find(may.begin(), may.end(), static_cast<int32_t>(l));
        if (at == may.end()) continue;
        ASSERT_TRUE(parts.run({parts.behind(l), parts.tail, before, &other}).ok());
        EXPECT_EQ(parts.logits(other), wanted[static_cast<size_t>(at - may.begin()) + 1]) << l;
        ++layers;
      }
      EXPECT_EQ(parts.logits(now), wanted[0]);
    }
    ++families;
  }
  std::printf("%zu families, %zu layers skipped\n", families, layers);
  if (!shared_folder("families").empty()) {
    EXPECT_GE(families, 7u);
    EXPECT_GE(layers, 200u);
  }
  if (families == 0) GTEST_SKIP() << "no family with a skippable layer";
}

TEST(PartialForward, OfWrongRowsIsAnError) {
  session::EngineOptions options;
  options.n_ctx = 64;
  options.logits_rows = 2;
  options.n_batch = 8;
  const std::string path = source_dir() + "/examples/models/sluice-tales-Q8_0.gguf";
  Parts parts(path, options, {1, 2, 3, 4});
  ASSERT_NE(parts.opened.session, nullptr);
  const auto end = static_cast<size_t>(parts.program().pool);
  const auto width =
      static_cast<size_t>(parts.opened.model->engine().context().width(model::Buf::kX));
  const std::vector<float> three(3 * width), odd(width + 1), many(9 * width);
  for (const session::PartialForward& wrong : {session::PartialForward{3, 3, {}, nullptr},
                                               {4, 3, {}, nullptr},
                                               {0, end + 1, {}, nullptr},
                                               {parts.tail, end, three, nullptr},
                                               {parts.first[1], parts.tail, odd, nullptr},
                                               {parts.first[1], parts.tail, many, nullptr}}) {
    EXPECT_EQ(parts.opened.session->begin_part(parts.tokens, wrong).code(), Code::kInvalidArgument);
  }
  EXPECT_TRUE(parts.run({parts.first[1], parts.tail, three, nullptr}).ok());
  const std::vector<int32_t> nine(9, 1);
  EXPECT_EQ(parts.opened.session->begin_part(nine, {0, parts.tail, {}, nullptr}).code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::test
