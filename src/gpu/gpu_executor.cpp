// Decides which batches run on the GPU and hands them over.
#include "gpu/gpu_executor.h"

#include <algorithm>

namespace sluice::gpu {

using session::Step;

GpuExecutor::GpuExecutor(const session::ExecutionContext& context, session::Replanner& replanner)
    : cx_(context), replanner_(replanner), cpu_(context), feed_(context) {
  const auto parallel = static_cast<size_t>(cx_.plan.sessions.parallel);
  vectors_.resize(cx_.program.vecs.size());
  rows_.resize(4 * cx_.plan.kv.shape.layers.size() * parallel);
  copies_.resize(parallel);
  for (Copy& copy : copies_) copy.places.resize(cx_.plan.kv.shape.layers.size());
  lanes_.resize(parallel);
  parts_.reserve(parallel);
  pass_.vectors = address(vectors_.data());
  pass_.lanes = address(lanes_.data());
  ropes_.resize(2 * cx_.program.ropes.size());
  pass_.ropes = address(ropes_.data());
  table_rows_.resize(cx_.program.tables.size());
  pass_.table_rows = address(table_rows_.data());
  pass_.n_deepstack = static_cast<uint32_t>(cx_.program.hp.media.n_deepstack);
  for (const model::Mat& mat : cx_.program.mats) media_mats_ = media_mats_ || mat.media >= 0;
}

#if defined(__wasm__)
using Term = session::AdapterSet::Term;  // as web/gpu/lora.ts reads it
static_assert(sizeof(Term) == 72 && offsetof(Term, b) == 32 && offsetof(Term, scale) == 64);
static_assert(offsetof(Term, a.rows) == 8 && offsetof(Term, a.data) == 24);
#endif

// What identifies the adapters in use; 0: none.
uint32_t GpuExecutor::adapters() const {
  const uint64_t sum = cx_.adapters.sum();
  return sum != 0 ? static_cast<uint32_t>(sum) | 1 : 0;
}

bool GpuExecutor::refused() const {
  const uint32_t own = adapters();
  return own != 0 && own == pass_.refused;
}

// Whether a batch can run on the GPU. web/gpu refuses types of the KV cache that it lacks.
bool GpuExecutor::for_gpu(int32_t n, const session::BatchSpec& spec) {
  uint32_t left = 0;
  if (!spec.ends.empty() && cx_.plan.kv.layout.evicts()) left |= GpuPass::kTexts;
  if (spec.media.rows != nullptr && media_mats_) left |= GpuPass::kPictures;
  if (refused()) left |= GpuPass::kAdapters;
  if (pass_.lost == 0) pass_.cpu_fallback |= left;
  return pass_.lost == 0 && left == 0 && static_cast<uint32_t>(n) >= pass_.least && !watched_;
}

// Whether the CPU is at the batch's first operation, which looks up embeddings.
bool GpuExecutor::at_begin() const {
  return cpu_.at() == (spec_.encode || spec_.embed ? 0 : static_cast<size_t>(cx_.program.decoder));
}

int32_t GpuExecutor::max_parts() const {
  if (pass_.lost != 0 || refused()) return cpu_.max_parts();
  return static_cast<int32_t>(pass_.max_lanes);
}

void GpuExecutor::drop(const session::Sequence& sequence) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].sequence != &sequence) continue;
    parts_[i].sequence = nullptr;
    lanes_[i].lost = 1;
  }
  if (again_ == &sequence) {  // begins again without it
    again_ = nullptr;
    return cpu_.begin(*held_of_, n_, spec_);
  }
  cpu_.drop(sequence);
}

// The sequence's KV cache on the GPU.
GpuExecutor::Copy& GpuExecutor::copy_of(session::Sequence& sequence) {
  Copy& copy = copies_[sequence.cache().index()];
  if (copy.of != &sequence || copy.restores != sequence.restores()) {
    copy.of = &sequence;
    copy.restores = sequence.restores();
    copy.held = 0;
    copy.now = copy.undo = {};
  }
  // The rows that the GPU has of positions to be computed are outdated, whoever computes them.
  copy.held = std::min(copy.held, sequence.position());
  return copy;
}

// The states at the sequence's position, if the GPU has them. Null: memory alone does.
GpuState* GpuExecutor::state_of(session::Sequence& sequence) {
  Copy& copy = copy_of(sequence);
  const int32_t at = sequence.position();
  if (at == 0) return nullptr;  // zeros
  if (copy.now.at == at) return &copy.now;
  return copy.undo.at == at ? &copy.undo : nullptr;
}

