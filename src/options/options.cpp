#include "options/options.h"

namespace sluice::options {
namespace {

// Whole numbers without an exponent.
std::string text_of(double value) {
  const auto whole = static_cast<long long>(value);
  return static_cast<double>(whole) == value ? std::to_string(whole) : std::to_string(value);
}

}  // namespace

Status check(const Option& option, double value) {
  if (value >= option.least && value <= option.most) return {};
  return error(Code::kInvalidArgument, "%s is %s but must be %s to %s", option.name,
               text_of(value).c_str(), text_of(option.least).c_str(), text_of(option.most).c_str());
}

}  // namespace sluice::options
