// The one table of options: what loading and generation can be told, under which name on each
// surface. The command lines and the C API take names, ranges, defaults and help from it;
// tests/layering/options.test.mjs compares it with the package's types and with docs/cli.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/byte_size.h"
#include "base/status.h"

namespace sluice::options {

enum class Type : uint8_t { kBytes, kWhole, kNumber, kFlag, kText, kOther };

struct Option {
  const char* name;       // in sluice.h
  const char* js;         // in the package: a member of a member is "approximate.skipLayersRatio"
  const char* cli;        // of `sluice`, all spellings
  Type type;              // kOther: checked where it is read
  double least, most;     // of numbers
  const char* otherwise;  // the default, in words; "": none is worth saying
  const char* help;
};

inline constexpr double kMaxBytes = kMaxByteSize;

inline constexpr Option kOptions[] = {
#include "options/options.def"
};

void the_table_has_no_such_option();  // without a definition

// The row of a name in sluice.h, at compile time: a name without a row does not compile.
consteval const Option& find(std::string_view name) {
  for (const Option& option : kOptions) {
    if (name == option.name) return option;
  }
  the_table_has_no_such_option();
  return kOptions[0];
}

// Checks a number against the row's range. Errors: kInvalidArgument, naming option and limits.
[[nodiscard]] Status check(const Option& option, double value);
// The same for a value that is no option.
[[nodiscard]] Status check_range(int64_t value, int64_t least, int64_t most, const char* name);

// Checks a budget in bytes. Errors: kInvalidArgument for more than kMaxBytes, which is what an int
// that overflowed becomes.
[[nodiscard]] Status check_budget(uint64_t bytes);

}  // namespace sluice::options
