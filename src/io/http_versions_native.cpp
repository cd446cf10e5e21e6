// Tells whether a response with another ETag is of the file that was opened. Servers behind one
// name may each have their own ETags for the same bytes. Their sizes and dates must be the same,
// and the first bytes are compared. If one of them has no date, the last bytes are compared too. If
// both have none it is another file: a new version of a model may have such bytes of the old one.
#include <algorithm>

#include "io/cache_format_native.h"
#include "io/http_transfer_native.h"

namespace sluice::io {

namespace {

constexpr int kMaxSampleRequests = 12;  // of one place, until both servers have answered
constexpr size_t kMaxAliases = 16;

}  // namespace

void HttpClient::know_head(std::span<const uint8_t> head) {
  const std::lock_guard<std::mutex> lock(mutex_);
  samples_[{remote_.etag, 0}] = xxh32(head);
}

bool HttpClient::knows(const std::string& etag) const {
  if (etag == remote_.etag) return true;
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::find(aliases_.begin(), aliases_.end(), etag) != aliases_.end();
}

// Whether the headers of a response agree with the opened file but for its ETag.
bool HttpClient::may_be_alias(const Transfer& t) const {
  const std::string& date = remote_.last_modified;
  return opened_ && remote_.ranges && t.status == 206 && t.range.total == remote_.size &&
         (date.empty() != t.last_modified.empty() || (!date.empty() && date == t.last_modified));
}

// Whether two versions have the same bytes at `offset`. A request may reach either server.
bool HttpClient::same_sample(const std::string& etag, uint64_t offset, uint64_t epoch) {
  for (int i = 0; i <= kMaxSampleRequests; ++i) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto ours = samples_.find({remote_.etag, offset});
      const auto theirs = samples_.find({etag, offset});
      if (ours != samples_.end() && theirs != samples_.end()) return ours->second == theirs->second;
    }
    Transfer t;
    t.kind = Transfer::Kind::kSample;
    t.client = this;
    t.offset = offset;
    t.length = std::min(kSampleBytes, remote_.size - offset);
    t.epoch = epoch;
    attempt(&t);
    if (t.failure.code() == Code::kAborted) return false;
    if (!t.failure.ok()) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    samples_[{t.etag, offset}] = xxh32(t.bytes);
  }
  return false;
}

bool HttpClient::is_alias(const Transfer& t) {
  const std::string etag = t.etag;
  if (knows(etag)) return true;  // by now
  const uint64_t tail = remote_.size - std::min(remote_.size, kSampleBytes);
  const bool dated = !remote_.last_modified.empty() && !t.last_modified.empty();
  if (!same_sample(etag, 0, t.epoch)) return false;
  if (!dated && tail > 0 && !same_sample(etag, tail, t.epoch)) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (aliases_.size() == kMaxAliases) return false;
  aliases_.push_back(etag);
  return true;
}

}  // namespace sluice::io
