// Pictures for random tests of text models: rows of random values in the place of a projector's
// output. The same picture comes again and again, so that sessions hold some of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "generate/generation.h"
#include "native/model_file.h"

namespace sluice::test {

class MadePictures {
 public:
  static constexpr int32_t kMaxTokens = 24;  // of a picture, for EngineOptions::min_batch

  explicit MadePictures(const session::ExecutionContext& context)
      : n_embd_(context.program.hp.n_embd),
        grids_(context.program.hp.rope.sections[0] > 0),
        causal_(causal(context)) {}

  // Whether sessions of this model take pictures.
  static bool taken_by(const session::ExecutionContext& context) {
    const kv::KvShape& shape = context.plan.kv.shape;
    return !shape.bidirectional && !shape.answers;
  }
  // Whether only those whose tokens do not see each other.
  static bool causal(const session::ExecutionContext& context) {
    return context.plan.kv.layout.slots > 0;
  }

  // Appends one of a few pictures.
  void append(std::mt19937_64& random, std::vector<int32_t>* tokens) {
    const Made& made = made_of(random() % 5);
    for (int32_t row = 0; row < made.input.n_tokens; ++row) {
      tokens->push_back(session::media_token(made.input.hash, row));
    }
  }

  // Drops a picture that a shorter list has cut.
  void cut(std::vector<int32_t>* tokens) const {
    const std::vector<generate::Media> all = of(*tokens);
    if (all.empty() || all.back().first + all.back().input.n_tokens <= end_of(*tokens)) return;
    tokens->resize(static_cast<size_t>(all.back().first));
  }

  // The pictures of a prompt.
  [[nodiscard]] std::vector<generate::Media> of(const std::vector<int32_t>& tokens) const {
    std::vector<generate::Media> out;
    for (int32_t at = 0; at < end_of(tokens);) {
      const Made* made = find(tokens[static_cast<size_t>(at)]);
      if (made != nullptr) out.push_back({at, made->input});
      at += made != nullptr ? made->input.n_tokens : 1;
    }
    return out;
  }

  // Computes the prompt up to its last picture, unless the session holds that.
  Status see(native::Model& model, session::Session& session, const std::vector<int32_t>& tokens) {
    const std::vector<generate::Media> all = of(tokens);
    if (all.empty()) return {};
    const int32_t kept = session.keep(tokens);
    for (const generate::Media& media : all) {
      if (media.first < kept) continue;
      if (const int32_t at = session.position(); at < media.first) {
        const std::span<const int32_t> text(tokens.data() + at, tokens.data() + media.first);
        SLUICE_RETURN_IF_ERROR(session.begin(text));
        SLUICE_RETURN_IF_ERROR(model.run(session));
      }
      SLUICE_RETURN_IF_ERROR(session.begin_media(media.input));
      SLUICE_RETURN_IF_ERROR(model.run(session));
    }
    return {};
  }

 private:
  struct Made {
    std::vector<float> rows;
    session::MediaInput input;
  };

  static int32_t end_of(const std::vector<int32_t>& tokens) {
    return static_cast<int32_t>(tokens.size());
  }

  const Made* find(int32_t first) const {
    const auto found = std::find_if(made_.begin(), made_.end(), [first](const Made& made) {
      return session::media_token(made.input.hash, 0) == first;
    });
    return found == made_.end() ? nullptr : &*found;
  }

  const Made& made_of(uint64_t number) {
    const uint64_t hash = number * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(n_embd_);
    if (const Made* known = find(session::media_token(hash, 0))) return *known;
    std::mt19937_64 random(hash);
    Made& made = made_.emplace_back();
    session::MediaInput& input = made.input;
    input.hash = hash;
    const bool grid = grids_ && number % 2 == 0;
    const auto rows = static_cast<int32_t>(1 + random() % 4);
    const auto columns = static_cast<int32_t>(1 + random() % 6);
    input.n_tokens = rows * columns;
    input.columns = grid ? columns : 0;
    input.n_positions = grid ? std::max(rows, columns) : input.n_tokens;
    input.non_causal = !causal_ && number % 3 == 0;
    made.rows.resize(static_cast<size_t>(input.n_tokens * n_embd_));
    for (float& value : made.rows) value = static_cast<float>(random() % 2001) / 1000 - 1;
    input.rows = made.rows;
    return made;
  }

  int64_t n_embd_;
  bool grids_;  // positions follow rows and columns
  bool causal_;
  std::deque<Made> made_;
};

}  // namespace sluice::test
