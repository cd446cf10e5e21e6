// HTTP/1.1 around the service, by cpp-httplib: one thread for each connection, which is what
// clients that wait for tokens come to. The library parses heads, chunked bodies and the rest of
// the protocol; what it leaves open stands in http_server.cpp: how long and how large a request may
// be, how many connections there are, clients that go away, and the end.
//
// Why this library: it is MIT, one dependency that Debian carries, and its connections can be
// driven by a stream of our own (Server::process_request). Only http_server.cpp is compiled with
// the exceptions that it needs.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "serve/service.h"

namespace sluice::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;          // 0: any free one
  std::string cors_origin;  // of pages that may ask; "*": all; "": none
  size_t max_connections = 256;
  double idle_ms = 60'000;   // of a connection without a request
  double read_ms = 30'000;   // for a request's head and body
  double write_ms = 10'000;  // that a client reads nothing
  bool log = true;           // a line of JSON on stderr for each request
};

class HttpServer {
 public:
  // `service` outlives this.
  HttpServer(Service& service, HttpOptions options);
  ~HttpServer();

  // Takes the address. Returns the port. Errors: kIo.
  [[nodiscard]] Result<int> bind();
  // Serves until stop(); returns when every connection has ended.
  void run();
  // From another thread: closes the address and the connections that wait for a request. What is
  // being answered goes on.
  void stop();
  // Requests that are being answered.
  [[nodiscard]] size_t in_flight() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::serve
