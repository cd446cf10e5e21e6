// Hands out read requests of the fill queue to I/O threads: rows of embeddings first, then in the
// order of the queue. With a request go those that are its neighbours in the file, so that they are
// one read: units of a matrix, experts that follow one another, or the matrices of an expert in a
// QSF record.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "io/byte_source.h"
#include "residency/fill_queue.h"

namespace sluice::native {

class JoinedRequests {
 public:
  static constexpr size_t kMax = 8;  // requests of one read
  // Of one read. With 2 MiB the last of a layer's reads is waited for longer, see docs/mixtures.md.
  static constexpr uint64_t kMaxBytes = 1 << 20;

  // `max_bytes`: of one read that joins requests.
  JoinedRequests(std::span<const std::unique_ptr<io::ByteSource>> sources, uint64_t max_bytes)
      : sources_(sources), max_bytes_(max_bytes) {}

  // Marks the next requests as taken, and writes them to `out`, of kMax places: all of one file, in
  // its order. Returns how many; 0: none is pending. Any thread may call it.
  [[nodiscard]] size_t take(residency::FillQueue& queue, std::span<uint32_t> out);

 private:
  [[nodiscard]] uint64_t place(const residency::FillRequest& request) const;

  std::span<const std::unique_ptr<io::ByteSource>> sources_;
  uint64_t max_bytes_;
  std::mutex mutex_;
  uint32_t first_ = 0;  // no request before this one is pending
};

}  // namespace sluice::native
