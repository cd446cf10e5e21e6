#include "chat/reasoning.h"

#include "chat/template_text.h"

namespace sluice::chat {
namespace {

constexpr ReasoningFormat kFormats[] = {
    // Gemma 4
    {.taught = "<|channel>thought",
     .open = "<|channel>thought",
     .close = "<channel|>",
     .turn = {},
     .response = {},
     .ends = {}},
    // Kimi K3
    {.taught = "open_tag('think'",
     .open = "<|open|>think<|sep|>",
     .close = "<|close|>think<|sep|>",
     .turn = {},
     .response = "<|open|>response<|sep|>",
     .ends = {"<|close|>response<|sep|>", "<|close|>message<|sep|>"}},
    // Solar Open
    {.taught = "assistant<|think|>",
     .open = "<|think|>",
     .close = "<|end|>",
     .turn = "<|begin|>assistant",
     .response = "<|content|>",
     .ends = {}},
    // The recipient is a word behind "to".
    {.taught = "to=self<|message|>",
     .open = " to=self<|message|>",
     .close = "<|eom|>",
     .turn = "<|start|>assistant",
     .response = " to=#<|message|>",
     .ends = {"<|eom|>"}},
    // Command R7B and later
    {.taught = "<|START_THINKING|>",
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .turn = {},
     .response = "<|START_RESPONSE|>",
     .ends = {"<|END_RESPONSE|>"}},
    {.taught = "[THINK]",
     .open = "[THINK]",
     .close = "[/THINK]",
     .turn = {},
     .response = {},
     .ends = {}},
    {.taught = "<seed:think>",
     .open = "<seed:think>",
     .close = "</seed:think>",
     .turn = {},
     .response = {},
     .ends = {}},
    // Apertus
    {.taught = "<|inner_prefix|>",
     .open = "<|inner_prefix|>",
     .close = "<|inner_suffix|>",
     .turn = {},
     .response = {},
     .ends = {}},
    // Hunyuan 3
    {.taught = "<think{}>",
     .open = "<think:opensource>",
     .close = "</think:opensource>",
     .turn = {},
     .response = {},
     .ends = {}},
    {.taught = "<mm:think>",
     .open = "<mm:think>",
     .close = "</mm:think>",
     .turn = {},
     .response = {},
     .ends = {}},
    // Apriel 1.6 and 1.5. The prompt of 1.6 ends with the first words.
    {.taught = "[BEGIN FINAL RESPONSE]",
     .open = "Here are my reasoning steps:",
     .close = "[BEGIN FINAL RESPONSE]",
     .turn = {},
     .response = {},
     .ends = {"[END FINAL RESPONSE]"}},
    // Granite 3.3
    {.taught = "<think></think>…<response></response>",
     .open = "<think>",
     .close = "</think>",
     .turn = {},
     .response = "<response>",
     .ends = {"</response>"},
     .lines = true},
};

constexpr ReasoningFormat kThink = {.taught = "think>",
                                    .open = "<think>",
                                    .close = "</think>",
                                    .turn = {},
                                    .response = {},
                                    .ends = {},
                                    .lines = true};

}  // namespace

const ReasoningFormat& reasoning_format(std::string_view source) {
  for (const ReasoningFormat& format : kFormats) {
    if (matches(source, format.taught)) return format;
  }
  return kThink;
}

bool teaches_reasoning(std::string_view source) {
  const ReasoningFormat& format = reasoning_format(source);
  return &format != &kThink || matches(source, "<think>");
}

}  // namespace sluice::chat
