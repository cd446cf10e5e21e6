// The opaque handles of sluice.h, and the code that all of its functions share: error reporting,
// reading and writing structures of other header versions, and running one call at a time on an
// engine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/sluice.h"
#include "chat/answer.h"
#include "chat/template.h"
#include "generate/draft_model.h"
#include "generate/generation.h"
#include "generate/nextn_draft.h"
#include "native/draft_pair.h"
#include "native/picture_source.h"
#include "native/session_swap.h"
#include "options/options.h"

namespace sluice::api {

using session::Token;

// --- errors

// Stores the message for sluice_last_error() and returns the code.
sluice_status report(const Status& status);
[[nodiscard]] Status null_argument(const char* name);

// Runs the body of an API function and turns exceptions into errors, so that none leaves the
// library.
template <typename Body>
sluice_status guarded(Body&& body) {
  try {
    const Status status = body();
    return status.ok() ? SLUICE_OK : report(status);
  } catch (const std::bad_alloc&) {
    return report(
        error(Code::kOutOfMemory, "the operating system refused memory that the call needed"));
  } catch (...) {
    return report(error(Code::kInternal, "an unexpected exception ended the call"));
  }
}

#define SLUICE_REFUSE_NULL(argument) \
  if ((argument) == nullptr) return ::sluice::api::null_argument(#argument)

// --- arguments

// Checks a flag: 0 or 1.
[[nodiscard]] Status check_flag(int32_t value, const char* name);
using options::check_range;
[[nodiscard]] Status check_tokens(std::span<const Token> tokens, int64_t n_vocab);
// `entries` may be null only if n is 0.
template <typename T>
[[nodiscard]] Status check_array(const T* entries, size_t n, const char* name) {
  return entries == nullptr && n > 0 ? null_argument(name) : Status();
}
[[nodiscard]] Result<std::string_view> text_of(const char* text, size_t length, const char* name);
inline std::string_view text_or_none(const char* text) {
  return text == nullptr ? std::string_view() : std::string_view(text);
}

// --- structures that begin with their size

inline constexpr size_t kLargestStruct = 4096;  // upper bound for all future versions

[[nodiscard]] Status wrong_size(size_t given, size_t known);

template <typename T>
[[nodiscard]] Status check_size(const T& given) {
  const bool known = given.size >= sizeof(T) && given.size <= kLargestStruct;
  return known ? Status() : wrong_size(given.size, sizeof(T));
}

// Copies `given` to *out. Members of a later version must be 0, because this version ignores them.
template <typename T>
[[nodiscard]] Status read_struct(const T* given, T* out) {
  SLUICE_RETURN_IF_ERROR(check_size(*given));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < given->size; ++i) {
    if (bytes[i] != 0) return wrong_size(given->size, sizeof(T));
  }
  std::memcpy(out, given, sizeof(T));
  return {};
}

// Writes a result structure. Members of a later version become 0.
template <typename T>
[[nodiscard]] Status write_struct(T from, T* out, size_t size) {
  if (size < sizeof(T) || size > kLargestStruct) return wrong_size(size, sizeof(T));
  from.size = size;
  std::memcpy(out, &from, sizeof(T));
  std::memset(reinterpret_cast<unsigned char*>(out) + sizeof(T), 0, size - sizeof(T));
  return {};
}

// --- results of unknown length

[[nodiscard]] Status too_small(size_t capacity, size_t count);

template <typename T>
[[nodiscard]] Status copy_out(std::span<const T> values, T* out, size_t capacity, size_t* count) {
  *count = values.size();
  if (capacity == 0) return {};
  if (capacity < values.size()) return too_small(capacity, values.size());
  std::copy(values.begin(), values.end(), out);
  return {};
}

// --- engines

// Values that any thread can query at any time. Updated after each token and each change.
struct Facts {
  sluice_info info = {};
  sluice_stats stats = {};
  std::vector<session::MemoryPart> memory;
};

// A chat template with the formats of its responses. Immutable and thread-safe.
struct ChatTemplate {
  ChatTemplate(chat::Template parsed, std::span<const chat::ControlToken> controls);
  chat::Template parsed;
  chat::AnswerFormats formats;
};

// A loaded model. Lives until its engine's handle and all its sessions are freed.
class Loaded {
 public:
  Loaded(native::DraftPair models, chat::ModelTexts texts);
  // Enables swapping: sessions that do not fit in memory go to files in `directory`; "": no
  // swapping. Must be called first. Errors: SessionSwap::open's.
  [[nodiscard]] Status open_swap(const std::string& directory);
  // Enables speculative decoding. Errors: Session::create's.
  [[nodiscard]] Status allow_drafts();
  // Null: the model takes none.
  void take_pictures(std::unique_ptr<native::PictureFile> pictures);

