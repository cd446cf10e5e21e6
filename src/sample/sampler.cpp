// Sampling in a fixed order: bias, penalties, greedy shortcut, temperature, top-k, softmax, top-p,
// min-p, draw. The vocabulary is never fully sorted: top-k keeps a heap of k candidates, and
// without top-k only the part that top-p needs is sorted, chunk by chunk. Candidates keep their
// logits. Weights are recomputed where they are used and rounded from double to float, so that C
// libraries that differ in the last bit of exp still draw the same token.
#include "sample/sampler.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace sluice::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kFirstChunk = 64;

// splitmix64 (Steele, Lea, Flood 2014): spreads one seed over the generator's state.
uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

uint64_t rotl(uint64_t x, int k) {
  return (x << k) | (x >> (64 - k));
}

// xoshiro256** 1.0 (Blackman, Vigna 2018), as a double in [0, 1).
double next_uniform(uint64_t (&s)[4]) {
  const uint64_t result = rotl(s[1] * 5, 7) * 9;
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotl(s[3], 45);
  return static_cast<double>(result >> 11) * 0x1p-53;
}

// Maps NaN to minus infinity, so that it is never preferred to a number, and plus infinity to a
// finite value, so that differences stay finite.
float sanitize(float logit) {
  if (std::isnan(logit)) return -kInfinity;
  return std::min(logit, std::numeric_limits<float>::max());
}

Token most_likely(std::span<const float> logits) {
  Token best = kNoToken;
  float best_logit = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best_logit) {  // false for NaN; ties keep the lower id
      best_logit = logits[i];
      best = static_cast<Token>(i);
    }
  }
  return best;
}

// Higher logit first, ties by lower id: a strict order, so every selection has one result.
// During sampling, a candidate's `logprob` holds its logit.
constexpr auto kBetter = [](const Candidate& a, const Candidate& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
};

// Candidate i: token i with the logit raw[i], or from[i] if `raw` is null.
Candidate candidate_at(const Candidate* from, const float* raw, size_t i) {
  return raw == nullptr ? from[i] : Candidate{static_cast<Token>(i), sanitize(raw[i])};
}

// Writes the k best of n candidates to out[0..k), best first; k <= n. `out` may be `from`.
void select_best(size_t n, size_t k, Candidate* out, const Candidate* from, const float* raw) {
  for (size_t i = 0; i < k; ++i) out[i] = candidate_at(from, raw, i);
  std::make_heap(out, out + k, kBetter);  // the worst of the kept on top
  for (size_t i = k; k > 0 && i < n; ++i) {
    const Candidate candidate = candidate_at(from, raw, i);
    if (!kBetter(candidate, out[0])) continue;
    std::pop_heap(out, out + k, kBetter);
    out[k - 1] = candidate;
    std::push_heap(out, out + k, kBetter);
  }
  std::sort_heap(out, out + k, kBetter);
}

// exp((logit - max) / temperature): 1 for the best.
double weight(float logit, float max, float temperature) {
  const double x = (static_cast<double>(logit) - static_cast<double>(max)) / temperature;
  return x < -104.0 ? 0.0 : static_cast<double>(static_cast<float>(std::exp(x)));
}

// The n best of `count` candidates, then `chosen`, with their log-probabilities.
std::vector<Candidate> top_of(size_t count, const Candidate* from, const float* raw,
                              float temperature, int n, Token chosen) {
  const size_t k = std::min(static_cast<size_t>(std::max(n, 0)), count);
  std::vector<Candidate> result(k + 1, Candidate{chosen, -kInfinity});
  float max = -kInfinity;
  for (size_t i = 0; i < count; ++i) {
    const Candidate candidate = candidate_at(from, raw, i);
    max = std::max(max, candidate.logprob);
    if (candidate.token == chosen) result[k] = candidate;
  }
  if (max == -kInfinity) max = 0;
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    total += weight(candidate_at(from, raw, i).logprob, max, temperature);
  }
  select_best(count, k, result.data(), from, raw);
  for (Candidate& c : result) {
    c.logprob = static_cast<float>((static_cast<double>(c.logprob) - static_cast<double>(max)) /
                                       temperature -
                                   std::log(std::max(total, 1.0)));
  }
  return result;
}

bool within(float value, float low, float high) {
  return value >= low && value <= high;
}

}  // namespace

