// One builder grows the token list by joins. The three kinds differ in how spaces and bytes are
// written, in the tokens around the joins, and in whether joins or scores are stored.
#include "tests/make-model/made_vocabulary.h"

#include <array>
#include <string_view>
#include <unordered_set>

#include "tests/make-model/random_blocks.h"

namespace sluice::make_model {
namespace {

// ggml's token types.
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUnused = 5, kByte = 6;
constexpr size_t kMaxPieceLetters = 6;
constexpr uint32_t kLlama3Special = 256;
constexpr uint32_t kQwenBase = 151643;
constexpr uint32_t kSmolVlmTiles = 6;  // rows and columns at most

constexpr std::string_view kWords =
    "the of and to in is that it was for on are as with his they be at one have this from or had "
    "by not but some what there we can out other were all your when up use how said an each she "
    "which do their time if will way about many then them would write like so these her long make "
    "thing see him two has look more day could go come did my sound no most number who over know "
    "water than call first people may down side been now find any new work part take get place "
    "made live where after back little only round man year came show every good me give our under "
    "name very through just form much great think say help low line before turn cause same mean "
    "differ move right boy old too does tell sentence set three want air well also play small end "
    "put home read hand port large spell add even land here must big high such follow act why ask "
    "men change went light kind off need house picture try us again animal point mother world near "
    "build self earth father once upon story little girl happy friend tree dog cat sun";

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
    "}}{% endif %}";
constexpr std::string_view kLlama3Chat =
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\\n\\n' + message['content'] + '<|eot_id|>' }}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif "
    "%}";
constexpr std::string_view kPlainChat =
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + "
    "eos_token + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% "
    "endif %}";

std::string utf8(uint32_t code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 63))};
}

// GPT-2's printable character for a byte: itself if printable, else 256 and up in order.
std::array<std::string, 256> byte_letters() {
  std::array<std::string, 256> letters;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
    letters[b] = utf8(printable ? b : next++);
  }
  return letters;
}

class Builder {
 public:
  explicit Builder(std::string space) : space_(std::move(space)) {}

  void add(std::string token) {
    known_.insert(token);
    tokens.push_back(std::move(token));
  }

  // Adds left + right, which both must be tokens, unless it exists or the list is full.
  void join(const std::string& left, const std::string& right, size_t limit) {
    if (tokens.size() >= limit || known_.contains(left + right)) return;
    merges.push_back(left + " " + right);
    add(left + right);
  }

  void grow(size_t limit, uint64_t seed) {
    size_t start = tokens.size();
    for (size_t at = 0; at < kWords.size();) {
      const size_t end = std::min(kWords.find(' ', at), kWords.size());
      join_word(std::string(kWords.substr(at, end - at)), limit);
      at = end + 1;
    }
    // Then words of two pieces; each piece is a letter or a join of at most kMaxPieceLetters.
    Random random(seed, 0x70c);
    std::vector<std::string> pieces;
    for (char c = 'a'; c <= 'z'; ++c) pieces.emplace_back(1, c);
    while (tokens.size() < limit) {
      const std::string right = pieces[random.below(static_cast<uint32_t>(pieces.size()))];
      const bool spaced = random.below(3) == 0;
      std::string left = pieces[random.below(static_cast<uint32_t>(pieces.size()))];
      if (spaced && known_.contains(space_ + left)) left = space_ + left;
      join(left, right, limit);
      for (; start < tokens.size(); ++start) {
        const std::string& token = tokens[start];
        const bool short_enough = token.size() <= kMaxPieceLetters;
        if (short_enough && !token.starts_with(space_)) pieces.push_back(token);
      }
    }
  }

  std::vector<std::string> tokens, merges;

 private:
  // For "the": adds th and the, and both after a space.
  void join_word(const std::string& word, size_t limit) {
    for (const std::string& first : {word.substr(0, 1), space_}) {
      std::string so_far = first;
      for (size_t i = first == space_ ? 0 : 1; i < word.size(); ++i) {
        join(so_far, word.substr(i, 1), limit);
        so_far += word[i];
      }
    }
  }

  std::string space_;
  std::unordered_set<std::string> known_;
};

constexpr uint32_t kBytesAndSpecials = 3 + 256;

Builder sentencepiece(uint32_t size, uint64_t seed) {
  Builder builder("\xe2\x96\x81");  // U+2581 stands for a space
  for (const char* special : {"<unk>", "<s>", "</s>"}) builder.add(special);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (uint32_t b = 0; b < 256; ++b) {
    builder.add(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">");
  }
  builder.add("\xe2\x96\x81");
  for (char c = '!'; c <= '~'; ++c) builder.add(std::string(1, c));
  builder.grow(size, seed);
  return builder;
}

