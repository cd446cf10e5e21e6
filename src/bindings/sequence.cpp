// Tokenizing, and the session's tokens and saved state.
#include "bindings/engine_binding.h"

namespace sluice::bindings {
namespace {

Status too_long(size_t most) {
  return sluice::error(Code::kInvalidArgument,
                       "a piece of a saved state can have at most %zu bytes", most);
}

}  // namespace

val EngineBinding::tokenize(const val& bytes, unsigned how) {
  AlignedBuffer text;
  if (!copy_bytes(bytes, &text)) return val::null();
  const auto ids = engine_->tokenizer().try_encode(view_of(text), tokenize_options(how));
  if (!ids.ok()) return fail(ids.status()), val::null();
  return copy_out(std::span<const Token>(*ids));
}

val EngineBinding::pair_tokens(const val& query, const val& document) {
  AlignedBuffer first, second;
  if (!copy_bytes(query, &first) || !copy_bytes(document, &second)) return val::null();
  const auto ids = embed::pair_tokens(engine_->tokenizer(), view_of(first), view_of(second));
  if (!ids.ok()) return fail(ids.status()), val::null();
  return copy_out(std::span<const Token>(*ids));
}

std::string EngineBinding::control_tokens() {
  val out = val::array();
  for (const Token id : engine_->tokenizer().gated_tokens()) {
    push(out, val(id));
    push(out, val(std::string(engine_->tokenizer().piece(id))));
  }
  return to_text(out);
}

void EngineBinding::clear() {
  drop_work();
  session().clear();
}

bool EngineBinding::append(const val& tokens) {
  drop_work();
  begin_counting();
  return fits(tokens) && checked(session().begin(to_tokens(tokens)));
}

bool EngineBinding::append_whole(const val& tokens, int row) {
  clear();
  begin_counting();
  return fits(tokens) && checked(session().begin_rows(to_tokens(tokens), row, 1));
}

val EngineBinding::weight_samples(bool all) {
  const auto samples = weight_hash_.emplace(engine_->program(), all).samples();
  return copy_out(
      std::span(reinterpret_cast<const uint8_t*>(samples.data()), samples.size_bytes()));
}

void EngineBinding::identify(unsigned length) {
  weight_hash_->add({stage_.data(), length});
}

// The fingerprint must not change in the middle of a state.
void EngineBinding::begin_state() {
  if (!weight_hash_ || !weight_hash_->complete()) return;
  engine_->identify_weights(*weight_hash_);
  weight_hash_.reset();  // frees its list of samples
}

bool EngineBinding::read_state(double offset, unsigned length) {
  if (length > stage_.size()) return fail(too_long(stage_.size()));
  if (offset == 0) begin_state();
  return checked(session().read_state(static_cast<uint64_t>(offset), {stage_.data(), length}));
}

bool EngineBinding::begin_restore(double bytes) {
  drop_answer(*slot_);
  begin_state();
  return checked(session().begin_restore(static_cast<uint64_t>(bytes)));
}

bool EngineBinding::write_state(unsigned length) {
  if (length > stage_.size()) return fail(too_long(stage_.size()));
  return checked(session().write_state({stage_.data(), length}));
}

// Copies bytes from JavaScript.
bool EngineBinding::copy_bytes(const val& bytes, AlignedBuffer* out) {
  const size_t n = length_of(bytes);
  if (Status s = out->allocate(n); !s.ok()) return fail(s);
  copy_in(bytes, {out->as<uint8_t>(), n});
  return true;
}

// Checks the number of tokens before they are copied: the plan has memory for one context.
bool EngineBinding::fits(const val& tokens) {
  const size_t n = length_of(tokens);
  const int32_t n_ctx = engine_->plan().context.n_ctx;
  if (n <= static_cast<size_t>(n_ctx)) return true;
  return fail(session::prompt_too_long(n, n_ctx));
}

}  // namespace sluice::bindings
