// SentencePiece unigram (tokenizer.ggml.model = "t5"): the segmentation with the highest sum of
// scores, found by the Viterbi algorithm (Kudo 2018). A character that no token covers becomes the
// unknown token, and adjacent unknown tokens merge into one.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "tokenizer/base.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/utf8.h"

namespace sluice::tokenizer {

namespace {

constexpr double kUnknownPenalty = 10.0;     // below the worst score; SentencePiece's constant
constexpr uint64_t kMaxUnigramBytes = 1024;  // of a token, so that the work per byte is bounded

class Unigram final : public BaseTokenizer {
 public:
  [[nodiscard]] Status load(const gguf::Header& header);
  [[nodiscard]] bool strips_leading_space() const override { return add_space_prefix_; }
  [[nodiscard]] uint64_t memory_bytes() const override {
    return BaseTokenizer::memory_bytes() + index_.memory_bytes() + user_defined_.memory_bytes() +
           scores_.capacity() * sizeof(float) + charsmap_.memory_bytes() +
           (sizeof(Unigram) - sizeof(BaseTokenizer));
  }

 protected:
  void encode_text(std::string_view text, bool starts, MergeScratch* scratch,
                   std::vector<Token>* out) const override;
  [[nodiscard]] std::string text_bytes(Token token) const override;

 private:
  [[nodiscard]] Status read_scores(const gguf::Header& header);
  [[nodiscard]] Status build_index();
  [[nodiscard]] bool normalize(std::string_view text, bool starts, std::string* result) const;

  PrefixIndex index_;         // tokens that text can become
  PrefixIndex user_defined_;  // tokens that normalization does not change
  std::vector<float> scores_;
  Charsmap charsmap_;
  double unknown_score_ = 0;
  bool add_space_prefix_ = false;
  bool remove_extra_whitespaces_ = false;
};

Status Unigram::load(const gguf::Header& header) {
  specials_.eos = 1;
  specials_.unknown = 2;
  specials_.add_eos = true;
  SLUICE_RETURN_IF_ERROR(read_common(header));
  if (specials_.unknown == kNoToken) {
    return error(Code::kBadTokenizer, "a unigram vocabulary needs an unknown token");
  }
  add_space_prefix_ = header.get_bool("tokenizer.ggml.add_space_prefix").value_or(false);
  remove_extra_whitespaces_ =
      header.get_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  SLUICE_RETURN_IF_ERROR(read_scores(header));
  SLUICE_RETURN_IF_ERROR(charsmap_.load(header));
  return build_index();
}

Status Unigram::read_scores(const gguf::Header& header) {
  const auto n = static_cast<size_t>(vocab_.size());
  const gguf::Value* scores = header.find("tokenizer.ggml.scores");
  const uint64_t count = scores == nullptr ? 0 : scores->count;
  if (count != n) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.scores has %llu entries for %zu tokens",
                 static_cast<unsigned long long>(count), n);
  }
  scores_.resize(n);
  double worst = 0;
  for (size_t i = 0; i < n; ++i) {
    scores_[i] = static_cast<float>(scores->number_at(i));
    if (!std::isfinite(scores_[i])) {
      return error(Code::kBadTokenizer, "the score of token %zu is not a number", i);
    }
    if (vocab_.type(static_cast<Token>(i)) == TokenType::kNormal) {
      worst = std::min(worst, static_cast<double>(scores_[i]));
    }
  }
  unknown_score_ = worst - kUnknownPenalty;
  return {};
}

Status Unigram::build_index() {
  for (Token id = 0; id < vocab_.size(); ++id) {
    const TokenType type = vocab_.type(id);
    if (type != TokenType::kNormal && type != TokenType::kUserDefined &&
        type != TokenType::kUnused) {
      continue;
    }
    if (vocab_.text(id).size() > kMaxUnigramBytes) {
      return error(Code::kBadTokenizer, "token %d has %zu bytes, more than %llu", id,
                   vocab_.text(id).size(), static_cast<unsigned long long>(kMaxUnigramBytes));
    }
    index_.add(id);
    if (type == TokenType::kUserDefined) user_defined_.add(id);
  }
  index_.sort(vocab_);
  user_defined_.sort(vocab_);
  return {};
}

