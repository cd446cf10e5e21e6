// The native driver: opens the engine on a model, and serves its fill queue. The browser's worker
// does the same in TypeScript (web/).
// URLs are read by I/O threads, with several ranges in flight. Local files are read by the compute
// threads: copying from the page cache is CPU work, and separate threads would compete with the
// compute threads, which wait for each other at every barrier. Streamed weights are read piece by
// piece between matrix multiplications (residency::DirectReads). Pinned weights, and those that the
// disk must deliver first, are read by all threads together while the kernel reads ahead. (Mapping
// the file costs as much in page faults as copying does.)
// Files larger than the memory that is left are read by I/O threads as well, without the page cache
// (io/direct_io_native.h), where that is faster.
// Compressed layers of a local QSF file are decompressed by a helper thread into the stream buffer,
// ahead of the computation. Frames can be decompressed by any thread: compute threads help when
// they wait, and without a processor to spare for the helper they read directly as above.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/byte_source.h"
#include "native/adapter_file.h"
#include "native/joined_requests.h"
#include "native/model_header.h"
#include "session/engine.h"
#include "session/session.h"

namespace sluice::native {

struct LoadOptions {
  session::EngineOptions engine;  // its adapters are those below
  io::OpenOptions source;
  // Called with the header before open() drops it.
  std::function<void(const gguf::Header&)> on_header = nullptr;
  std::vector<AdapterChoice> adapters = {};
};

// Warns if the budget made an automatic context shorter than its default.
void warn_of_context(const session::MemoryPlan& plan, const io::OpenOptions& options);

class Model final : private session::RangeReader {
 public:
  // Errors: those of reading, of the header and of Engine::open.
  [[nodiscard]] static Result<std::unique_ptr<Model>> open(const std::string& path,
                                                           const LoadOptions& options);
  // Opens a model whose header was read. Errors: those of Engine::open.
  [[nodiscard]] static Result<std::unique_ptr<Model>> open(ModelHeader header,
                                                           const session::EngineOptions& options);
  ~Model() override;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] session::Engine& engine() { return *engine_; }

  // Calls `step(max_ops)` until it returns kDone or kFailed, and waits for weights when it returns
  // kBlocked. Errors: those of the sources, kAborted after interrupt().
  using Stepper = std::function<session::Step(int32_t max_ops)>;
  [[nodiscard]] Status drive(const Stepper& step);
  // Runs the forward pass that `session` has begun to its end, waiting for weights as needed.
  // Errors: those of the sources, kAborted after interrupt().
  [[nodiscard]] Status run(session::Session& session);
  // For callers that step by themselves: waits after kBlocked until weights may have arrived.
  // Errors: run()'s.
  [[nodiscard]] Status wait();
  // Loads all pinned units before it returns. `progress(loaded, total)` is in bytes.
  using Progress = void (*)(void* context, uint64_t loaded, uint64_t total);
  [[nodiscard]] Status preload(Progress progress = nullptr, void* context = nullptr);

  // Waits until no read of weights is pending, between two calls of run(). Errors: those of the
  // sources.
  [[nodiscard]] Status end_reads();
  // Changes the budget between two calls of run(); sessions are kept. Errors:
  // Replanner::set_memory_budget's, those of the sources.
  [[nodiscard]] Status set_memory_budget(uint64_t budget);
  // Replaces the adapters between two calls of run(). Errors: AdapterFiles::open's,
  // Replanner::set_adapters', those of the sources.
  [[nodiscard]] Status set_adapters(std::span<const AdapterChoice> choices,
                                    const io::OpenOptions& options = {});

  // Makes run() return kAborted within 100 ms. May be called from any thread, including one that
  // waits for signals.
  void interrupt();
  // Makes drive() call its stepper again although nothing has arrived. May be called from any
  // thread.
  void wake();
  [[nodiscard]] bool interrupted() const { return interrupted_.load(); }

  // The model's file (the first part of a split one).
  [[nodiscard]] io::ByteSource& source() { return *sources_[0]; }
  // Adds the weights to the engine's fingerprint, once. Call before a state is saved or restored.
  // Reads a sample of every tensor, or a few of a model that is neither local nor in the cache.
  // Errors: those of the sources.
  [[nodiscard]] Status identify();
  // identify() adds those of this projector, too; null: it is about to go.
  void take_projector(const ModelHeader* projector) { projector_ = projector; }
  // Whether weights are read without the page cache; reads of local files so far.
  [[nodiscard]] bool direct_io() const { return joined_ != nullptr; }
  [[nodiscard]] io::SystemReads system_reads() const;
  [[nodiscard]] uint64_t bytes_fetched() const;
  [[nodiscard]] uint64_t bytes_from_cache() const;
  // Milliseconds that run() spent waiting for weights.
  [[nodiscard]] double wait_ms() const { return wait_ms_; }

 private:
  Model() = default;
  [[nodiscard]] bool read(uint32_t file, uint64_t offset, std::span<uint8_t> out) override;
  void will_need(uint32_t file, uint64_t offset, uint64_t bytes) override;
  [[nodiscard]] uint64_t decompress_ns() const override;
  void io_loop();
  enum class Served : uint8_t { kNothing, kOne, kFailed };
  Served serve_one();
  bool serve(uint32_t n);
  Served serve_joined();
  void use_direct_io(const std::shared_ptr<io::DirectBuffers>& buffers, bool join);
  [[nodiscard]] Status open_engine(const ModelHeader& header,
                                   const session::EngineOptions& options);
  bool serve_together();
  bool read_together();
  void advise_readahead(uint32_t unit);
  void tell_ahead(uint32_t next);
  void fail(const Status& status);
  [[nodiscard]] Status load_pinned(Progress progress, void* context);
  [[nodiscard]] Status failure();
  [[nodiscard]] Status wait_for_fill(uint32_t seen);
  [[nodiscard]] Status replanned(Status status);

  std::vector<std::unique_ptr<io::ByteSource>> sources_;
  std::unique_ptr<JoinedRequests> joined_;  // with direct I/O
  std::unique_ptr<session::Engine> engine_;
  std::vector<std::thread> threads_;
  bool local_ = true;          // no source is a URL
  bool reads_itself_ = false;  // the engine's threads read
  // Of local files, where a helper thread decompresses ahead.
  Decompression ahead_ = Decompression::kNone;
  bool unpacks_ = false;  // a read decompresses a whole layer
  bool identified_ = false;
  const ModelHeader* projector_ = nullptr;  // until identify()
  std::atomic<uint32_t> taken_{0};
  bool slow_source_ = true;  // the last read_together() waited for the disk
  uint32_t told_ = 0;        // read-ahead was requested for all requests before this one
  // For units that stream in order: the unit expected next, the last one with read-ahead requested,
  // and the bytes between them.
  uint32_t next_unit_ = residency::kNoUnit, told_unit_ = 0;
  uint64_t told_bytes_ = 0;
  std::atomic<bool> stop_{false}, interrupted_{false}, failed_{false};
  std::mutex mutex_;
  Status failure_;
  double wait_ms_ = 0;
};

}  // namespace sluice::native
