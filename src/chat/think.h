// Separates a model's reasoning (<think>…</think>) from its response while it streams. A tag may
// arrive in pieces, so text that may be the start of one is held back. Only a tag at the beginning
// counts. White space between reasoning and response is dropped.
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
  // `open`: the prompt ends with the opening tag (Prompt::opens_reasoning).
  explicit ThinkFilter(bool open) : state_(open ? State::kThinking : State::kStart) {}
  [[nodiscard]] Split push(std::string_view text);
  // Returns text that is still held back.
  [[nodiscard]] Split finish();

 private:
  enum class State { kStart, kThinking, kAnswer };
  void begin();
  void think(Split* out);
  [[nodiscard]] std::string lead(std::string_view text);

  std::string held_;
  State state_;
  bool trim_ = true;  // drop leading white space of the next text
};

}  // namespace sluice::chat
