#include "media/prompt.h"

#include <algorithm>
#include <string>

namespace sluice::media {
namespace {

class Layout {
 public:
  Layout(const Projector& projector, const tokenizer::Tokenizer& tokenizer, const TextModel& model,
         const tokenizer::EncodeOptions& options)
      : projector_(projector), tokenizer_(tokenizer), model_(model), options_(options) {
    options_.add_special = false;
  }

  [[nodiscard]] Status text(std::string_view text) {
    if (text.empty()) return {};
    Result<std::vector<Token>> tokens = tokenizer_.try_encode(text, options_);
    if (!tokens.ok()) return tokens.status();
    join(*tokens);
    options_.continuation = false;  // it is about the prompt's beginning
    return {};
  }

  // A mark of the family around an input: always parsed.
  [[nodiscard]] Status mark(const std::string& text) {
    Result<std::vector<Token>> tokens = tokenizer_.try_encode(text, {.add_special = false});
    if (!tokens.ok()) return tokens.status();
    join(*tokens);
    return {};
  }

  [[nodiscard]] Status picture(const PicturePlan& plan, uint32_t index) {
    options_.continuation = false;
    for (const Piece& piece : plan.pieces) {
      if (piece.input < 0) {
        SLUICE_RETURN_IF_ERROR(mark(piece.text));
        continue;
      }
      const EncoderInput& input = plan.inputs[static_cast<size_t>(piece.input)];
      Chunk chunk;
      chunk.is_image = true;
      chunk.picture = index;
      chunk.input = static_cast<uint32_t>(piece.input);
      chunk.n_tokens = input.n_tokens;
      chunk.grid = model_.mrope && !plan.tiled;
      chunk.columns = chunk.grid ? input.columns : input.n_tokens;
      chunk.rows = chunk.grid ? input.rows : 1;
      chunk.n_positions = chunk.grid ? std::max(input.columns, input.rows) : input.n_tokens;
      chunk.non_causal = projector_.family->non_causal && !stays_causal();
      chunks_.push_back(std::move(chunk));
    }
    return {};
  }

  // Adds BOS and EOS, as `given` options say, and numbers the positions.
  [[nodiscard]] Result<std::vector<Chunk>> finish(const tokenizer::EncodeOptions& given) {
    if (given.add_special && !given.continuation && tokenizer_.adds_bos()) {
      if (chunks_.empty() || chunks_[0].is_image) chunks_.insert(chunks_.begin(), Chunk());
      chunks_[0].tokens.insert(chunks_[0].tokens.begin(), tokenizer_.bos());
    }
    if (given.add_special && tokenizer_.adds_eos()) join({tokenizer_.eos()});
    uint64_t position = 0;
    for (Chunk& chunk : chunks_) {
      if (!chunk.is_image) {
        chunk.n_tokens = chunk.n_positions = static_cast<uint32_t>(chunk.tokens.size());
      }
      chunk.position = static_cast<uint32_t>(position);
      position += chunk.n_positions;
    }
    if (position > tokenizer::kMaxTextBytes) {
      return error(Code::kPromptTooLong, "the prompt has %llu positions",
                   static_cast<unsigned long long>(position));
    }
    return std::move(chunks_);
  }

 private:
  void join(const std::vector<Token>& tokens) {
    if (tokens.empty()) return;
    if (chunks_.empty() || chunks_.back().is_image) chunks_.emplace_back();
    std::vector<Token>& to = chunks_.back().tokens;
    to.insert(to.end(), tokens.begin(), tokens.end());
  }

  // Gemma 4's E2B and E4B were trained with causal pictures.
  [[nodiscard]] bool stays_causal() const {
    return std::string_view(projector_.family->type) == "gemma4v" &&
           (model_.n_embd == 1536 || model_.n_embd == 2560);
  }

  const Projector& projector_;
  const tokenizer::Tokenizer& tokenizer_;
  const TextModel& model_;
  tokenizer::EncodeOptions options_;
  std::vector<Chunk> chunks_;
};

// The next mark from `at` on, which lies outside of literal spans; npos: none. What users write
// stays text: a mark inside a span is none.
size_t find_mark(std::string_view prompt, size_t at, bool literal_spans) {
  for (;;) {
    const size_t mark = prompt.find(kMediaMark, at);
    const size_t span = literal_spans ? prompt.find(tokenizer::kPlainBegin, at) : prompt.npos;
    if (mark == prompt.npos || span > mark) return mark;
    at = prompt.find(tokenizer::kPlainEnd, span);
    if (at == prompt.npos) return at;
  }
}

}  // namespace

TextModel TextModel::from(const gguf::Header& header) {
  const std::string arch(header.get_string("general.architecture").value_or(""));
  const gguf::Value* sections = header.find(arch + ".rope.dimension_sections");
  TextModel out;
  out.mrope = sections != nullptr && sections->number_at(0) > 0 && sections->number_at(1) > 0;
  out.n_embd = header.get_u64(arch + ".embedding_length").value_or(0);
  out.media_width = out.n_embd * (1 + header.get_u64(arch + ".n_deepstack_layers").value_or(0));
  return out;
}

Position Chunk::at(uint32_t token) const {
  if (!grid) return {position + token, position + token, position + token};
  return {position, position + token / columns, position + token % columns};
}

Result<std::vector<Chunk>> layout(std::string_view prompt, const Projector& projector,
                                  std::span<const PicturePlan> pictures,
                                  const tokenizer::Tokenizer& tokenizer, const TextModel& model,
                                  const tokenizer::EncodeOptions& options) {
  Layout layout(projector, tokenizer, model, options);
  uint32_t n = 0;
  for (size_t at = 0;; ++n) {
    const size_t mark = find_mark(prompt, at, options.literal_spans);
    SLUICE_RETURN_IF_ERROR(layout.text(prompt.substr(at, mark - at)));
    if (mark == std::string_view::npos) break;
    if (n < pictures.size()) SLUICE_RETURN_IF_ERROR(layout.picture(pictures[n], n));
    at = mark + kMediaMark.size();
  }
  if (n != pictures.size()) {
    return error(Code::kInvalidArgument, "%s occurs %u times in the prompt, for %zu pictures",
                 std::string(kMediaMark).c_str(), n, pictures.size());
  }
  return layout.finish(options);
}

}  // namespace sluice::media
