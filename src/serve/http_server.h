// The HTTP/1.1 server, built on cpp-httplib with one thread per connection. The library parses the
// protocol. http_server.cpp adds limits for the time, size and number of requests, detection of
// disconnected clients, and graceful shutdown.
//
// Why cpp-httplib: it has an MIT license, Debian packages it, and its connections can be driven by
// our own stream (Server::process_request). Only http_server.cpp is compiled with the exceptions
// that it needs.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "serve/service.h"

namespace sluice::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;          // 0: any free one
  std::string cors_origin;  // the origin whose pages may send requests; "*": all; "": none
  size_t max_connections = 256;
  double idle_ms = 60'000;   // timeout of a connection without a request
  double read_ms = 30'000;   // timeout for receiving a request's head and body
  double write_ms = 10'000;  // timeout for a client that does not read
  bool log = true;           // write a line of JSON to stderr for each request
};

class HttpServer {
 public:
  // `service` must outlive this.
  HttpServer(Service& service, HttpOptions options);
  ~HttpServer();

  // Binds the address. Returns the port. Errors: kIo.
  [[nodiscard]] Result<int> bind();
  // Serves until stop(); returns when every connection has ended.
  void run();
  // Called from another thread: stops listening, and ends connections that are idle or have not
  // sent a complete request. Running requests continue.
  void close();
  // The same, and ends responses that their clients do not read. run() then returns as soon as the
  // service has answered every request.
  void stop();
  // The number of running requests.
  [[nodiscard]] size_t in_flight() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::serve
