// Errors, argument checks, and an engine's info and statistics.
#include "api/handles.h"

#include <cstdio>

#include "generate/draft_pair.h"
#include "gguf/gguf.h"

namespace sluice::api {
namespace {

thread_local char last_error[1024] = "";

}  // namespace

sluice_status report(const Status& status) {
  std::snprintf(last_error, sizeof last_error, "%s", status.message().c_str());
  return static_cast<sluice_status>(status.code());
}

Status null_argument(const char* name) {
  return error(Code::kInvalidArgument, "the argument %s is null", name);
}

Status check_flag(int32_t value, const char* name) {
  return check_range(value, 0, 1, name);
}

Status check_tokens(std::span<const Token> tokens, int64_t n_vocab) {
  for (const Token token : tokens) {
    if (token < 0 || token >= n_vocab) {
      return error(Code::kInvalidArgument, "the token %d is not in the vocabulary", token);
    }
  }
  return {};
}

Result<std::string_view> text_of(const char* text, size_t length, const char* name) {
  if (text == nullptr && length > 0) return null_argument(name);
  if (length == SLUICE_TERMINATED) return std::string_view(text);
  return std::string_view(text, length);
}

Status wrong_size(size_t given, size_t known) {
  if (given > known && given <= kLargestStruct) {
    return error(Code::kInvalidArgument,
                 "a structure of %zu bytes sets a member that this version of the library does not "
                 "have: its structure has %zu bytes",
                 given, known);
  }
  return error(Code::kInvalidArgument,
               "a structure has the invalid size %zu: set its member size, or fill in the defaults "
               "first",
               given);
}

Status too_small(size_t capacity, size_t count) {
  return error(Code::kInvalidArgument, "the capacity is %zu entries but the result has %zu",
               capacity, count);
}

Status Loaded::from_callback() {
  return error(Code::kInvalidArgument,
               "this function cannot be called on an engine from within its callbacks");
}

Loaded::Loaded(native::DraftPair models, chat::ModelTexts texts)
    : models_(std::move(models)), texts_(std::move(texts)) {
  minimum_ = draft() != nullptr ? models_.minimum : model().engine().plan().budget.minimum;
  session::Engine& engine = model().engine();
  const model::Program& program = engine.program();
  sluice_info& info = facts_.info;
  info.architecture = program.hp.arch.c_str();
  info.name = program.hp.name.c_str();
  info.kernels = engine.table().name;
  info.chat_template = texts_.chat_template.empty() ? nullptr : texts_.chat_template.c_str();
  info.n_vocab = static_cast<int32_t>(program.hp.n_vocab);
  info.n_ctx_train = static_cast<int32_t>(program.hp.n_ctx_train);
  info.n_layer = static_cast<int32_t>(program.hp.n_layer);
  info.n_embd = program.embed_tail.width;
  info.n_scores = program.rank_tail.width;
  info.can_generate = program.hp.attention.causal && program.head >= 0 ? 1 : 0;
  info.bos = engine.tokenizer().bos();
  info.eos = engine.tokenizer().eos();
  note_work(nullptr, false);
}

Status Loaded::open_swap(const std::string& directory) {
  // A swapped-out state can be saved as it is.
  if (!directory.empty()) SLUICE_RETURN_IF_ERROR(model().identify());
  auto swap = native::SessionSwap::open(model().engine().context(), directory);
  if (!swap.ok()) return swap.status();
  swap_ = std::move(*swap);
  note_plan();
  return {};
}

void Loaded::take_pictures(std::unique_ptr<native::PictureFile> pictures) {
  pictures_ = std::move(pictures);
  if (pictures_ == nullptr) return;
  pictures_->attach(*models_.model);
  const std::lock_guard<std::mutex> lock(facts_mutex_);
  facts_.info.takes_pictures = 1;
}

Status Loaded::allow_drafts() {
  drafts_.ngram = true;
  if (model().engine().nextn() != nullptr) {
    drafts_.model = &nextn_draft_.emplace(*model().engine().nextn());
  }
  if (draft() == nullptr) return {};
  auto session = session::Session::create(draft()->engine().context());
  if (!session.ok()) return session.status();
  draft_session_ = std::move(*session);
  draft_model_.emplace(*draft_session_);
  drafts_.model = &*draft_model_;
  return {};
}

Status Loaded::set_memory_budget(uint64_t budget) {
  const Status status =
      draft() != nullptr ? share_memory(budget) : model().set_memory_budget(budget);
  note_plan();
  return status;
}

Status Loaded::reserve_structured_output() {
  session::Engine& engine = model().engine();
  if (engine.plan().bytes.grammar > 0) return {};
  const uint64_t beside = draft() == nullptr ? 0 : draft()->engine().plan().budget.bytes;
  engine.replanner().plan_structured_output(true);
  const Status status = set_memory_budget(engine.plan().budget.bytes + beside);
  if (!status.ok()) engine.replanner().plan_structured_output(false);
  return status;
}

Status Loaded::share_memory(uint64_t budget) {
  const Result<session::MemoryPlan> own = model().engine().replanner().plan_for(0);
  if (!own.ok()) return own.status();
  const Result<session::MemoryPlan> draft_own = draft()->engine().replanner().plan_for(0);
  if (!draft_own.ok()) return draft_own.status();
  const uint64_t least = own->budget.minimum + draft_own->budget.minimum;
  if (budget > 0 && budget < least) return generate::pair_too_small(budget, least);
  const uint64_t share = budget == 0
                             ? 0
                             : generate::draft_share(budget, own->budget.minimum,
                                                     draft_own->budget.minimum, draft_own->total());
  // A model that shrinks goes first, so that both together stay within the larger budget.
  const uint64_t before = draft()->engine().plan().budget.bytes;
  const bool draft_shrinks = share > 0 && (before == 0 || share < before);
  native::Model& first = draft_shrinks ? *draft() : model();
  native::Model& second = draft_shrinks ? model() : *draft();
  const uint64_t first_before = first.engine().plan().budget.bytes;
  SLUICE_RETURN_IF_ERROR(first.set_memory_budget(draft_shrinks ? share : budget - share));
  const Status status = second.set_memory_budget(draft_shrinks ? budget - share : share);
  if (!status.ok()) SLUICE_RETURN_IF_ERROR(first.set_memory_budget(first_before));
  return status;
}

Facts Loaded::facts() {
  const std::lock_guard<std::mutex> lock(facts_mutex_);
  return facts_;
}

void Loaded::note_plan() {
  const session::MemoryPlan& plan = model().engine().plan();
  const uint64_t beside = draft() == nullptr ? 0 : draft()->engine().plan().budget.bytes;
  const uint64_t draft_total = draft() == nullptr ? 0 : draft()->engine().plan().total();
  const std::lock_guard<std::mutex> lock(facts_mutex_);
  sluice_info& info = facts_.info;
  info.n_ctx = plan.context.n_ctx;
  info.threads = plan.threads.n_threads;
  info.n_batch = plan.batch.n_batch;
  info.sessions =
      swap_->swaps() ? static_cast<int32_t>(native::kMaxConversations) : plan.sessions.n_sessions;
  info.fully_resident = plan.weights.streamed_bytes == 0 ? 1 : 0;
  info.memory_budget = plan.budget.bytes + beside;
  info.memory_total = plan.total() + draft_total;
  info.memory_minimum = minimum_;
  facts_.memory.clear();
  for (const session::MemoryPart& part : plan.parts()) facts_.memory.push_back(part);
  facts_.memory.push_back({"draft", draft_total});
}

void Loaded::note_work(const generate::Counts* counts, bool ended) {
  sluice_stats now = ended_;
  if (counts != nullptr) {
    now.prompt_tokens += static_cast<uint64_t>(counts->computed);
    now.generated_tokens += static_cast<uint64_t>(counts->generated);
    now.prompt_ms += counts->prompt_ms;
    now.generate_ms += counts->generate_ms;
    if (ended) ended_ = now;
  }
  now.wait_ms = 0;
  now.bytes_read = now.bytes_fetched = now.bytes_from_cache = 0;
  now.embedding_cache_hits = models_.model->engine().working().embedding_row_cache(0).found();
  now.embedding_cache_misses = models_.model->engine().working().embedding_row_cache(0).read();
  const session::HeadCounts& head = models_.model->engine().approximate().head;
  now.clustered_head_rows = head.rows;
  now.clustered_head_known = head.known;
  now.clustered_head_products = head.products;
  const session::ExitCounts& exits = models_.model->engine().approximate().exits;
  now.early_exit_rows = exits.rows;
  now.early_exit_left = exits.left;
  now.early_exit_layers = exits.layers;
  using session::TimePart;
  const session::TimeSums& times = models_.model->engine().passes().times().sums();
  now.forward_ms = times.total;
  now.forward_wait_ms = times[TimePart::kWait];
  now.forward_decompress_ms = times[TimePart::kDecompress];
  now.forward_projections_ms = times[TimePart::kProjections];
  now.forward_ffn_ms = times[TimePart::kFeedForward];
  now.forward_experts_ms = times[TimePart::kExperts];
  now.forward_output_ms = times[TimePart::kOutput];
  now.forward_attention_ms = times[TimePart::kAttention];
  now.forward_other_ms = times[TimePart::kOther];
  for (native::Model* const read : {models_.model.get(), draft()}) {
    if (read == nullptr) continue;
    now.wait_ms += read->wait_ms();
    now.bytes_read += read->engine().residency().counts().filled_bytes;
    now.bytes_fetched += read->bytes_fetched();
    now.bytes_from_cache += read->bytes_from_cache();
  }
  if (swap_ != nullptr) {
    const native::SessionSwap::Counts swapped = swap_->counts();
    now.sessions_swapped = swapped.in_files;
    now.bytes_swapped_out = swapped.bytes_written;
    now.bytes_swapped_in = swapped.bytes_read;
  }
  const std::lock_guard<std::mutex> lock(facts_mutex_);
  facts_.stats = now;
}

}  // namespace sluice::api

extern "C" {

const char* sluice_status_name(sluice_status status) {
  if (status < SLUICE_OK || status > SLUICE_MEDIA_MISSING) return "UNKNOWN";
  return sluice::code_name(static_cast<sluice::Code>(status));
}

const char* sluice_last_error(void) {
  return sluice::api::last_error;
}

const char* sluice_version(void) {
  return SLUICE_VERSION;
}

}  // extern "C"
