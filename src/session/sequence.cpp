// Moves a sequence forward by batches, and back by truncation or checkpoints.
#include "session/sequence.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace sluice::session {
namespace {

constexpr int32_t kFirstCheckpoint = 2;  // copies 0 and 1 are the live state and the one before

}  // namespace

Sequence::Sequence(kv::KvCache cache) : cache_(cache), recurrent_(cache.shape().recurrent()) {
  const kv::KvShape& shape = cache_.shape();
  tokens_.resize(static_cast<size_t>(shape.n_ctx));
  checkpoints_.reserve(static_cast<size_t>(shape.n_checkpoints));
  due_.reserve(static_cast<size_t>(shape.n_checkpoints));
  gone_.resize(shape.layers.size());
  clear();
}

int32_t Sequence::shared_prefix(std::span<const Token> tokens) const {
  const size_t n = std::min(tokens.size(), static_cast<size_t>(position_));
  const auto [own, other] =
      std::mismatch(tokens_.begin(), tokens_.begin() + static_cast<int64_t>(n), tokens.begin());
  return static_cast<int32_t>(own - tokens_.begin());
}

int32_t Sequence::held_from(size_t index, int32_t reached) const {
  const kv::LayerShape& layer = cache_.shape().layers[index];
  if (layer.slots > 0) return gone_[index];
  if (layer.heads == 0 || layer.window == 0) return 0;
  const bool ring = layer.capacity < cache_.shape().n_ctx;
  return std::max(restored_, ring ? reached - layer.capacity : 0);
}

bool Sequence::holds(int32_t n, int32_t reached) const {
  for (size_t i = 0; i < cache_.shape().layers.size(); ++i) {
    const kv::LayerShape& layer = cache_.shape().layers[i];
    if (layer.heads == 0 || layer.window == 0) continue;
    if (layer.seen_from(n) < held_from(i, reached)) return false;
  }
  return true;
}

bool Sequence::resumes(int32_t n, int32_t copied) const {
  const int32_t group = n - n % kernels::kKvGroup;
  return cache_.shape().recent() == 0 || n == group || group >= copied;
}

bool Sequence::keeps_pictures(int32_t n, int32_t ahead) const {
  if (media_.empty()) return true;
  const MediaSpan& last = media_.back();
  const int32_t reached = std::max(reached_, n + ahead);
  // Positions behind n rewind to no earlier one than n does.
  const int32_t copied = std::max(copied_, n + ahead - cache_.shape().recent());
  const int32_t back = resumes(n, copied) ? n : n - n % kernels::kKvGroup;
  return last.first + last.n_tokens <= back && holds(back, reached);
}

Sequence::RopeRun Sequence::rope_run(int32_t index) const {
  RopeRun run{.position = index, .end = std::numeric_limits<int32_t>::max()};
  for (const MediaSpan& span : media_) {
    const int32_t within = index - span.first;
    if (within < 0) {
      run.end = span.first;
      break;
    }
    if (within < span.n_tokens) {
      run.columns = span.columns;
      run.cell = span.columns > 0 ? within : 0;
      run.position -= run.cell;
      run.end = span.first + span.n_tokens;
      break;
    }
    run.position -= span.n_tokens - span.n_positions;
  }
  return run;
}

int32_t Sequence::reachable(int32_t n) const {
  if (cache_.shape().bidirectional || n < source_) return 0;
  int32_t target = std::clamp(n, 0, position_);
  for (int32_t before = target + 1; target < before;) {  // a picture is kept whole
    before = target;
    for (const MediaSpan& span : media_) {
      if (span.first < target && target < span.first + span.n_tokens) target = span.first;
    }
    target = resumable(target);
  }
  return target;
}

int32_t Sequence::resumable(int32_t target) const {
  if (target == position_) return target;  // the next pass continues there as well
  if (recurrent_) {
    int32_t last = 0;
    for (const Checkpoint& c : checkpoints_) {
      if (c.position <= target && resumes(c.position, copied_)) last = c.position;
    }
    if (undo_ >= 0 && undo_ <= target && resumes(undo_, copied_)) last = std::max(last, undo_);
    target = last;
  } else if (!resumes(target, copied_)) {
    target -= target % kernels::kKvGroup;
  }
  return holds(target, reached_) ? target : 0;
}