// `after`: they are those behind the batch.
uint32_t GpuExecutor::describe_fetch(session::Sequence& sequence, GpuState& state, bool after) {
  Copy& copy = copy_of(sequence);
  for (size_t i = 0; i < copy.places.size(); ++i) {
    const int32_t layer = static_cast<int32_t>(i);
    copy.places[i] = after ? sequence.state_after(layer) : sequence.state_before(layer);
  }
  copy.fetch = {static_cast<uint32_t>(sequence.cache().index()), state.id,
                address(copy.places.data()), address(&state.away)};
  return address(&copy.fetch);
}

uint32_t GpuExecutor::missing_states(const session::Sequence& of) {
  const Copy& copy = copies_[of.cache().index()];
  if (copy.of != &of) return 0;
  session::Sequence& sequence = *copy.of;
  GpuState* const state = state_of(sequence);
  if (state == nullptr || state->away == 0) return 0;
  if (pass_.lost == 0) return describe_fetch(sequence, *state, false);
  sequence.begin_batch(0);  // forgets the state before the last batch
  sequence.rewind(sequence.position() - 1);
  copy_of(sequence).now = {};
  return 0;
}

// Requests states of the batch's sequences that memory lacks. False: it has all of them.
bool GpuExecutor::fetch_states(Where next) {
  for (const session::BatchPart& part : parts_) {
    GpuState* const state = part.sequence != nullptr ? state_of(*part.sequence) : nullptr;
    if (state == nullptr || state->away == 0) continue;
    pass_.fetch = describe_fetch(*part.sequence, *state, false);
    pass_.state = GpuPass::kWanted;
    where_ = Where::kFetch;
    next_ = next;
    return true;
  }
  return false;
}

Step GpuExecutor::fetched() {
  if (pass_.lost == 0 && pass_.state == GpuPass::kWanted) return Step::kBlocked;
  const bool done = next_ == Where::kGpu && pass_.lost == 0;
  pass_.state = done ? GpuPass::kDone : GpuPass::kNone;
  pass_.fetch = 0;
  where_ = next_;
  return Step::kProgress;
}

// The GPU now has the rows of the batch that it has computed, the first `n` of a single sequence,
// and the states behind them.
void GpuExecutor::hold(int32_t n) {
  if (spec_.parts.empty()) {
    Copy& copy = copies_[pass_.slot];
    copy.held = pass_.first + n;
    copy.undo = copy.now;
    const bool away = cx_.plan.kv.shape.recurrent() && made_.id != pass_.serial;
    copy.now = {copy.held, pass_.serial, away ? 1u : 0u};
  }
  for (size_t i = 0; i < spec_.parts.size(); ++i) {
    if (parts_[i].sequence != nullptr) copies_[lanes_[i].slot].held = lanes_[i].first + lanes_[i].n;
  }
}

// Queued steps take their embedding rows from the GPU, as they are in the file, and leave nothing
// for the CPU to compute.
int32_t GpuExecutor::max_queue() const {
  if (pass_.lost != 0 || pass_.cut != 0 || pass_.least > 1) return 0;
  if (!cx_.adapters.of_embedding().empty()) return 0;
  return std::min(static_cast<int32_t>(pass_.max_queue), cx_.plan.batch.n_batch);
}

// Makes a queue a batch of its first token, for a step whose token the caller chooses.
void GpuExecutor::to_single_step() {
  n_ = parts_[0].n = 1;
  spec_.first_row = 0;
  spec_.queue = nullptr;
  held_of_->begin_batch(n_);
}

void GpuExecutor::begin(session::Sequence& sequence, int32_t n, const session::BatchSpec& spec) {
  ++pass_.serial;
  pass_.state = GpuPass::kNone;
  failure_ = {};
  again_ = nullptr;
  pass_.fetch = 0;
  held_of_ = &sequence;
  parts_.assign(spec.parts.begin(), spec.parts.end());
  const bool alone = parts_.empty();
  if (alone) parts_.push_back({&sequence, n, spec.first_row, spec.n_rows});
  int32_t tokens = 0;
  for (const session::BatchPart& part : parts_) {
    // States of other positions do not count any more.
    const GpuState* const state = state_of(*part.sequence);
    Copy& copy = copy_of(*part.sequence);
    copy.now = state != nullptr ? *state : GpuState{};
    copy.undo = {};
    tokens += part.n;
  }
  n_ = n;
  spec_ = spec;
  if (!alone) spec_.parts = parts_;  // the caller's do not outlive this
  for (GpuPass& lane : lanes_) lane.lost = 0;
  where_ = for_gpu(tokens, spec) ? Where::kEmbedding : Where::kCpu;
  if (spec_.queue != nullptr && (where_ == Where::kCpu || n > max_queue())) to_single_step();
  cpu_.begin(sequence, n_, spec_);
}

