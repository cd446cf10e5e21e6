// Reads without the page cache (direct I/O): what they need, and whether they pay. The page cache
// is faster while it holds a file. A model larger than memory only displaces what else is cached,
// and each page costs time to allocate, copy and drop. Direct reads must be aligned and tensors are
// not, so bytes pass through a buffer. There is no read-ahead: threads keep several reads in
// flight.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "io/byte_source.h"

namespace sluice::io {

// Aligned buffers that the files of a model share, one for each read in flight.
class DirectBuffers {
 public:
  static constexpr uint64_t kBytes = 2
                                     << 20;  // of the file that a buffer takes, wherever it starts

  // Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::shared_ptr<DirectBuffers>> make(size_t n);
  // Bytes of memory that `n` buffers take.
  [[nodiscard]] static uint64_t memory(size_t n);

  // Holds a buffer; waits until there is one.
  class Use {
   public:
    explicit Use(DirectBuffers& buffers);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // Aligned, with room for kBytes from any offset on.
    [[nodiscard]] uint8_t* data() const { return data_; }

   private:
    DirectBuffers& buffers_;
    uint8_t* data_ = nullptr;
  };

 private:
  std::vector<AlignedBuffer> memory_;
  std::vector<uint8_t*> free_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// Whether a model's files are to be read so. `buffers`: reads in flight.
[[nodiscard]] bool choose_direct_io(std::span<const std::string> files, size_t buffers,
                                    const OpenOptions& options);

}  // namespace sluice::io
