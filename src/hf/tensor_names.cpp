// Looks up a tensor's name in the tables: takes out the layer's number and keeps the suffix.
#include <algorithm>

#include "hf/architecture.h"

namespace sluice::hf {
namespace {

// Removes and returns the digits at the start of `text`, at most `most` of them.
std::string_view take_number(std::string_view* text, size_t most) {
  size_t n = 0;
  while (n < text->size() && (*text)[n] >= '0' && (*text)[n] <= '9') n++;
  const std::string_view digits = n <= most ? text->substr(0, n) : std::string_view();
  text->remove_prefix(digits.size());
  return digits;
}

bool take(std::string_view* text, std::string_view prefix) {
  const bool there = text->starts_with(prefix);
  if (there) text->remove_prefix(prefix.size());
  return there;
}

// Adds text around each of the names of "a|b".
std::string around_each(std::string_view names, std::string_view before, std::string_view after) {
  std::string out;
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find('|', at), names.size());
    out.append(at == 0 ? "" : "|").append(before).append(names.substr(at, end - at)).append(after);
    at = end + 1;
  }
  return out;
}

// Removes the pattern from the start of `text`, and returns the digits in the place of its "#".
bool take_pattern(std::string_view* text, std::string_view pattern, std::string_view* number) {
  const size_t at = pattern.find('#');
  if (!take(text, pattern.substr(0, at))) return false;
  if (at == std::string_view::npos) return true;
  *number = take_number(text, 5);
  return !number->empty() && take(text, pattern.substr(at + 1));
}

Found match(std::span<const Name> table, std::string_view name) {
  for (const Name& n : table) {
    std::string_view left = name, number;
    if (!take_pattern(&left, n.theirs, &number)) continue;
    Found found{std::string(n.ours), n.turn, 0};
    for (const char digit : number) {
      found.number = found.number * 10 + static_cast<uint32_t>(digit - '0');
    }
    if (left == ".gamma") left = ".weight";  // names in older checkpoints of BERT
    if (left == ".beta") left = ".bias";
    if (!left.empty() && left != ".weight" && left != ".bias") continue;
    if (const size_t at = found.ours.find('#'); at != std::string::npos) {
      found.ours.replace(at, 1, number);
    }
    found.ours = around_each(found.ours, "", left);
    return found;
  }
  return {};
}

}  // namespace

Found find_name(const TensorMap& map, std::string_view name) {
  for (const std::string_view skipped : map.skipped) {
    if (name.starts_with(skipped)) return {"-", TensorTransform::kSkip, 0};
  }
  bool prefixed = false;
  for (const std::string_view prefix : map.prefixes) {
    prefixed = take(&name, prefix);
    if (prefixed) break;
  }
  if (map.only_prefixed && !prefixed) return {"-", TensorTransform::kSkip, 0};
  std::string_view rest = name;
  if (!take(&rest, map.layers)) return match(map.whole, name);
  const std::string_view layer = take_number(&rest, 5);
  if (layer.empty() || !take(&rest, ".")) return {};
  Found found = match(map.of_layer, rest);
  if (found.ours.empty()) return found;
  const std::string before = std::string(map.our_layers).append(layer).append(".");
  found.ours = around_each(found.ours, before, "");
  return found;
}

}  // namespace sluice::hf
