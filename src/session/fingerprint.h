// What decides the keys, values and states of a sequence, beside its tokens. A saved state belongs
// to one fingerprint. Its parts are hashes, so that an error can name what differs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "gguf/gguf.h"
#include "model/program.h"
#include "session/memory_plan.h"

namespace sluice::session {

class Fingerprint {
 public:
  enum Part : uint8_t {
    kMetadata,        // metadata that was read, and the tensors' names, types and shapes
    kFewWeights,      // some of WeightHash's samples; 0: unknown, which equals any
    kWeights,         // all of WeightHash's samples; 0: unknown, which equals any
    kFewOfProjector,  // the same of the projector, if the sequence has pictures; else 0
    kProjector,
    kAdapters,  // and their scales
    kKvTypes,
    kKvPolicy,
    kRope,  // what a load chooses by its context length
    kApproximation,
    kParts,
  };
  [[nodiscard]] uint64_t& operator[](Part part) { return parts_[part]; }
  // What differs, for a message; null: nothing.
  [[nodiscard]] const char* difference(const Fingerprint& other) const;
  // Of a sequence without pictures.
  void forget_projector() { parts_[kFewOfProjector] = parts_[kProjector] = 0; }

 private:
  std::array<uint64_t, kParts> parts_{};
};

// Without weights and adapters.
[[nodiscard]] Fingerprint fingerprint_of(const gguf::Header& header, const model::Program& program,
                                         const MemoryPlan& plan);

// Bytes of a file, by which models with equal headers are told apart.
struct WeightSample {
  uint32_t file = 0, bytes = 0;
  uint64_t offset = 0;
};
static_assert(sizeof(WeightSample) == 16);  // read by web/worker/fingerprint.ts
inline constexpr uint32_t kMaxSampleBytes = 64 << 10;

// Hashes samples of every tensor that decides states: all of a small tensor; beginning, middle and
// end of a large one. If not `all`, then only 8 to 16 of the same samples, for slow sources.
class WeightHash {
 public:
  WeightHash(const model::Program& program, bool all);
  // Of a projector, whose files have the numbers from `first_file` on.
  WeightHash(const gguf::Header& projector, bool all, uint32_t first_file = 0);
  [[nodiscard]] std::span<const WeightSample> samples() const { return samples_; }
  // Takes the bytes of the next sample. After the last one it is complete.
  void add(std::span<const uint8_t> bytes);
  [[nodiscard]] bool complete() const { return done_ == samples_.size(); }
  void set(Fingerprint* fingerprint) const;

 private:
  // `share`: bytes of which a tensor is small.
  void add_tensor(uint32_t file, uint64_t offset, uint64_t bytes, uint64_t share);
  void choose();

  std::vector<WeightSample> samples_;
  size_t done_ = 0, stride_ = 1;
  bool all_;
  Fingerprint::Part few_of_, all_of_;
  Hash64 every_, few_;
};

}  // namespace sluice::session
