// Connected sockets of a server, as the descriptors that an HTTP library hands over. POSIX systems:
// the library that listens is not built for others.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::platform {

void set_no_delay(int socket);       // what is written is sent at once
void set_reuse_address(int socket);  // of a server that has just ended
void set_backlog(int listener, int connections);

enum class Until { kInput, kOutput, kHangUp };
// What woke a wait: nothing in time, one of the two, or both.
struct Woken {
  bool socket = false, other = false, failed = false;
};
// Until the socket is ready or `other`, a descriptor (-1: none), is readable.
[[nodiscard]] Woken wait_for(int socket, Until until, int other, int timeout_ms);

enum class Receive { kWait, kNow, kPeek };  // kPeek: at once, and what is read stays
// Bytes that were read; 0 at the end of the stream, negative on failure or when none are there now.
[[nodiscard]] long receive(int socket, char* out, size_t size, Receive how);
// Bytes that were taken at once, 0: none at the moment; negative: the connection is gone.
[[nodiscard]] long send_now(int socket, const char* bytes, size_t size);
void end_sending(int socket);
void close_socket(int socket);
// Of the other side; "" where it is not known.
[[nodiscard]] std::string peer_address(int socket);

}  // namespace sluice::platform
