// `sluice bench --draft`: generates one completion with each of several draft sources and compares
// their speed.
#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"

namespace sluice::cli {

struct BenchDrafts {
  const Common& common;
  std::vector<std::string> drafts;  // off, ngram, or a model
  // A JSON file {"prompt": [ids], "answer": [ids]}. The answer is generated whatever the model
  // predicts. "": a synthetic prompt, and greedy decoding.
  std::string replay;
  int generate, prompt, repeat;
  bool no_page_cache, json;
};

// Measures and prints the table. Returns the exit status.
int bench_drafts(const BenchDrafts& options);

}  // namespace sluice::cli
