// Estimates generation speed before a model is loaded. The matrix multiplications of a forward pass
// are timed on synthetic weights, with the shapes, types, threads and tasks of a real pass, and so
// is sampling a token. The result is compared with how fast the streamed weights can be read.
// Everything is measured; what could not be measured is not reported.
#pragma once

#include <optional>

#include "session/expert_hits.h"
#include "session/report.h"

namespace sluice::session {

// Speed of the source from which weights would stream, from a timed read.
struct ReadSpeed {
  double bytes_per_second = 0;  // 0: unknown
  double busy = 1;              // fraction of the reading time during which a CPU was busy
  bool shared = false;          // compute threads can read too, and so share that work
};

// Milliseconds of one generated token, early in a context.
struct Prediction {
  double compute_ms = 0;  // if all weights were in memory; 0: unknown
  double token_ms = 0;    // 0: unknown
  StreamedBytes streamed;
  double hit_rate = 0;  // of a mixture's experts
};

// Takes tens of milliseconds (a few hundred in a tab), and up to 128 MB of memory in addition to
// the budget (48 MB in a tab). `hit_rate`: of a mixture's experts under this plan; none: their
// share in memory.
[[nodiscard]] Prediction predict(const Inspection& found, const ReadSpeed& reading,
                                 std::optional<double> hit_rate = {});

// Reports predict() in section "speed": tokensPerSecond, computeTokensPerSecond,
// cacheBytesPerSecond; only the values that are known. For a mixture also expertsInMemory,
// expertHitRate and bytesReadPerToken.
void report_speed(const Inspection& found, const ReadSpeed& reading, const ReportSink& sink,
                  std::optional<double> hit_rate = {});

}  // namespace sluice::session
