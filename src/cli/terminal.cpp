// Signal handling, line input and output of generated text.
#include "cli/terminal.h"

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/printable.h"
#include "cli/atomic_file.h"
#include "cli/cli.h"
#include "tokenizer/utf8.h"

namespace sluice::cli {

void Signals::take(bool terminate) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!wake_) {
    end_interrupted();
  }
  if (terminate) terminated_ = true;
  interrupted_ = true;
  wakeup_.raise();
  wake_();
}

void Signals::handle(std::function<void()> wake) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wake_ = std::move(wake);
}

void Signals::clear() {
  wakeup_.lower();
  interrupted_ = false;
}

// --- lines

LineReader::LineReader(Signals& signals, const char* prompt) : signals_(signals) {
  using platform::Stream;
  if (!platform::is_terminal(Stream::kInput) || !platform::is_terminal(Stream::kOutput)) return;
  editor_ = LineEditor::create(prompt, [this](char* byte) { return next(byte); });
  if (editor_ == nullptr) prompt_ = prompt;
}

LineReader::~LineReader() = default;

Byte LineReader::next(char* byte) {
  if (at_ == buffer_.size()) {
    at_ = 0;
    buffer_.resize(4096);
    const long n = platform::read_input(buffer_.data(), buffer_.size(), signals_.wakeup());
    buffer_.resize(n > 0 ? static_cast<size_t>(n) : 0);
    if (n <= 0) return n < 0 ? Byte::kInterrupted : Byte::kEnd;
  }
  *byte = buffer_[at_++];
  return Byte::kRead;
}

Input LineReader::read(std::string* line) {
  std::string bytes;
  const Input input = editor_ != nullptr ? read_edited(&bytes) : read_plain(&bytes);
  line->clear();
  if (input == Input::kLine) {
    tokenizer::append_valid_utf8(bytes, tokenizer::Replace::kEachPart, line);
  }
  return input;
}

Input LineReader::read_plain(std::string* line) {
  if (*prompt_ != '\0') {
    std::fputs(prompt_, stdout);
    std::fflush(stdout);
  }
  bool long_line = false;
  for (;;) {
    char byte = 0;
    const Byte got = next(&byte);
    if (got == Byte::kInterrupted) return Input::kInterrupted;
    if (got == Byte::kEnd && line->empty()) return Input::kEnd;
    if (got == Byte::kEnd || byte == '\n') break;
    long_line = long_line || line->size() == kMaxLine;
    if (!long_line) *line += byte;
  }
  if (line->ends_with('\r')) line->pop_back();
  return long_line ? Input::kTooLong : Input::kLine;
}

Input LineReader::read_edited(std::string* line) {
  std::optional<platform::BracketedPaste> paste;
  if (editor_->takes_pastes()) paste.emplace();
  const bool some = editor_->read(line);
  if (signals_.interrupted()) return Input::kInterrupted;
  if (!some) return Input::kEnd;
  while (line->ends_with('\n') || line->ends_with('\r')) line->pop_back();
  if (line->size() > kMaxLine) return Input::kTooLong;
  if (!line->empty()) editor_->remember(*line);
  return Input::kLine;
}

std::string shown(std::string_view text) {
  std::string out;
  tokenizer::append_valid_utf8(text, tokenizer::Replace::kEachPart, &out);
  size_t from = 0;
  for (size_t i = 0; i <= out.size(); ++i) {
    if (i < out.size() && out[i] != '\n' && out[i] != '\t') continue;
    hide_controls({out.data() + from, i - from});
    from = i + 1;
  }
  return out;
}

// --- output

TextOutput::TextOutput()
    : terminal_(platform::is_terminal(platform::Stream::kOutput)),
      styled_(platform::shows_styles()) {}

bool TextOutput::put(const std::string& bytes) {
  return std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() &&
         std::fflush(stdout) == 0;
}

bool TextOutput::write(std::string_view text) {
  return put(terminal_ ? shown(text) : std::string(text));
}

bool TextOutput::show_reasoning(std::string_view text) {
  return !terminal_ || show(text, true);
}

bool TextOutput::show_content(std::string_view text) {
  return show(text, false);
}

bool TextOutput::show(std::string_view text, bool reasoning) {
  if (text.empty()) return true;
  std::string out;
  if (reasoning != dim_ && line_begun_) out += dim_ && styled_ ? "\033[0m\n\n" : "\n\n";
  if (reasoning && styled_ && (!dim_ || !line_begun_)) out += "\033[2m";
  dim_ = reasoning;
  line_begun_ = true;
  return put(out + (terminal_ ? shown(text) : std::string(text)));
}

bool TextOutput::end() {
  const bool resets = dim_ && styled_;
  dim_ = line_begun_ = false;
  return put(resets ? "\033[0m\n" : "\n");
}

void TextOutput::note(const std::string& text) {
  if (terminal_) put(styled_ ? "\033[2m" + shown(text) + "\033[0m\n" : shown(text) + "\n");
}

}  // namespace sluice::cli
