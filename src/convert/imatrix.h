// An importance matrix: mean squares of the inputs of each matrix, per column, and per expert if
// there are several. Reads both of llama.cpp's imatrix formats and writes the newer one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::convert {

class Imatrix {
 public:
  // Errors: kBadHeader; kTruncated; kBadWeights for negative or non-finite values.
  [[nodiscard]] static Result<Imatrix> parse(gguf::Bytes file);

  // Sets the mean squares of a matrix: [columns] or [experts][columns] values. Each counts at least
  // a thousandth of the mean, since other texts may use that column. Errors: kBadWeights.
  [[nodiscard]] Status set(std::string name, std::vector<float> moments);

  // The ne[0] or [ne[2]][ne[0]] values for `tensor`; null if there are none. Errors: kBadShape if
  // their number does not fit.
  [[nodiscard]] Result<const std::vector<float>*> find(const gguf::Tensor& tensor) const;
  // Formats an imatrix file in the newer format, which llama-quantize reads too. `dataset` is
  // stored as the name of its text.
  [[nodiscard]] std::string file(std::string_view dataset) const;
  [[nodiscard]] size_t size() const { return by_name_.size(); }
  [[nodiscard]] uint64_t bytes() const;

 private:
  std::map<std::string, std::vector<float>, std::less<>> by_name_;
};

}  // namespace sluice::convert
