#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "platform/socket.h"

namespace sluice::platform {
namespace {

#if defined(POLLRDHUP)
constexpr short kHangUp = POLLRDHUP;
#else
constexpr short kHangUp = 0;  // poll() always reports POLLHUP, once both directions are closed
#endif
#if defined(MSG_NOSIGNAL)
constexpr int kNoSignal = MSG_NOSIGNAL;
#else
constexpr int kNoSignal = 0;  // set_no_delay() has disabled the signal for the socket
#endif

void set(int socket, int level, int option) {
  const int on = 1;
  ::setsockopt(socket, level, option, &on, sizeof on);
}

}  // namespace

long long open_socket(int family, int type, int protocol) {
  const int made = ::socket(family, type, protocol);
  if (made >= 0) static_cast<void>(::fcntl(made, F_SETFD, FD_CLOEXEC));
  return made;
}

void set_no_delay(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY);
#if defined(SO_NOSIGPIPE)
  set(socket, SOL_SOCKET, SO_NOSIGPIPE);
#endif
}

void set_reuse_address(int socket) {
  set(socket, SOL_SOCKET, SO_REUSEADDR);
}

void set_backlog(int listener, int connections) {
  ::listen(listener, connections);
}

void clear_socket_error() {
  errno = 0;
}

std::string socket_error() {
  return errno == 0 ? "" : std::strerror(errno);
}

Woken wait_for(int socket, Until until, int other, int timeout_ms) {
  const short events = until == Until::kInput    ? POLLIN
                       : until == Until::kOutput ? POLLOUT
                                                 : kHangUp;
  pollfd both[] = {{socket, events, 0}, {other, POLLIN, 0}};
  int n = 0;
  do {
    n = ::poll(both, 2, timeout_ms);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return {.failed = true};
  return {.socket = both[0].revents != 0, .other = both[1].revents != 0};
}

long receive(int socket, char* out, size_t size, Receive how) {
  const int flags = how == Receive::kWait  ? 0
                    : how == Receive::kNow ? MSG_DONTWAIT
                                           : MSG_PEEK | MSG_DONTWAIT;
  return ::recv(socket, out, size, flags);
}

long send_now(int socket, const char* bytes, size_t size) {
  for (;;) {
    const ssize_t n = ::send(socket, bytes, size, kNoSignal | MSG_DONTWAIT);
    if (n >= 0) return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return -1;
  }
}

void end_sending(int socket) {
  ::shutdown(socket, SHUT_WR);
}

void close_socket(int socket) {
  ::close(socket);
}

std::string peer_address(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return text;
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&address)->sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr, text, sizeof text);
  }
  return text;
}

}  // namespace sluice::platform
