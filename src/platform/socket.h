// Connected sockets of a server, as the descriptors that the HTTP library hands over.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::platform {

// A new socket; -1: there is none.
[[nodiscard]] long long open_socket(int family, int type, int protocol);
void set_no_delay(int socket);       // sends writes at once
void set_reuse_address(int socket);  // allows the address of a server that has just stopped
void set_backlog(int listener, int connections);

void clear_socket_error();
// What failed last on this thread since clear_socket_error(); "" if nothing.
[[nodiscard]] std::string socket_error();

enum class Until { kInput, kOutput, kHangUp };
// What ended a wait: the socket, `other`, both, or neither (timeout).
struct Woken {
  bool socket = false, other = false, failed = false;
};
// Waits until the socket is ready, or the descriptor `other` (-1: none) is readable.
[[nodiscard]] Woken wait_for(int socket, Until until, int other, int timeout_ms);

enum class Receive { kWait, kNow, kPeek };  // kPeek: without waiting, and without consuming
// Returns the number of bytes read, 0 at the end of the stream, or a negative number on failure or
// when nothing is available now.
[[nodiscard]] long receive(int socket, char* out, size_t size, Receive how);
// Returns the number of bytes sent without waiting (0: none now), or a negative number when the
// connection is closed.
[[nodiscard]] long send_now(int socket, const char* bytes, size_t size);
void end_sending(int socket);
void close_socket(int socket);
// The client's address; "" if unknown.
[[nodiscard]] std::string peer_address(int socket);

}  // namespace sluice::platform