Status validate(const Params& params, int64_t n_vocab) {
  const auto bad = [](const char* name, const char* rule) {
    return error(Code::kInvalidArgument, "%s must be %s", name, rule);
  };
  constexpr float kMax = std::numeric_limits<float>::max();
  if (n_vocab < 1 || n_vocab > std::numeric_limits<Token>::max()) {
    return bad("the vocabulary's size", "at least 1");
  }
  if (!within(params.temperature, 0, kMax)) {
    return bad("temperature", "a finite number, 0 or more");
  }
  if (params.top_k < 0) return bad("top_k", "0 (all) or more");
  if (!within(params.top_p, 0, 1)) return bad("top_p", "from 0 to 1");
  if (!within(params.min_p, 0, 1)) return bad("min_p", "from 0 to 1");
  if (!within(params.repeat_penalty, std::numeric_limits<float>::min(), kMax)) {
    return bad("repeat_penalty", "a finite number above 0");
  }
  if (!within(params.frequency_penalty, -kMax, kMax)) {
    return bad("frequency_penalty", "a finite number");
  }
  if (!within(params.presence_penalty, -kMax, kMax)) {
    return bad("presence_penalty", "a finite number");
  }
  if (params.penalty_last_n < -1) {
    return bad("penalty_last_n", "-1 (all) or more");
  }
  if (params.logit_bias.size() > kMaxLogitBias) {
    return bad("the number of entries of logit_bias", "at most 1024");
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= n_vocab) {
      return bad("a token of logit_bias", "an id of the vocabulary");
    }
    if (!within(bias, -kInfinity, kMax)) {
      return bad("a value of logit_bias", "a number, or minus infinity to ban the token");
    }
  }
  return {};
}

bool penalizes(const Params& params) {
  return params.penalty_last_n != 0 &&
         (params.repeat_penalty != 1 || params.frequency_penalty != 0 ||
          params.presence_penalty != 0);
}

Result<uint64_t> parse_seed(std::string_view text) {
  const bool negative = text.starts_with('-');
  const char* const end = text.data() + text.size();
  uint64_t seed = 0;
  std::from_chars_result read{};
  if (negative) {
    int64_t value = 0;
    read = std::from_chars(text.data(), end, value);
    seed = static_cast<uint64_t>(value);
  } else {
    read = std::from_chars(text.data(), end, seed);
  }
  if (read.ec != std::errc() || read.ptr != end) {
    return error(Code::kInvalidArgument,
                 "the seed \"%.40s\" must be an integer from -2^63 to 2^64 - 1",
                 std::string(text.substr(0, 40)).c_str());
  }
  return seed;
}

uint64_t Sampler::memory_bytes(int64_t n_vocab) {
  return sizeof(Sampler) +
         round_up_to_line(static_cast<size_t>(std::max<int64_t>(n_vocab, 1)) * sizeof(Candidate)) +
         kMaxLogitBias * sizeof(Params::logit_bias[0]);
}

Sampler::Sampler(const Params& params, int64_t n_vocab) : params_(params) {
  const uint64_t n = static_cast<uint64_t>(std::max<int64_t>(n_vocab, 1));
  if (!entries_.allocate(n * sizeof(Candidate)).ok()) entries_ = {};
  uint64_t state = params.seed;
  for (uint64_t& word : rng_) word = splitmix64(state);
}

void Sampler::peek(std::span<float> out) const {
  uint64_t rng[] = {rng_[0], rng_[1], rng_[2], rng_[3]};
  for (float& value : out) value = static_cast<float>(next_uniform(rng));
}

void Sampler::skip() {
  if (params_.temperature > 0) next_uniform(rng_);
}

// Fills the entries with the logits after biases and penalties. Tokens that are not allowed get
// minus infinity.
void Sampler::adjust(std::span<const float> logits, std::span<const Token> history,
                     std::span<const uint64_t> allowed) {
  Candidate* const entries = entries_.as<Candidate>();
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool banned =
        !allowed.empty() && (i / 64 >= allowed.size() || (allowed[i / 64] >> (i % 64) & 1) == 0);
    entries[i] = {static_cast<Token>(i), banned ? -kInfinity : sanitize(logits[i])};
  }
  const auto known = [&](Token t) { return t >= 0 && static_cast<size_t>(t) < logits.size(); };
  for (const auto& [token, bias] : params_.logit_bias) {
    if (known(token)) entries[token].logprob = sanitize(entries[token].logprob + bias);
  }
  if (!penalizes(params_)) return;
  if (params_.penalty_last_n > 0) {
    const size_t window = static_cast<size_t>(params_.penalty_last_n);
    history = history.last(std::min(history.size(), window));
  }
  // Repetition penalty as in Keskar et al. 2019 (CTRL), then frequency and presence penalties, once
  // per distinct token. In between, -n in place of a token's id means that it occurred n times.
  for (const Token t : history) {
    if (known(t)) entries[t].token = std::min(entries[t].token, 0) - 1;
  }
  for (const Token t : history) {
    if (!known(t) || entries[t].token >= 0) continue;  // done at an earlier occurrence
    const float count = static_cast<float>(-entries[t].token);
    float logit = entries[t].logprob;
    logit = logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    logit -= count * params_.frequency_penalty + params_.presence_penalty;
    entries[t] = {t, sanitize(logit)};
  }
}

