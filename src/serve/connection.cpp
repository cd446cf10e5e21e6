#include "serve/connection.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "platform/socket.h"

namespace sluice::serve {
namespace {

using platform::Receive;
using platform::Until;

int whole_ms(double ms) {
  return static_cast<int>(std::clamp(std::ceil(ms), 0.0, 1e9));
}

}  // namespace

Connection::Connection(int socket, Shutdown shutdown, double write_ms)
    : socket_(socket), shutdown_(shutdown), write_ms_(write_ms) {
  platform::set_no_delay(socket_);  // send each token immediately
}

// Reads what the client still sends, for a short time. Closing the socket with unread data could
// discard the response before the client has received it.
Connection::~Connection() {
  platform::end_sending(socket_);
  const double end = monotonic_ms() + 500;
  char bytes[4096];
  for (size_t n = 0; given_up_ && n < 256; ++n) {
    const platform::Woken by = platform::wait_for(socket_, Until::kInput, shutdown_.aborting,
                                                  whole_ms(end - monotonic_ms()));
    if (!by.socket || by.other) break;
    if (platform::receive(socket_, bytes, sizeof bytes, Receive::kNow) <= 0) break;
  }
  platform::close_socket(socket_);
}

bool Connection::await_request(double idle_ms) {
  if (at_ < end_) return true;
  const platform::Woken by =
      platform::wait_for(socket_, Until::kInput, shutdown_.closing, whole_ms(idle_ms));
  char byte;
  return by.socket && !by.other && platform::receive(socket_, &byte, 1, Receive::kPeek) == 1;
}

void Connection::begin_request(uint64_t max_bytes, double deadline) {
  left_ = max_bytes;
  deadline_ = deadline;
}

long Connection::read(char* out, size_t size) {
  if (left_ == 0) {
    too_large_ = given_up_ = true;
    return -1;
  }
  if (at_ == end_) {
    const platform::Woken by = platform::wait_for(socket_, Until::kInput, shutdown_.closing,
                                                  whole_ms(deadline_ - monotonic_ms()));
    if (!by.socket || by.other) {
      (by.other ? closing_ : timed_out_) = given_up_ = true;
      return -1;
    }
    const long n = platform::receive(socket_, buffer_, sizeof buffer_, Receive::kWait);
    if (n <= 0) {
      given_up_ = true;
      return n;
    }
    at_ = 0;
    end_ = static_cast<size_t>(n);
  }
  const size_t n = std::min({size, end_ - at_, static_cast<size_t>(left_)});
  std::memcpy(out, buffer_ + at_, n);
  at_ += n;
  left_ -= n;
  return static_cast<long>(n);
}

long Connection::write(const char* bytes, size_t size) {
  for (;;) {
    const long n = platform::send_now(socket_, bytes, size);
    if (n > 0 || size == 0) return n;
    const platform::Woken by = n < 0 ? platform::Woken{}
                                     : platform::wait_for(socket_, Until::kOutput,
                                                          shutdown_.aborting, whole_ms(write_ms_));
    if (!by.socket || by.other) {
      given_up_ = true;
      return -1;
    }
  }
}

Client::Woken Connection::wait(int descriptor, double timeout_ms) {
  const platform::Woken by =
      platform::wait_for(socket_, Until::kHangUp, descriptor, whole_ms(timeout_ms));
  if (by.failed) return Woken::kGone;
  if (by.socket) {
    given_up_ = true;
    return Woken::kGone;
  }
  return by.other ? Woken::kReadable : Woken::kTimeout;
}

std::string Connection::remote() const {
  return platform::peer_address(socket_);
}

}  // namespace sluice::serve
