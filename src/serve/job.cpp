#include "serve/job.h"

#include <fcntl.h>
#include <unistd.h>

namespace sluice::serve {
namespace {

size_t size_of(const Event& event) {
  return sizeof event + event.piece.text.size() +
         event.piece.top.size() * sizeof(event.piece.top[0]);
}

}  // namespace

Channel::Channel() {
  if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0) ends_[0] = ends_[1] = -1;
}

Channel::~Channel() {
  for (const int end : ends_) {
    if (end >= 0) ::close(end);
  }
}

bool Channel::push(Event&& event) {
  const size_t size = size_of(event);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (left_) return true;  // nobody misses it
  if (bytes_ > 0 && bytes_ + size > kMaxBytes) return false;
  bytes_ += size;
  events_.push_back(std::move(event));
  // One byte stands in the pipe while there are events.
  if (events_.size() == 1) static_cast<void>(!::write(ends_[1], "", 1));
  return true;
}

bool Channel::pop(Event* out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (events_.empty()) return false;
  *out = std::move(events_.front());
  events_.pop_front();
  bytes_ -= size_of(*out);
  char byte;
  if (events_.empty()) static_cast<void>(!::read(ends_[0], &byte, 1));
  return true;
}

void Channel::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  left_ = true;
}

}  // namespace sluice::serve