// Loads all small tensors once per memory plan. They are few and do not move within a plan.
bool GpuExecutor::vectors_ready() {
  if (replans_ != cx_.weights.replans()) std::fill(vectors_.begin(), vectors_.end(), nullptr);
  replans_ = cx_.weights.replans();
  for (size_t i = 0; i < vectors_.size(); ++i) {
    if (vectors_[i] != nullptr) continue;
    if (!feed_.need_vec(static_cast<int32_t>(i))) return false;
    vectors_[i] = cx_.weights.vec(static_cast<int32_t>(i));
    if (vectors_[i] == nullptr) return false;
  }
  return true;
}

// Writes what is one sequence's of a batch.
void GpuExecutor::describe(const session::BatchPart& part, size_t lane, GpuPass& pass) {
  pass.n = part.n;
  pass.n_rows = part.n_rows;
  if (part.sequence == nullptr) return;  // dropped
  const session::Sequence& sequence = *part.sequence;
  const kv::KvCache& cache = sequence.cache();
  const size_t n_layers = cache.shape().layers.size();
  const void** rows = &rows_[4 * n_layers * lane];
  for (size_t i = 0; i < n_layers; ++i) {
    const int32_t layer = static_cast<int32_t>(i);
    if (cache.layer(layer).heads > 0) {
      rows[4 * i] = cache.keys(layer, 0);
      rows[4 * i + 1] = cache.values(layer, 0);
    }
    rows[4 * i + 2] = sequence.state_before(layer);
    rows[4 * i + 3] = sequence.state_after(layer);
  }
  pass.rows = address(rows);
  pass.slot = static_cast<uint32_t>(cache.index());
  pass.first = sequence.position();
  pass.held = cache.shape().on_gpu ? pass.first : copy_of(*part.sequence).held;
  pass.first_row = part.first_row;
}

void GpuExecutor::hand_over() {
  if (spec_.parts.empty()) {
    describe(parts_[0], 0, pass_);
  } else {
    pass_.n = pass_.n_rows = pass_.first_row = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      describe(parts_[i], i, lanes_[i]);
      pass_.n += parts_[i].n;
      pass_.n_rows += parts_[i].n_rows;
    }
  }
  pass_.n_lanes = static_cast<uint32_t>(spec_.parts.size());
  const session::ComputeBuffer& working = cx_.working;
  const size_t n_ropes = cx_.program.ropes.size();
  for (size_t i = 0; i < n_ropes; ++i) {
    ropes_[i] = working.rope_table(i);
    ropes_[n_ropes + i] = working.turn_table(i);
  }
  for (size_t i = 0; i < table_rows_.size(); ++i) table_rows_[i] = working.table_rows(i);
  pass_.x = address(working.buffer(model::Buf::kX));
  const bool rows = spec_.embed || spec_.encode;
  pass_.logits = address(working.buffer(rows ? model::Buf::kH : model::Buf::kLogits));
  pass_.hidden = static_cast<uint32_t>(spec_.embed    ? cx_.program.hidden
                                       : spec_.encode ? cx_.program.decoder
                                                      : 0);
  pass_.source = held_of_->source();
  pass_.ends = address(spec_.ends.data());
  pass_.n_ends = static_cast<uint32_t>(spec_.ends.size());
  pass_.adapters = adapters();
  pass_.terms = address(cx_.adapters.terms().data());
  pass_.first_terms = address(cx_.adapters.firsts().data());
  pass_.due = address(held_of_->due().data());
  pass_.n_due = static_cast<uint32_t>(held_of_->due().size());
  pass_.before = copy_of(*held_of_).now.id;
  pass_.layer = -1;
  const session::MediaBatch& media = spec_.media;
  pass_.media = address(media.rows);
  pass_.media_width = static_cast<uint32_t>(media.width);
  pass_.non_causal = !media.non_causal               ? GpuPass::kNoLayer
                     : cx_.program.hp.media.sees_all ? GpuPass::kAllLayers
                                                     : GpuPass::kWindows;
  pass_.steps = 0;
  if (spec_.queue != nullptr) {
    chosen_.resize(static_cast<size_t>(n_));
    pass_.steps = n_;
    pass_.token = held_of_->token(pass_.first);
    pass_.chosen = address(chosen_.data());
    pass_.n_chosen = 0;
    pass_.stops = address(spec_.queue->stops.data());
    pass_.n_stops = static_cast<uint32_t>(spec_.queue->stops.size());
    pass_.sampling = address(spec_.queue->sampling.data());
    const auto recent = held_of_->recent(spec_.queue->penalty_window());
    pass_.recent = address(recent.data());
    pass_.n_recent = static_cast<uint32_t>(recent.size());
  }
  pass_.state = GpuPass::kWanted;
  where_ = Where::kGpu;
  cx_.times.enter(session::TimePart::kGpu);
}

