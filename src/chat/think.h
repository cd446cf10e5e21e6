// Keeps what a model thinks (<think>…</think>) apart from what it answers, while it streams: a tag
// may arrive in pieces, so an end that could still become one is held back. Only a tag that opens
// the answer counts; white space at the border of the two is nobody's text.
#pragma once

#include <string>
#include <string_view>

namespace sluice::chat {

struct Split {
  std::string thought;
  std::string answer;
};

class ThinkFilter {
 public:
  // `open`: the prompt itself ends with the opening tag (Prompt::opens_reasoning).
  explicit ThinkFilter(bool open) : state_(open ? State::kThinking : State::kStart) {}
  [[nodiscard]] Split push(std::string_view text);
  // What is still held when the text has ended.
  [[nodiscard]] Split finish();

 private:
  enum class State { kStart, kThinking, kAnswer };
  void begin();
  void think(Split* out);
  [[nodiscard]] std::string lead(std::string_view text);

  std::string held_;
  State state_;
  bool trim_ = true;  // of the text that comes next, its leading white space
};

}  // namespace sluice::chat
