// Stop strings compared with a plain search of the whole text. However the text is split, the
// filter stops at the same place and releases as much text as possible.
#include "generate/stop_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice::generate {
namespace {

struct Plain {
  const std::string* stopped = nullptr;
  size_t ready = 0;
};

// Reads byte by byte. The stop string that ends first wins, of several the longest. Until then the
// longest suffix that could become one is held back.
Plain search(const std::string& text, const std::vector<std::string>& stops) {
  Plain out;
  for (size_t end = 1; end <= text.size(); ++end) {
    for (const std::string& stop : stops) {
      if (!std::string_view(text).substr(0, end).ends_with(stop)) continue;
      if (out.stopped == nullptr || stop.size() > out.stopped->size()) out.stopped = &stop;
    }
    if (out.stopped != nullptr) {
      out.ready = end - out.stopped->size();
      return out;
    }
  }
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t n = std::min(stop.size() - 1, text.size()); n > held; --n) {
      if (text.ends_with(stop.substr(0, n))) held = n;
    }
  }
  out.ready = text.size() - held;
  return out;
}

TEST(StopFilter, EqualsAPlainSearchHoweverTheTextIsSplit) {
  std::mt19937 rng(7);
  const auto below = [&rng](size_t n) { return static_cast<size_t>(rng() % n); };
  int stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    const auto letters = [&](size_t n) {
      std::string text(n, 'a');
      for (char& c : text) c = static_cast<char>('a' + below(2));
      return text;
    };
    std::vector<std::string> stops(below(4));
    for (std::string& stop : stops) stop = letters(1 + below(9));
    StopFilter filter(stops);
    std::string text;
    while (text.size() < 40 && filter.stopped() == nullptr) {
      const std::string part = letters(below(5));
      text += part;
      filter.push(part);
      const Plain expected = search(text, stops);
      ASSERT_EQ(filter.ready(), expected.ready) << text;
      ASSERT_EQ(filter.stopped() == nullptr, expected.stopped == nullptr) << text;
      if (expected.stopped != nullptr) {
        ASSERT_EQ(*filter.stopped(), *expected.stopped) << text;
      }
    }
    if (filter.stopped() == nullptr) continue;
    ++stopped;
    const uint64_t ready = filter.ready();
    filter.push("ab");  // nothing comes after the stop
    EXPECT_EQ(filter.ready(), ready);
  }
  EXPECT_GT(stopped, 1000);
}

TEST(StopFilter, TheStopPositionDoesNotDependOnTheParts) {
  const std::vector<std::string> stops = {"b", "abc"};
  StopFilter whole(stops), bytes(stops);
  whole.push("xabc");
  for (const char* byte : {"x", "a", "b"}) bytes.push(byte);
  ASSERT_NE(whole.stopped(), nullptr);
  ASSERT_NE(bytes.stopped(), nullptr);
  EXPECT_EQ(*whole.stopped(), "b");
  EXPECT_EQ(*bytes.stopped(), "b");
  EXPECT_EQ(whole.ready(), 2u);
  EXPECT_EQ(bytes.ready(), 2u);
}

TEST(StopFilter, WithoutStopStringsAllTextIsReady) {
  const std::vector<std::string> none;
  StopFilter filter(none);
  filter.push("any text");
  EXPECT_EQ(filter.ready(), 8u);
  EXPECT_EQ(filter.stopped(), nullptr);
}

// A self-repeating stop string makes a naive filter compare all of it for every byte.
TEST(StopFilter, LongRepeatingStopStrings) {
  const std::string stop = std::string(4095, 'a') + 'b';
  const std::vector<std::string> stops(64, stop);
  StopFilter filter(stops);
  for (int i = 0; i < 4; ++i) filter.push(std::string(8192, 'a'));
  EXPECT_EQ(filter.ready(), 4 * 8192u - 4095u);
  filter.push("b and more");
  ASSERT_NE(filter.stopped(), nullptr);
  EXPECT_EQ(filter.ready(), 4 * 8192u - 4095u);
}

}  // namespace
}  // namespace sluice::generate
