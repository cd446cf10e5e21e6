// llama.cpp as a baseline, through the programs that it installs: llama-completion (or an older
// llama-cli) for greedy tokens, llama-perplexity for log-probabilities, llama-bench for speed. All
// run on the CPU.
#pragma once

#include <memory>
#include <optional>

#include "measure/baseline.h"
#include "measure/saved_logits.h"

namespace sluice::measure {

class LlamaCpp final : public Baseline {
 public:
  // `directory`: where the programs are; "": on the PATH. Without llama-completion and llama-bench
  // the comparison has fewer parts. Errors: kNotFound without llama-perplexity; kInvalidArgument
  // for a model that is no local GGUF file.
  [[nodiscard]] static Result<std::unique_ptr<LlamaCpp>> find(const std::string& directory,
                                                              const std::string& model,
                                                              int32_t threads);
  ~LlamaCpp() override;

  [[nodiscard]] std::string name() const override { return "llama.cpp"; }
  [[nodiscard]] Result<std::string> greedy(const std::string& prompt, int32_t n) override;
  [[nodiscard]] Result<Chunks> begin(const std::string& text, int32_t n_ctx,
                                     int32_t n_chunks) override;
  [[nodiscard]] Status next_row(std::vector<float>* log_probs) override;
  [[nodiscard]] double rounding() const override { return saved_ ? saved_->rounding() : 0; }
  [[nodiscard]] Result<Rates> rates() override;

 private:
  LlamaCpp() = default;
  // Runs a program with the model's options and `more`. Errors: kNotFound; kUnsupportedVersion
  // for a program that does not know an option; kIo for one that fails.
  [[nodiscard]] Result<std::string> run(const std::string& path, const char* name,
                                        const std::vector<std::string>& more) const;

  std::string perplexity_, completion_, bench_;  // paths; "": missing
  std::string model_, threads_, text_file_, logits_file_;
  std::optional<SavedLogits> saved_;
};

}  // namespace sluice::measure
