// The files of a dump: one for each tensor, written atomically, and an index, which comes last.
#pragma once

#include <array>
#include <string>

#include "cli/atomic_file.h"
#include "cli/dump.h"

namespace sluice::cli {

class DumpWriter {
 public:
  // Creates the directory. Errors: kInvalidArgument for the layer, kIo.
  [[nodiscard]] static Result<DumpWriter> create(const DumpOptions& options, int64_t n_layer);

  // Writes in the reference's order: tokens (ne[2]) outermost, except that heads are outermost for
  // scores. `stride`: values between two of ne[2]. Other layers than the option's are skipped;
  // layer -1 is outside the layers.
  void write(const std::string& name, int layer, const std::array<int32_t, 3>& ne,
             const float* data, int64_t stride);
  // Errors: those of all writes.
  [[nodiscard]] Status finish();
  [[nodiscard]] int count() const { return count_; }

 private:
  DumpWriter(const DumpOptions& options, int layer) : options_(&options), layer_(layer) {}
  Result<AtomicFile> create_file(const std::string& name);

  const DumpOptions* options_;
  int layer_;  // -1: all
  std::string index_;
  Status status_;
  int count_ = 0;
};

}  // namespace sluice::cli