// False when memory is out.
bool Unigram::normalize(std::string_view text, bool starts, std::string* result) const {
  bool in_word = !starts;
  bool started = !starts;
  const auto put = [&](std::string_view bytes) {
    if (!make_room_for(result, (kSpaceMark.size() + 1) * bytes.size())) return false;
    for (const char c : bytes) {
      if (c == ' ') {
        in_word = false;
        started = started || metaspace_;
        if (!remove_extra_whitespaces_) *result += kSpaceMark;
        continue;
      }
      if (!in_word && (remove_extra_whitespaces_ || (add_space_prefix_ && !started))) {
        *result += kSpaceMark;
      }
      in_word = true;
      started = true;
      *result += c;
    }
    return true;
  };
  if (!make_room(result, text.size() + text.size() / 2)) return false;
  for (size_t pos = 0; pos < text.size();) {
    size_t kept = 0;
    if (user_defined_.may_start(text[pos])) {
      user_defined_.walk(vocab_, text, pos, [&](Token id) { kept = vocab_.text(id).size(); });
    }
    const Charsmap::Rule rule = kept != 0 ? Charsmap::Rule{} : charsmap_.longest(text, pos);
    const Decoded c = decode_utf8(text, pos);
    std::string_view put_instead;
    if (kept != 0) {
      put_instead = text.substr(pos, kept);
    } else if (rule.bytes != 0) {
      put_instead = rule.replacement;
      kept = rule.bytes;
    } else if (c.cp == kInvalidCodepoint) {
      put_instead = kReplacement;
      kept = 1;
    } else {
      put_instead = text.substr(pos, c.bytes);
      kept = c.bytes;
    }
    if (!put(put_instead)) return false;
    pos += kept;
  }
  return true;
}

void Unigram::encode_text(std::string_view raw, bool starts, MergeScratch* scratch,
                          std::vector<Token>* out) const {
  struct Best {
    double score = -DBL_MAX;
    uint32_t begin = 0;  // of the last token in the best segmentation up to here
    Token id = kNoToken;
  };
  std::string text;
  std::vector<Best> best;
  if (!normalize(raw, starts, &text) || !make_room(&best, text.size() + 1) ||
      !make_room_for(out, text.size())) {
    scratch->out_of_memory = true;
    return;
  }
  best.resize(text.size() + 1);
  best[0].score = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Decoded c = decode_utf8(text, pos);
    const auto offer = [&](size_t end, double score, Token id) {
      if (score > best[end].score) best[end] = {score, static_cast<uint32_t>(pos), id};
    };
    bool covered = false;
    index_.walk(vocab_, text, pos, [&](Token id) {
      const size_t bytes = vocab_.text(id).size();
      covered = covered || bytes == c.bytes;
      const bool free = vocab_.type(id) == TokenType::kUserDefined;
      const double score = free ? 0.0 : static_cast<double>(scores_[static_cast<size_t>(id)]);
      offer(pos + bytes, best[pos].score + score, id);
    });
    if (!covered) offer(pos + c.bytes, best[pos].score + unknown_score_, specials_.unknown);
    pos += c.bytes;
  }
  const auto first = static_cast<std::ptrdiff_t>(out->size());
  for (size_t end = text.size(); end > 0; end = best[end].begin) {
    const bool again = best[end].id == specials_.unknown &&
                       static_cast<std::ptrdiff_t>(out->size()) > first &&
                       out->back() == specials_.unknown;
    if (!again) out->push_back(best[end].id);
  }
  std::reverse(out->begin() + first, out->end());
}

std::string Unigram::text_bytes(Token token) const {
  return unmark_spaces(vocab_.text(token));
}

}  // namespace

TokenizerResult create_unigram(const gguf::Header& header) {
  auto tokenizer = std::make_unique<Unigram>();
  SLUICE_RETURN_IF_ERROR(tokenizer->load(header));
  return TokenizerResult(std::unique_ptr<Tokenizer>(std::move(tokenizer)));
}

}  // namespace sluice::tokenizer
