// Nothing is allocated per token. After a few tokens, whole forward passes and sampling call no
// allocation function of the process, with weights resident or streamed. All engine memory comes
// from the counted functions, operator new and aligned_alloc. Sanitizers replace them, so nothing
// is counted there.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "fixtures_util.h"
#include "generate/generation.h"
#include "sample/sampler.h"

#if !defined(SLUICE_SANITIZED) && defined(__GLIBC__)

namespace {
std::atomic<uint64_t> n_allocations{0};
}  // namespace

extern "C" void* __libc_memalign(size_t alignment, size_t size);

extern "C" void* aligned_alloc(size_t alignment, size_t size) {
  n_allocations.fetch_add(1);
  return __libc_memalign(alignment, size);
}

void* operator new(size_t size) {
  n_allocations.fetch_add(1);
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace sluice::test {
namespace {

uint64_t allocations_of_ten_tokens(uint64_t budget, int threads) {
  const std::string path = sample_model();
  session::EngineOptions options;
  options.n_ctx = 64;
  options.n_threads = threads;
  options.memory_budget = budget;
  Opened opened = open_model(path, options);
  EXPECT_NE(opened.session, nullptr);
  if (opened.session == nullptr) return 0;
  sample::Params params;
  params.temperature = 0.7f;
  params.seed = 1;
  sample::Sampler sampler(params, opened.model->engine().program().hp.n_vocab);
  std::array<session::Token, 1> next = {65};
  uint64_t before = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 10) before = n_allocations.load();
    EXPECT_TRUE(opened.session->begin(next).ok());
    EXPECT_TRUE(opened.model->run(*opened.session).ok());
    next[0] = sampler.sample(opened.session->logits(), opened.session->tokens());
  }
  return n_allocations.load() - before;
}

TEST(Allocations, AreCounted) {
  const uint64_t before = n_allocations.load();
  AlignedBuffer buffer;
  ASSERT_TRUE(buffer.allocate(1000).ok());
  const std::vector<int> numbers(1000);
  EXPECT_EQ(n_allocations.load() - before, 2u) << numbers.size();
}

TEST(Allocations, NoneForATokenOfAResidentModel) {
  for (const int threads : {1, 3}) EXPECT_EQ(allocations_of_ten_tokens(0, threads), 0u) << threads;
}

// A token costs one allocation: the list of events that is taken.
TEST(Allocations, OneForATokenOfAGeneration) {
  const std::string path = sample_model();
  session::EngineOptions engine;
  engine.n_ctx = 64;
  engine.n_threads = 1;
  Opened opened = open_model(path, engine);
  ASSERT_NE(opened.session, nullptr);
  generate::Options options;
  options.sampling.repeat_penalty = 1.1f;
  options.sampling.seed = 1;
  options.ignore_eos = true;
  options.max_tokens = 40;
  options.stop = {"no such text"};
  const std::array<session::Token, 1> prompt = {65};
  auto generation = generate::Generation::begin(*opened.session, prompt, options);
  ASSERT_TRUE(generation.ok());
  uint64_t before = 0;
  size_t tokens = 0;
  ASSERT_TRUE(opened.model
                  ->drive([&](int32_t max_ops) {
                    if (tokens == 10 && before == 0) before = n_allocations.load();
                    const session::Step step = (*generation)->step(max_ops);
                    tokens += (*generation)->take_pieces().size();
                    return step;
                  })
                  .ok());
  EXPECT_EQ(tokens, 40u);
  EXPECT_LE(n_allocations.load() - before, 30u);
}

TEST(Allocations, NoneForATokenOfAStreamedModel) {
  session::EngineOptions options;
  options.n_ctx = 64;
  const std::string path = sample_model();
  EXPECT_EQ(allocations_of_ten_tokens(smallest_budget(path, options) + (64 << 10), 1), 0u);
}

}  // namespace
}  // namespace sluice::test

#endif
