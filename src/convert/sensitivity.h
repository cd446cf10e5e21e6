// How a tensor's error changes the model's output, from measurements with some tensors in other
// types. Errors of different tensors are independent, so to second order their changes add up.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace sluice::convert {

struct Probe {
  std::vector<std::string> tensors;
  std::vector<gguf::TensorType> types;  // type of each tensor
  double change = 0;                    // measured output change, in one unit for all probes
};

// Relative squared error of a matrix's outputs, by type.
using ErrorsByType = std::map<gguf::TensorType, double>;

class Sensitivity {
 public:
  enum class Known : uint8_t {
    kNot,       // not measured: relative errors count equally
    kOfKind,    // the mean of tensors of its kind, or of all
    kTogether,  // from probes of several tensors
    kAlone,     // from probes of this tensor only
  };

  [[nodiscard]] Known known() const { return known_; }
  // Output change for a relative error of 1, if linear.
  [[nodiscard]] double slope() const { return slope_; }
  // Output change with the tensor as `type`, whose relative error is `error`.
  [[nodiscard]] double change(gguf::TensorType type, double error) const;

 private:
  friend std::vector<Sensitivity> sensitivities_of(const gguf::Header& header,
                                                   const std::vector<ErrorsByType>& errors,
                                                   const std::vector<Probe>& probes);
  Known known_ = Known::kNot;
  double slope_ = 1;
  double rounding_ = 0;  // change that any other type causes in addition
  std::map<gguf::TensorType, double> measured_;
};

// The name in reports: "alone" for kAlone, empty for kNot.
[[nodiscard]] const char* name_of(Sensitivity::Known known);

// "attn_q.weight" of "blk.7.attn_q.weight".
[[nodiscard]] std::string_view kind_of(std::string_view tensor);

// Sensitivities of header.tensors with their `errors`. Probes without any change are ignored: the
// tensor was not used.
[[nodiscard]] std::vector<Sensitivity> sensitivities_of(const gguf::Header& header,
                                                        const std::vector<ErrorsByType>& errors,
                                                        const std::vector<Probe>& probes);

}  // namespace sluice::convert
