// Sorting where speed does not matter: a fifth of std::sort's code for every comparison, and n log
// n steps whatever the order, where the standard library may be led to n^2 by a file made for it.
#pragma once

#include <algorithm>
#include <functional>

namespace sluice {

template <typename Range, typename Less = std::less<>>
void heap_sort(Range& range, Less less = {}) {
  std::make_heap(range.begin(), range.end(), less);
  std::sort_heap(range.begin(), range.end(), less);
}

}  // namespace sluice
