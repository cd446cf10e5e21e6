// Formats, from the RFCs.
#include "grammar/formats.h"

#include <cstdint>

namespace sluice::grammar {
namespace {

// RFC 3339: February has 29 days every fourth year, but for three of four centuries.
constexpr const char* kDate =
    "(?:(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29|"
    "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])))";
constexpr const char* kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
    "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
// RFC 3339, appendix A: units in their order, none left out between two.
constexpr const char* kClock =
    "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)";
constexpr const char* kDays =
    "(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)";
constexpr const char* kLabel = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,31}";
constexpr const char* kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr const char* kHex = "[0-9A-Fa-f]";

std::string repeated(const std::string& what, const char* times) {
  return "(?:" + what + ")" + times;
}

std::string hostname() {
  return std::string(kLabel) + repeated(std::string("\\.") + kLabel, "*");
}

std::string ipv4() {
  return kByte + repeated(std::string("\\.") + kByte, "{3}");
}

// RFC 4291, 2.2: eight groups, of which one run of zeros may be left out, the last two perhaps as
// IPv4.
std::string ipv6() {
  const std::string group = std::string(kHex) + "{1,4}";
  const std::string last = "(?:" + group + ":" + group + "|" + ipv4() + ")";
  std::string out = repeated(group + ":", "{6}") + last;
  for (int before = 0; before <= 7; ++before) {
    const std::string head =
        before == 0 ? ""
                    : group + (before == 1 ? ""
                                           : repeated(":" + group,
                                                      ("{" + std::to_string(before - 1) + "}").c_str()));
    const int after = 7 - before;  // groups behind the gap, at most
    std::string tail;
    for (int n = 0; n <= after; ++n) {
      if (n > 0) tail += "|";
      if (n == 1) tail += group;
      if (n >= 2) {
        tail += repeated(group + ":", ("{" + std::to_string(n - 2) + "}").c_str()) + last;
      }
    }
    out += "|" + head + "::(?:" + tail + ")";
  }
  return "(?:" + out + ")";
}

std::string uri(bool relative) {
  const std::string escaped = "%[0-9A-Fa-f]{2}";
  const std::string plain = "[A-Za-z0-9._~!$&'()*+,;=-]|" + escaped;
  const std::string pchar = "(?:[:@]|" + plain + ")";
  const std::string path = repeated("/" + pchar + "*", "*");
  const std::string host = "(?:\\[" + ipv6() + "\\]|(?:" + plain + ")*)";
  const std::string authority = "//(?:(?:" + plain + "|:)*@)?" + host + "(?::[0-9]{0,5})?" + path;
  const std::string absolute = "/(?:" + pchar + "+" + path + ")?";
  const std::string rest =
      "(?:\\?(?:[/?]|" + pchar + ")*)?(?:#(?:[/?]|" + pchar + ")*)?";
  const std::string hier = "(?:" + authority + "|" + absolute + "|" + pchar + "+" + path + "|)";
  const std::string full = "[A-Za-z][A-Za-z0-9+.-]*:" + hier + rest;
  if (!relative) return full;
  const std::string first = "(?:@|" + plain + ")+";  // no colon before the first slash
  return "(?:" + full + "|(?:" + authority + "|" + absolute + "|" + first + path + "|)" + rest + ")";
}

}  // namespace

FormatKind find_format(std::string_view name, std::string* pattern, uint32_t* longest) {
  *longest = 0;
  const std::string day = kDate, time = kTime;
  const auto is = [&](std::string text) {
    *pattern = "^(?:" + text + ")$";
    return FormatKind::kKnown;
  };
  if (name == "date") return is(day);
  if (name == "time") return is(time);
  if (name == "date-time") return is(day + "[Tt]" + time);
  if (name == "duration") {
    return is(std::string("P(?:[0-9]{1,9}W|") + kDays + "(?:" + kClock + ")?|" + kClock + ")");
  }
  if (name == "uuid") {
    const std::string four = std::string(kHex) + "{4}";
    return is(std::string(kHex) + "{8}" + repeated("-" + four, "{3}") + "-" + kHex + "{12}");
  }
  if (name == "ipv4") return is(ipv4());
  if (name == "ipv6") return is(ipv6());
  if (name == "hostname" || name == "idn-hostname") {
    *longest = 253;
    return is(hostname());
  }
  if (name == "email" || name == "idn-email") {
    const std::string word = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
    *longest = 128;
    return is(word + "+" + repeated("\\." + word + "+", "*") + "@" + hostname());
  }
  if (name == "uri" || name == "iri") return is(uri(false));
  if (name == "uri-reference" || name == "iri-reference") return is(uri(true));
  if (name == "json-pointer") return is("(?:/(?:[^~/]|~[01])*)*");
  if (name == "relative-json-pointer") {
    return is("(?:0|[1-9][0-9]{0,9})(?:#|(?:/(?:[^~/]|~[01])*)*)");
  }
  if (name == "uri-template" || name == "regex") return FormatKind::kRefused;
  return FormatKind::kAnnotation;
}

}  // namespace sluice::grammar
