// Looks up a tensor's name in the tables: takes out the layer's number and keeps the suffix.
#include "hf/further.h"

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

// Appends the suffix to each of the two names of "a|b".
std::string with_ending(std::string_view ours, std::string_view ending) {
  std::string out(ours.substr(0, ours.find('|')));
  out.append(ending);
  if (ours.size() > out.size() - ending.size()) {
    out.append(ours.substr(out.size() - ending.size())).append(ending);
  }
  return out;
}

Found match(std::span<const Name> table, std::string_view name) {
  for (const Name& n : table) {
    std::string_view left = name;
    if (!take(&left, n.theirs)) continue;
    Found found{std::string(n.ours), n.turn, 0};
    if (n.turn == TensorTransform::kStack) {
      if (!take(&left, ".")) continue;
      for (const char digit : take_number(&left, 2)) {
        found.number = found.number * 10 + static_cast<uint32_t>(digit - '0');
      }
    }
    if (left.empty()) return found;
    if (left == ".gamma") left = ".weight";  // names in older checkpoints of BERT
    if (left == ".beta") left = ".bias";
    if (left != ".weight" && left != ".bias") continue;
    found.ours = with_ending(n.ours, left);
    return found;
  }
  return {};
}

}  // namespace

Found find_name(const Further& family, std::string_view name) {
  for (const std::string_view skipped : family.skipped) {
    if (name.starts_with(skipped)) return {"-", TensorTransform::kSkip, 0};
  }
  for (const std::string_view prefix : family.prefixes) {
    if (take(&name, prefix)) break;
  }
  std::string_view rest = name;
  if (!take(&rest, family.layers)) return match(family.whole, name);
  const std::string_view layer = take_number(&rest, 5);
  if (layer.empty() || !take(&rest, ".")) return {};
  Found found = match(family.of_layer, rest);
  if (found.ours.empty()) return found;
  const std::string before = std::string("blk.").append(layer).append(".");
  if (const size_t bar = found.ours.find('|'); bar != std::string::npos) {
    found.ours.insert(bar + 1, before);
  }
  found.ours.insert(0, before);
  return found;
}

}  // namespace sluice::hf