// Applies top-p and min-p to n entries. Returns how many remain; they are moved to the front. Both
// keep a prefix of the sorted order, so min-p may run first if top-p uses the total before it.
size_t Sampler::cut(size_t n, bool sorted, float max) {
  Candidate* const entries = entries_.as<Candidate>();
  const float temperature = params_.temperature;
  double total = 0;
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    const double w = weight(entries[i].logprob, max, temperature);
    total += w;
    if (w > 0 && w >= static_cast<double>(params_.min_p)) entries[kept++] = entries[i];
  }
  if (params_.top_p >= 1) return kept;
  const double wanted = static_cast<double>(params_.top_p) * total;
  double sum = 0;
  size_t n_sorted = sorted ? kept : 0;
  for (size_t i = 0; i < kept; ++i) {
    if (i == n_sorted) {
      const size_t end = std::min(kept, n_sorted + std::max(kFirstChunk, n_sorted));
      if (end < kept) std::nth_element(entries + i, entries + end, entries + kept, kBetter);
      std::sort(entries + i, entries + end, kBetter);
      n_sorted = end;
    }
    sum += weight(entries[i].logprob, max, temperature);
    if (sum >= wanted) return i + 1;
  }
  return kept;
}

Token Sampler::sample(std::span<const float> logits, std::span<const Token> history,
                      std::span<const uint64_t> allowed) {
  Candidate* const entries = entries_.as<Candidate>();
  logits = logits.first(std::min(logits.size(), entries_.size() / sizeof(Candidate)));
  const size_t n = logits.size();
  const size_t k = params_.top_k > 0 ? std::min(n, static_cast<size_t>(params_.top_k)) : n;
  const bool changed = !params_.logit_bias.empty() || penalizes(params_) || !allowed.empty();
  const double uniform =  // one draw per token, regardless of the logits
      params_.temperature > 0 ? next_uniform(rng_) : 0;
  Token best = kNoToken;
  float max = -kInfinity;
  if (changed) {
    adjust(logits, history, allowed);
    for (size_t i = 0; i < n; ++i) {
      if (entries[i].logprob > max) max = entries[i].logprob, best = entries[i].token;
    }
  } else {
    best = most_likely(logits);
    if (best != kNoToken) max = sanitize(logits[static_cast<size_t>(best)]);
  }
  if (best == kNoToken) return best;
  if (params_.temperature <= 0) {
    entries[0] = {best, max};
    n_kept_ = 1;
    return best;
  }

  if (k < n) {
    select_best(n, k, entries, entries, changed ? nullptr : logits.data());
  } else if (!changed) {
    for (size_t i = 0; i < n; ++i) entries[i] = {static_cast<Token>(i), sanitize(logits[i])};
  }
  const size_t kept = n_kept_ = cut(k, k < n, max);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += weight(entries[i].logprob, max, params_.temperature);
  double left = uniform * total;
  size_t i = 0;
  for (; i + 1 < kept; ++i) {
    left -= weight(entries[i].logprob, max, params_.temperature);
    if (left < 0) break;
  }
  return entries[i].token;
}

std::vector<Candidate> Sampler::top_logprobs(int n, Token chosen) const {
  const float temperature = params_.temperature > 0 ? params_.temperature : 1;
  return top_of(n_kept_, entries_.as<Candidate>(), nullptr, temperature, n, chosen);
}

std::vector<Candidate> top_logprobs(std::span<const float> logits, int n, Token chosen) {
  return top_of(logits.size(), nullptr, logits.data(), 1, n, chosen);
}

}  // namespace sluice::sample
