// Windows: Winsock handles have 32 significant bits, so they are passed as int. A wakeup is a
// datagram socket connected to itself, because only sockets can be waited for together.
#include <winsock2.h>
#include <ws2tcpip.h>

#include <cstdint>

#include "platform/socket.h"
#include "platform/wakeup.h"

namespace sluice::platform {
namespace {

SOCKET handle_of(int socket) {
  return static_cast<SOCKET>(static_cast<intptr_t>(socket));
}

void set_nonblocking(SOCKET socket) {
  u_long on = 1;
  ::ioctlsocket(socket, static_cast<long>(FIONBIO), &on);
}

void set(int socket, int level, int option) {
  const BOOL on = TRUE;
  ::setsockopt(handle_of(socket), level, option, reinterpret_cast<const char*>(&on), sizeof on);
}

// Once per process; the system frees its state when the process ends.
bool start_winsock() {
  static const bool started = [] {
    WSADATA data;
    return ::WSAStartup(MAKEWORD(2, 2), &data) == 0;
  }();
  return started;
}

// A datagram socket on the loopback address whose peer is itself; INVALID_SOCKET on failure.
SOCKET self_connected() {
  if (!start_winsock()) return INVALID_SOCKET;
  const SOCKET socket = ::socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
  if (socket == INVALID_SOCKET) return socket;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  int size = sizeof address;
  if (::bind(socket, at, size) != 0 || ::getsockname(socket, at, &size) != 0 ||
      ::connect(socket, at, size) != 0) {
    ::closesocket(socket);
    return INVALID_SOCKET;
  }
  set_nonblocking(socket);
  return socket;
}

}  // namespace

long long open_socket(int family, int type, int protocol) {
  return static_cast<long long>(::socket(family, type, protocol));
}

void set_no_delay(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY);
  set_nonblocking(handle_of(socket));  // there is no flag for a single call
}

void set_reuse_address(int socket) {
  // A stopped server's address is free at once. SO_REUSEADDR would let two servers share it.
  set(socket, SOL_SOCKET, static_cast<int>(SO_EXCLUSIVEADDRUSE));
}

void set_backlog(int listener, int connections) {
  ::listen(handle_of(listener), connections);
}

void clear_socket_error() {
  ::WSASetLastError(0);
}

std::string socket_error() {
  switch (const int code = ::WSAGetLastError()) {
    case 0:
      return "";
    case WSAEADDRINUSE:
      return "Address already in use";
    case WSAEACCES:
      return "Permission denied";
    case WSAEADDRNOTAVAIL:
      return "Cannot assign requested address";
    default:
      return "Winsock error " + std::to_string(code);
  }
}

Woken wait_for(int socket, Until until, int other, int timeout_ms) {
  // A closed connection is reported whichever events are asked for.
  const short events = static_cast<short>(until == Until::kInput    ? POLLRDNORM
                                          : until == Until::kOutput ? POLLWRNORM
                                                                    : 0);
  WSAPOLLFD both[] = {{handle_of(socket), events, 0}, {handle_of(other), POLLRDNORM, 0}};
  if (::WSAPoll(both, other < 0 ? 1 : 2, timeout_ms) < 0) return {.failed = true};
  return {.socket = both[0].revents != 0, .other = both[1].revents != 0};
}

long receive(int socket, char* out, size_t size, Receive how) {
  if (how != Receive::kWait && !wait_for(socket, Until::kInput, -1, 0).socket) return -1;
  const int flags = how == Receive::kPeek ? MSG_PEEK : 0;
  return ::recv(handle_of(socket), out, static_cast<int>(size), flags);
}

long send_now(int socket, const char* bytes, size_t size) {
  const int n = ::send(handle_of(socket), bytes, static_cast<int>(size), 0);
  return n >= 0 ? n : ::WSAGetLastError() == WSAEWOULDBLOCK ? 0 : -1;
}

void end_sending(int socket) {
  ::shutdown(handle_of(socket), SD_SEND);
}

void close_socket(int socket) {
  ::closesocket(handle_of(socket));
}

std::string peer_address(int socket) {
  sockaddr_storage address{};
  int size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(handle_of(socket), at, &size) != 0) return text;
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(at)->sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(at)->sin6_addr, text, sizeof text);
  }
  return text;
}

Wakeup::Wakeup() : descriptor_(static_cast<int>(self_connected())) {
  usable_ = descriptor_ >= 0;
}

Wakeup::~Wakeup() {
  if (descriptor_ >= 0) close_socket(descriptor_);
}

void Wakeup::raise() {
  raised_ = true;
  (void)::send(handle_of(descriptor_), "", 1, 0);  // full: readable already
}

void Wakeup::lower() {
  char byte;
  while (::recv(handle_of(descriptor_), &byte, 1, 0) > 0) {
  }
  raised_ = false;
}

}  // namespace sluice::platform
