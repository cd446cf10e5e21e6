// The native driver: reads a model's header, opens the engine on it, and serves the engine's fill
// queue. The browser's worker does the same in TypeScript (web/).
// URLs are read by threads of their own, several ranges in flight. Local files are read by the
// threads that compute: to copy a file out of the page cache is work for a processor, and a thread
// of its own for that would take turns with the computing ones, which wait for each other at every
// barrier. What streams they read piece by piece between products (residency::DirectReads); what
// stays, and what a disk must deliver first, together, while the kernel reads ahead. (To map the
// file instead costs as much in page faults as copying does.)
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
#include "open/opener.h"
#include "session/session.h"

namespace sluice::native {

struct LoadOptions {
  session::EngineOptions engine;  // its adapters are those below
  io::OpenOptions source;
  // Called with the header, which open() drops: for what only callers want of it.
  std::function<void(const gguf::Header&)> on_header = nullptr;
  std::vector<AdapterChoice> adapters = {};
};

// The header of a model and the open sources of its files. `opener` holds what its views point to.
struct ModelHeader {
  std::unique_ptr<open::Opener> opener;
  gguf::Header header;
  std::vector<std::unique_ptr<io::ByteSource>> sources;
  bool remote = false;  // the sources are URLs
  uint64_t held = 0;    // bytes of a budget that the sources take
};

// Reads the headers of `path` (a file or an http(s) URL; the first part of a split model; or a
// Hugging Face directory). Errors: those of the sources and of open::Opener.
[[nodiscard]] Result<ModelHeader> read_header(const std::string& path,
                                              const io::OpenOptions& options);
// The same of one GGUF file that the caller has opened.
[[nodiscard]] Result<ModelHeader> read_header(std::unique_ptr<io::ByteSource> file);

class Model final : private session::RangeReader {
 public:
  // Errors: those of reading, of the header and of Engine::open.
  [[nodiscard]] static Result<std::unique_ptr<Model>> open(const std::string& path,
                                                           const LoadOptions& options);
  // Of a header that was read; it may be dropped then. Errors: those of Engine::open.
  [[nodiscard]] static Result<std::unique_ptr<Model>> open(ModelHeader header,
                                                           const session::EngineOptions& options);
  ~Model() override;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] session::Engine& engine() { return *engine_; }

  // Calls `step(max_ops)` until it says kDone or kFailed, and waits for weights where it says
  // kBlocked. Errors: those of the sources, kAborted after interrupt().
  using Stepper = std::function<session::Step(int32_t max_ops)>;
  [[nodiscard]] Status drive(const Stepper& step);
  // Runs the pass that `session` has begun to its end, waiting for weights as needed.
  // Errors: those of the sources, kAborted after interrupt().
  [[nodiscard]] Status run(session::Session& session);
  // Waits until weights that a step() was blocked for have arrived, or may have: for callers that
  // step by themselves. Errors: run()'s.
  [[nodiscard]] Status wait();
  // Loads every pinned unit; returns when all are there. `progress(loaded, total)` in bytes.
  using Progress = void (*)(void* context, uint64_t loaded, uint64_t total);
  [[nodiscard]] Status preload(Progress progress = nullptr, void* context = nullptr);

  // Changes the budget between two calls of run(); sessions live on, see Engine::set_memory_budget.
  // Errors: its errors, those of the sources.
  [[nodiscard]] Status set_memory_budget(uint64_t budget);
  // The same for the adapters, see Engine::set_adapters. Errors: AdapterFiles::open's too.
  [[nodiscard]] Status set_adapters(std::span<const AdapterChoice> choices,
                                    const io::OpenOptions& options = {});

  // From any thread or a signal-waiting one: makes run() return kAborted within 100 ms.
  void interrupt();
  // From any thread: has drive() call its stepper again though nothing has arrived.
  void wake();
  [[nodiscard]] bool interrupted() const { return interrupted_.load(); }

  // The file that the fills come from (its first part).
  [[nodiscard]] io::ByteSource& source() { return *sources_[0]; }
  [[nodiscard]] uint64_t bytes_fetched() const;
  [[nodiscard]] uint64_t bytes_from_cache() const;
  // Milliseconds that run() spent waiting for weights.
  [[nodiscard]] double wait_ms() const { return wait_ms_; }

 private:
  Model() = default;
  [[nodiscard]] bool read(uint32_t file, uint64_t offset, std::span<uint8_t> out) override;
  void io_loop();
  enum class Served : uint8_t { kNothing, kOne, kFailed };
  Served serve_one();
  bool serve(uint32_t n);
  bool read_together();
  void advise_readahead(uint32_t unit);
  void tell_ahead(uint32_t next);
  void fail(const Status& status);
  [[nodiscard]] Status failure();
  [[nodiscard]] Status wait_for_fill(uint32_t seen);
  [[nodiscard]] Status end_reads();
  [[nodiscard]] Status replanned(Status status);

  std::vector<std::unique_ptr<io::ByteSource>> sources_;
  std::unique_ptr<session::Engine> engine_;
  std::vector<std::thread> threads_;
  bool local_ = true;  // no source is a URL
  std::atomic<uint32_t> taken_{0};
  bool slow_source_ = true;  // the last read together waited for a device
  uint32_t told_ = 0;        // requests before this one are known to the kernel
  // Of what streams in order: the unit expected next, the last one that the kernel knows of, and
  // how many bytes lie between them.
  uint32_t next_unit_ = residency::kNoUnit, told_unit_ = 0;
  uint64_t told_bytes_ = 0;
  std::atomic<bool> stop_{false}, interrupted_{false}, failed_{false};
  std::mutex mutex_;
  Status failure_;
  double wait_ms_ = 0;
};

}  // namespace sluice::native
