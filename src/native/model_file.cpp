// Serves the fill queue with I/O threads or direct reads.
#include "native/model_file.h"

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "io/direct_io_native.h"
#include "native/expert_source.h"
#include "platform/threads.h"

namespace sluice::native {
namespace {

constexpr int kIoThreads = 4;          // ranges in flight
constexpr uint64_t kAhead = 16 << 20;  // bytes of read-ahead requested from the kernel

// Which layers of a model's local files a helper thread decompresses ahead of `n_threads` compute
// threads; 0: automatic. Blocks are decoded in order, which one thread does best. Frames need a
// processor that does not compute.
Decompression decompressed_ahead(const ModelHeader& model, int32_t n_threads) {
  if (model.remote) return Decompression::kNone;
  const Decompression kind = model.decompression;
  const int computing = n_threads > 0 ? n_threads : default_thread_count();
  const bool spare = platform::usable_cpus(/*logical=*/true) > computing;
  return kind == Decompression::kFrames && !spare ? Decompression::kNone : kind;
}

bool wants_direct_io(const ModelHeader& model) {
  io::OpenOptions how;
  how.direct_io = model.direct_io;
  how.no_page_cache = model.no_page_cache;
  return io::choose_direct_io(model.addresses, kIoThreads, how);
}

}  // namespace

void warn_of_context(const session::MemoryPlan& plan, const io::OpenOptions& options) {
  if (plan.context.from != session::ContextFrom::kBudget || !options.on_warning) return;
  options.on_warning("the memory budget limits the context to " +
                     std::to_string(plan.kv.layout.positions) +
                     " tokens: set a context length or a larger budget for more");
}

Result<std::unique_ptr<Model>> Model::open(const std::string& path, const LoadOptions& options) {
  Result<ModelHeader> header = read_header(path, options.source);
  if (!header.ok()) return header.status();
  if (options.on_header) options.on_header(header->header);
  Result<AdapterFiles> adapters = AdapterFiles::open(options.adapters, options.source);
  if (!adapters.ok()) return adapters.status();
  session::EngineOptions engine_options = options.engine;
  engine_options.adapters = adapters->sources();
  Result<std::unique_ptr<Model>> model = open(std::move(*header), engine_options);
  if (model.ok()) warn_of_context((*model)->engine().plan(), options.source);
  return model;
}

Result<std::unique_ptr<Model>> Model::open(ModelHeader header,
                                           const session::EngineOptions& options) {
  if (header.header.get_string("general.architecture") == std::string_view("clip")) {
    return error(Code::kUnsupportedArchitecture,
                 "the file is a vision projector: open the text model, with this file as its "
                 "projector (--projector)");
  }
  std::unique_ptr<Model> model(new Model);
  model->ahead_ = decompressed_ahead(header, options.n_threads);
  model->local_ = !header.remote;
  model->unpacks_ = header.held > 0;
  model->sources_ = std::move(header.sources);
  const bool local = model->local_ && model->ahead_ == Decompression::kNone;
  if (local && wants_direct_io(header)) {
    Result<std::shared_ptr<io::DirectBuffers>> buffers = io::DirectBuffers::make(kIoThreads);
    if (!buffers.ok()) return buffers.status();
    model->use_direct_io(*buffers, header.join_reads);
  }
  Status opened = model->open_engine(header, options);
  if (model->direct_io() && opened.code() == Code::kBudgetTooSmall) {
    model->use_direct_io(nullptr, false);  // the smallest budget has no room for buffers
    opened = model->open_engine(header, options);
  }
  if (!opened.ok()) return opened;
  const bool helped = model->ahead_ != Decompression::kNone;
  const int threads = model->local_ && !model->direct_io() ? (helped ? 1 : 0) : kIoThreads;
  for (int i = 0; i < threads; ++i) {
    model->threads_.emplace_back([raw = model.get()] { raw->io_loop(); });
  }
  return model;
}

// Null: reads through the page cache.
void Model::use_direct_io(const std::shared_ptr<io::DirectBuffers>& buffers, bool join) {
  bool any = false;
  for (const auto& source : sources_) any = source->use_direct_io(buffers) || any;
  const uint64_t most = join ? JoinedRequests::kMaxBytes : 0;
  joined_ = any ? std::make_unique<JoinedRequests>(sources_, most) : nullptr;
}

Status Model::open_engine(const ModelHeader& header, const session::EngineOptions& options) {
  session::EngineOptions engine_options = options;
  engine_options.base_bytes += header.held;
  if (direct_io()) engine_options.base_bytes += io::DirectBuffers::memory(kIoThreads);
  reads_itself_ = local_ && ahead_ == Decompression::kNone && !direct_io();
  if (reads_itself_) {
    engine_options.reader = this;
    engine_options.direct_reads = residency::DirectReads::kAlways;
  }
  Result<std::unique_ptr<session::Engine>> engine =
      session::Engine::open(header.header, engine_options);
  if (!engine.ok()) return engine.status();
  engine_ = std::move(*engine);
  return {};
}

Model::~Model() {
  stop_ = true;
  for (const auto& source : sources_) source->abort();
  if (engine_ != nullptr) {
    // The engine is idle. Changing the futex word only wakes the threads, which check stop_ first.
    residency::FillQueue& queue = engine_->residency().requests().queue();
    queue.pushed.fetch_xor(0x80000000u);
    platform::futex_wake_all(queue.pushed);
  }
  for (std::thread& thread : threads_) thread.join();
}

void Model::io_loop() {
  residency::FillQueue& queue = engine_->residency().requests().queue();
  while (!stop_) {
    const uint32_t pushed = queue.pushed.load(std::memory_order_acquire);
    const Served served = direct_io() ? serve_joined() : serve_one();
    if (served == Served::kFailed) return;
    if (served == Served::kNothing) platform::futex_wait(queue.pushed, pushed);
  }
}

bool Model::read(uint32_t file, uint64_t offset, std::span<uint8_t> out) {
  return sources_[file]->read(offset, out).ok();
}

// A hint costs more than it saves while the page cache has the bytes.
void Model::will_need(uint32_t file, uint64_t offset, uint64_t bytes) {
  const residency::FillQueue& queue = engine_->residency().requests().queue();
  if (queue.rate.load(std::memory_order_relaxed) > residency::kMemorySpeed) return;
  sources_[file]->will_need(offset, bytes);
}

Model::Served Model::serve_one() {
  residency::FillQueue& queue = engine_->residency().requests().queue();
  uint32_t n = taken_.load();
  do {
    if (stop_ || static_cast<int32_t>(queue.pushed.load(std::memory_order_acquire) - n) <= 0) {
      return Served::kNothing;
    }
  } while (!taken_.compare_exchange_weak(n, n + 1));
  return serve(n) ? Served::kOne : Served::kFailed;
}

// Fills request n. False if this thread must stop, on shutdown or after an error.
bool Model::serve(uint32_t n) {
  residency::FillQueue& queue = engine_->residency().requests().queue();
  const residency::FillRequest& request = queue.ring[n % residency::kFillCapacity];
  uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(request.dst));
  const Status status = sources_[request.file]->read(request.offset, {dst, request.length});
  if (stop_) return false;
  if (status.ok()) {
    queue.complete(n);
    return true;
  }
  fail(status);
  queue.completed.fetch_add(1);  // wakes the engine, which then sees the failure
  platform::futex_wake_all(queue.completed);
  return false;
}

