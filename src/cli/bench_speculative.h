// `sluice bench --draft`: one answer with several sources of guesses, in turns.
#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"

namespace sluice::cli {

struct BenchDrafts {
  const Common& common;
  std::vector<std::string> drafts;  // off, ngram, or a model
  // {"prompt": [ids], "answer": [ids]}: what is said, whatever the model would; "": a made-up
  // prompt, and what the model likes best.
  std::string replay;
  int generate, prompt, repeat;
  bool no_page_cache, json;
};

// Prints the table; the exit status.
int bench_drafts(const BenchDrafts& options);

}  // namespace sluice::cli
