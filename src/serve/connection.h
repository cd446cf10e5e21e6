// One client's socket: reads within a time and a size that each request has anew, writes that wait
// for a slow reader only so long, and the news that the client has gone.
#pragma once

#include <string>

#include "platform/socket.h"
#include "serve/service.h"

namespace sluice::serve {

class Connection final : public Client {
 public:
  // Owns the socket. `stop` becomes readable when the server ends.
  Connection(int socket, int stop, double write_ms);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Waits for the first byte of a request. False when none comes in time, the client has gone or
  // the server ends.
  [[nodiscard]] bool await_request(double idle_ms);
  // From here on at most `max_bytes` are read, until `deadline` (monotonic_ms).
  void begin_request(uint64_t max_bytes, double deadline);

  // Bytes read; 0 at the end of the stream, negative when the time or the size is used up.
  long read(char* out, size_t size);
  // Bytes written; negative when the client does not take them.
  long write(const char* bytes, size_t size);
  [[nodiscard]] Woken wait(int descriptor, double timeout_ms) override;

  // No request follows: what is left of this one cannot be told from it.
  void give_up() { given_up_ = true; }
  [[nodiscard]] bool given_up() const { return given_up_; }
  // The time for reading is over, or the request is too large.
  [[nodiscard]] bool timed_out() const { return timed_out_; }
  [[nodiscard]] bool too_large() const { return too_large_; }
  [[nodiscard]] int socket() const { return socket_; }
  [[nodiscard]] std::string remote() const;

 private:
  // Until the socket is ready; false when the time is over.
  [[nodiscard]] bool wait_until(platform::Until until, double timeout_ms) const;

  const int socket_, stop_;
  const double write_ms_;
  char buffer_[4096];
  size_t at_ = 0, end_ = 0;
  uint64_t left_ = 0;  // bytes that the request may still have
  double deadline_ = 0;
  bool given_up_ = false, timed_out_ = false, too_large_ = false;
};

}  // namespace sluice::serve
