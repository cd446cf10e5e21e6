// Packs texts into passes and post-processes the result rows.
#include "embed/embedder.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tokenizer/literal_spans.h"
#include "tokenizer/utf8.h"

namespace sluice::embed {

using model::Pooling;

namespace {

Status check(const Options& options, Pooling pooling, int32_t width) {
  if (width == 0) return error(Code::kInvalidArgument, "this model has no ranking head");
  if (options.dimensions < 0 || options.dimensions > width) {
    return error(Code::kInvalidArgument,
                 "dimensions is %d but must be between 1 and the model's %d", options.dimensions,
                 width);
  }
  if (options.dimensions > 0 && pooling == Pooling::kRank) {
    return error(Code::kInvalidArgument, "the dimensions option does not apply to scores");
  }
  return {};
}

}  // namespace

Status Embedder::begin(std::span<const Token> tokens, std::span<const int32_t> ends,
                       const Options& options) {
  const model::Program& program = session_.context().program;
  const Pooling own = program.hp.pooling == Pooling::kNone ? Pooling::kMean : program.hp.pooling;
  pooling_ = options.pooling.value_or(own);
  const int32_t width =
      pooling_ == Pooling::kRank ? program.rank_tail.width : program.embed_tail.width;
  SLUICE_RETURN_IF_ERROR(check(options, pooling_, width));
  const int32_t n_ctx = session_.context().plan.context.n_ctx;
  for (size_t i = 0; i < ends.size(); ++i) {
    const int64_t n = int64_t{ends[i]} - (i == 0 ? 0 : ends[i - 1]);
    if (n < 1) return error(Code::kPromptEmpty, "text %zu has no tokens", i + 1);
    if (n > n_ctx) {
      return error(Code::kPromptTooLong,
                   "text %zu has %lld tokens but the context holds %d: shorten it, or load with a "
                   "larger context",
                   i + 1, static_cast<long long>(n), n_ctx);
    }
  }
  if ((ends.empty() ? 0 : static_cast<size_t>(ends.back())) != tokens.size()) {
    return error(Code::kInvalidArgument, "the last text does not end at the last token");
  }
  tokens_ = tokens;
  ends_ = ends;
  options_ = options;
  width_ = options.dimensions > 0 ? options.dimensions : width;
  text_ = inside_ = n_results_ = 0;
  n_texts_ = n_tokens_ = 0;
  part_ = false;
  pass_ends_.reserve(static_cast<size_t>(session_.context().largest_batch));
  return {};
}

Result<bool> Embedder::next() {
  n_results_ = 0;
  if (text_ == static_cast<int32_t>(ends_.size())) return false;
  SLUICE_RETURN_IF_ERROR(begin_pass());
  return true;
}

// Takes as many complete texts as fit, or a part of a text that does not fit into one pass.
Status Embedder::begin_pass() {
  const session::MemoryPlan& plan = session_.context().plan;
  const int32_t batch = plan.batch.n_batch;
  const int32_t room =
      inside_ > 0 ? std::min(batch, session_.sequence().tokens_until_eviction()) : batch;
  const bool alone = plan.kv.shape.one_text();
  const int32_t start = begin_of(text_) + inside_;
  const int32_t left = ends_[static_cast<size_t>(text_)] - start;
  n_texts_ = 0;
  n_tokens_ = std::min(left, room);
  part_ = inside_ > 0 || left > room;
  pass_ends_.clear();
  if (part_) {
    pass_ends_.push_back(n_tokens_);
  } else {
    const int32_t n = static_cast<int32_t>(ends_.size()) - text_;
    while (n_texts_ < n && (n_texts_ == 0 || !alone)) {
      const int32_t end = ends_[static_cast<size_t>(text_ + n_texts_)] - start;
      if (end > room) break;
      pass_ends_.push_back(end);
      ++n_texts_;
    }
    n_tokens_ = pass_ends_.back();
  }
  session::EmbedPass pass;
  pass.ends = pass_ends_;
  pass.pooling = pooling_;
  pass.begins = inside_ == 0;
  pass.completes = !part_ || n_tokens_ == left;
  return session_.begin_embedding(
      tokens_.subspan(static_cast<size_t>(start), static_cast<size_t>(n_tokens_)), pass);
}

session::Step Embedder::step(int32_t max_ops) {
  if (session_.busy() && n_tokens_ > session_.context().plan.batch.n_batch) {
    session_.cancel();  // the budget has shrunk: repeat with fewer texts
    if (!begin_pass().ok()) return session::Step::kFailed;
  }
  const bool busy = session_.busy();
  const session::Step result = session_.step(max_ops);
  if (busy && result == session::Step::kDone) finish_results();
  return result;
}

void Embedder::finish_results() {
  const bool by_token = pooling_ == Pooling::kNone;
  const int32_t left = ends_[static_cast<size_t>(text_)] - begin_of(text_) - inside_;
  const bool text_ends = !part_ || n_tokens_ == left;
  first_result_ = by_token ? begin_of(text_) + inside_ : text_;
  n_results_ = by_token ? n_tokens_ : part_ ? (text_ends ? 1 : 0) : n_texts_;
  inside_ = text_ends ? 0 : inside_ + n_tokens_;
  text_ += part_ ? (text_ends ? 1 : 0) : n_texts_;
  const kernels::Table& table = session_.context().table;
  for (int32_t i = 0; i < n_results_; ++i) {
    const std::span<float> row = session_.embedding(i).first(static_cast<size_t>(width_));
    if (pooling_ == Pooling::kRank) {
      if (session_.context().program.rank_softmax) table.softmax(row.data(), width_, row.data());
      continue;
    }
    if (!options_.normalize) continue;
    double squares = 0;
    for (const float x : row) squares += static_cast<double>(x) * x;
    const double by = squares > 0 ? 1 / std::sqrt(squares) : 0;
    for (float& x : row) x = static_cast<float>(x * by);
  }
}

std::span<const float> Embedder::result(int32_t i) const {
  const std::span<const float> row = session_.embedding(i);
  return row.first(std::min(row.size(), static_cast<size_t>(width_)));
}

namespace {

// Marks user text in a prompt as literal, so that no control tokens are parsed from it.
std::string quoted(std::string_view text) {
  std::string out(tokenizer::kPlainBegin);
  for (size_t at = 0; at < text.size();) {
    const std::string_view mark = text.substr(at, tokenizer::kPlainBegin.size());
    if (mark == tokenizer::kPlainBegin || mark == tokenizer::kPlainEnd) {
      out += tokenizer::kReplacement;
      at += mark.size();
    } else {
      out += text[at++];
    }
  }
  return out.append(tokenizer::kPlainEnd);
}

Result<std::vector<Token>> templated(const tokenizer::Tokenizer& tokenizer, std::string_view query,
                                     std::string_view document) {
  const struct {
    std::string_view name, text;
  } places[] = {{"{query}", query}, {"{document}", document}};
  std::string prompt;
  const std::string_view form = tokenizer.pair_template();
  for (size_t at = 0; at < form.size();) {
    const auto* place = std::find_if(std::begin(places), std::end(places), [&](const auto& p) {
      return form.substr(at).starts_with(p.name);
    });
    if (place == std::end(places)) {
      prompt += form[at++];
    } else {
      prompt += quoted(place->text);
      at += place->name.size();
    }
  }
  return tokenizer.try_encode(prompt, {.literal_spans = true});
}

}  // namespace

Result<std::vector<Token>> pair_tokens(const tokenizer::Tokenizer& tokenizer,
                                       std::string_view query, std::string_view document) {
  if (!tokenizer.pair_template().empty()) return templated(tokenizer, query, document);
  std::vector<Token> tokens;
  const auto append = [&](std::string_view text) {
    Result<std::vector<Token>> part =
        tokenizer.try_encode(text, {.add_special = false, .parse_special = false});
    if (!part.ok()) return part.status();
    tokens.insert(tokens.end(), part->begin(), part->end());
    if (tokenizer.adds_eos()) tokens.push_back(tokenizer.eos());
    return Status();
  };
  if (tokenizer.adds_bos()) tokens.push_back(tokenizer.bos());
  SLUICE_RETURN_IF_ERROR(append(query));
  if (tokenizer.separator() >= 0) tokens.push_back(tokenizer.separator());
  SLUICE_RETURN_IF_ERROR(append(document));
  return tokens;
}

}  // namespace sluice::embed
