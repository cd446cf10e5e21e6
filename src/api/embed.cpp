// Embeddings and reranker scores.
#include <limits>

#include "api/handles.h"
#include "embed/embedder.h"

namespace sluice::api {
namespace {

sluice_embed_options default_embed_options() {
  sluice_embed_options options = {};
  options.size = sizeof options;
  options.pooling = SLUICE_POOLING_MODEL;
  options.normalize = 1;
  return options;
}

Result<embed::Options> embed_options(const sluice_embed_options& given) {
  embed::Options out;
  SLUICE_RETURN_IF_ERROR(
      check_range(given.pooling, SLUICE_POOLING_MODEL, SLUICE_POOLING_RANK, "pooling"));
  SLUICE_RETURN_IF_ERROR(check_flag(given.normalize, "normalize"));
  if (given.pooling >= 0) out.pooling = static_cast<model::Pooling>(given.pooling);
  out.normalize = given.normalize != 0;
  out.dimensions = given.dimensions;
  if (given.query != nullptr && given.pooling != SLUICE_POOLING_RANK) {
    return error(Code::kInvalidArgument, "a query needs pooling SLUICE_POOLING_RANK");
  }
  return out;
}

// The tokens of all texts, concatenated, and the end of each text.
struct Texts {
  std::vector<Token> tokens;
  std::vector<int32_t> ends;
};

Result<Texts> texts_of(const tokenizer::Tokenizer& tokenizer, std::span<const char* const> texts,
                       const char* query) {
  Texts out;
  for (const char* text : texts) {
    if (text == nullptr) return null_argument("texts[i]");
    const Result<std::vector<Token>> tokens =
        query != nullptr ? embed::pair_tokens(tokenizer, query, text)
                         : tokenizer.try_encode(text, {.parse_special = false});
    if (!tokens.ok()) return tokens.status();
    if (out.tokens.size() + tokens->size() > std::numeric_limits<int32_t>::max()) {
      return error(Code::kInvalidArgument, "the texts together have too many tokens");
    }
    out.tokens.insert(out.tokens.end(), tokens->begin(), tokens->end());
    out.ends.push_back(static_cast<int32_t>(out.tokens.size()));
  }
  return out;
}

Status compute(sluice_session& handle, uint32_t cancels, embed::Embedder& embedder, float* out) {
  for (;;) {
    const Result<bool> more = embedder.next();
    if (!more.ok()) return more.status();
    if (!*more) return {};
    SLUICE_RETURN_IF_ERROR(run(handle, cancels, [&](int32_t n) { return embedder.step(n); }));
    SLUICE_RETURN_IF_ERROR(embedder.failure());
    for (int32_t i = 0; i < embedder.n_results(); ++i) {
      const std::span<const float> row = embedder.result(i);
      out = std::copy(row.begin(), row.end(), out);
    }
  }
}

Status embed_texts(sluice_session& handle, std::span<const char* const> texts,
                   const sluice_embed_options* options, float* out, size_t capacity,
                   size_t* count) {
  const uint32_t cancels = handle.cancels;
  sluice_embed_options given = default_embed_options();
  if (options != nullptr) SLUICE_RETURN_IF_ERROR(read_struct(options, &given));
  const Result<embed::Options> how = embed_options(given);
  if (!how.ok()) return how.status();
  const Result<Texts> from = texts_of(handle.loaded->tokenizer(), texts, given.query);
  if (!from.ok()) return from.status();
  return handle.loaded->take_turn([&]() -> Status {
    const Result<session::Session*> session = enter(handle, cancels);
    if (!session.ok()) return session.status();
    embed::Embedder embedder(**session);
    SLUICE_RETURN_IF_ERROR(embedder.begin(from->tokens, from->ends, *how));
    const bool by_token = embedder.pooling() == model::Pooling::kNone;
    const size_t rows = by_token ? from->tokens.size() : from->ends.size();
    *count = rows * static_cast<size_t>(embedder.width());
    if (capacity == 0) return {};
    if (capacity < *count) return too_small(capacity, *count);
    handle.rows = 0;
    const Status status = compute(handle, cancels, embedder, out);
    (*session)->clear();
    return status;
  });
}

}  // namespace
}  // namespace sluice::api

using namespace sluice;
using namespace sluice::api;

extern "C" {

sluice_status sluice_embed_options_default(sluice_embed_options* options, size_t size) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(options);
    return write_struct(default_embed_options(), options, size);
  });
}

sluice_status sluice_embed(sluice_session* session, const char* const* texts, size_t n,
                           const sluice_embed_options* options, float* out, size_t capacity,
                           size_t* count) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    SLUICE_REFUSE_NULL(count);
    SLUICE_RETURN_IF_ERROR(check_array(texts, n, "texts"));
    SLUICE_RETURN_IF_ERROR(check_array(out, capacity, "out"));
    return embed_texts(*session, {texts, n}, options, out, capacity, count);
  });
}

}  // extern "C"
