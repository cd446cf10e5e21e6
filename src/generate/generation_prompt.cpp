// Begins a generation: compiles its constraint and computes its prompt. A prompt with pictures is
// several passes, one for each picture and each text between them.
#include <algorithm>

#include "generate/generation_state.h"

namespace sluice::generate {
namespace {

// The prompt of an encoder-decoder model: encoder tokens (inverted), then the decoder's start
// token.
std::vector<Token> as_source(std::span<const Token> prompt, Token start) {
  std::vector<Token> out;
  for (const Token token : prompt) out.push_back(~token);
  out.push_back(start);
  return out;
}

}  // namespace

Status Generation::Impl::constrain() {
  if (!options.constraint) return {};
  const Constraint& wanted = *options.constraint;
  const Result<const grammar::Vocabulary*> vocabulary = session.context().vocabulary.get();
  if (!vocabulary.ok()) return vocabulary.status();
  auto compiled = grammar::compile(wanted.kind, wanted.text, *vocabulary, wanted.options);
  if (!compiled.ok()) return compiled.status();
  auto made = grammar::Matcher::create(std::move(*compiled), **vocabulary);
  if (!made.ok()) return made.status();
  matcher = std::move(*made);
  return {};
}

Status Generation::Impl::start(std::span<const Token> prompt) {
  const model::Program& program = session.context().program;
  std::vector<Token> framed;
  if (program.decoder > 0) prompt = framed = as_source(prompt, program.hp.encoder.decoder_start);
  Result<int32_t> kept = session.sync(prompt);
  if (!kept.ok()) return kept.status();
  if (!options.reuse_prefix && *kept > 0) {  // a prompt that sync() accepted can start at 0, too
    session.clear();
    SLUICE_RETURN_IF_ERROR(session.begin(prompt));
    kept = 0;
  }
  upcoming.reserve(static_cast<size_t>(session.context().plan.batch.draft_batch));
  counts.prompt = static_cast<int32_t>(prompt.size());
  counts.cached = *kept;
  state = State::kPass;
  return {};
}

Status Generation::Impl::start_with_media(std::span<const Token> prompt) {
  const int32_t n_ctx = session.context().plan.context.n_ctx;
  if (prompt.size() > static_cast<size_t>(n_ctx)) {
    return session::prompt_too_long(prompt.size(), n_ctx);
  }
  if (prompt.empty() || prompt.back() >= session::kMediaToken) {
    return error(Code::kInvalidArgument, "a prompt cannot end with a picture");
  }
  if (!options.reuse_prefix) session.clear();
  counts.cached = session.keep(prompt);
  counts.prompt = static_cast<int32_t>(prompt.size());
  upcoming.reserve(static_cast<size_t>(session.context().plan.batch.draft_batch));
  parts.assign(prompt.begin(), prompt.end());
  state = State::kPass;
  return begin_part();
}

// Begins the pass over the next picture of the prompt, or over the text before it.
Status Generation::Impl::begin_part() {
  const int32_t at = session.position();
  size_t end = parts.size();
  for (const Media& media : options.media) {
    if (media.first == at) return (session.*media.begin)(media.input);
    if (media.first > at) end = std::min(end, static_cast<size_t>(media.first));
  }
  return session.begin(
      std::span(parts).subspan(static_cast<size_t>(at), end - static_cast<size_t>(at)));
}

}  // namespace sluice::generate
