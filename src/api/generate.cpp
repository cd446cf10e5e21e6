// sluice_generate: checks the options and runs one generation to its end.
#include "api/handles.h"
#include "chat/pictures.h"
#include "generate/context_warning.h"

namespace sluice::api {
namespace {

sluice_generate_options default_generate_options() {
  sluice_generate_options options = {};
  options.size = sizeof options;
  options.max_tokens = -1;
  options.prompt_flags = SLUICE_ADD_SPECIAL | SLUICE_PARSE_SPECIAL;
  options.skip_special_tokens = 1;
  options.logprobs = -1;
  return options;
}

Status set_form(const sluice_generate_options& given, generate::Options* out) {
  constexpr grammar::Kind kKinds[] = {grammar::Kind::kGbnf, grammar::Kind::kRegex,
                                      grammar::Kind::kChoice, grammar::Kind::kJson,
                                      grammar::Kind::kJsonSchema};
  SLUICE_RETURN_IF_ERROR(check_range(given.constraint, SLUICE_CONSTRAINT_NONE,
                                     SLUICE_CONSTRAINT_JSON_SCHEMA, "constraint"));
  SLUICE_RETURN_IF_ERROR(check_flag(given.whitespace, "whitespace"));
  if (given.constraint == SLUICE_CONSTRAINT_NONE) return {};
  if (given.constraint_text == nullptr && given.constraint != SLUICE_CONSTRAINT_JSON) {
    return null_argument("constraint_text");
  }
  out->constraint = generate::Constraint();
  out->constraint->kind = kKinds[given.constraint - 1];
  if (given.constraint_text != nullptr) out->constraint->text = given.constraint_text;
  out->constraint->options.compact = given.whitespace == 0;
  return {};
}

Result<generate::Options> generate_options(const sluice_generate_options& given) {
  generate::Options out;
  Result<sample::Params> sampling = sampling_params(given.sampling);
  if (!sampling.ok()) return sampling.status();
  out.sampling = std::move(*sampling);
  out.max_tokens = given.max_tokens;
  SLUICE_RETURN_IF_ERROR(check_flag(given.skip_special_tokens, "skip_special_tokens"));
  SLUICE_RETURN_IF_ERROR(check_flag(given.ignore_eos, "ignore_eos"));
  out.special = given.skip_special_tokens == 0;
  out.ignore_eos = given.ignore_eos != 0;
  out.logprobs = given.logprobs;
  SLUICE_RETURN_IF_ERROR(check_array(given.stop, given.n_stop, "stop"));
  const size_t n_stop = std::min<size_t>(given.n_stop, generate::kMaxStops + 1);  // one too many
  for (size_t i = 0; i < n_stop; ++i) {
    if (given.stop[i] == nullptr) return null_argument("stop[i]");
    out.stop.emplace_back(given.stop[i]);
  }
  SLUICE_RETURN_IF_ERROR(check_array(given.stop_tokens, given.n_stop_tokens, "stop_tokens"));
  const size_t n_tokens = std::min<size_t>(given.n_stop_tokens, generate::kMaxStops + 1);
  if (n_tokens > 0) out.stop_tokens.assign(given.stop_tokens, given.stop_tokens + n_tokens);
  SLUICE_RETURN_IF_ERROR(set_form(given, &out));
  return out;
}

// A prompt with pictures, of which the engine makes tokens.
struct PicturePrompt {
  std::string_view text;
  tokenizer::EncodeOptions encoding;
  std::span<const sluice_picture> pictures;
};

Status add_picture(native::PictureFile& pictures, const sluice_picture& given) {
  const media::Bytes bytes(given.bytes, given.length);
  if (given.width == 0 && given.height == 0) return pictures.add_file(bytes, {});
  return pictures.add_pixels(bytes, given.width, given.height);
}

Status check_pictures(const sluice_generate_options& given, PicturePrompt* out) {
  SLUICE_RETURN_IF_ERROR(check_array(given.pictures, given.n_pictures, "pictures"));
  if (given.n_pictures > chat::kMaxPictures) {
    return error(Code::kInvalidArgument, "a prompt has at most %zu pictures", chat::kMaxPictures);
  }
  out->pictures = {given.pictures, given.n_pictures};
  for (const sluice_picture& picture : out->pictures) {
    SLUICE_RETURN_IF_ERROR(check_array(picture.bytes, picture.length, "pictures[i].bytes"));
  }
  return {};
}

// One generation, which passes its tokens to the caller's callback.
class Answer {
 public:
  Answer(sluice_session& handle, const sluice_generate_options& given)
      : handle_(handle), given_(given), cancels_(handle.cancels) {}

