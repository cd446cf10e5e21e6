// The generation is a state machine that alternates forward passes and sampling; each step() does a
// part of one of them. A token's text, log-probabilities and whether it ends the generation are
// settled when it is sampled, before its own forward pass. A constraint therefore sits between
// logits and sampler in choose(), and draft tokens follow the tokens with which go_on() begins the
// next pass. A pass that checks draft tokens has logits for each of them. Tokens are sampled from
// them one after another, by the same calls that separate passes would make, until one differs from
// its draft token.
#include "generate/generation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "generate/stop_filter.h"
#include "grammar/matcher.h"
#include "tokenizer/utf8.h"

namespace sluice::generate {
namespace {

Status validate(const Options& options) {
  if (options.max_tokens < -1) {
    return error(Code::kInvalidArgument, "max_tokens is %lld but must be -1 (no limit) or more",
                 static_cast<long long>(options.max_tokens));
  }
  if (options.logprobs < -1 || options.logprobs > kMaxTopLogprobs) {
    return error(Code::kInvalidArgument, "logprobs is %d but must be -1 (none) to %d",
                 options.logprobs, kMaxTopLogprobs);
  }
  if (options.stop.size() > static_cast<size_t>(kMaxStops)) {
    return error(Code::kInvalidArgument, "%zu stop strings are given but at most %d are allowed",
                 options.stop.size(), kMaxStops);
  }
  if (options.stop_tokens.size() > static_cast<size_t>(kMaxStops)) {
    return error(Code::kInvalidArgument, "%zu stop tokens are given but at most %d are allowed",
                 options.stop_tokens.size(), kMaxStops);
  }
  for (const std::string& stop : options.stop) {
    if (stop.empty()) return error(Code::kInvalidArgument, "a stop string is empty");
    if (stop.size() > kMaxStopBytes) {
      return error(Code::kInvalidArgument,
                   "a stop string has %zu bytes but at most %zu are allowed", stop.size(),
                   kMaxStopBytes);
    }
    if (!tokenizer::is_valid_utf8(stop)) {
      return error(Code::kInvalidArgument, "a stop string is not UTF-8");
    }
  }
  return {};
}

// The error for a sampler that found no token.
Status no_token(std::span<const float> logits) {
  for (const float logit : logits) {
    if (logit > -INFINITY) {
      return error(Code::kInvalidArgument,
                   "logit_bias bans every token that the model can generate");
    }
  }
  return error(Code::kCorrupt, "the model's logits are not numbers: its weights are damaged");
}

// The prompt of an encoder-decoder model: encoder tokens (inverted), then the decoder's start
// token.
std::vector<Token> as_source(std::span<const Token> prompt, Token start) {
  std::vector<Token> out;
  for (const Token token : prompt) out.push_back(~token);
  out.push_back(start);
  return out;
}

double rate(int32_t tokens, double ms) {
  return tokens > 0 && ms > 0 ? tokens * 1000 / ms : 0;
}

}  // namespace

double Counts::prompt_tokens_per_second() const {
  return rate(computed, prompt_ms);
}

double Counts::tokens_per_second() const {
  return rate(generated - 1, generate_ms);  // the first token comes from the prompt's pass
}

struct Generation::Impl {
  enum class State : uint8_t { kPass, kChoose, kDraft, kEnded };

