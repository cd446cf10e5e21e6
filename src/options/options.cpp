#include "options/options.h"

namespace sluice::options {
namespace {

// Whole numbers without an exponent.
std::string text_of(double value) {
  const auto whole = static_cast<long long>(value);
  return static_cast<double>(whole) == value ? std::to_string(whole) : std::to_string(value);
}

Status outside(const char* name, const std::string& value, const std::string& least,
               const std::string& most) {
  return error(Code::kInvalidArgument, "%s is %s but must be %s to %s", name, value.c_str(),
               least.c_str(), most.c_str());
}

}  // namespace

Status check(const Option& option, double value) {
  if (value >= option.least && value <= option.most) return {};
  return outside(option.name, text_of(value), text_of(option.least), text_of(option.most));
}

Status check_range(int64_t value, int64_t least, int64_t most, const char* name) {
  if (value >= least && value <= most) return {};
  return outside(name, std::to_string(value), std::to_string(least), std::to_string(most));
}

Status check_budget(uint64_t bytes) {
  if (bytes <= kMaxByteSize) return {};
  return error(Code::kInvalidArgument,
               "memory_budget is %llu bytes, which looks like a shift of an int that overflowed: "
               "write 2048ull << 20",
               static_cast<unsigned long long>(bytes));
}

}  // namespace sluice::options
