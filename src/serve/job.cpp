#include "serve/job.h"

namespace sluice::serve {
namespace {

size_t size_of(const Event& event) {
  return sizeof event + event.piece.text.size() +
         event.piece.top.size() * sizeof(event.piece.top[0]);
}

}  // namespace

bool Channel::push(Event&& event) {
  const size_t size = size_of(event);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (left_) return true;  // discard it
  if (bytes_ > 0 && bytes_ + size > kMaxBytes) return false;
  bytes_ += size;
  events_.push_back(std::move(event));
  if (events_.size() == 1) there_.raise();
  return true;
}

bool Channel::pop(Event* out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (events_.empty()) return false;
  *out = std::move(events_.front());
  events_.pop_front();
  bytes_ -= size_of(*out);
  if (events_.empty()) there_.lower();
  return true;
}

void Channel::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  left_ = true;
  there_.raise();  // either side may leave: the reader must not wait for events that are discarded
}

}  // namespace sluice::serve