  Impl(session::Session& s, const Options& o, bool sees)
      : session(s),
        tokenizer(s.context().tokenizer),
        options(o),
        sampler(o.sampling, s.context().program.hp.n_vocab),
        decoder(tokenizer),
        filter(options.stop) {
    // Encoder-decoder models have no memory planned for draft tokens, so they decode without.
    // A model that drafts cannot read pictures, and a recurrent state could rewind to before one.
    Drafts drafts = o.drafts;
    if (sees) drafts.model = nullptr;
    const bool rewinds = !sees || !s.context().plan.kv.shape.recurrent();
    if (drafts.any() && rewinds && s.context().program.decoder == 0) drafter.emplace(s, drafts);
  }
  ~Impl() { cancel(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status constrain();
  Status start(std::span<const Token> prompt);
  Status start_with_media(std::span<const Token> prompt);
  Status begin_part();
  Step advance(int32_t max_ops);
  Step choose();
  Step go_on();
  Step draft_step(int32_t max_ops);
  Step begin_pass();
  [[nodiscard]] int32_t steps_to_queue() const;
  Status begin_queue(int32_t steps);
  Result<Token> pick();
  [[nodiscard]] std::span<const float> logits() const {
    return session.logits(length - 1 - first_row);
  }
  bool emit_token(Token token, double now);
  bool jump_forward(double now, std::vector<Token>* tokens);
  bool stops_at(Token token);
  Piece make_piece(Token token);
  void release(bool all);
  Step end(Finish how);
  Step fail(Status why);
  void cut_prompt();
  void cancel();

  session::Session& session;
  const tokenizer::Tokenizer& tokenizer;
  const Options options;
  std::vector<Token> parts;  // a prompt with pictures, whose parts are passes of their own
  sample::Sampler sampler;
  tokenizer::StreamDecoder decoder;  // sees no prompt; its first token continues a text
  StopFilter filter;
  std::unique_ptr<grammar::Matcher> matcher;  // null: no constraint

  State state = State::kEnded;
  bool in_prompt = true;
  std::optional<Drafter> drafter;
  float sampling[4 + session::kMaxQueue];  // of `queue`
  session::StepQueue queue;                // steps whose tokens the executor chooses
  int32_t queued = 0;                      // steps of the pass, if it is a queue
  std::vector<Token> upcoming;             // tokens of the next pass
  int32_t length = 0;                      // tokens of the sequence before unconfirmed draft tokens
  int32_t first_row = 0;                   // position whose logits are the first of the pass
  std::vector<Piece> pieces;  // the first `ready` of them can be taken, the others are held
  size_t ready = 0;
  uint64_t released_bytes = 0;  // text bytes of all pieces that became ready
  Finish finish = Finish::kNone;
  Status failure;
  std::string stop_string;
  Counts counts;
  const double started = monotonic_ms();
  double prompt_end = 0;
};

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
    if (media.first == at) return session.begin_media(media.input);
    if (media.first > at) end = std::min(end, static_cast<size_t>(media.first));
  }
  return session.begin(
      std::span(parts).subspan(static_cast<size_t>(at), end - static_cast<size_t>(at)));
}

Step Generation::Impl::advance(int32_t max_ops) {
  const Step step = session.step(max_ops);
  if (in_prompt) counts.computed = session.position() - counts.cached;
  if (step == Step::kFailed) return fail(session.failure());
  if (step != Step::kDone) return step;
  if (in_prompt && static_cast<size_t>(session.position()) < parts.size()) {
    Status begun = begin_part();
    return begun.ok() ? Step::kProgress : fail(std::move(begun));
  }
  if (in_prompt) {
    length = session.position();
    first_row = length - 1;
    prompt_end = monotonic_ms();
    counts.prompt_ms = prompt_end - started;
    in_prompt = false;
    if (options.max_tokens == 0) return end(Finish::kLength);
  }
  state = State::kChoose;
  return Step::kProgress;
}

// Samples a token. If the grammar rejects it, samples again from the allowed tokens only, which
// gives the same distribution as masking first. (Not quite if top-p or the like cut the tail, so
// that reported probabilities need the mask every time.)
Result<Token> Generation::Impl::pick() {
  const std::span<const Token> chosen = session.chosen();
  if (!chosen.empty()) {
    sampler.skip();
    return chosen[static_cast<size_t>(length - 1 - first_row)];
  }
  const std::span<const float> row = logits();
  std::span<const Token> text = session.tokens().first(static_cast<size_t>(length));
  text = text.subspan(static_cast<size_t>(session::source_of(text)));
  Token token = sampler.sample(row, text);
  if (token == sample::kNoToken) return no_token(row);
  if (const size_t at = static_cast<size_t>(counts.generated); at < options.script.size()) {
    return options.script[at];
  }
  if (!matcher || (!options.post_sampling_probs && matcher->accepts(token))) return token;
  token = sampler.sample(row, text, matcher->mask());
  if (matcher->failed()) {
    return error(Code::kGrammarTooLarge, "the grammar is too ambiguous for this output");
  }
  if (token == sample::kNoToken) {
    return error(Code::kInvalidArgument, "no token of the model can continue this grammar");
  }
  return token;
}

// Adds a token to the output; true if that ends the generation.
bool Generation::Impl::emit_token(Token token, double now) {
  ++counts.generated;
  if (drafter) drafter->said(token);
  counts.generate_ms = now - prompt_end;
  pieces.push_back(make_piece(token));
  filter.push(pieces.back().text);
  release(/*all=*/false);
  if (filter.stopped() != nullptr) {
    static_cast<void>(end(Finish::kStop));
  } else if (matcher && matcher->must_end()) {
    static_cast<void>(end(Finish::kStop));
  } else if (counts.generated == options.max_tokens) {
    static_cast<void>(end(Finish::kLength));
  }
  return state == State::kEnded;
}

// Jump-forward: emits the text that the grammar forces, tokenized as the model would, and adds its
// tokens to the next pass. The last token is not emitted, because following text could make it
// longer. True if the generation has ended.
bool Generation::Impl::jump_forward(double now, std::vector<Token>* tokens) {
  constexpr size_t kMaxBytes = 1024;
  if (!matcher || options.logprobs >= 0) return false;
  const std::string text = matcher->forced(kMaxBytes);
  if (text.empty()) return false;
  Result<std::vector<Token>> ids = tokenizer.try_encode(
      text, {.add_special = false, .parse_special = false, .continuation = true});
  if (!ids.ok() || ids->empty()) return false;
  const int64_t room = session.context().plan.context.n_ctx - length - 2;
  ids->pop_back();
  for (const Token id : *ids) {
    if (static_cast<int64_t>(tokens->size()) > room || stops_at(id) || !matcher->advance(id)) {
      return false;
    }
    ++counts.forced;
    if (emit_token(id, now)) return true;
    tokens->push_back(id);
  }
  return false;
}

// Whether a token ends the output before it.
bool Generation::Impl::stops_at(Token token) {
  const auto& ids = options.stop_tokens;
  if (std::find(ids.begin(), ids.end(), token) != ids.end()) return true;
  if (options.stop.empty() || !tokenizer.is_control(token)) return false;
  const auto found = std::find(options.stop.begin(), options.stop.end(), tokenizer.piece(token));
  if (found == options.stop.end()) return false;
  stop_string = *found;
  return true;
}

Step Generation::Impl::choose() {
  Result<Token> picked = pick();
  if (!picked.ok()) return fail(picked.status());
  const Token token = *picked;
  const double now = monotonic_ms();
  if (counts.generated == 0) counts.time_to_first_token_ms = now - started;
  const bool free = options.ignore_eos && !matcher;
  if (stops_at(token) || (!free && tokenizer.is_end_of_generation(token))) {
    return end(Finish::kStop);
  }
  if (matcher) static_cast<void>(matcher->advance(token));
  if (emit_token(token, now)) return Step::kDone;
  upcoming.assign(1, token);
  if (jump_forward(now, &upcoming)) return Step::kDone;
  return go_on();
}

// Accepted draft tokens are computed already. The other tokens begin the next pass. A recurrent
// state may rewind further to drop rejected draft tokens; the tokens in between are recomputed.
Step Generation::Impl::go_on() {
  const std::span<const Token> held = session.tokens();
  size_t known = 0;
  while (known < upcoming.size() && static_cast<size_t>(length) < held.size() &&
         held[static_cast<size_t>(length)] == upcoming[known]) {
    ++known;
    ++length;
  }
  (queued > 0 ? counts.passes : counts.accepted) += static_cast<int32_t>(known);
  if (known == upcoming.size()) return Step::kProgress;
  upcoming.erase(upcoming.begin(), upcoming.begin() + static_cast<std::ptrdiff_t>(known));
  const session::MemoryPlan& plan = session.context().plan;
  const int64_t room = plan.context.n_ctx - length - static_cast<int64_t>(upcoming.size());
  if (room < 0) return end(Finish::kContext);
  if (static_cast<size_t>(length) < held.size()) {  // `held` is valid until a pass begins
    const int32_t reached = session.rewind(length);
    upcoming.insert(upcoming.begin(), held.begin() + reached, held.begin() + length);
  }
  state = State::kDraft;
  if (!drafter) return begin_pass();
  int64_t most =
      std::min<int64_t>(room, plan.batch.draft_batch - static_cast<int64_t>(upcoming.size()));
  most = std::min<int64_t>(most, session.rows_share() - 1);
  most = std::min(
      most, session.sequence().tokens_until_eviction() - static_cast<int64_t>(upcoming.size()));
  if (options.max_tokens >= 0) most = std::min(most, options.max_tokens - counts.generated - 1);
  drafter->begin(upcoming, static_cast<int32_t>(most));
  return Step::kProgress;
}

Step Generation::Impl::draft_step(int32_t max_ops) {
  const Step step = drafter->step(max_ops);
  if (step == Step::kFailed) return fail(drafter->failure());
  return step == Step::kDone ? begin_pass() : step;
}

// How many steps the executor may choose the tokens of; 0 or 1: none. Behind a queue that ended
// early the sampler decides.
int32_t Generation::Impl::steps_to_queue() const {
  const sample::Params& params = options.sampling;
  const bool drawn = params.temperature > 0;
  const int32_t most = session.max_queue();
  if (most < 2 || upcoming.size() != 1 || drafter || matcher || options.logprobs >= 0 ||
      !options.script.empty() || !sample::keeps_logits(params) ||
      (drawn && (params.top_k < 1 || params.top_k > session::kMaxQueuedTopK)) ||
      static_cast<int32_t>(session.chosen().size()) < queued) {
    return 0;
  }
  if (options.max_tokens < 0) return most;
  return static_cast<int32_t>(std::min<int64_t>(options.max_tokens - counts.generated, most));
}

Status Generation::Impl::begin_queue(int32_t steps) {
  if (!options.ignore_eos) queue.stops = tokenizer.end_of_generation();
  const sample::Params& params = options.sampling;
  if (params.temperature > 0) {
    const std::span<float> all(sampling, 4 + static_cast<size_t>(steps));
    all[0] = params.temperature;
    all[1] = static_cast<float>(params.top_k);
    all[2] = params.top_p;
    all[3] = params.min_p;
    sampler.peek(all.subspan(4));
    queue.sampling = all;
  }
  return session.begin_queue(upcoming[0], steps, queue);
}

Step Generation::Impl::begin_pass() {
  const int32_t steps = steps_to_queue();
  queued = steps > 1 ? steps : 0;
  const size_t said = upcoming.size();
  if (drafter) {
    const std::span<const Token> drafts = drafter->draft_tokens();
    upcoming.insert(upcoming.end(), drafts.begin(), drafts.end());
  }
  const int32_t drafted = static_cast<int32_t>(upcoming.size() - said);
  Status begun = queued > 0    ? begin_queue(steps)
                 : drafted > 0 ? session.begin_last(upcoming, drafted + 1)
                               : session.begin(upcoming);
  if (!begun.ok()) return fail(std::move(begun));
  length = session.position() + static_cast<int32_t>(said);
  first_row = length - 1;
  ++counts.passes;
  counts.drafted += drafted;
  state = State::kPass;
  return Step::kProgress;
}

Piece Generation::Impl::make_piece(Token token) {
  Piece piece;
  piece.token = token;
  piece.text = decoder.push(token, options.special);
  if (options.logprobs >= 0) {
    piece.bytes = tokenizer.token_bytes(token, /*special=*/true);
    // The first word of a text has no space in SentencePiece.
    if (piece.bytes.starts_with(' ') &&
        piece.bytes.compare(1, std::string::npos, piece.text) == 0) {
      piece.bytes.erase(0, 1);
    }
    piece.top = options.post_sampling_probs
                    ? sampler.top_logprobs(options.logprobs, token)
                    : sample::top_logprobs(logits(), options.logprobs, token);
    piece.logprob = piece.top.back().logprob;
    piece.top.pop_back();
  }
  return piece;
}

// Releases the pieces whose text is ready. The last one is held while a character in it is
// incomplete: if the generation ends here, that character's replacement is part of this piece.
void Generation::Impl::release(bool all) {
  for (; ready < pieces.size(); ++ready) {
    const uint64_t text_end = released_bytes + pieces[ready].text.size();
    const bool open = ready + 1 == pieces.size() && decoder.unfinished();
    if (!all && (open || text_end > filter.ready())) break;
    released_bytes = text_end;
  }
}

Step Generation::Impl::end(Finish how) {
  if (how != Finish::kCancelled && filter.stopped() == nullptr) {
    const std::string rest = decoder.finish();
    if (!rest.empty()) {
      pieces.back().text += rest;
      filter.push(rest);
    }
  }
  finish = how;
  state = State::kEnded;
  if (!in_prompt && session.position() > length) {
    static_cast<void>(session.rewind(length));  // drop unconfirmed draft tokens
  }
  if (filter.stopped() != nullptr) {
    if (how != Finish::kFailed) finish = Finish::kStop;
    stop_string = *filter.stopped();
    release(/*all=*/false);
    const uint64_t left = filter.ready() - released_bytes;
    if (left > 0) {  // text before the stop string, in the piece where it begins
      pieces[ready].text.resize(static_cast<size_t>(left));
      ++ready;
    }
  } else if (how != Finish::kCancelled) {
    release(/*all=*/true);
  }
  while (pieces.size() > ready) pieces.pop_back();
  return Step::kDone;
}

Step Generation::Impl::fail(Status why) {
  cut_prompt();
  failure = std::move(why);
  static_cast<void>(end(Finish::kFailed));
  return Step::kFailed;
}

// Cancels the pass under way and notes how long the prompt took so far.
void Generation::Impl::cut_prompt() {
  if (in_prompt) counts.prompt_ms = monotonic_ms() - started;
  session.cancel();
  if (drafter) drafter->cancel();
}

void Generation::Impl::cancel() {
  if (state == State::kEnded) return;
  cut_prompt();
  static_cast<void>(end(Finish::kCancelled));
}

uint64_t Generation::memory_bytes(const Options& options, int64_t n_vocab) {
  uint64_t bytes = sizeof(Impl) + sample::Sampler::memory_bytes(n_vocab) +
                   options.sampling.logit_bias.size() * sizeof(options.sampling.logit_bias[0]) +
                   options.stop_tokens.size() * sizeof(Token);
  for (const std::string& stop : options.stop) {
    bytes += sizeof(stop) + stop.size() + StopFilter::memory_bytes(stop);
  }
  return bytes;
}

Generation::Generation(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generation::~Generation() = default;

Result<std::unique_ptr<Generation>> Generation::begin(session::Session& session,
                                                      std::span<const Token> prompt,
                                                      const Options& options) {
  SLUICE_RETURN_IF_ERROR(validate(options));
  const model::HParams& hp = session.context().program.hp;
  if (!hp.attention.causal) {
    return error(Code::kInvalidArgument,
                 "a \"%s\" model has bidirectional attention: it cannot generate text",
                 hp.arch.c_str());
  }
  const int64_t n_vocab = session.context().program.hp.n_vocab;
  SLUICE_RETURN_IF_ERROR(sample::validate(options.sampling, n_vocab));
  for (const Token token : options.stop_tokens) {
    if (token >= 0 && token < n_vocab) continue;
    return error(Code::kInvalidArgument, "the stop token %d is not in the vocabulary", token);
  }
  const bool sees =
      std::any_of(prompt.begin(), prompt.end(), [](Token t) { return t >= session::kMediaToken; });
  auto impl = std::make_unique<Impl>(session, options, sees);
  if (!impl->sampler.allocated()) {
    return error(Code::kOutOfMemory, "the operating system refused memory for a sampler");
  }
  SLUICE_RETURN_IF_ERROR(impl->constrain());
  if (impl->drafter) SLUICE_RETURN_IF_ERROR(impl->drafter->start(prompt));
  SLUICE_RETURN_IF_ERROR(options.media.empty() ? impl->start(prompt)
                                               : impl->start_with_media(prompt));
  return std::unique_ptr<Generation>(new Generation(std::move(impl)));
}

Step Generation::step(int32_t max_ops) {
  switch (impl_->state) {
    case Impl::State::kPass:
      return impl_->advance(max_ops);
    case Impl::State::kChoose:
      return impl_->choose();
    case Impl::State::kDraft:
      return impl_->draft_step(max_ops);
    case Impl::State::kEnded:
      break;
  }
  return impl_->finish == Finish::kFailed ? Step::kFailed : Step::kDone;
}

void Generation::cancel() {
  impl_->cancel();
}

std::vector<Piece> Generation::take_pieces() {
  std::vector<Piece>& pieces = impl_->pieces;
  const auto end = pieces.begin() + static_cast<std::ptrdiff_t>(impl_->ready);
  std::vector<Piece> taken(std::make_move_iterator(pieces.begin()), std::make_move_iterator(end));
  pieces.erase(pieces.begin(), end);
  impl_->ready = 0;
  return taken;
}

Finish Generation::finish() const {
  return impl_->finish;
}

const Status& Generation::failure() const {
  return impl_->failure;
}

const std::string& Generation::stop_string() const {
  return impl_->stop_string;
}

const Counts& Generation::counts() const {
  return impl_->counts;
}

bool Generation::in_prompt() const {
  return impl_->in_prompt;
}

bool Generation::waits_for_pass() const {
  const session::Session& session = impl_->session;
  return impl_->state == Impl::State::kPass && session.busy() && session.in_batcher();
}

bool Generation::computing() const {
  return drafting() || (impl_->state == Impl::State::kPass && impl_->session.busy());
}

bool Generation::drafting() const {
  return impl_->state == Impl::State::kDraft;
}

}  // namespace sluice::generate
