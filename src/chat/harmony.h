// The harmony format of gpt-oss. A response is a series of messages in channels: "analysis" is
// reasoning, "final" is content, and a message addressed to a function is a tool call.
//   <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>
//   <|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>
// A response that starts differently is plain text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/response_reader.h"

namespace sluice::chat {

class Marks;

inline constexpr std::string_view kHarmonyMarks[] = {"<|start|>",   "<|end|>",       "<|message|>",
                                                     "<|channel|>", "<|constrain|>", "<|call|>",
                                                     "<|return|>"};

// The marks as the vocabulary spells them (Marks::encode()).
struct HarmonyFormat {
  explicit HarmonyFormat(const Marks& marks);
  std::string start, channel, message, analysis;
  std::vector<std::string> ends;  // of a message; the first `kept` of them begin the next one
  size_t kept = 0;
};

class HarmonyReader : public ResponseReader {
 public:
  HarmonyReader(const HarmonyFormat& format, uint64_t id_seed)
      : ResponseReader(id_seed, /*short_ids=*/false), format_(format) {}

 private:
  Step<bool> run() override;
  Step<std::optional<std::string>> header();
  Step<bool> call(std::string_view name);
  Step<bool> message_text(std::string AnswerPart::*where);
  Step<bool> message_end();

  const HarmonyFormat& format_;
};

}  // namespace sluice::chat
