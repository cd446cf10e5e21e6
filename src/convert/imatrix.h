// How much each column of a matrix matters: the second moments of what it is multiplied with, per
// column, and per expert where there are several. Read from llama.cpp's files (imatrix), both
// forms, and written as one.
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
  // Errors: kBadHeader, kTruncated, kBadWeights for what is negative or not a number.
  [[nodiscard]] static Result<Imatrix> parse(gguf::Bytes file);

  // Moments by matrix name: [columns], or [experts][columns]. What next to never happened still
  // counts a thousandth of the mean: a text is not all texts. Errors: kBadWeights.
  [[nodiscard]] Status set(std::string name, std::vector<float> moments);

  // [ne[0]] or [ne[2]][ne[0]] values for `tensor`, null where there are none; kBadShape where their
  // number is another one.
  [[nodiscard]] Result<const std::vector<float>*> find(const gguf::Tensor& tensor) const;
  // An imatrix file of the newer form, which llama-quantize reads too. `dataset` is what it names
  // as its text.
  [[nodiscard]] std::string file(std::string_view dataset) const;
  [[nodiscard]] size_t size() const { return by_name_.size(); }
  [[nodiscard]] uint64_t bytes() const;

 private:
  std::map<std::string, std::vector<float>, std::less<>> by_name_;
};

}  // namespace sluice::convert