Model::Served Model::serve_joined() {
  residency::FillQueue& queue = engine_->residency().requests().queue();
  std::array<uint32_t, JoinedRequests::kMax> taken{};
  const size_t n = joined_->take(queue, taken);
  if (n == 0) return Served::kNothing;
  std::array<io::ReadPart, JoinedRequests::kMax> parts;
  for (size_t i = 0; i < n; ++i) {
    const residency::FillRequest& r = queue.ring[taken[i] % residency::kFillCapacity];
    parts[i] = {r.offset, {reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst)), r.length}};
  }
  const uint32_t file = queue.ring[taken[0] % residency::kFillCapacity].file;
  const Status status = sources_[file]->read_parts(std::span(parts).first(n));
  if (stop_) return Served::kFailed;
  if (status.ok()) {
    for (size_t i = 0; i < n; ++i) queue.complete(taken[i]);
    return Served::kOne;
  }
  fail(status);
  queue.completed.fetch_add(1);  // wakes the engine, which then sees the failure
  platform::futex_wake_all(queue.completed);
  return Served::kFailed;
}

// Serves as many requests as there are compute threads, beside the helper thread. False if there
// were none, or they have to be served in order.
bool Model::serve_together() {
  if (ahead_ != Decompression::kFrames) return false;
  std::atomic<bool> served{false};
  const int n = engine_->pool().n_threads();
  engine_->pool().parallel_for(n, [&](int64_t, int) {
    if (serve_one() != Served::kNothing) served = true;
  });
  return served;
}

