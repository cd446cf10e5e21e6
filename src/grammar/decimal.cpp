// Automata over decimal digits.
#include "grammar/decimal.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <vector>

namespace sluice::grammar {
namespace {

constexpr uint32_t kMaxDivisor = 100'000;  // in units of its last decimal
constexpr uint32_t kMaxRemainders = 40'000;
constexpr std::string_view kSymbols = "-.0123456789";

// A transition table whose states are created as they are reached.
template <typename Key>
class Table {
 public:
  uint32_t number(const Key& key) {
    const auto [at, is_new] = numbers_.try_emplace(key, static_cast<uint32_t>(keys_.size()));
    if (is_new) keys_.push_back(key);
    return at->second;
  }
  // next(key, byte) returns optional<Key>; accept(key) returns bool.
  template <typename Next, typename Accept>
  Dfa build(const Key& start, Next next, Accept accept) {
    static_cast<void>(number(start));
    std::vector<uint32_t> edges;
    std::vector<bool> accepts;
    for (size_t i = 0; i < keys_.size(); ++i) {
      const Key key = keys_[i];
      accepts.push_back(accept(key));
      for (const char c : kSymbols) {
        const std::optional<Key> to = next(key, c);
        edges.push_back(to ? number(*to) : Dfa::kDead);
      }
    }
    return Dfa::table(kSymbols, edges, accepts);
  }

