// Character classes as GBNF and regular expressions write them: [a-z_], [^"]. They differ in what a
// member may be.
#pragma once

#include "grammar/char_class.h"
#include "grammar/source.h"

namespace sluice::grammar {

// Reads a class from its '[' to its ']'. `member(set)` reads one character, or an escape, which may
// be a set.
template <typename Member>
[[nodiscard]] Result<CharClass> read_char_class(Source& in, Member&& member) {
  const size_t start = in.position();
  in.skip();
  const bool negated = in.take("^");
  CharClass set;
  while (in.peek() != ']') {
    if (in.at_end()) return in.fail_at(start, "this class is not closed");
    const size_t here = in.position();
    CharClass first;
    SLUICE_RETURN_IF_ERROR(member(&first));
    if (in.peek() != '-' || in.peek(1) == ']' || in.peek(1) == '\0') {
      set.add(first);
      continue;
    }
    in.skip();
    CharClass last;
    SLUICE_RETURN_IF_ERROR(member(&last));
    const auto single = [](const CharClass& s) {
      return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].last;
    };
    if (!single(first) || !single(last)) {
      return in.fail_at(here, "a class cannot be an end of a range");
    }
    if (last.ranges()[0].first < first.ranges()[0].first) {
      return in.fail_at(here, "this range is reversed");
    }
    set.add(first.ranges()[0].first, last.ranges()[0].first);
  }
  in.skip();
  return negated ? set.inverse() : set;
}

}  // namespace sluice::grammar
