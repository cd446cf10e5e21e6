// One client's socket. Reads have a time and size limit per request, writes have a timeout for slow
// readers, and waiting detects that the client has disconnected. Both end early when the server
// does, so that no client can delay the shutdown.
#pragma once

#include <string>

#include "platform/socket.h"
#include "serve/service.h"

namespace sluice::serve {

// Descriptors that become readable when the server ends.
struct Shutdown {
  int closing = -1;   // ends connections that have not sent a complete request
  int aborting = -1;  // ends all others
};

class Connection final : public Client {
 public:
  // Owns the socket.
  Connection(int socket, Shutdown shutdown, double write_ms);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Waits for the first byte of a request. False after the timeout, if the client has disconnected,
  // or if the server is closing.
  [[nodiscard]] bool await_request(double idle_ms);
  // Sets the limits of the next request: at most `max_bytes`, until `deadline` (monotonic_ms).
  void begin_request(uint64_t max_bytes, double deadline);

  // Returns the bytes read; 0 at the end of the stream, negative if a limit is exceeded.
  long read(char* out, size_t size);
  // Returns the bytes written; negative if the client does not read them in time.
  long write(const char* bytes, size_t size);
  [[nodiscard]] Woken wait(int descriptor, double timeout_ms) override;

  // Marks the connection as unusable for another request, whose start could not be found.
  void give_up() { given_up_ = true; }
  [[nodiscard]] bool given_up() const { return given_up_; }
  // Whether a read exceeded the request's time or size limit, or the server was closing.
  [[nodiscard]] bool timed_out() const { return timed_out_; }
  [[nodiscard]] bool too_large() const { return too_large_; }
  [[nodiscard]] bool closing() const { return closing_; }
  [[nodiscard]] int socket() const { return socket_; }
  [[nodiscard]] std::string remote() const;

 private:
  const int socket_;
  const Shutdown shutdown_;
  const double write_ms_;
  char buffer_[4096];
  size_t at_ = 0, end_ = 0;
  uint64_t left_ = 0;  // bytes that may still be read for this request
  double deadline_ = 0;
  bool given_up_ = false, timed_out_ = false, too_large_ = false, closing_ = false;
};

}  // namespace sluice::serve