// How many positions of the batch's sequences need memory.
int32_t GpuExecutor::kv_needed() const {
  int32_t most = 0;
  for (const session::BatchPart& part : parts_) {
    if (part.sequence != nullptr) most = std::max(most, part.sequence->position() + part.n);
  }
  return most;
}

// After the GPU device is lost with the only KV cache: plans memory for as much of one as fits.
Step GpuExecutor::take_kv_back() {
  if (pass_.lost != 0) {
    if (!settle_reads()) return Step::kBlocked;
    for (int32_t n = cx_.plan.kv.shape.n_ctx; n >= kv_needed(); n -= n / 8 + 1) {
      if (!replanner_.hold_kv(n).ok()) continue;
      kv_rows_ = n;
      for (Copy& copy : copies_) copy.held = 0;
      return Step::kProgress;
    }
  }
  return no_memory();
}

Step GpuExecutor::no_memory() {
  failure_ = error(Code::kBudgetTooSmall, "the memory budget has no room for the KV cache");
  return Step::kFailed;
}

// After a loss: begins to compute a sequence of the batch again whose rows memory lacks, or what
// follows its last checkpoint. False: there is none.
bool GpuExecutor::recompute() {
  for (const session::BatchPart& part : parts_) {
    session::Sequence* const sequence = part.sequence;
    if (sequence == nullptr) continue;
    const GpuState* const state = state_of(*sequence);
    Copy& copy = copy_of(*sequence);
    const bool rows = kv_rows_ > 0 && copy.held < sequence->position();
    if (!rows && (state == nullptr || state->away == 0)) continue;
    if (spec_.media.rows != nullptr) {  // it would be forgotten
      failure_ =
          error(Code::kMediaMissing, "the GPU is lost: send the prompt with its pictures again");
      return false;
    }
    again_ = sequence;
    again_to_ = sequence->position();
    sequence->rewind(rows ? 0 : again_to_ - 1);
    copy.now = {};
    recompute_batch();
    return true;
  }
  return false;
}

// Begins the next batch of that sequence, or again the one that had to wait for it.
void GpuExecutor::recompute_batch() {
  copy_of(*again_).held = again_->position();
  again_n_ = std::min(
      {cx_.plan.batch.n_batch, again_to_ - again_->position(), again_->tokens_until_eviction()});
  if (again_n_ > 0) {
    again_->begin_batch(again_n_);
    return cpu_.begin(*again_, again_n_, {});
  }
  again_ = nullptr;
  for (const session::BatchPart& part : parts_) {
    if (part.sequence != nullptr) part.sequence->begin_batch(part.n);
  }
  cpu_.begin(*held_of_, n_, spec_);
}

// Runs the batch on the CPU, from states in memory. If that includes layers of the GPU, the CPU
// reads their weights itself, and the GPU's copy of the KV cache ends before the batch.
Step GpuExecutor::on_cpu(int32_t* max_ops) {
  if (at_begin() && again_ == nullptr) {
    if (held_of_->cache().shape().on_gpu) return take_kv_back();
    if (kv_rows_ > 0 && kv_needed() > kv_rows_) return no_memory();
    if (pass_.lost != 0 ? recompute() : fetch_states(Where::kCpu)) return Step::kProgress;
    if (!failure_.ok()) return Step::kFailed;
  }
  const Step step = cpu_.step(max_ops);
  if (step == Step::kDone && again_ != nullptr) {
    again_->commit_batch(again_n_);
    recompute_batch();
    return Step::kProgress;
  }
  if (step == Step::kDone && kv_rows_ > 0) {
    for (const session::BatchPart& part : parts_) {
      if (part.sequence != nullptr)
        copy_of(*part.sequence).held = part.sequence->position() + part.n;
    }
  }
  if (pass_.cut == 0 || step == Step::kDone || cpu_.at() >= pass_.cut) return step;
  static_cast<void>(copy_of(*held_of_));
  if (step == Step::kBlocked) cpu_.demand_weights();
  return step;
}