int32_t Sequence::rewind(int32_t n) {
  end_restore();
  const int32_t target = reachable(n);
  due_.clear();
  if (recurrent_ && target < position_) {
    if (target == undo_) live_ = 1 - live_;
    for (const Checkpoint& c : checkpoints_) {
      if (c.position != target || target == undo_) continue;
      for (size_t i = 0; i < cache_.shape().layers.size(); ++i) {
        const int32_t layer = static_cast<int32_t>(i);
        std::copy_n(cache_.state(layer, c.copy), cache_.layer(layer).state,
                    cache_.state(layer, live_));
      }
    }
    std::erase_if(checkpoints_, [target](const Checkpoint& c) { return c.position > target; });
  }
  if (target < position_ || target == 0) undo_ = -1;
  if (target == 0) {
    checkpoints_.clear();
    reached_ = restored_ = source_ = 0;
    std::fill(gone_.begin(), gone_.end(), 0);
    for (size_t i = 0; i < cache_.shape().layers.size(); ++i) {
      const int32_t layer = static_cast<int32_t>(i);
      std::fill_n(cache_.state(layer, live_), cache_.layer(layer).state, 0.0f);
    }
  }
  position_ = target;
  copied_ = std::min(copied_, target);
  forget_media();
  return target;
}

void Sequence::forget_media() {
  std::erase_if(media_, [this](const MediaSpan& span) { return span.first >= position_; });
}

void Sequence::append(std::span<const Token> tokens) {
  forget_media();  // that of a cancelled pass
  if (position_ == 0) source_ = source_of(tokens);
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + position_);
}

void Sequence::append_chosen(std::span<const Token> tokens) {
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + position_ + 1);
}

void Sequence::append(const MediaInput& input) {
  forget_media();
  if (position_ == 0) source_ = 0;
  for (int32_t row = 0; row < input.n_tokens; ++row) {
    tokens_[static_cast<size_t>(position_ + row)] = media_token(input.hash, row);
  }
  media_.push_back({position_, input.n_tokens, input.n_positions, input.columns});
}

int32_t media_token(uint64_t hash, int32_t row) {
  uint64_t x = (hash ^ static_cast<uint64_t>(row)) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return kMediaToken | static_cast<int32_t>(x >> 34);
}

// A copy for one more checkpoint: an unused one, or that of the most expendable checkpoint, whose
// neighbours are closest together relative to its distance from the end.
int32_t Sequence::free_copy() {
  const int32_t n = cache_.shape().n_checkpoints;
  for (int32_t copy = kFirstCheckpoint; copy < kFirstCheckpoint + n; ++copy) {
    const auto uses = [copy](const Checkpoint& c) { return c.copy == copy; };
    if (std::none_of(checkpoints_.begin(), checkpoints_.end(), uses) &&
        std::none_of(due_.begin(), due_.end(), uses)) {
      return copy;
    }
  }
  size_t victim = checkpoints_.size();
  double min_gap = 0;
  for (size_t i = 0; i < checkpoints_.size(); ++i) {
    const int32_t before = i == 0 ? 0 : checkpoints_[i - 1].position;
    const int32_t after = i + 1 < checkpoints_.size() ? checkpoints_[i + 1].position : position_;
    const double gap = static_cast<double>(after - before) /
                       static_cast<double>(position_ - checkpoints_[i].position + 1);
    if (victim == checkpoints_.size() || gap < min_gap) {
      victim = i;
      min_gap = gap;
    }
  }
  if (victim == checkpoints_.size()) return -1;
  const int32_t copy = checkpoints_[victim].copy;
  checkpoints_.erase(checkpoints_.begin() + static_cast<int64_t>(victim));
  return copy;
}

void Sequence::begin_batch(int32_t n) {
  reached_ = std::max(reached_, position_ + n);
  copied_ = std::max(copied_, position_ + n - cache_.shape().recent());
  undo_ = -1;  // the other copy is overwritten
  due_.clear();
  if (!recurrent_) return;
  const int32_t last = (position_ + n) / kCheckpointEvery;
  const int32_t max_copies = cache_.shape().n_checkpoints;
  for (int32_t i = std::max(position_ / kCheckpointEvery + 1, last - max_copies + 1); i <= last;
       ++i) {
    const int32_t copy = free_copy();
    if (copy >= 0) due_.push_back({i * kCheckpointEvery, copy});
  }
}

void Sequence::commit_batch(int32_t n) {
  undo_ = position_;
  position_ += n;
  // A queue of steps may end before the batch does.
  while (!due_.empty() && due_.back().position > position_) due_.pop_back();
  live_ = recurrent_ ? 1 - live_ : live_;
  checkpoints_.insert(checkpoints_.end(), due_.begin(), due_.end());
  due_.clear();
}

}  // namespace sluice::session
