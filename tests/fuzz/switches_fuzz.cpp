// Fuzzes the header metadata of approximations: layer importance, output and embedding clusters,
// and early-exit probes. The first byte selects the options, the rest is the beginning of a GGUF
// file. Any header gives a typed error, or numbers that can be run with.
#include <cmath>
#include <cstdlib>

#include "approximate/head_clusters.h"
#include "session/engine.h"

using sluice::approximate::HeadClusters;
using sluice::model::Program;

namespace {

bool sound(const HeadClusters& c, int64_t n_vocab) {
  if (c.most == 0) return c.tokens.empty();
  bool good = c.most <= c.n() && c.tokens.size() == static_cast<size_t>(n_vocab) &&
              c.first.size() == c.radii.size() + 1 && c.first.back() == n_vocab;
  for (const int32_t token : c.tokens) good = good && token >= 0 && token < n_vocab;
  for (const float radius : c.radii) good = good && std::isfinite(radius);
  return good;
}

bool sound(const Program& p) {
  bool good = true;
  for (size_t i = 0; i < p.ops.size(); ++i) {
    const auto* own = p.ops[i].get<sluice::model::ApproximateOp>();
    if (own == nullptr) continue;
    const int64_t to = static_cast<int64_t>(i) + own->jump;
    good = good && to >= 0 && to <= static_cast<int64_t>(p.ops.size());
  }
  for (const int32_t layer : p.skipped) good = good && layer >= 2 && layer + 2 < p.hp.n_layer;
  return good;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  sluice::gguf::Header header;
  const auto parsed = sluice::gguf::parse_header({data + 1, size - 1}, 0, &header);
  if (!parsed.ok() || !parsed->done) return 0;
  for (int which = 0; which < 4; ++which) {
    sluice::session::EngineOptions options;
    options.n_ctx = 64;
    options.n_threads = 1;
    options.approximate.head.kind = sluice::session::HeadPolicy::Kind::kWhole;
    if (which == 0 || which == 3) options.approximate.skip_layers_ratio = (data[0] & 15) / 15.0;
    if (which == 1 || which == 3) {
      options.approximate.head.kind = (data[0] & 16) != 0
                                          ? sluice::session::HeadPolicy::Kind::kExact
                                          : sluice::session::HeadPolicy::Kind::kSome;
    }
    if (which == 2 || which == 3) options.approximate.exits.confidence = 0.5;
    const auto found = sluice::session::inspect(header, options);
    if (!found.ok()) {
      if (found.status().message().empty()) std::abort();
      continue;
    }
    const Program& p = found->program;
    if (!sound(p)) std::abort();
    if (which == 1 || which == 3) {
      const auto exact = sluice::model::build_program(header, p.skipped);
      const auto clusters = sluice::approximate::read_head_clusters(
          header, *exact, options.approximate.head, options.approximate.skip_layers_ratio);
      if (!clusters.ok() || clusters->most == 0 || !sound(*clusters, p.hp.n_vocab)) std::abort();
      if (p.mats[static_cast<size_t>(p.head)].rows != static_cast<int64_t>(p.hp.n_vocab)) {
        std::abort();
      }
    }
    if (which == 2 && !p.approximated.changed) std::abort();
  }
  return 0;
}
