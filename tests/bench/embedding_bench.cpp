// Embedding throughput: many texts of one length, tokens per second, the best of several rounds, as
// JSON.
//   embedding_bench MODEL THREADS TEXTS TOKENS ROUNDS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "embed/embedder.h"
#include "native/model_file.h"

namespace {

using namespace sluice;

Status embed_all(native::Model& model, session::Session& session, const std::vector<int32_t>& ids,
                 const std::vector<int32_t>& ends) {
  embed::Embedder embedder(session);
  SLUICE_RETURN_IF_ERROR(embedder.begin(ids, ends, {.pooling = model::Pooling::kMean}));
  for (;;) {
    const Result<bool> more = embedder.next();
    if (!more.ok()) return more.status();
    if (!*more) return {};
    SLUICE_RETURN_IF_ERROR(model.drive([&](int32_t ops) { return embedder.step(ops); }));
  }
}

Status run(char** argv) {
  const int threads = std::atoi(argv[2]), texts = std::atoi(argv[3]), length = std::atoi(argv[4]);
  native::LoadOptions load;
  load.engine.n_threads = threads;
  load.engine.n_ctx = length;
  Result<std::unique_ptr<native::Model>> model = native::Model::open(argv[1], load);
  if (!model.ok()) return model.status();
  SLUICE_RETURN_IF_ERROR((*model)->preload());
  auto session = session::Session::create((*model)->engine().context());
  if (!session.ok()) return session.status();
  std::vector<int32_t> ids, ends;
  const int64_t n_vocab = (*model)->engine().program().hp.n_vocab;
  for (int32_t i = 0; i < texts * length; ++i) {
    ids.push_back(static_cast<int32_t>(5 + int64_t{i} * 7919 % (n_vocab - 5)));
    if ((i + 1) % length == 0) ends.push_back(i + 1);
  }
  double best = 0;
  for (int round = 0; round <= std::atoi(argv[5]); ++round) {  // round 0 warms up
    const auto start = std::chrono::steady_clock::now();
    SLUICE_RETURN_IF_ERROR(embed_all(**model, **session, ids, ends));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (round > 0) best = std::max(best, static_cast<double>(ids.size()) / took.count());
  }
  std::printf("{\"threads\": %d, \"tokensPerSecond\": %.1f, \"textsPerSecond\": %.2f}\n", threads,
              best, best / length);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: embedding_bench MODEL THREADS TEXTS TOKENS ROUNDS\n");
    return 2;
  }
  const sluice::Status status = run(argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
