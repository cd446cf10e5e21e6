// Sequences that lie well inside both pieces are copied in steps of 8 and 16 bytes. All others, and
// what is damaged, go through the states.
#include <algorithm>
#include <cstring>

#include "qsf/lz4_stream.h"

namespace sluice::qsf {
namespace {

constexpr size_t kMinMatch = 4;
constexpr uint8_t kLongLength = 15, kLonger = 255;
// A short sequence reads at most 17 + 2 bytes and writes at most 14 + 24.
constexpr size_t kReadMargin = 32, kWriteMargin = 48;

// Copies whole sequences with short lengths and matches in this piece at least 8 bytes back.
void copy_short(const uint8_t** in, const uint8_t* in_end, const uint8_t* begin, uint8_t** out,
                const uint8_t* out_end) {
  const uint8_t* from = *in;
  uint8_t* to = *out;
  while (static_cast<size_t>(in_end - from) >= kReadMargin &&
         static_cast<size_t>(out_end - to) >= kWriteMargin) {
    const size_t literals = *from >> 4, match = *from & 15;
    if (literals == kLongLength || match == kLongLength) break;
    const uint8_t* const behind = from + 1 + literals;
    const size_t distance = behind[0] | static_cast<size_t>(behind[1]) << 8;
    if (distance < 8 || distance > static_cast<size_t>(to - begin) + literals) break;
    std::memcpy(to, from + 1, 16);
    to += literals;
    const uint8_t* const source = to - distance;
    std::memcpy(to, source, 8);
    std::memcpy(to + 8, source + 8, 8);
    std::memcpy(to + 16, source + 16, 8);
    to += match + kMinMatch;
    from = behind + 2;
  }
  *in = from;
  *out = to;
}

}  // namespace

void Lz4Stream::start(std::span<uint8_t> window) {
  state_ = State::kToken;
  window_ = window;
  next_ = kept_ = 0;
}

// Takes a byte that is not a literal. `written`: decoded bytes in the present piece.
bool Lz4Stream::take(uint8_t byte, size_t written) {
  switch (state_) {
    case State::kToken:
      match_ = byte & 15;
      length_ = byte >> 4;
      state_ = length_ == kLongLength ? State::kLiteralLength : State::kLiterals;
      return true;
    case State::kLiteralLength:
      length_ += byte;
      if (byte != kLonger) state_ = State::kLiterals;
      return true;
    case State::kOffsetLow:
      distance_ = byte;
      state_ = State::kOffsetHigh;
      return true;
    case State::kOffsetHigh:
      distance_ |= static_cast<size_t>(byte) << 8;
      length_ = match_ + kMinMatch;
      state_ = match_ == kLongLength ? State::kMatchLength : State::kMatch;
      return distance_ > 0 && distance_ <= written + kept_;
    case State::kMatchLength:
      length_ += byte;
      if (byte != kLonger) state_ = State::kMatch;
      return true;
    default:
      return false;
  }
}

void Lz4Stream::copy_literals(Cursor& c) {
  const size_t n = std::min({length_, c.readable(), c.writable()});
  if (n > 0) std::memcpy(c.to, c.from, n);
  c.from += n;
  c.to += n;
  length_ -= n;
  if (length_ == 0) state_ = State::kOffsetLow;
}

void Lz4Stream::copy_match(Cursor& c) {
  size_t n = std::min(length_, c.writable());
  length_ -= n;
  if (length_ == 0) state_ = State::kToken;
  while (n > 0 && distance_ > c.written()) {  // begins in an earlier piece
    const size_t back = distance_ - c.written(), from = (next_ + kWindow - back) % kWindow;
    const size_t part = std::min({n, back, kWindow - from});
    std::memcpy(c.to, window_.data() + from, part);
    c.to += part;
    n -= part;
  }
  // A match longer than its distance repeats: what is copied doubles with each step.
  for (size_t step = distance_; n > 0; step *= 2) {
    const size_t part = std::min(n, step);
    std::memcpy(c.to, c.to - step, part);
    c.to += part;
    n -= part;
  }
}

// Keeps the last bytes for matches of the next pieces.
void Lz4Stream::keep(const Cursor& c) {
  const size_t n = std::min(c.written(), kWindow), first = std::min(n, kWindow - next_);
  if (n == 0) return;
  std::memcpy(window_.data() + next_, c.to - n, first);
  std::memcpy(window_.data(), c.to - n + first, n - first);
  next_ = (next_ + n) % kWindow;
  kept_ = std::min(kWindow, kept_ + n);
}

bool Lz4Stream::decode(std::span<const uint8_t>* in, std::span<uint8_t>* out) {
  Cursor c{in->data(), in->data() + in->size(), out->data(), out->data(),
           out->data() + out->size()};
  bool good = true;
  while (good) {
    if (state_ == State::kToken) copy_short(&c.from, c.from_end, c.begin, &c.to, c.end);
    if (state_ == State::kLiterals) {
      copy_literals(c);
      if (state_ == State::kLiterals) break;
    } else if (state_ == State::kMatch) {
      copy_match(c);
      if (state_ == State::kMatch) break;
    } else {
      if (c.from == c.from_end) break;
      good = take(*c.from++, c.written());
    }
  }
  keep(c);
  *in = in->subspan(static_cast<size_t>(c.from - in->data()));
  *out = out->subspan(c.written());
  return good;
}

}  // namespace sluice::qsf
