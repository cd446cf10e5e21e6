// Finds <think> tags in streamed text.
#include "chat/think.h"

#include <algorithm>

namespace sluice::chat {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kSpace = " \t\n\v\f\r";

// Offset of the white space at the end of `text`.
size_t without_end_space(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

}  // namespace

Split ThinkFilter::push(std::string_view text) {
  held_ += text;
  Split out;
  if (state_ == State::kStart) begin();
  if (state_ == State::kThinking) think(&out);
  if (state_ == State::kAnswer) {
    out.answer += lead(held_);
    held_.clear();
  }
  return out;
}

Split ThinkFilter::finish() {
  const std::string rest = std::move(held_);
  held_.clear();
  if (state_ == State::kThinking) return {lead(rest), {}};
  return {{}, rest};
}

void ThinkFilter::begin() {
  const size_t first = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view text = std::string_view(held_).substr(first);
  if (text.starts_with(kOpen)) {
    held_.erase(0, first + kOpen.size());
    state_ = State::kThinking;
  } else if (!kOpen.starts_with(text)) {
    state_ = State::kAnswer;
    trim_ = false;
  }
}

void ThinkFilter::think(Split* out) {
  const std::string_view held = held_;
  if (const size_t at = held.find(kClose); at != std::string_view::npos) {
    const std::string thought = lead(held.substr(0, at));
    out->thought += std::string_view(thought).substr(0, without_end_space(thought));
    held_.erase(0, at + kClose.size());
    state_ = State::kAnswer;
    trim_ = true;
    return;
  }
  size_t certain = without_end_space(held);
  for (size_t n = std::min(kClose.size() - 1, held.size()); n > 0; --n) {
    if (!held.ends_with(kClose.substr(0, n))) continue;
    certain = without_end_space(held.substr(0, held.size() - n));
    break;
  }
  out->thought += lead(held.substr(0, certain));
  held_.erase(0, certain);
}

std::string ThinkFilter::lead(std::string_view text) {
  if (!trim_) return std::string(text);
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  trim_ = false;
  return std::string(text.substr(first));
}

}  // namespace sluice::chat
