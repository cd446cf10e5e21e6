// llama-server's own endpoints, /completion and /infill: the fields of a request besides those of
// completions, and the response.
#pragma once

#include <string>
#include <vector>

#include "openai/response.h"

namespace sluice::openai {

[[nodiscard]] Problem read_llama_completion(std::string_view body, GenerateRequest* out);
[[nodiscard]] Problem read_infill(std::string_view body, GenerateRequest* out);

class LlamaCompletion final : public Responder {
 public:
  // `request` must outlive this. `plan`: none.
  LlamaCompletion(const GenerateRequest& request, TokenBytes token_bytes, std::string model,
                  const chat::AnswerPlan* plan);

  void push(int32_t index, const generate::Piece& piece, const generate::Counts& counts) override;
  void end(int32_t index, generate::Finish finish, const generate::Counts& counts) override;
  [[nodiscard]] std::string document() const override;
  [[nodiscard]] std::string last_frames() override { return {}; }
  [[nodiscard]] std::string error_frames(const ApiError& error) override;

 private:
  struct Output {
    std::string content{};
    bool new_line = false;
    std::vector<std::string> tokens{}, probabilities{};  // JSON
    std::string document{};
  };
  [[nodiscard]] std::string probability(const generate::Piece& piece) const;
  [[nodiscard]] std::string head(int32_t index, const Output& output, bool stop,
                                 const generate::Counts& counts) const;

  const GenerateRequest& request_;
  const TokenBytes token_bytes_;
  const std::string model_;
  std::vector<Output> outputs_;
};

}  // namespace sluice::openai
