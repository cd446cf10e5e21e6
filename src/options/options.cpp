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

Status check_budget(uint64_t bytes) {
  if (bytes <= kMaxByteSize) return {};
  return error(Code::kInvalidArgument,
               "memory_budget is %llu bytes, which looks like a shift of an int that overflowed: "
               "write 2048ull << 20",
               static_cast<unsigned long long>(bytes));
}

}  // namespace sluice::options
