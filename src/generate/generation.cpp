// Generations from outside: checks options, steps and ends. generation_state.h says how they work.
#include "generate/generation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "generate/generation_state.h"
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
  return impl_->state == Impl::State::kPass && session.busy() && session.batch_share().batched;
}

bool Generation::computing() const {
  return drafting() || (impl_->state == Impl::State::kPass && impl_->session.busy());
}

bool Generation::drafting() const {
  return impl_->state == Impl::State::kDraft;
}

}  // namespace sluice::generate
