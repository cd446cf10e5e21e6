// What a tensor's error does to the model's answers, from measurements: with some tensors as other
// types, all else as it is, answers change by so much. Errors of tensors know nothing of each
// other, so to the second order their changes add.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace sluice::convert {

struct Probe {
  std::vector<std::string> tensors;
  std::vector<gguf::TensorType> types;  // of each
  double change = 0;                    // of the answers, in one unit for all probes
};

// By type: the share of the power of a matrix's products that its errors have.
using ErrorsByType = std::map<gguf::TensorType, double>;

class Sensitivity {
 public:
  enum class Known : uint8_t {
    kNot,       // nothing was measured: relative errors count alike
    kOfKind,    // the mean of tensors of its kind, or of all
    kTogether,  // by probes of several tensors
    kAlone,     // by probes of this one
  };

  [[nodiscard]] Known known() const { return known_; }
  // Change for a relative error of 1, were it to grow with that alone.
  [[nodiscard]] double slope() const { return slope_; }
  // What becomes of the answers with the tensor as `type`, whose relative error is `error`.
  [[nodiscard]] double change(gguf::TensorType type, double error) const;

 private:
  friend std::vector<Sensitivity> sensitivities_of(const gguf::Header& header,
                                                   const std::vector<ErrorsByType>& errors,
                                                   const std::vector<Probe>& probes);
  Known known_ = Known::kNot;
  double slope_ = 1;
  double rounding_ = 0;  // what any other type does besides
  std::map<gguf::TensorType, double> measured_;
};

// "kAlone" as reports have it; empty for kNot.
[[nodiscard]] const char* name_of(Sensitivity::Known known);

// "attn_q.weight" of "blk.7.attn_q.weight".
[[nodiscard]] std::string_view kind_of(std::string_view tensor);

// Of header.tensors, whose errors are `errors`. A change of nothing at all says that the tensor had
// no part in what was asked, and is not counted.
[[nodiscard]] std::vector<Sensitivity> sensitivities_of(const gguf::Header& header,
                                                        const std::vector<ErrorsByType>& errors,
                                                        const std::vector<Probe>& probes);

}  // namespace sluice::convert
