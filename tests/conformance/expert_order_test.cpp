// Experts in memory are computed while others are read. Logits are bit-identical for every budget
// and whatever order their weights arrive in, however late.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "native/model_file.h"
#include "tests/conformance/fixtures_util.h"
#include "tests/conformance/made_mixture_util.h"

namespace sluice::test {
namespace {

enum class Arrival : uint8_t { kInOrder, kLastFirst, kRandom };

struct LateSetting {
  uint64_t budget = 0;
  size_t per_pass = 1;
  Arrival arrival = Arrival::kInOrder;
  bool ascending = false;
};

// The experts of a pass in the order of their first multiplication.
struct Computed {
  const model::Program* program = nullptr;
  size_t n = 0, early = 0;  // experts, and those computed before one with a lower number
  int32_t mixture = -1, expert = -1;
  void note(const model::Mat& mat) {
    const auto index = static_cast<int32_t>(&mat - program->mats.data());
    for (size_t m = 0; m < program->moes.size(); ++m) {
      const std::vector<int32_t>& up = program->moes[m].up;
      const auto at = std::find(up.begin(), up.end(), index);
      if (at == up.end()) continue;
      const auto now = static_cast<int32_t>(at - up.begin());
      early += static_cast<int32_t>(m) == mixture && now < expert;
      mixture = static_cast<int32_t>(m);
      expert = now;
      ++n;
    }
  }
};

struct LateOutcome {
  std::vector<float> logits;  // after each pass
  Computed computed;
};

// Delivers one request whenever the engine waits, after everything that is in memory has been used.
class LateSource {
 public:
  LateSource(residency::FillQueue& queue, io::ByteSource& source, Arrival arrival)
      : queue_(queue), source_(source), arrival_(arrival) {}
  // False: nothing is requested.
  bool deliver() {
    for (; seen_ != queue_.pushed; ++seen_) requested_.push_back(seen_);
    if (requested_.empty()) return false;
    size_t i = 0;
    if (arrival_ == Arrival::kLastFirst) i = requested_.size() - 1;
    if (arrival_ == Arrival::kRandom) i = random_() % requested_.size();
    const uint32_t n = requested_[i];
    requested_.erase(requested_.begin() + static_cast<ptrdiff_t>(i));
    const residency::FillRequest& r = queue_.ring[n % residency::kFillCapacity];
    uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst));
    EXPECT_TRUE(source_.read(r.offset, {dst, r.length}).ok());
    queue_.complete(n);
    return true;
  }

 private:
  residency::FillQueue& queue_;
  io::ByteSource& source_;
  Arrival arrival_;
  uint32_t seen_ = 0;
  std::vector<uint32_t> requested_;
  std::mt19937 random_{7};
};

session::EngineOptions late_options(uint64_t budget) {
  session::EngineOptions out;
  out.n_ctx = 64;
  out.n_threads = 2;
  out.n_batch = out.min_batch = 16;
  out.memory_budget = budget;
  return out;
}

LateOutcome run_late(const std::string& path, const LateSetting& setting) {
  LateOutcome out;
  auto header = native::read_header(path, {});
  EXPECT_TRUE(header.ok());
  auto engine = session::Engine::open(header->header, late_options(setting.budget));
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  if (!engine.ok()) return out;
  auto session = session::Session::create((*engine)->context());
  EXPECT_TRUE(session.ok());
  out.computed.program = &(*engine)->program();
  (*engine)->context().executor->hook_routing({.ascending = setting.ascending});
  (*engine)->context().executor->watch_products(
      {[](void* context, const model::Mat& mat, const float*, int64_t, int32_t) {
         static_cast<Computed*>(context)->note(mat);
       },
       &out.computed});
  LateSource source((*engine)->residency().requests().queue(), *header->sources[0],
                    setting.arrival);
  std::vector<int32_t> tokens = mixture_tokens();
  tokens.resize(24);
  for (size_t t = 0; t < tokens.size(); t += setting.per_pass) {
    EXPECT_TRUE((*session)->begin(std::span(tokens).subspan(t, setting.per_pass)).ok());
    for (;;) {
      const session::Step step = (*session)->step(0);
      if (step == session::Step::kDone) break;
      if (step != session::Step::kBlocked || !source.deliver()) {
        ADD_FAILURE() << "nothing moves";
        return out;
      }
    }
    const std::span<const float> row = (*session)->logits();
    out.logits.insert(out.logits.end(), row.begin(), row.end());
  }
  return out;
}

TEST(ExpertOrder, ArrivalsChangeNoBit) {
  const MadeMixture file(4);
  auto header = native::read_header(file.path, {});
  ASSERT_TRUE(header.ok());
  const auto found = session::inspect(header->header, late_options(0));
  ASSERT_TRUE(found.ok());
  const uint64_t least = smallest_budget(file.path, late_options(0));
  const uint64_t all = found->plan.total();
  for (const size_t per_pass : {size_t{1}, size_t{4}, size_t{12}}) {
    const LateOutcome whole = run_late(file.path, {.per_pass = per_pass});
    ASSERT_FALSE(whole.logits.empty());
    EXPECT_EQ(whole.computed.early, 0u) << "everything is in memory";
    size_t early = 0;
    for (const uint64_t eighth : {0, 1, 3, 5, 7}) {
      for (const Arrival arrival : {Arrival::kInOrder, Arrival::kLastFirst, Arrival::kRandom}) {
        const uint64_t budget = least + eighth * (all - least) / 8;
        const LateOutcome got =
            run_late(file.path, {.budget = budget, .per_pass = per_pass, .arrival = arrival});
        EXPECT_EQ(got.logits, whole.logits) << "budget " << budget << ", " << per_pass << " tokens";
        EXPECT_EQ(got.computed.n, whole.computed.n);
        early += got.computed.early;
      }
    }
    const LateOutcome ascending = run_late(
        file.path, {.budget = least + (all - least) / 2, .per_pass = per_pass, .ascending = true});
    EXPECT_EQ(ascending.logits, whole.logits);
    EXPECT_EQ(ascending.computed.early, 0u);
    if (per_pass < 12) {
      EXPECT_GT(early, 20u) << "experts in memory go first";
    } else {
      EXPECT_EQ(early, 0u) << "too many outputs to keep";
    }
  }
}

}  // namespace
}  // namespace sluice::test
