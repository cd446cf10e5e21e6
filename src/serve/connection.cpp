#include "serve/connection.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/clock.h"

namespace sluice::serve {
namespace {

#ifdef POLLRDHUP
constexpr short kHangUp = POLLRDHUP;
#else
constexpr short kHangUp = 0;
#endif

int whole_ms(double ms) {
  return static_cast<int>(std::clamp(std::ceil(ms), 0.0, 1e9));
}

}  // namespace

Connection::Connection(int socket, int stop, double write_ms)
    : socket_(socket), stop_(stop), write_ms_(write_ms) {
  const int on = 1;  // a token is sent when it is there
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// What the client still sends is read for a moment: to close before would have the system throw
// away the answer on its way.
Connection::~Connection() {
  ::shutdown(socket_, SHUT_WR);
  const double end = monotonic_ms() + 500;
  char bytes[4096];
  for (size_t n = 0; given_up_ && n < 256 && poll_socket(POLLIN, end - monotonic_ms()); ++n) {
    if (::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) break;
  }
  ::close(socket_);
}

bool Connection::poll_socket(short events, double timeout_ms) const {
  pollfd one = {socket_, events, 0};
  return ::poll(&one, 1, whole_ms(timeout_ms)) > 0;
}

bool Connection::await_request(double idle_ms) {
  if (at_ < end_) return true;
  pollfd both[] = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
  if (::poll(both, 2, whole_ms(idle_ms)) <= 0 || both[1].revents != 0) return false;
  char byte;
  return ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
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
    if (!poll_socket(POLLIN, deadline_ - monotonic_ms())) {
      timed_out_ = given_up_ = true;
      return -1;
    }
    const ssize_t n = ::recv(socket_, buffer_, sizeof buffer_, 0);
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
    const ssize_t n = ::send(socket_, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK;
    if (!full || !poll_socket(POLLOUT, write_ms_)) {
      given_up_ = true;
      return -1;
    }
  }
}

Client::Woken Connection::wait(int descriptor, double timeout_ms) {
  pollfd both[] = {{socket_, kHangUp, 0}, {descriptor, POLLIN, 0}};
  const int n = ::poll(both, 2, whole_ms(timeout_ms));
  if (n < 0) return errno == EINTR ? wait(descriptor, timeout_ms) : Woken::kGone;
  if (both[0].revents != 0) {
    given_up_ = true;
    return Woken::kGone;
  }
  return n == 0 ? Woken::kTimeout : Woken::kReadable;
}

std::string Connection::remote() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return text;
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&address)->sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr, text, sizeof text);
  }
  return text;
}

}  // namespace sluice::serve