void Model::fail(const Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.ok()) failure_ = status;
  failed_ = true;
}

// Reads the next requests with all threads of the engine. Embedding rows go first, because a
// forward pass cannot begin without them; otherwise as many units as there are threads. False if
// there are no requests.
bool Model::read_together() {
  using residency::kFillCapacity;
  constexpr uint32_t kPiece = 512 << 10;  // small enough to distribute, and to fit a core's cache
  residency::FillQueue& queue = engine_->residency().requests().queue();
  const auto request = [&queue](uint32_t n) -> residency::FillRequest& {
    return queue.ring[n % kFillCapacity];
  };
  const auto pending = [&request](uint32_t n) {
    return request(n).state.load(std::memory_order_relaxed) == residency::kFillPending;
  };
  const uint32_t pushed = queue.pushed.load(std::memory_order_relaxed);
  uint32_t first = taken_.load(std::memory_order_relaxed);
  if (pushed - first > kFillCapacity) first = pushed - kFillCapacity;  // their places are taken
  while (first != pushed && !pending(first)) ++first;
  taken_.store(first, std::memory_order_relaxed);
  std::array<uint32_t, kFillCapacity> chosen{};
  size_t n_chosen = 0;
  for (const bool rows : {true, false}) {
    const size_t most = rows ? kFillCapacity : static_cast<size_t>(engine_->pool().n_threads());
    for (uint32_t n = first; n != pushed && n_chosen < std::min<size_t>(most, kFillCapacity); ++n) {
      if (pending(n) && (!rows || request(n).unit == residency::kFillRow)) chosen[n_chosen++] = n;
    }
    if (n_chosen > 0) break;
  }
  if (n_chosen == 0) return false;
  const double start = monotonic_ms();
  if (slow_source_) {
    for (size_t i = 0; i < n_chosen; ++i) advise_readahead(request(chosen[i]).unit);
    tell_ahead(chosen[n_chosen - 1] + 1);
  }
  std::array<int64_t, kFillCapacity + 1> first_piece{};
  for (size_t i = 0; i < n_chosen; ++i) {
    first_piece[i + 1] = first_piece[i] + (request(chosen[i]).length + kPiece - 1) / kPiece;
  }
  engine_->pool().parallel_for(first_piece[n_chosen], [&](int64_t piece, int) {
    size_t i = 0;
    while (first_piece[i + 1] <= piece) ++i;
    const residency::FillRequest& r = request(chosen[i]);
    const uint32_t at = static_cast<uint32_t>(piece - first_piece[i]) * kPiece;
    uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst)) + at;
    const Status status =
        sources_[r.file]->read(r.offset + at, {dst, std::min(kPiece, r.length - at)});
    if (!status.ok()) fail(status);
  });
  if (failed_) return true;
  uint64_t bytes = 0;
  for (size_t i = 0; i < n_chosen; ++i) {
    bytes += request(chosen[i]).length;
    queue.complete(chosen[i]);
  }
  const double ms = monotonic_ms() - start;
  // Requesting read-ahead of data that is already in the page cache costs a twentieth of reading
  // it.
  slow_source_ = static_cast<double>(bytes) < 1e3 * residency::kMemorySpeed * ms;
  engine_->residency().requests().note_rate(
      bytes, static_cast<uint64_t>(1e6 * ms * engine_->pool().n_threads()));
  return true;
}

// Requests read-ahead of the units after `unit` that a small stream buffer cannot request yet.
void Model::advise_readahead(uint32_t unit) {
  const residency::Residency& residency = engine_->residency();
  const std::vector<residency::Unit>& units = residency.plan().units;
  if (!residency.streams_in_order(unit)) return;
  if (unit == next_unit_) {
    told_bytes_ -= std::min(told_bytes_, units[unit].bytes);
  } else {  // the first one, or the start of another pass
    told_unit_ = unit;
    told_bytes_ = 0;
  }
  next_unit_ = residency.streamed_after(unit);
  while (told_bytes_ < kAhead) {
    told_unit_ = residency.streamed_after(told_unit_);
    if (told_unit_ == unit) break;
    const residency::Unit& u = units[told_unit_];
    sources_[u.file]->will_need(u.offset, u.bytes);
    told_bytes_ += u.bytes;
  }
}