  std::function<void(const char* text)> on_warning;  // may be null

  [[nodiscard]] native::Model& model() { return *models_.model; }
  [[nodiscard]] native::SessionSwap& swap() { return *swap_; }
  [[nodiscard]] native::Model* draft() { return models_.draft.get(); }       // may be null
  [[nodiscard]] native::PictureFile* pictures() { return pictures_.get(); }  // may be null
  [[nodiscard]] const generate::Drafts& drafts() const { return drafts_; }
  [[nodiscard]] const tokenizer::Tokenizer& tokenizer() const {
    return models_.model->engine().tokenizer();
  }
  [[nodiscard]] int64_t n_vocab() const { return models_.model->engine().program().hp.n_vocab; }
  // Sets the budget of model and draft model together, and splits it as loading does. Errors, which
  // change nothing: native::Model::set_memory_budget's.
  [[nodiscard]] Status set_memory_budget(uint64_t budget);
  // Sets memory aside for constraints, unless it has been. Errors: set_memory_budget's.
  [[nodiscard]] Status reserve_structured_output();

  // Runs `body` when no other call runs on the engine. Errors: the body's; kInvalidArgument from
  // within a callback, which would deadlock.
  template <typename Body>
  [[nodiscard]] Status take_turn(Body&& body) {
    if (owner_ == std::this_thread::get_id()) return from_callback();
    const std::lock_guard<std::mutex> lock(turn_);
    const Owning owning(owner_);
    return body();
  }

  // A parsed template; null: the model's own. Keeps that one and the last given one. Errors:
  // Template::create's.
  [[nodiscard]] Result<std::shared_ptr<const ChatTemplate>> chat_template(const char* source);

  [[nodiscard]] Facts facts();
  // Updates the statistics. `counts` are those of the running generation, or null; `ended`: they
  // are final.
  void note_work(const generate::Counts* counts, bool ended);

 private:
  struct Owning {
    explicit Owning(std::atomic<std::thread::id>& owner) : owner(owner) {
      owner = std::this_thread::get_id();
    }
    ~Owning() { owner = std::thread::id(); }
    Owning(const Owning&) = delete;
    Owning& operator=(const Owning&) = delete;
    std::atomic<std::thread::id>& owner;
  };
  [[nodiscard]] static Status from_callback();
  void note_plan();  // call after the plan has changed
  [[nodiscard]] Status share_memory(uint64_t budget);

  native::DraftPair models_;
  std::unique_ptr<native::PictureFile> pictures_;
  uint64_t minimum_ = 0;  // the smallest budget to load both, for this context
  std::unique_ptr<native::SessionSwap> swap_;
  std::unique_ptr<session::Session> draft_session_;  // must be destroyed before its model
  std::optional<generate::DraftModel> draft_model_;  // uses draft_session_
  std::optional<generate::NextnDraft> nextn_draft_;
  generate::Drafts drafts_;
  const chat::ModelTexts texts_;
  std::mutex templates_mutex_;
  std::shared_ptr<const ChatTemplate> own_template_, given_template_;  // null: not used yet
  std::mutex turn_;
  std::atomic<std::thread::id> owner_{};
  std::mutex facts_mutex_;
  Facts facts_;
  sluice_stats ended_ = {};  // totals of the generations that have ended
};

[[nodiscard]] Result<sample::Params> sampling_params(const sluice_sampling* given);
[[nodiscard]] Result<tokenizer::EncodeOptions> encode_options(uint32_t flags);

}  // namespace sluice::api

struct sluice_engine {
  std::shared_ptr<sluice::api::Loaded> loaded;
};

struct sluice_session {
  std::shared_ptr<sluice::api::Loaded> loaded;
  std::unique_ptr<sluice::native::Conversation> conversation;  // must be destroyed before the model
  std::atomic<uint32_t> cancels{0};  // a running call ends when this changes
  int32_t rows = 0;                  // rows of logits of the last sluice_forward
  uint32_t replans = 0;              // Weights::replans() at that time
};

namespace sluice::api {

// Returns the session, swapped in. `cancels` is the handle's value when the call began. Errors:
// SessionSwap::enter's.
[[nodiscard]] Result<session::Session*> enter(sluice_session& handle, uint32_t cancels);
[[nodiscard]] Result<session::Session*> enter(sluice_session& handle);
// Runs the forward pass that was begun on the session to its end. Errors: native::Model::drive's,
// kAborted.
[[nodiscard]] Status run(sluice_session& handle, uint32_t cancels,
                         const native::Model::Stepper& step);

}  // namespace sluice::api