 private:
  std::map<Key, uint32_t> numbers_;
  std::vector<Key> keys_;
};

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view text) {
  Decimal out;
  if (text.starts_with('-')) out.negative = true, text.remove_prefix(1);
  const size_t e = text.find_first_of("eE");
  int64_t exponent = 0;
  if (e != std::string_view::npos) {
    std::string_view power = text.substr(e + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    const auto [rest, bad] = std::from_chars(power.data(), power.data() + power.size(), exponent);
    if (bad != std::errc() || exponent > 1'000'000'000 || exponent < -1'000'000'000) return {};
    text = text.substr(0, e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  out.digits = text.substr(0, point);
  if (point < text.size()) out.digits += text.substr(point + 1);
  const size_t zeros = std::min(out.digits.find_first_not_of('0'), out.digits.size());
  out.digits.erase(0, zeros);
  out.point = static_cast<int64_t>(point) - static_cast<int64_t>(zeros) + exponent;
  out.digits.erase(out.digits.find_last_not_of('0') + 1);
  if (out.zero()) out = {};
  return out;
}

std::strong_ordering compare(const Decimal& a, const Decimal& b) {
  const auto sign = [](const Decimal& d) { return d.zero() ? 0 : d.negative ? -1 : 1; };
  if (sign(a) != sign(b)) return sign(a) <=> sign(b);
  if (a.zero()) return std::strong_ordering::equal;
  const Decimal& x = a.negative ? b : a;
  const Decimal& y = a.negative ? a : b;
  if (x.point != y.point) return x.point <=> y.point;
  return x.digits.compare(y.digits) <=> 0;
}

std::optional<std::string> plain(const Decimal& d) {
  if (d.zero()) return "0";
  const int64_t n = static_cast<int64_t>(d.digits.size());
  if (d.point > 40 || n - d.point > 40) return {};
  std::string out = d.negative ? "-" : "";
  if (d.point <= 0) {
    out += "0." + std::string(static_cast<size_t>(-d.point), '0') + d.digits;
  } else if (n <= d.point) {
    out += d.digits + std::string(static_cast<size_t>(d.point - n), '0');
  } else {
    const size_t point = static_cast<size_t>(d.point);
    out += d.digits.substr(0, point) + "." + d.digits.substr(point);
  }
  return out;
}

// Key: minus sign read, digits read, leading zero, decimals read, point read.
Dfa numbers(bool whole) {
  using Key =
      std::tuple<bool, uint32_t, bool, uint32_t, bool>;  // minus, digits, zero, decimals, point
  Table<Key> table;
  const auto next = [whole](const Key& key, char c) -> std::optional<Key> {
    auto [minus, n, zero, decimals, point] = key;
    if (c == '-') {
      if (minus || n > 0) return {};
      return Key{true, 0, false, 0, false};
    }
    if (c == '.') {
      if (whole || n == 0 || point) return {};
      return Key{minus, n, zero, 0, true};
    }
    if (point) {
      if (decimals == kMaxDecimals) return {};
      return Key{minus, 1, false, decimals + 1, true};
    }
    if (zero || n == kMaxDigits) return {};
    if (n == 0 && c == '0' && minus && whole) return {};  // -0 is written as 0
    return Key{minus, n + 1, n == 0 && c == '0', 0, false};
  };
  return table.build(Key{}, next, [](const Key& key) {
    return std::get<1>(key) > 0 && (!std::get<4>(key) || std::get<3>(key) > 0);
  });
}

// Compares a number with the bound digit by digit: digits of the integer part, and the order so
// far.
Dfa numbers_beyond(const Decimal& bound, bool below, bool inclusive) {
  const std::optional<std::string> text = plain(bound.magnitude());
  const bool huge = bound.point > static_cast<int64_t>(kMaxDigits) + 1;
  std::string whole = huge ? std::string(kMaxDigits + 1, '9') : "0", decimals;
  if (!huge && text) {
    const size_t point = std::min(text->find('.'), text->size());
    whole = text->substr(0, point);
    if (point < text->size()) decimals = text->substr(point + 1);
  } else if (!huge) {
    decimals = std::string(40, '0') + "1";  // smaller than any nonzero number a grammar allows
  }
  const bool bound_negative = bound.negative && !bound.zero();
  // minus, integer digits read, order of magnitudes (-1, 0, 1), decimals read + 1 (0: none yet),
  // any nonzero digit read.
  using Key = std::tuple<bool, uint32_t, int, uint32_t, bool>;
  Table<Key> table;
  const uint32_t whole_size = static_cast<uint32_t>(whole.size());
  const uint32_t decimals_size = static_cast<uint32_t>(decimals.size());
  // The order of the integer parts once both lengths are known.
  const auto whole_order = [&](uint32_t n, int order) {
    return n < whole_size ? -1 : n > whole_size ? 1 : order;
  };
  const auto next = [&](const Key& key, char c) -> std::optional<Key> {
    auto [minus, n, order, decimal, some] = key;
    if (c == '-') {
      if (minus || n > 0) return {};
      return Key{true, 0, 0, 0, false};
    }
    if (c == '.') {
      if (n == 0 || decimal > 0) return {};
      return Key{minus, 1, whole_order(n, order), 1, some};
    }
    some |= c != '0';
    if (decimal > 0) {
      if (decimal > decimals_size + 1) decimal = decimals_size + 1;
      const char other = decimal - 1 < decimals_size ? decimals[decimal - 1] : '0';
      if (order == 0) order = c < other ? -1 : c > other ? 1 : 0;
      return Key{minus, 1, order, std::min(decimal + 1, decimals_size + 2), some};
    }
    if (n > whole_size) return Key{minus, n, 1, 0, some};
    if (order == 0 && n < whole_size) order = c < whole[n] ? -1 : c > whole[n] ? 1 : 0;
    return Key{minus, n + 1, order, 0, some};
  };
  const auto accept = [&](const Key& key) {
    auto [minus, n, order, decimal, some] = key;
    if (n == 0) return false;
    if (decimal == 0) order = whole_order(n, order);
    const uint32_t read = decimal == 0 ? 0 : decimal - 1;
    if (order == 0 && read < decimals_size &&
        decimals.find_first_not_of('0', read) != std::string::npos) {
      order = -1;
    }
    const bool negative = minus && some;
    int value = order;  // order of the signed value relative to the bound
    if (negative != bound_negative) {
      value = negative ? -1 : 1;
      if (!negative && !bound_negative) value = order;
      if (bound.zero() && !some) value = 0;
    } else if (negative) {
      value = -order;
    }
    if (bound.zero()) value = !some ? 0 : negative ? -1 : 1;
    return value == 0 ? inclusive : below ? value < 0 : value > 0;
  };
  return table.build(Key{}, next, accept);
}

// Tracks the remainder of the digits read, in units of the divisor's last decimal.
Dfa multiples(const Decimal& divisor) {
  const int64_t scale =
      std::max<int64_t>(static_cast<int64_t>(divisor.digits.size()) - divisor.point, 0);
  Dfa too_large = Dfa::lengths(Dfa::kMaxStates, Dfa::kMaxStates);
  if (scale > static_cast<int64_t>(kMaxDecimals) || divisor.point > 6) return too_large;
  uint64_t unit = 0;
  for (int64_t i = 0; i < divisor.point + scale; ++i) {
    const size_t at = static_cast<size_t>(i);
    unit = unit * 10 +
           static_cast<uint64_t>(at < divisor.digits.size() ? divisor.digits[at] - '0' : 0);
    if (unit > kMaxDivisor) return too_large;
  }
  if (unit * static_cast<uint64_t>(scale + 2) > kMaxRemainders) {
    // For 0.1, 0.01 and so on, counting decimals is enough.
    if (divisor.digits != "1") return too_large;
  }
  if (divisor.digits == "1" && scale > 0) unit = 1;
  std::vector<uint64_t> power = {1};  // powers of ten modulo the unit
  for (int64_t i = 0; i < scale; ++i) power.push_back(power.back() * 10 % unit);
  // Minus, remainder, any digit, decimals + 1.
  using Key = std::tuple<bool, uint64_t, bool, uint32_t>;
  Table<Key> table;
  const uint32_t most = static_cast<uint32_t>(scale);
  const auto next = [&](const Key& key, char c) -> std::optional<Key> {
    auto [minus, remainder, some, decimal] = key;
    if (c == '-') {
      if (minus || some) return {};
      return Key{true, 0, false, 0};
    }
    if (c == '.') {
      if (!some || decimal > 0) return {};
      return Key{minus, remainder, true, 1};
    }
    if (decimal > most) {  // only zeros may follow
      if (c != '0') return {};
      return Key{minus, remainder, true, most + 1};
    }
    const uint64_t digit = static_cast<uint64_t>(c - '0');
    return Key{minus, (remainder * 10 + digit) % unit, true, decimal > 0 ? decimal + 1 : 0};
  };
  return table.build(Key{}, next, [&](const Key& key) {
    const auto& [minus, remainder, some, decimal] = key;
    const uint32_t read = decimal == 0 ? 0 : decimal - 1;
    return some && remainder * power[most - read] % unit == 0;
  });
}

}  // namespace sluice::grammar
