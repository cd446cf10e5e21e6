// What readers of responses share: the text that arrives, the part that they make of it, and ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chat/answer.h"
#include "chat/text_reader.h"

namespace sluice::chat {

class ResponseReader {
 public:
  ResponseReader(uint64_t id_seed, bool short_ids) : id_state_(id_seed), short_ids_(short_ids) {}
  virtual ~ResponseReader() = default;
  ResponseReader(const ResponseReader&) = delete;
  ResponseReader& operator=(const ResponseReader&) = delete;

  // `encoded`: with kTokenBegin and kTokenEnd around control tokens.
  [[nodiscard]] AnswerPart push(std::string_view encoded);
  [[nodiscard]] AnswerPart finish();
  [[nodiscard]] size_t calls() const { return n_calls_; }

 protected:
  // Reads the whole response.
  virtual Step<bool> run() = 0;

  // Text [begin, end) of the input, without control tokens; `shown`: with their names.
  [[nodiscard]] std::string plain(size_t begin, size_t end, bool shown = false) const;
  // Position behind the control token that begins at `at`.
  [[nodiscard]] size_t token_end(size_t at) const;
  // Removes the control token that begins at the current position.
  void drop_token() { in_.text.erase(in_.at, token_end(in_.at) - in_.at); }
  // Drops text before `keep`, in steps that take amortized constant time per byte. Returns how much
  // was dropped.
  size_t compact(size_t keep);
  // `arguments`: JSON; a string contains JSON itself.
  [[nodiscard]] ToolCall make_call(std::string name, std::string_view arguments,
                                   std::string id = {});
  void add_call(ToolCall call);

  TextReader in_;
  AnswerPart out_;

 private:
  AnswerPart advance();

  std::optional<Step<bool>> work_;
  size_t n_calls_ = 0;
  uint64_t id_state_;
  bool short_ids_;
};

// The text without control tokens; `shown`: with their names.
[[nodiscard]] std::string without_tokens(std::string_view encoded, bool shown = false);

}  // namespace sluice::chat