  // `seen`: null, or in place of `prompt`.
  Status run(std::span<const Token> prompt, const PicturePrompt* seen, generate::Options options,
             sluice_result* result) {
    return handle_.loaded->take_turn([&]() -> Status {
      const Status status = generate(prompt, seen, options, result);
      if (seen == nullptr) return status;
      const Status ended = handle_.loaded->pictures()->end();
      return status.ok() ? ended : status;
    });
  }

 private:
  // Encodes the pictures that the session does not hold.
  Status look(session::Session& session, const PicturePrompt& seen, std::vector<Token>* tokens,
              generate::Options* options) {
    native::PictureFile& pictures = *handle_.loaded->pictures();
    SLUICE_RETURN_IF_ERROR(pictures.end());
    for (const sluice_picture& picture : seen.pictures) {
      SLUICE_RETURN_IF_ERROR(add_picture(pictures, picture));
    }
    Result<std::vector<Token>> read = pictures.layout(seen.text, seen.encoding);
    if (!read.ok()) return read.status();
    *tokens = std::move(*read);
    return pictures.encode(session, *tokens, options,
                           [this] { return handle_.cancels != cancels_; });
  }

  Status generate(std::span<const Token> prompt, const PicturePrompt* seen,
                  generate::Options& options, sluice_result* result) {
    handle_.rows = 0;
    const Result<session::Session*> session = enter(handle_, cancels_);
    if (session.status().code() == Code::kAborted) {
      result->finish = SLUICE_FINISH_CANCELLED;
      return {};
    }
    if (!session.ok()) return session.status();
    if (options.constraint) {
      SLUICE_RETURN_IF_ERROR(handle_.loaded->reserve_structured_output());
    }
    std::vector<Token> tokens;
    if (seen != nullptr) {
      const Status looked = look(**session, *seen, &tokens, &options);
      if (looked.code() == Code::kAborted && handle_.cancels != cancels_) {
        result->finish = SLUICE_FINISH_CANCELLED;
        return {};
      }
      SLUICE_RETURN_IF_ERROR(looked);
      prompt = tokens;
    }
    auto begun = generate::Generation::begin(**session, prompt, options);
    if (!begun.ok()) return begun.status();
    generate::Generation& generation = **begun;
    Status status =
        handle_.loaded->model().drive([&](int32_t max_ops) { return step(generation, max_ops); });
    if (status.ok()) status = waited_;
    if (cancelled_ || !status.ok()) generation.cancel();
    if (status.ok()) status = generation.failure();
    handle_.loaded->note_work(&generation.counts(), /*ended=*/true);
    describe(generation, options, status.ok(), result);
    warn(generate::context_warning(generation.counts(), (*session)->context().plan));
    return status;
  }

  void warn(const std::string& text) const {
    if (!text.empty() && handle_.loaded->on_warning) handle_.loaded->on_warning(text.c_str());
  }
  session::Step step(generate::Generation& generation, int32_t max_ops) {
    cancelled_ = handle_.cancels != cancels_;
    if (cancelled_) return session::Step::kDone;
    session::Step step = generation.step(max_ops);
    if (step == session::Step::kBlocked && generation.drafting() &&
        handle_.loaded->draft() != nullptr) {
      waited_ = handle_.loaded->draft()->wait();
      step = waited_.ok() ? session::Step::kProgress : session::Step::kDone;
    }
    const std::vector<generate::Piece> pieces = generation.take_pieces();
    if (!pieces.empty()) handle_.loaded->note_work(&generation.counts(), /*ended=*/false);
    for (const generate::Piece& piece : pieces) {
      if (hand_over(piece)) continue;
      cancelled_ = true;
      return session::Step::kDone;
    }
    return step;
  }

  // Calls the callback; false ends the generation.
  bool hand_over(const generate::Piece& piece) {
    if (given_.on_token == nullptr) return true;
    top_.clear();
    for (const sample::Candidate& c : piece.top) top_.push_back({c.token, c.logprob});
    const sluice_token_event event = {piece.token,   piece.text.c_str(), piece.text.size(),
                                      piece.logprob, top_.data(),        top_.size()};
    return given_.on_token(given_.token_user, &event) == 0;
  }

