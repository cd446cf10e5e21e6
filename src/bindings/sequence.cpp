// Tokenizing, and the session's tokens and saved state.
#include "bindings/engine_binding.h"

namespace sluice::bindings {
namespace {

Status too_long(size_t most) {
  return sluice::error(Code::kInvalidArgument,
                       "a piece of a saved state can have at most %zu bytes", most);
}

// The fingerprint must not change in the middle of a state.
void begin_state(EngineBinding& b) {
  if (b.weight_hashes.empty() || !b.weight_hashes.back().complete()) return;
  for (const session::WeightHash& hash : b.weight_hashes) b.engine->identify_weights(hash);
  b.weight_hashes = {};  // frees their lists of samples
}

#ifdef SLUICE_GPU
// The bytes of a KV cache on the GPU are in the stage, but not in the state's hash. So it is made
// here, from the pieces in order.
void add_to_hash(EngineBinding& b, uint64_t offset, unsigned length) {
  const session::Sequence& sequence = b.session().sequence();
  if (!sequence.cache().shape().on_gpu) return;
  const uint64_t end = sequence.state_bytes() - sizeof(uint64_t);
  const uint64_t summed = std::min<uint64_t>(length, end - std::min(end, offset));
  if (offset == 0) b.state_hash = {};
  b.state_hash.add({b.stage.data(), static_cast<size_t>(summed)});
  const uint64_t value = b.state_hash.value();
  for (uint64_t i = summed; i < length; ++i) {
    b.stage[i] = static_cast<uint8_t>(value >> (8 * (offset + i - end)));
  }
}
#endif

}  // namespace

val tokenize(EngineBinding& b, const val& bytes, unsigned how) {
  AlignedBuffer text;
  if (!b.copy_bytes(bytes, &text)) return val::null();
  const auto ids = b.engine->tokenizer().try_encode(view_of(text), tokenize_options(how));
  if (!ids.ok()) return b.fail(ids.status()), val::null();
  return copy_out(std::span<const Token>(*ids));
}

val pair_tokens(EngineBinding& b, const val& query, const val& document) {
  AlignedBuffer first, second;
  if (!b.copy_bytes(query, &first) || !b.copy_bytes(document, &second)) return val::null();
  const auto ids = embed::pair_tokens(b.engine->tokenizer(), view_of(first), view_of(second));
  if (!ids.ok()) return b.fail(ids.status()), val::null();
  return copy_out(std::span<const Token>(*ids));
}

std::string control_tokens(EngineBinding& b) {
  val out = val::array();
  for (const Token id : b.engine->tokenizer().gated_tokens()) {
    push(out, val(id));
    push(out, val(std::string(b.engine->tokenizer().piece(id))));
  }
  return to_text(out);
}

void clear(EngineBinding& b) {
  b.drop_work();
  b.session().clear();
}

bool append(EngineBinding& b, const val& tokens) {
  b.drop_work();
  b.begin_counting();
  return b.fits(tokens) && b.checked(b.session().begin(to_tokens(tokens)));
}

bool append_whole(EngineBinding& b, const val& tokens, int row) {
  clear(b);
  b.begin_counting();
  return b.fits(tokens) && b.checked(b.session().begin_rows(to_tokens(tokens), row, 1));
}

val weight_samples(EngineBinding& b, bool all) {
  b.weight_hashes.clear();
  b.weight_hashes.emplace_back(b.engine->program(), all);
  if (b.projector != nullptr) b.weight_hashes.emplace_back(*b.projector, all, kProjectorFiles);
  std::vector<session::WeightSample> samples;
  for (const session::WeightHash& hash : b.weight_hashes) {
    samples.insert(samples.end(), hash.samples().begin(), hash.samples().end());
  }
  return copy_out(std::span(reinterpret_cast<const uint8_t*>(samples.data()),
                            samples.size() * sizeof(session::WeightSample)));
}

void identify(EngineBinding& b, unsigned length) {
  session::WeightHash& model = b.weight_hashes.front();
  (model.complete() ? b.weight_hashes.back() : model).add({b.stage.data(), length});
}

bool read_state(EngineBinding& b, double offset, unsigned length) {
  if (length > b.stage.size()) return b.fail(too_long(b.stage.size()));
  if (offset == 0) begin_state(b);
  const uint64_t from = static_cast<uint64_t>(offset);
  if (!b.checked(b.session().read_state(from, {b.stage.data(), length}))) return false;
#ifdef SLUICE_GPU
  add_to_hash(b, from, length);
#endif
  return true;
}

bool begin_restore(EngineBinding& b, double bytes) {
  b.drop_answer(*b.slot);
  begin_state(b);
  return b.checked(b.session().begin_restore(static_cast<uint64_t>(bytes)));
}

bool write_state(EngineBinding& b, unsigned length) {
  if (length > b.stage.size()) return b.fail(too_long(b.stage.size()));
  return b.checked(b.session().write_state({b.stage.data(), length}));
}

bool EngineBinding::copy_bytes(const val& bytes, AlignedBuffer* out) {
  const size_t n = length_of(bytes);
  if (Status s = out->allocate(n); !s.ok()) return fail(s);
  copy_in(bytes, {out->as<uint8_t>(), n});
  return true;
}

bool EngineBinding::fits(const val& tokens) {
  const size_t n = length_of(tokens);
  const int32_t n_ctx = engine->plan().context.n_ctx;
  if (n <= static_cast<size_t>(n_ctx)) return true;
  return fail(session::prompt_too_long(n, n_ctx));
}

}  // namespace sluice::bindings
