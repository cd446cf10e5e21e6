// An engine without approximate modes names the one that an option asks for, and runs exact models.
#include <gtest/gtest.h>

#include "gguf/embedding_clusters.h"
#include "session/memory_plan.h"

// Under another name, beside the modes that this program has.
#define approximate(...) approximate_without_modes(__VA_ARGS__)
#include "approximate/approximate_stub.cpp"  // NOLINT
#undef approximate

namespace sluice {
namespace {

Status opened(const session::EngineOptions& options, const gguf::Header& header = {}) {
  model::Program program;
  session::Approximations modes;
  return session::approximate_without_modes(header, options, kernels::best(), &program, &modes);
}

TEST(ApproximateStub, RunsExactModels) {
  session::EngineOptions options;
  EXPECT_TRUE(opened(options).ok());
  options.approximate.head.kind = session::HeadPolicy::Kind::kWhole;
  EXPECT_TRUE(opened(options).ok());
}

TEST(ApproximateStub, NamesWhatItDoesNotHave) {
  const int32_t layer = 2;
  session::EngineOptions skips, listed, exits, head;
  skips.approximate.skip_layers_ratio = 0.5;
  listed.approximate.skip = {&layer, 1};
  exits.approximate.exits.confidence = 0.5;
  head.approximate.head.kind = session::HeadPolicy::Kind::kExact;
  for (const auto& [options, name] : {std::pair{skips, "layer skipping"},
                                      {listed, "layer skipping"},
                                      {exits, "early exit"},
                                      {head, "clustered output head"}}) {
    const Status status = opened(options);
    EXPECT_EQ(status.code(), Code::kNotInBuild) << name;
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace sluice