  void describe(const generate::Generation& generation, const generate::Options& options, bool ok,
                sluice_result* result) const {
    const generate::Counts& counts = generation.counts();
    result->finish = !ok          ? SLUICE_FINISH_NONE
                     : cancelled_ ? SLUICE_FINISH_CANCELLED
                                  : static_cast<int32_t>(generation.finish());
    const auto stop = std::find(options.stop.begin(), options.stop.end(), generation.stop_string());
    result->stop_index =
        stop == options.stop.end() ? -1 : static_cast<int32_t>(stop - options.stop.begin());
    result->prompt_tokens = counts.prompt;
    result->cached_tokens = counts.cached;
    result->generated_tokens = counts.generated;
    result->prompt_ms = counts.prompt_ms;
    result->time_to_first_token_ms = counts.time_to_first_token_ms;
    result->generate_ms = counts.generate_ms;
    result->prompt_tokens_per_second = counts.prompt_tokens_per_second();
    result->tokens_per_second = counts.tokens_per_second();
    result->drafted_tokens = counts.drafted;
    result->accepted_tokens = counts.accepted;
    result->forward_passes = counts.passes;
  }

  sluice_session& handle_;
  const sluice_generate_options& given_;
  const uint32_t cancels_;
  bool cancelled_ = false;
  Status waited_;  // result of waiting for the draft model's weights
  std::vector<sluice_token_logprob> top_;
};

static_assert(static_cast<int>(generate::Finish::kStop) == SLUICE_FINISH_STOP &&
              static_cast<int>(generate::Finish::kLength) == SLUICE_FINISH_LENGTH &&
              static_cast<int>(generate::Finish::kContext) == SLUICE_FINISH_CONTEXT &&
              static_cast<int>(generate::Finish::kCancelled) == SLUICE_FINISH_CANCELLED);

// `tokens_of(options, &tokens)` writes the prompt's tokens; with pictures, `text` is the prompt.
template <typename TokensOf>
Status generate(sluice_session& handle, const sluice_generate_options* options,
                sluice_result* result, const std::string_view* text, TokensOf&& tokens_of) {
  sluice_generate_options given = default_generate_options();
  if (options != nullptr) SLUICE_RETURN_IF_ERROR(read_struct(options, &given));
  sluice_result found = {};
  found.stop_index = -1;
  if (result != nullptr) SLUICE_RETURN_IF_ERROR(check_size(*result));
  Answer answer(handle, given);  // sluice_session_cancel takes effect from here on
  Result<generate::Options> how = generate_options(given);
  if (!how.ok()) return how.status();
  std::vector<Token> prompt;
  std::optional<PicturePrompt> seen;
  if (given.n_pictures > 0) {
    if (handle.loaded->pictures() == nullptr) {
      return error(Code::kNotSupported,
                   "the model takes no pictures: it was loaded without projector");
    }
    if (text == nullptr) {
      return error(Code::kInvalidArgument, "pictures need a prompt given as text");
    }
    const Result<tokenizer::EncodeOptions> encoding = encode_options(given.prompt_flags);
    if (!encoding.ok()) return encoding.status();
    seen.emplace(PicturePrompt{*text, *encoding, {}});
    SLUICE_RETURN_IF_ERROR(check_pictures(given, &*seen));
  } else {
    SLUICE_RETURN_IF_ERROR(tokens_of(given, &prompt));
  }
  how->drafts = handle.loaded->drafts();
  const Status status = answer.run(prompt, seen ? &*seen : nullptr, std::move(*how), &found);
  if (result != nullptr) SLUICE_RETURN_IF_ERROR(write_struct(found, result, result->size));
  return status;
}

}  // namespace
}  // namespace sluice::api

using namespace sluice;
using namespace sluice::api;

extern "C" {

sluice_status sluice_generate_options_default(sluice_generate_options* options, size_t size) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(options);
    return write_struct(default_generate_options(), options, size);
  });
}

sluice_status sluice_generate(sluice_session* session, const char* prompt, size_t length,
                              const sluice_generate_options* options, sluice_result* result) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    const Result<std::string_view> text = text_of(prompt, length, "prompt");
    if (!text.ok()) return text.status();
    return api::generate(
        *session, options, result, &*text,
        [&](const sluice_generate_options& given, std::vector<Token>* tokens) -> Status {
          const Result<tokenizer::EncodeOptions> how = encode_options(given.prompt_flags);
          if (!how.ok()) return how.status();
          Result<std::vector<Token>> found = session->loaded->tokenizer().try_encode(*text, *how);
          if (!found.ok()) return found.status();
          *tokens = std::move(*found);
          return {};
        });
  });
}

sluice_status sluice_generate_tokens(sluice_session* session, const int32_t* prompt, size_t n,
                                     const sluice_generate_options* options,
                                     sluice_result* result) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    SLUICE_RETURN_IF_ERROR(check_array(prompt, n, "prompt"));
    SLUICE_RETURN_IF_ERROR(check_tokens({prompt, n}, session->loaded->n_vocab()));
    return api::generate(*session, options, result, nullptr,
                         [&](const sluice_generate_options&, std::vector<Token>* tokens) {
                           tokens->assign(prompt, prompt + n);
                           return Status();
                         });
  });
}

}  // extern "C"
