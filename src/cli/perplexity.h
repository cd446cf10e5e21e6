// Scores a text with a model, for `sluice perplexity` and `sluice convert --perplexity`.
#pragma once

#include "cli/cli.h"
#include "measure/log_likelihood.h"

namespace sluice::cli {

// Loads common.model with its options and scores scoring.text; shows progress unless `quiet`.
// Errors: load_options()'s and score_text()'s.
[[nodiscard]] Result<measure::Scored> score(const Common& common, measure::LogLikelihood scoring,
                                            bool quiet);

}  // namespace sluice::cli
