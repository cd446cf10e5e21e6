#include "cli/nearest.h"

#include <algorithm>

namespace sluice::cli {
namespace {

// The number of characters to insert, remove or replace.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
      corner = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view given, const std::vector<std::string>& names) {
  constexpr size_t kMaxName = 32, kMaxDistance = 2;
  if (given.size() < 2 || given.size() > kMaxName) return {};
  std::string nearest;
  size_t least = kMaxDistance + 1;
  for (const std::string& name : names) {
    const size_t distance = name.starts_with(given) ? 0 : edit_distance(given, name);
    if (distance >= least || distance + 1 >= given.size()) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

std::string did_you_mean(std::string_view given, const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(given, names);
  return nearest.empty() ? nearest : ": did you mean " + nearest;
}

}  // namespace sluice::cli