// Requests read-ahead of the other queued requests, from `next` on.
void Model::tell_ahead(uint32_t next) {
  residency::FillQueue& queue = engine_->residency().requests().queue();
  const uint32_t pushed = queue.pushed.load(std::memory_order_relaxed);
  if (static_cast<int32_t>(told_ - next) < 0) told_ = next;
  uint64_t ahead = 0;
  for (uint32_t n = next; n != pushed && ahead < kAhead; ++n) {
    const residency::FillRequest& r = queue.ring[n % residency::kFillCapacity];
    ahead += r.length;
    if (n != told_) continue;
    ++told_;
    if (!engine_->residency().streams_in_order(r.unit)) {
      sources_[r.file]->will_need(r.offset, r.length);
    }
  }
}

Status Model::failure() {
  if (interrupted_) return error(Code::kAborted, "interrupted");
  if (!failed_) return {};
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

Status Model::wait_for_fill(uint32_t seen) {
  const double start = monotonic_ms();
  const uint64_t before = decompress_ns();
  if (!failed_ && !interrupted_ && !(reads_itself_ ? read_together() : serve_together())) {
    platform::futex_wait(engine_->residency().requests().queue().completed, seen);
  }
  if (reads_itself_) {
    engine_->passes().times().share_reads(0, decompress_ns() - before, engine_->pool().n_threads());
  }
  wait_ms_ += monotonic_ms() - start;
  return failure();
}

Status Model::run(session::Session& session) {
  session::Step last = session::Step::kDone;
  SLUICE_RETURN_IF_ERROR(drive([&](int32_t max_ops) { return last = session.step(max_ops); }));
  return last == session::Step::kFailed ? session.failure() : Status();
}

Status Model::drive(const Stepper& step) {
  residency::FillQueue& queue = engine_->residency().requests().queue();
  // A few layers per step, so that an interrupt takes effect within a fraction of a token.
  constexpr int32_t kOpsPerStep = 32;
  for (;;) {
    SLUICE_RETURN_IF_ERROR(failure());
    const uint32_t seen = queue.completed.load(std::memory_order_acquire);
    const session::Step reached = step(kOpsPerStep);
    if (reached == session::Step::kDone || reached == session::Step::kFailed) return {};
    SLUICE_RETURN_IF_ERROR(failure());
    if (reached == session::Step::kBlocked) SLUICE_RETURN_IF_ERROR(wait_for_fill(seen));
  }
}

Status Model::wait() {
  SLUICE_RETURN_IF_ERROR(failure());
  const uint32_t seen =
      engine_->residency().requests().queue().completed.load(std::memory_order_acquire);
  if (engine_->weights().poll()) return {};
  return wait_for_fill(seen);
}

// Reads of layers of a QSF file go into memory unchecked if all of each layer is read now. Nothing
// is computed before the checks at the end. Servers are read with checks, since what is damaged is
// fetched from them again.
Status Model::preload(Progress progress, void* context) {
  const auto read_now = [](const residency::Unit& unit) {
    const bool record = unit.kind == residency::MatrixKind::kExpert && unit.offset >= qsf::kExperts;
    return unit.pinned || record || unit.kind == residency::MatrixKind::kEmbedding;
  };
  const std::vector<residency::Unit>& units = engine_->residency().plan().units;
  if (!local_ || !std::all_of(units.begin(), units.end(), read_now)) {
    return load_pinned(progress, context);
  }
  for (const auto& source : sources_) source->defer_checks();
  const Status loaded = load_pinned(progress, context);
  if (interrupted_) return loaded;
  Status checked;
  for (const auto& source : sources_) {
    const Status status = source->run_deferred_checks();
    if (checked.ok()) checked = status;
  }
  if (checked.ok()) return loaded;
  fail(checked);
  return checked;
}

Status Model::load_pinned(Progress progress, void* context) {
  residency::FillQueue& queue = engine_->residency().requests().queue();
  residency::Residency& residency = engine_->residency();
  const residency::Plan& plan = residency.plan();
  std::vector<uint32_t> out_of_turn;  // pinned experts: not in the streaming order, so demand them
  for (uint32_t u = 0; u < plan.units.size(); ++u) {
    const residency::Unit& unit = plan.units[u];
    const bool wanted = unit.pinned && unit.kind == residency::MatrixKind::kExpert;
    if (wanted && !residency.ready(u)) out_of_turn.push_back(u);
  }
  if (!out_of_turn.empty()) residency.set_demand(out_of_turn);
  for (;;) {
    const uint32_t seen = queue.completed.load(std::memory_order_acquire);
    engine_->weights().poll();
    if (!engine_->failure().ok()) return engine_->failure();
    uint64_t loaded = 0, total = 0;
    for (uint32_t u = 0; u < plan.units.size(); ++u) {
      if (!plan.units[u].pinned) continue;
      total += plan.units[u].bytes;
      if (residency.ready(u)) loaded += plan.units[u].bytes;
    }
    if (progress != nullptr) progress(context, loaded, total);
    if (residency.pins_pending() == 0) return {};
    SLUICE_RETURN_IF_ERROR(wait_for_fill(seen));
  }
}

// Waits for reads into memory that is about to be released.
Status Model::end_reads() {
  next_unit_ = residency::kNoUnit;
  residency::FillQueue& queue = engine_->residency().requests().queue();
  residency::Residency& residency = engine_->residency();
  for (;;) {
    const uint32_t seen = queue.completed.load(std::memory_order_acquire);
    residency.collect();
    if (residency.requests().under_way() == 0) break;
    SLUICE_RETURN_IF_ERROR(wait_for_fill(seen));
  }
  engine_->weights().pack_loaded();
  return {};
}

Status Model::set_memory_budget(uint64_t budget) {
  SLUICE_RETURN_IF_ERROR(end_reads());
  return replanned(engine_->replanner().set_memory_budget(budget));
}

Status Model::set_adapters(std::span<const AdapterChoice> choices, const io::OpenOptions& options) {
  Result<AdapterFiles> files = AdapterFiles::open(choices, options);
  if (!files.ok()) return files.status();
  SLUICE_RETURN_IF_ERROR(end_reads());
  return replanned(engine_->replanner().set_adapters(files->sources()));
}

// If the old plan's memory could not be allocated again either, the model can no longer be used.
Status Model::replanned(Status status) {
  if (status.code() == Code::kOutOfMemory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = status;
    failed_ = true;
  }
  return status;
}

void Model::interrupt() {
  interrupted_ = true;
  for (const auto& source : sources_) source->abort();
  wake();
}

void Model::wake() {
  residency::FillQueue& queue = engine_->residency().requests().queue();
  queue.completed.fetch_add(1);
  platform::futex_wake_all(queue.completed);
}

namespace {

using Sources = std::span<const std::unique_ptr<io::ByteSource>>;

bool all_here(Sources sources, bool remote) {
  const auto here = [](const auto& source) { return source->bytes_missing() == 0; };
  return !remote || std::all_of(sources.begin(), sources.end(), here);
}

Status take_samples(Sources sources, session::WeightHash& hash) {
  std::vector<uint8_t> bytes(session::kMaxSampleBytes);
  for (const session::WeightSample& s : hash.samples()) {
    const std::span<uint8_t> out = std::span(bytes).first(s.bytes);
    SLUICE_RETURN_IF_ERROR(sources[s.file]->read(s.offset, out));
    hash.add(out);
  }
  return {};
}

}  // namespace

Status Model::identify() {
  if (!identified_) {
    session::WeightHash hash(engine_->program(), !unpacks_ && all_here(sources_, !local_));
    SLUICE_RETURN_IF_ERROR(take_samples(sources_, hash));
    engine_->identify_weights(hash);
    identified_ = true;
  }
  if (projector_ != nullptr) {
    const ModelHeader& p = *projector_;
    session::WeightHash hash(p.header, p.held == 0 && all_here(p.sources, p.remote));
    SLUICE_RETURN_IF_ERROR(take_samples(p.sources, hash));
    engine_->identify_weights(hash);
    projector_ = nullptr;
  }
  return {};
}

uint64_t Model::decompress_ns() const {
  uint64_t n = 0;
  for (const auto& source : sources_) n += source->decompress_ns();
  return n;
}

io::SystemReads Model::system_reads() const {
  io::SystemReads sum;
  for (const auto& source : sources_) {
    const io::SystemReads reads = source->system_reads();
    sum.count += reads.count;
    sum.bytes += reads.bytes;
  }
  return sum;
}

uint64_t Model::bytes_fetched() const {
  uint64_t n = 0;
  for (const auto& source : sources_) n += source->bytes_fetched();
  return n;
}

uint64_t Model::bytes_from_cache() const {
  uint64_t n = 0;
  for (const auto& source : sources_) n += source->bytes_from_cache();
  return n;
}

}  // namespace sluice::native
