// The published pre-tokenizers, each as the list of steps in its tokenizer.json.
#include "hf/pre_tokenizer.h"

#include <algorithm>
#include <vector>

#include "gguf/printable.h"

namespace sluice::hf {

namespace {

using gguf::printable;

// The letters with case in DeepSeek's first tokenizer, as its file lists them.
// clang-format off
#define DEEPSEEK_LETTERS \
  "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ" \
  "-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-" \
  "ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-" \
  "Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-" \
  "ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰" \
  "-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
// clang-format on

struct KnownSteps {
  const char* name;  // tokenizer.ggml.pre
  std::vector<std::string_view> steps;
};

// The published expressions of the families, in the form used by their tokenizer.json files.
const std::vector<KnownSteps>& known_pre_tokenizers() {
  static const std::vector<KnownSteps> kKnown = {
      {"gpt-2", {"ByteLevel:regex"}},
      {"llama-bpe",
       {R"(Split:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "ByteLevel"}},
      {"qwen2",
       {R"(Split:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "ByteLevel"}},
      {"qwen35",
       {R"(Split:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "ByteLevel"}},
      {"tekken",
       {R"(Split:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "ByteLevel"}},
      {"gpt-4o",
       {R"(Split:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "ByteLevel"}},
      {"smollm", {"Digits:1", "ByteLevel:regex"}},
      {"falcon",
       {"Punctuation:Contiguous", "ByteLevel:regex", "Digits:n", "Split:[0-9][0-9][0-9]"}},
      {"deepseek-llm",
       {"Split:[\r\n]", R"(Split:\s?[)" DEEPSEEK_LETTERS "]+",
        R"(Split:\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(Split:\s+$)",
        "Split:[一-龥ࠀ-一가-퟿]+", "Digits:1", "ByteLevel"}},
      {"deepseek-coder",
       {"Split:[\r\n]", R"(Split:\s?\p{L}+)", R"(Split:\s?\p{P}+)",
        "Split:[一-龥ࠀ-一가-퟿]+", "Digits:1", "ByteLevel"}},
      {"deepseek-v3",
       {R"(Split:\p{N}{1,3})", "Split:[一-龥぀-ゟ゠-ヿ]+",
        R"(Split:[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "ByteLevel"}},
  };
  return kKnown;
}

}  // namespace

Result<std::string> recognize_pre_tokenizer(std::span<const std::string> steps, bool whole_words) {
  std::string all;
  for (const std::string& step : steps) all.append(all.empty() ? "" : ", ").append(step);
  for (const KnownSteps& known : known_pre_tokenizers()) {
    if (!std::equal(steps.begin(), steps.end(), known.steps.begin(), known.steps.end())) continue;
    if (std::string_view(known.name) == "llama-bpe" && !whole_words) return std::string("dbrx");
    return std::string(known.name);
  }
  return error(Code::kUnsupportedTokenizer, "tokenizer.json: the pre-tokenizer is unknown: %s",
               all.empty() ? "(none)" : printable(all, 200).c_str());
}

}  // namespace sluice::hf
