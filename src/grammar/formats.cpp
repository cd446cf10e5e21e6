// Formats, as defined in the RFCs.
#include "grammar/formats.h"

#include <cstdint>
#include <initializer_list>

namespace sluice::grammar {
namespace {

// RFC 3339. Leap years: every fourth year, except for three of four centuries.
constexpr const char* kDate =
    "(?:(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29|"
    "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])))";
constexpr const char* kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
    "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
// RFC 3339, appendix A: units in order, without gaps.
constexpr const char* kClock =
    "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)";
constexpr const char* kDays =
    "(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)";
constexpr const char* kLabel = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,31}";
constexpr const char* kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr const char* kHex = "[0-9A-Fa-f]";

// GCC 12 has false warnings for strings appended to literals.
std::string join(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) out.append(part);
  return out;
}

std::string repeated(std::string_view what, std::string_view times) {
  return join({"(?:", what, ")", times});
}

std::string times(int n) {
  return join({"{", std::to_string(n), "}"});
}

std::string hostname() {
  return join({kLabel, repeated(join({"\\.", kLabel}), "*")});
}

std::string ipv4() {
  return join({kByte, repeated(join({"\\.", kByte}), "{3}")});
}

// RFC 4291, 2.2: eight groups, of which one run of zeros may be omitted; the last two may be IPv4.
std::string ipv6() {
  const std::string group = join({kHex, "{1,4}"});
  const std::string leading = join({group, ":"}), following = join({":", group});
  const std::string last = join({"(?:", group, ":", group, "|", ipv4(), ")"});
  std::string out = join({repeated(leading, "{6}"), last});
  for (int before = 0; before <= 7; ++before) {
    std::string head;
    if (before > 0) head = group;
    if (before > 1) head += repeated(following, times(before - 1));
    std::string tail;
    for (int n = 0; n <= 7 - before; ++n) {  // groups after the gap
      if (n > 0) tail += "|";
      if (n == 1) tail += group;
      if (n >= 2) tail += join({repeated(leading, times(n - 2)), last});
    }
    out += join({"|", head, "::(?:", tail, ")"});
  }
  return join({"(?:", out, ")"});
}

std::string uri() {
  const std::string plain = "[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}";
  const std::string pchar = join({"(?:[:@]|", plain, ")"});
  const std::string path = repeated(join({"/", pchar, "*"}), "*");
  const std::string host = join({"(?:\\[", ipv6(), "\\]|(?:", plain, ")*)"});
  const std::string authority =
      join({"//(?:(?:", plain, "|:)*@)?", host, "(?::[0-9]{0,5})?", path});
  const std::string absolute = join({"/(?:", pchar, "+", path, ")?"});
  const std::string rest = join({"(?:\\?(?:[/?]|", pchar, ")*)?(?:#(?:[/?]|", pchar, ")*)?"});
  return join(
      {"[A-Za-z][A-Za-z0-9+.-]*:(?:", authority, "|", absolute, "|", pchar, "+", path, "|)", rest});
}

}  // namespace

FormatKind find_format(std::string_view name, std::string* pattern, uint32_t* longest) {
  *longest = 0;
  const auto is = [&](std::string_view text) {
    *pattern = join({"^(?:", text, ")$"});
    return FormatKind::kKnown;
  };
  if (name == "date") return is(kDate);
  if (name == "time") return is(kTime);
  if (name == "date-time") return is(join({kDate, "[Tt]", kTime}));
  if (name == "duration") {
    return is(join({"P(?:[0-9]{1,9}W|", kDays, "(?:", kClock, ")?|", kClock, ")"}));
  }
  if (name == "uuid") {
    return is(join({kHex, "{8}(?:-", kHex, "{4}){3}-", kHex, "{12}"}));
  }
  if (name == "ipv4") return is(ipv4());
  if (name == "ipv6") return is(ipv6());
  if (name == "hostname") {
    *longest = 253;
    return is(hostname());
  }
  if (name == "email") {
    constexpr std::string_view kWord = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
    *longest = 128;
    return is(join({kWord, "(?:\\.", kWord, ")*@", hostname()}));
  }
  if (name == "uri") return is(uri());
  for (const char* other : {"uri-reference", "idn-hostname", "idn-email", "iri", "iri-reference",
                            "json-pointer", "relative-json-pointer", "uri-template", "regex"}) {
    if (name == other) return FormatKind::kRefused;
  }
  return FormatKind::kAnnotation;
}

}  // namespace sluice::grammar