void add_sentencepiece(GgufWriter* writer, uint32_t size, uint64_t seed) {
  const Builder builder = sentencepiece(size, seed);
  std::vector<float> scores(size, 0.0f);
  std::vector<int32_t> types(size, kNormal);
  types[0] = kUnknown;
  types[1] = types[2] = kControl;
  for (uint32_t i = 3; i < kBytesAndSpecials; ++i) types[i] = kByte;
  for (uint32_t i = kBytesAndSpecials; i < size; ++i) {
    scores[i] = -static_cast<float>(i - kBytesAndSpecials);
  }
  writer->add("tokenizer.ggml.model", "llama");
  writer->add("tokenizer.ggml.pre", "default");
  writer->add("tokenizer.ggml.tokens", builder.tokens);
  writer->add("tokenizer.ggml.scores", scores);
  writer->add("tokenizer.ggml.token_type", types);
  writer->add("tokenizer.ggml.bos_token_id", 1u);
  writer->add("tokenizer.ggml.eos_token_id", 2u);
  writer->add("tokenizer.ggml.unknown_token_id", 0u);
  writer->add("tokenizer.ggml.add_bos_token", true);
  writer->add("tokenizer.ggml.add_eos_token", false);
  writer->add("tokenizer.chat_template", kPlainChat);
}

// Adds `base` ordinary tokens, then the specials, then unused padding up to `size`.
void add_byte_level(GgufWriter* writer, std::string_view pre, uint32_t base,
                    std::span<const std::string> specials, uint32_t size, uint64_t seed) {
  const auto letters = byte_letters();
  Builder builder(letters[' ']);
  for (const std::string& letter : letters) builder.add(letter);
  builder.grow(base, seed);
  std::vector<int32_t> types(base, kNormal);
  for (const std::string& special : specials) {
    builder.add(special);
    types.push_back(kControl);
  }
  while (builder.tokens.size() < size) {
    builder.add("[PAD" + std::to_string(builder.tokens.size()) + "]");
    types.push_back(kUnused);
  }
  writer->add("tokenizer.ggml.model", "gpt2");
  writer->add("tokenizer.ggml.pre", pre);
  writer->add("tokenizer.ggml.tokens", builder.tokens);
  writer->add("tokenizer.ggml.token_type", types);
  writer->add("tokenizer.ggml.merges", builder.merges);
}

const std::vector<std::string>& chatml_specials() {
  static const std::vector<std::string> specials = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  return specials;
}

// The tokens around the tiles of a picture. llama.cpp looks for one of two line ends too.
std::vector<std::string> smolvlm_specials() {
  std::vector<std::string> specials = chatml_specials();
  specials.insert(specials.end(), {"<image>", "<fake_token_around_image>", "<global-img>", "\n\n"});
  for (uint32_t row = 1; row <= kSmolVlmTiles; ++row) {
    for (uint32_t column = 1; column <= kSmolVlmTiles; ++column) {
      specials.push_back("<row_" + std::to_string(row) + "_col_" + std::to_string(column) + ">");
    }
  }
  return specials;
}

// `specials` begin with those of ChatML.
void add_chatml(GgufWriter* writer, std::string_view pre, std::span<const std::string> specials,
                uint32_t size, uint64_t seed) {
  const uint32_t n_specials = static_cast<uint32_t>(specials.size());
  const uint32_t base = std::min(kQwenBase, size - n_specials);
  add_byte_level(writer, pre, base, specials, size, seed);
  writer->add("tokenizer.ggml.bos_token_id", base);
  writer->add("tokenizer.ggml.eos_token_id", base + 2);
  writer->add("tokenizer.ggml.padding_token_id", base);
  writer->add("tokenizer.ggml.add_bos_token", false);
  writer->add("tokenizer.chat_template", kChatMl);
}

void add_llama3(GgufWriter* writer, uint32_t size, uint64_t seed) {
  std::vector<std::string> specials;
  for (uint32_t i = 0; i < kLlama3Special; ++i) {
    specials.push_back("<|reserved_special_token_" + std::to_string(i) + "|>");
  }
  specials[0] = "<|begin_of_text|>";
  specials[1] = "<|end_of_text|>";
  specials[6] = "<|start_header_id|>";
  specials[7] = "<|end_header_id|>";
  specials[9] = "<|eot_id|>";
  const uint32_t base = size - kLlama3Special;
  add_byte_level(writer, "llama-bpe", base, specials, size, seed);
  writer->add("tokenizer.ggml.bos_token_id", base);
  writer->add("tokenizer.ggml.eos_token_id", base + 9);
  writer->add("tokenizer.ggml.add_bos_token", true);
  writer->add("tokenizer.chat_template", kLlama3Chat);
}

}  // namespace

uint32_t smallest_vocabulary(VocabularyKind kind) {
  switch (kind) {
    case VocabularyKind::kSentencePiece:
      return kBytesAndSpecials + 95;  // space and printable ASCII
    case VocabularyKind::kQwen:
      return 256 + static_cast<uint32_t>(chatml_specials().size());
    case VocabularyKind::kSmolVlm:
      return 256 + static_cast<uint32_t>(smolvlm_specials().size());
    case VocabularyKind::kLlama3:
      return 256 + kLlama3Special;
  }
  return 0;
}

void add_vocabulary(GgufWriter* writer, VocabularyKind kind, uint32_t size, uint64_t seed) {
  switch (kind) {
    case VocabularyKind::kSentencePiece:
      return add_sentencepiece(writer, size, seed);
    case VocabularyKind::kQwen:
      return add_chatml(writer, "qwen2", chatml_specials(), size, seed);
    case VocabularyKind::kSmolVlm:
      return add_chatml(writer, "smollm", smolvlm_specials(), size, seed);
    case VocabularyKind::kLlama3:
      return add_llama3(writer, size, seed);
  }
}

}  // namespace sluice::make_model
