// Tokenizing, detokenizing and sampling: functions that run no forward pass.
#include "api/handles.h"
#include "base/random.h"

struct sluice_sampler {
  sluice::sample::Sampler sampler;
  int64_t n_vocab;
};

namespace sluice::api {
namespace {

sluice_sampling default_sampling() {
  const sample::Params params;
  sluice_sampling out = {};
  out.size = sizeof out;
  out.seed = random_seed();
  out.temperature = params.temperature;
  out.top_k = params.top_k;
  out.top_p = params.top_p;
  out.min_p = params.min_p;
  out.repeat_penalty = params.repeat_penalty;
  out.frequency_penalty = params.frequency_penalty;
  out.presence_penalty = params.presence_penalty;
  out.penalty_last_n = params.penalty_last_n;
  return out;
}

}  // namespace

Result<sample::Params> sampling_params(const sluice_sampling* given) {
  sample::Params out;
  out.seed = random_seed();
  if (given == nullptr) return out;
  sluice_sampling s = {};
  SLUICE_RETURN_IF_ERROR(read_struct(given, &s));
  SLUICE_RETURN_IF_ERROR(check_array(s.logit_bias, s.n_logit_bias, "logit_bias"));
  SLUICE_RETURN_IF_ERROR(
      check_range(static_cast<int64_t>(std::min<size_t>(s.n_logit_bias, sample::kMaxLogitBias + 1)),
                  0, static_cast<int64_t>(sample::kMaxLogitBias), "n_logit_bias"));
  out.seed = s.seed;
  out.temperature = s.temperature;
  out.top_k = s.top_k;
  out.top_p = s.top_p;
  out.min_p = s.min_p;
  out.repeat_penalty = s.repeat_penalty;
  out.frequency_penalty = s.frequency_penalty;
  out.presence_penalty = s.presence_penalty;
  out.penalty_last_n = s.penalty_last_n;
  for (size_t i = 0; i < s.n_logit_bias; ++i) {
    out.logit_bias.emplace_back(s.logit_bias[i].token, s.logit_bias[i].bias);
  }
  return out;
}

Result<tokenizer::EncodeOptions> encode_options(uint32_t flags) {
  constexpr uint32_t kKnown =
      SLUICE_ADD_SPECIAL | SLUICE_PARSE_SPECIAL | SLUICE_CONTINUATION | SLUICE_LITERAL_SPANS;
  if ((flags & ~kKnown) != 0) {
    return error(Code::kInvalidArgument, "the text flags %u contain an unknown flag", flags);
  }
  return tokenizer::EncodeOptions{.add_special = (flags & SLUICE_ADD_SPECIAL) != 0,
                                  .parse_special = (flags & SLUICE_PARSE_SPECIAL) != 0,
                                  .continuation = (flags & SLUICE_CONTINUATION) != 0,
                                  .literal_spans = (flags & SLUICE_LITERAL_SPANS) != 0};
}

namespace {

Status create_sampler(const sluice_engine& engine, const sluice_sampling* sampling,
                      sluice_sampler** sampler) {
  const Result<sample::Params> params = sampling_params(sampling);
  if (!params.ok()) return params.status();
  const int64_t n_vocab = engine.loaded->n_vocab();
  SLUICE_RETURN_IF_ERROR(sample::validate(*params, n_vocab));
  std::unique_ptr<sluice_sampler> made(
      new sluice_sampler{sample::Sampler(*params, n_vocab), n_vocab});
  if (!made->sampler.allocated()) {
    return error(Code::kOutOfMemory, "the operating system refused memory for a sampler");
  }
  *sampler = made.release();
  return {};
}

Status sample_token(sluice_sampler& sampler, std::span<const float> logits,
                    std::span<const Token> history, int32_t* token) {
  if (static_cast<int64_t>(logits.size()) != sampler.n_vocab) {
    return error(Code::kInvalidArgument, "%zu logits are given but the vocabulary has %lld tokens",
                 logits.size(), static_cast<long long>(sampler.n_vocab));
  }
  SLUICE_RETURN_IF_ERROR(check_tokens(history, sampler.n_vocab));
  const Token chosen = sampler.sampler.sample(logits, history);
  if (chosen == sample::kNoToken) {
    return error(Code::kInvalidArgument,
                 "no token can be sampled: all logits are minus infinity or not numbers");
  }
  *token = chosen;
  return {};
}

}  // namespace
}  // namespace sluice::api

using namespace sluice;
using namespace sluice::api;

extern "C" {

sluice_status sluice_tokenize(const sluice_engine* engine, const char* text, size_t length,
                              uint32_t flags, int32_t* out, size_t capacity, size_t* count) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_REFUSE_NULL(count);
    SLUICE_RETURN_IF_ERROR(check_array(out, capacity, "out"));
    const Result<std::string_view> from = text_of(text, length, "text");
    if (!from.ok()) return from.status();
    const Result<tokenizer::EncodeOptions> how = encode_options(flags);
    if (!how.ok()) return how.status();
    const auto tokens = engine->loaded->tokenizer().try_encode(*from, *how);
    if (!tokens.ok()) return tokens.status();
    return copy_out<Token>(*tokens, out, capacity, count);
  });
}

sluice_status sluice_detokenize(const sluice_engine* engine, const int32_t* tokens, size_t n,
                                int32_t skip_special_tokens, char* out, size_t capacity,
                                size_t* count) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_REFUSE_NULL(count);
    SLUICE_RETURN_IF_ERROR(check_array(tokens, n, "tokens"));
    SLUICE_RETURN_IF_ERROR(check_array(out, capacity, "out"));
    SLUICE_RETURN_IF_ERROR(check_flag(skip_special_tokens, "skip_special_tokens"));
    SLUICE_RETURN_IF_ERROR(check_tokens({tokens, n}, engine->loaded->n_vocab()));
    const std::string text =
        engine->loaded->tokenizer().decode({tokens, n}, skip_special_tokens == 0);
    SLUICE_RETURN_IF_ERROR(copy_out<char>(text, out, capacity, count));
    if (capacity > text.size()) out[text.size()] = '\0';
    return {};
  });
}

sluice_status sluice_token_is_eog(const sluice_engine* engine, int32_t token, int32_t* ends) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_REFUSE_NULL(ends);
    SLUICE_RETURN_IF_ERROR(check_tokens({&token, 1}, engine->loaded->n_vocab()));
    *ends = engine->loaded->tokenizer().is_end_of_generation(token) ? 1 : 0;
    return {};
  });
}

sluice_status sluice_sampling_default(sluice_sampling* sampling, size_t size) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(sampling);
    return write_struct(default_sampling(), sampling, size);
  });
}

sluice_status sluice_sampler_create(const sluice_engine* engine, const sluice_sampling* sampling,
                                    sluice_sampler** sampler) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_REFUSE_NULL(sampler);
    return create_sampler(*engine, sampling, sampler);
  });
}

void sluice_sampler_free(sluice_sampler* sampler) {
  delete sampler;
}

sluice_status sluice_sampler_sample(sluice_sampler* sampler, const float* logits, size_t n,
                                    const int32_t* history, size_t n_history, int32_t* token) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(sampler);
    SLUICE_REFUSE_NULL(logits);
    SLUICE_REFUSE_NULL(token);
    SLUICE_RETURN_IF_ERROR(check_array(history, n_history, "history"));
    return sample_token(*sampler, {logits, n}, {history, n_history}, token);
  });
}

}  // extern "C"
