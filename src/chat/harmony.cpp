#include "chat/harmony.h"

#include "chat/marks.h"

namespace sluice::chat {
namespace {

constexpr size_t kMaxHeader = 4096;  // bytes; longer ones are text

bool is_recipient_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

// The function that a header addresses; "": none.
std::string recipient(std::string_view header) {
  for (size_t at = 0; (at = header.find(" to=", at)) != std::string_view::npos;) {
    at += 4;
    if (header.substr(at).starts_with("functions.")) at += 10;
    size_t end = at;
    while (end < header.size() && is_recipient_char(header[end])) ++end;
    if (end > at) return std::string(header.substr(at, end - at));
  }
  return {};
}

bool is_reasoning(std::string_view header, std::string_view channel) {
  for (size_t at = 0; (at = header.find(channel, at)) != std::string_view::npos;) {
    at += channel.size();
    const size_t word = header.find_first_not_of(" \t\n\v\f\r", at);
    if (word != std::string_view::npos && header.substr(word).starts_with("analysis")) return true;
  }
  return false;
}

}  // namespace

HarmonyFormat::HarmonyFormat(const Marks& marks)
    : start(marks.encode("<|start|>assistant")),
      channel(marks.encode("<|channel|>")),
      message(marks.encode("<|message|>")),
      ends{marks.encode("<|start|>"), channel},
      kept(2) {
  for (const char* end : {"<|end|>", "<|call|>", "<|return|>"}) ends.push_back(marks.encode(end));
}

Step<bool> HarmonyReader::run() {
  for (;;) {
    compact(in_.at);
    const std::optional<std::string> head = co_await header();
    if (!head) break;
    const std::string to = recipient(*head);
    if (!to.empty()) {
      co_await call(to);
    } else {
      co_await message_text(is_reasoning(*head, format_.channel) ? &AnswerPart::reasoning
                                                                 : &AnswerPart::content);
    }
  }
  for (;;) {
    const int c = co_await in_.peek();
    if (c == TextReader::kEnd) co_return true;
    out_.content += plain(in_.at, in_.text.size());
    in_.at = in_.text.size();
    compact(in_.at);
  }
}

// Reads the header of a message; nullopt if no message starts here.
Step<std::optional<std::string>> HarmonyReader::header() {
  co_await in_.take(format_.start);
  const size_t start = in_.at;
  bool begins = co_await in_.take(format_.channel);
  if (!begins) begins = co_await in_.take("to=");
  in_.at = start;
  if (!begins) co_return std::nullopt;
  // A header is one short line; anything else is not waited for.
  size_t size = 0;
  for (;;) {
    const int c = co_await in_.peek();
    if (c == TextReader::kEnd || c == '\n' || ++size > kMaxHeader) break;
    const bool ends = co_await in_.begins(format_.message);
    if (!ends) {
      ++in_.at;
      continue;
    }
    std::string head = " " + in_.text.substr(start, in_.at - start);
    in_.at += format_.message.size();
    co_return std::move(head);
  }
  in_.at = start;
  co_return std::nullopt;
}

Step<bool> HarmonyReader::call(std::string_view name) {
  const size_t start = in_.at;
  co_await in_.skip(TextReader::is_space);
  const int c = co_await in_.peek();
  std::optional<std::string> arguments;
  if (c == '{') arguments = co_await in_.json();
  if (arguments) {
    add_call(make_call(std::string(name), *arguments));
    co_await in_.skip(TextReader::is_space);
    co_await message_end();
    co_return true;
  }
  in_.at = start;
  co_await message_text(&AnswerPart::content);
  co_return true;
}

// Reads the mark that ends a message, if there is one.
Step<bool> HarmonyReader::message_end() {
  for (size_t i = 0; i < format_.ends.size(); ++i) {
    const bool ends = co_await in_.begins(format_.ends[i]);
    if (!ends) continue;
    if (i >= format_.kept) in_.at += format_.ends[i].size();
    co_return true;
  }
  co_return false;
}

// Emits the text of a message as it arrives.
Step<bool> HarmonyReader::message_text(std::string AnswerPart::*where) {
  for (;;) {
    const size_t begin = in_.at;
    while (in_.at < in_.text.size() && in_.text[in_.at] != '<' && in_.text[in_.at] != kTokenBegin) {
      ++in_.at;
    }
    out_.*where += plain(begin, in_.at);
    compact(in_.at);
    const int c = co_await in_.peek();
    if (c == TextReader::kEnd) co_return true;
    const bool token = c == static_cast<unsigned char>(kTokenBegin);
    if (c != '<' && !token) continue;
    const bool ends = co_await message_end();
    if (ends) co_return true;
    if (token) {
      drop_token();
    } else {
      out_.*where += '<';
      ++in_.at;
    }
  }
}

}  // namespace sluice::chat
