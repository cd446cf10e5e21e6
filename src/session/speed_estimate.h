// How fast a model would generate, before any of it is loaded: the kernels are timed on made-up
// weights of the model's main type, in the chunks and with the threads that a pass uses, and what
// streams is weighed against how fast it can be read. Nothing is guessed: what nobody measured is
// not reported.
#pragma once

#include "session/report.h"

namespace sluice::session {

// The place that weights would stream from, as a timed read found it.
struct ReadSpeed {
  double bytes_per_second = 0;  // 0: unknown
  double busy = 1;              // share of the time of reading that a processor was at work
  bool shared = false;          // threads that compute can read too, and so share that work
};

// Milliseconds of one generated token, early in a context.
struct Prediction {
  double compute_ms = 0;  // with all weights at hand; 0: unknown
  double token_ms = 0;    // 0: unknown
};

// Takes tens of milliseconds, in a tab some hundred, and meanwhile up to 128 MB beside the budget
// (in a tab 48 MB).
[[nodiscard]] Prediction predict(const Inspection& found, const ReadSpeed& reading);

// predict() in section "speed": tokensPerSecond, computeTokensPerSecond, storeBytesPerSecond; those
// of them that are known.
void report_speed(const Inspection& found, const ReadSpeed& reading, const ReportSink& sink);

}  // namespace sluice::session
