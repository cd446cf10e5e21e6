// Sessions: create, fork, rewind, save, restore, and single forward passes.
#include "api/handles.h"

namespace sluice::api {
namespace {

Status create_session(const std::shared_ptr<Loaded>& loaded, sluice_session** out) {
  auto handle = std::make_unique<sluice_session>();
  auto conversation = loaded->swap().create();
  if (!conversation.ok()) return conversation.status();
  handle->loaded = loaded;
  handle->conversation = std::move(*conversation);
  *out = handle.release();
  return {};
}

Status fork_session(const sluice_session& from, sluice_session** out) {
  auto handle = std::make_unique<sluice_session>();
  auto conversation = from.loaded->swap().fork_of(*from.conversation);
  if (!conversation.ok()) return conversation.status();
  from.loaded->note_work(nullptr, false);
  handle->loaded = from.loaded;
  handle->conversation = std::move(*conversation);
  *out = handle.release();
  return {};
}

Status copy_tokens(const sluice_session& handle, int32_t* out, size_t capacity, size_t* count) {
  const size_t n = static_cast<size_t>(handle.conversation->position());
  *count = n;
  if (capacity == 0) return {};
  if (capacity < n) return too_small(capacity, n);
  return handle.conversation->read_tokens(0, {out, n});
}

Status rewind(sluice_session& handle, int32_t position, int32_t* reached) {
  SLUICE_RETURN_IF_ERROR(check_range(position, 0, handle.conversation->position(), "position"));
  int32_t at = 0;
  if (position == 0) {
    native::SessionSwap::clear(*handle.conversation);
  } else {
    const Result<session::Session*> session = enter(handle);
    if (!session.ok()) return session.status();
    at = (*session)->rewind(position);
  }
  handle.rows = 0;
  if (reached != nullptr) *reached = at;
  return {};
}

Status restore(sluice_session& handle, std::span<const uint8_t> bytes) {
  handle.rows = 0;
  native::SessionSwap::clear(*handle.conversation);
  SLUICE_RETURN_IF_ERROR(handle.loaded->model().identify());
  const Result<session::Session*> session = enter(handle);
  if (!session.ok()) return session.status();
  SLUICE_RETURN_IF_ERROR((*session)->begin_restore(bytes.size()));
  return (*session)->write_state(bytes);
}

Status forward(sluice_session& handle, std::span<const Token> tokens, int32_t logits_mode) {
  const uint32_t cancels = handle.cancels;
  return handle.loaded->take_turn([&]() -> Status {
    const Result<session::Session*> entered = enter(handle, cancels);
    if (!entered.ok()) return entered.status();
    session::Session& session = **entered;
    native::Model& model = handle.loaded->model();
    handle.rows = 0;
    const bool all = logits_mode == SLUICE_ALL_LOGITS;
    SLUICE_RETURN_IF_ERROR(
        session.begin(tokens, all ? session::Wanted::kAllLogits : session::Wanted::kLastLogits));
    SLUICE_RETURN_IF_ERROR(run(handle, cancels, [&](int32_t n) { return session.step(n); }));
    SLUICE_RETURN_IF_ERROR(session.failure());
    handle.rows = all ? static_cast<int32_t>(tokens.size()) : 1;
    handle.replans = model.engine().weights().replans();
    return {};
  });
}

Status logits(const sluice_session& handle, int32_t row, float* out, size_t capacity,
              size_t* count) {
  return handle.loaded->take_turn([&]() -> Status {
    std::span<const float> values;
    const session::Session* session = handle.conversation->session();
    if (handle.rows > 0 && session != nullptr &&
        handle.replans == handle.loaded->model().engine().weights().replans()) {
      SLUICE_RETURN_IF_ERROR(check_range(row, 0, handle.rows - 1, "row"));
      values = session->logits(row);
    }
    if (values.empty()) {
      return error(Code::kInvalidArgument,
                   "the session has no logits: call sluice_forward first; later calls that compute "
                   "on the engine discard its logits");
    }
    return copy_out(values, out, capacity, count);
  });
}

}  // namespace

Result<session::Session*> enter(sluice_session& handle, uint32_t cancels) {
  auto session =
      handle.loaded->swap().enter(*handle.conversation, [&] { return handle.cancels == cancels; });
  handle.loaded->note_work(nullptr, false);
  return session;
}

Result<session::Session*> enter(sluice_session& handle) {
  return enter(handle, handle.cancels);
}

Status run(sluice_session& handle, uint32_t cancels, const native::Model::Stepper& step) {
  bool cancelled = false;
  const Status status = handle.loaded->model().drive([&](int32_t max_ops) {
    cancelled = handle.cancels != cancels;
    return cancelled ? session::Step::kDone : step(max_ops);
  });
  if (cancelled || !status.ok()) handle.conversation->session()->cancel();
  handle.loaded->note_work(nullptr, false);
  if (cancelled) return error(Code::kAborted, "the call was cancelled");
  return status;
}

}  // namespace sluice::api

