// Fuzzes the header metadata of approximations: layer importance, output and embedding clusters,
// and early-exit probes. The first byte selects the options, the rest is the beginning of a GGUF
// file. Any header gives a typed error, or numbers that can be run with.
#include <cmath>
#include <cstdlib>

#include "session/engine.h"

using sluice::model::HeadClusters;
using sluice::model::Program;

namespace {

bool sound(const HeadClusters& c, int64_t n_vocab) {
  if (c.most == 0) return c.tokens.empty();
  bool good = c.most <= c.n() && c.tokens.size() == static_cast<size_t>(n_vocab) &&
              c.first.size() == c.radii.size() + 1 && c.first.back() == n_vocab;
  for (const int32_t token : c.tokens) good = good && token >= 0 && token < n_vocab;
  if (c.in_order && c.most == c.n()) good = false;
  for (const float radius : c.radii) good = good && std::isfinite(radius);
  return good;
}

bool sound(const sluice::model::RowCentres& c, const Program& p) {
  if (c.of.empty()) return c.centres.empty();
  const size_t row = static_cast<size_t>(p.hp.n_embd) / 32 * 34;
  bool good = c.of.size() == static_cast<size_t>(p.hp.n_vocab) && p.head != p.embedding;
  for (const uint8_t cluster : c.of) good = good && (cluster + size_t{1}) * row <= c.centres.size();
  return good;
}

bool sound(const Program& p) {
  const sluice::model::EarlyExits& e = p.exits;
  const size_t layers = e.needed.empty() ? 0 : static_cast<size_t>(p.hp.n_layer);
  bool good =
      e.may.size() == layers && e.weights.size() == layers * size_t{sluice::model::kExitFeatures};
  good = good && (e.needed.empty() || e.needed.size() == static_cast<size_t>(p.pool));
  for (const float weight : e.weights) good = good && std::isfinite(weight);
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
    options.head.kind = sluice::model::HeadPolicy::Kind::kWhole;
    if (which == 0 || which == 3) options.skip_layers_ratio = (data[0] & 15) / 15.0;
    if (which == 1 || which == 3) {
      options.head.kind = (data[0] & 16) != 0 ? sluice::model::HeadPolicy::Kind::kExact
                                              : sluice::model::HeadPolicy::Kind::kSome;
    }
    if (which == 2 || which == 3) options.exits.confidence = 0.5;
    const auto found = sluice::session::inspect(header, options);
    if (!found.ok()) {
      if (found.status().message().empty()) std::abort();
      continue;
    }
    const Program& p = found->program;
    if (p.head_clusters.in_order &&
        p.mats[static_cast<size_t>(p.head)].rows != static_cast<int64_t>(p.hp.n_vocab)) {
      std::abort();
    }
    if (!sound(p.head_clusters, p.hp.n_vocab) || !sound(p.centres, p) || !sound(p)) std::abort();
    if (which == 1 && p.head_clusters.most == 0) std::abort();
    if (which == 2 && p.exits.needed.empty()) std::abort();
  }
  return 0;
}