// Takes over what was read. False while reads are under way, whose memory a new plan would move.
bool GpuExecutor::settle_reads() {
  residency::Residency& residency = cx_.weights.residency();
  residency.collect();
  if (residency.requests().under_way() > 0) return false;
  cx_.weights.pack_loaded();
  return true;
}

// After the GPU device is lost, moves its layers to the CPU within the same budget. False while
// reads are under way.
bool GpuExecutor::take_layers_back() {
  if (!settle_reads()) return false;
  if (replanner_.offload_layers(0).ok()) pass_.cut = 0;
  taken_back_ = true;
  return true;
}

// Takes over what the GPU has computed.
Step GpuExecutor::computed(int32_t* max_ops) {
  pass_.state = GpuPass::kNone;
  const bool queued = spec_.queue != nullptr;
  if (queued && pass_.n_chosen == 0) {
    ++pass_.serial;
    to_single_step();
    cpu_.begin(*held_of_, n_, spec_);
    where_ = Where::kEmbedding;
    return Step::kProgress;
  }
  // Memory always has the states of a sequence with pictures.
  if (made_.id != pass_.serial && !held_of_->media().empty() && cx_.plan.kv.shape.recurrent()) {
    made_.id = pass_.serial;
    pass_.fetch = describe_fetch(*held_of_, made_, true);
    pass_.state = GpuPass::kWanted;
    where_ = Where::kFetch;
    next_ = Where::kGpu;
    return Step::kProgress;
  }
  hold(queued ? static_cast<int32_t>(pass_.n_chosen) : pass_.n);
  ++pass_.on_gpu;
  where_ = Where::kCpu;
  if (pass_.cut == 0 && !spec_.embed) {  // the GPU computed everything
    --*max_ops;
    return Step::kDone;
  }
  cpu_.begin(*held_of_, n_, spec_);
  cpu_.go_on_at(pass_.cut != 0 ? pass_.cut : static_cast<size_t>(cx_.program.pool));
  return Step::kProgress;
}

Step GpuExecutor::step(int32_t* max_ops) {
  // An embedding batch was packed for the current plan, so the plan must not change before it.
  if (pass_.lost != 0 && pass_.cut != 0 && !taken_back_ && where_ != Where::kGpu && at_begin() &&
      !spec_.embed) {
    return take_layers_back() ? Step::kProgress : Step::kBlocked;
  }
  if (where_ == Where::kEmbedding) {
    while (*max_ops > 0 && at_begin()) {
      int32_t one = 1;
      const Step step = cpu_.step(&one);
      --*max_ops;
      if (step == Step::kBlocked || step == Step::kFailed) return step;
    }
    if (at_begin()) return Step::kProgress;
    const bool ready = vectors_ready() && cpu_.rows_ready();
    if (!cx_.weights.failure().ok()) {  // the CPU reports it
      where_ = Where::kCpu;
      return Step::kProgress;
    }
    if (!ready) {
      return cx_.weights.poll() || cx_.weights.help_reading() ? Step::kProgress : Step::kBlocked;
    }
    // After a loss, a picture cannot be computed again.
    if (spec_.media.rows != nullptr && fetch_states(Where::kEmbedding)) return Step::kProgress;
    cpu_.evict();
    cpu_.abandon();
    hand_over();
  }
  if (where_ == Where::kFetch) return fetched();
  if (where_ == Where::kCpu) return on_cpu(max_ops);
  if (pass_.state == GpuPass::kDone) return computed(max_ops);
  if (pass_.lost == 0 && pass_.state == GpuPass::kWanted) return Step::kBlocked;
  pass_.state = GpuPass::kNone;
  where_ = Where::kCpu;
  if (spec_.queue != nullptr) to_single_step();
  cpu_.begin(*held_of_, n_, spec_);
  return Step::kProgress;
}

void GpuExecutor::abandon() {
  ++pass_.serial;
  pass_.state = GpuPass::kNone;
  pass_.fetch = 0;
  where_ = Where::kCpu;
  again_ = nullptr;
  cpu_.abandon();
}

int32_t GpuExecutor::layer() const {
  return where_ == Where::kGpu ? pass_.layer : cpu_.layer();
}

void GpuExecutor::observe(session::Observer observer) {
  watched_ = static_cast<bool>(observer);
  cpu_.observe(std::move(observer));
}

void GpuExecutor::watch_products(session::ProductWatch watch) {
  watched_ = watch.see != nullptr;
  cpu_.watch_products(watch);
}

}  // namespace sluice::gpu