using namespace sluice;
using namespace sluice::api;

extern "C" {

sluice_status sluice_session_create(sluice_engine* engine, sluice_session** session) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_REFUSE_NULL(session);
    const std::shared_ptr<Loaded> loaded = engine->loaded;
    return loaded->take_turn([&] { return create_session(loaded, session); });
  });
}

sluice_status sluice_session_fork(sluice_session* session, sluice_session** fork) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    SLUICE_REFUSE_NULL(fork);
    return session->loaded->take_turn([&] { return fork_session(*session, fork); });
  });
}

sluice_status sluice_session_free(sluice_session* session) {
  return guarded([&]() -> Status {
    if (session == nullptr) return {};
    SLUICE_RETURN_IF_ERROR(session->loaded->take_turn([&] {
      session->conversation.reset();
      session->loaded->note_work(nullptr, false);
      return Status();
    }));
    delete session;
    return {};
  });
}

sluice_status sluice_session_tokens(sluice_session* session, int32_t* out, size_t capacity,
                                    size_t* count) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    SLUICE_REFUSE_NULL(count);
    SLUICE_RETURN_IF_ERROR(check_array(out, capacity, "out"));
    return session->loaded->take_turn([&] { return copy_tokens(*session, out, capacity, count); });
  });
}

sluice_status sluice_session_rewind(sluice_session* session, int32_t position, int32_t* reached) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    return session->loaded->take_turn([&] { return rewind(*session, position, reached); });
  });
}

sluice_status sluice_session_state_bytes(sluice_session* session, uint64_t* bytes) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    SLUICE_REFUSE_NULL(bytes);
    return session->loaded->take_turn([&]() -> Status {
      const auto found = session->loaded->swap().state_bytes(*session->conversation);
      if (!found.ok()) return found.status();
      *bytes = *found;
      return {};
    });
  });
}

sluice_status sluice_session_save(sluice_session* session, uint64_t offset, void* out,
                                  size_t length) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    auto* bytes = static_cast<uint8_t*>(out);
    SLUICE_RETURN_IF_ERROR(check_array(bytes, length, "out"));
    return session->loaded->take_turn([&]() -> Status {
      SLUICE_RETURN_IF_ERROR(session->loaded->model().identify());
      return session->loaded->swap().read_state(*session->conversation, offset, {bytes, length});
    });
  });
}

sluice_status sluice_session_restore(sluice_session* session, const void* data, size_t length) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    const auto* bytes = static_cast<const uint8_t*>(data);
    SLUICE_RETURN_IF_ERROR(check_array(bytes, length, "data"));
    return session->loaded->take_turn([&] { return restore(*session, {bytes, length}); });
  });
}

sluice_status sluice_session_cancel(sluice_session* session) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    ++session->cancels;
    session->loaded->model().wake();
    return {};
  });
}

sluice_status sluice_forward(sluice_session* session, const int32_t* tokens, size_t n,
                             int32_t logits_mode) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    SLUICE_RETURN_IF_ERROR(check_array(tokens, n, "tokens"));
    SLUICE_RETURN_IF_ERROR(
        check_range(logits_mode, SLUICE_LAST_LOGITS, SLUICE_ALL_LOGITS, "logits_mode"));
    return forward(*session, {tokens, n}, logits_mode);
  });
}

sluice_status sluice_logits(sluice_session* session, int32_t row, float* out, size_t capacity,
                            size_t* count) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(session);
    SLUICE_REFUSE_NULL(count);
    SLUICE_RETURN_IF_ERROR(check_array(out, capacity, "out"));
    return logits(*session, row, out, capacity, count);
  });
}

}  // extern "C"
