#include "chat/response_reader.h"

#include <algorithm>

#include "jinja/json_text.h"

namespace sluice::chat {
namespace {

constexpr size_t kCompactBytes = 4096;

// SplitMix64.
uint64_t next_random(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

}  // namespace

std::string without_tokens(std::string_view encoded, bool shown) {
  std::string out;
  bool inside = false;
  for (const char c : encoded) {
    if (c == kTokenBegin || c == kTokenEnd) {
      inside = c == kTokenBegin;
    } else if (!inside || shown) {
      out += c;
    }
  }
  return out;
}

AnswerPart ResponseReader::push(std::string_view encoded) {
  in_.text += encoded;
  return advance();
}

AnswerPart ResponseReader::finish() {
  in_.ended = true;
  return advance();
}

AnswerPart ResponseReader::advance() {
  if (!work_) {
    work_.emplace(run());
    work_->start(&in_);
  }
  in_.resume();
  return std::exchange(out_, {});
}

std::string ResponseReader::plain(size_t begin, size_t end, bool shown) const {
  return without_tokens(std::string_view(in_.text).substr(begin, end - begin), shown);
}

size_t ResponseReader::token_end(size_t at) const {
  return std::min(in_.text.find(kTokenEnd, at), in_.text.size() - 1) + 1;
}

size_t ResponseReader::compact(size_t keep) {
  if (keep < kCompactBytes || keep < in_.text.size() / 2) return 0;
  in_.text.erase(0, keep);
  in_.at -= keep;
  return keep;
}

ToolCall ResponseReader::make_call(std::string name, std::string_view arguments, std::string id) {
  if (id.empty()) {
    constexpr std::string_view kAlphabet =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    if (!short_ids_) id = "call_";
    const size_t size = short_ids_ ? 9 : id.size() + 24;
    while (id.size() < size) id += kAlphabet[next_random(&id_state_) % kAlphabet.size()];
  }
  const bool text = json_type(arguments) == JsonType::kString;
  return {std::move(id), std::move(name), text ? json_string(arguments) : std::string(arguments)};
}

void ResponseReader::add_call(ToolCall call) {
  ++n_calls_;
  out_.calls.push_back(std::move(call));
}

}  // namespace sluice::chat
