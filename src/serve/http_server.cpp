// Runs the library's server on our own connections. decide() checks every request before its body
// is read. It answers GET requests; POST requests then read their body and go to the service.
#include "serve/http_server.h"

// Look-ups of the library's client, which is not used here: MinGW-w64 10 lacks what they call.
#undef CPPHTTPLIB_USE_NON_BLOCKING_GETADDRINFO
#include <httplib.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>

#include "base/clock.h"
#include "platform/calendar.h"
#include "platform/socket.h"
#include "platform/wakeup.h"
#include "serve/connection.h"
#include "serve/connection_threads.h"

namespace sluice::serve {
namespace {

using httplib::Request;
using httplib::Response;
using Decision = httplib::Server::HandlerResponse;

constexpr uint64_t kMaxHead = 64u << 10;  // bytes of a request's line and headers together

// Adapts a Connection to the library's stream interface. Versions differ in the functions that they
// declare, so none of them is marked `override`.
class HttpStream final : public httplib::Stream {
 public:
  explicit HttpStream(Connection& connection) : connection_(connection) {}
  [[nodiscard]] virtual bool is_readable() const { return true; }
  [[nodiscard]] virtual bool is_writable() const { return !connection_.given_up(); }
  [[nodiscard]] virtual bool wait_readable() const { return true; }
  [[nodiscard]] virtual bool wait_writable() const { return true; }  // write() waits
  virtual ssize_t read(char* out, size_t size) { return connection_.read(out, size); }
  virtual ssize_t write(const char* bytes, size_t size) { return connection_.write(bytes, size); }
  virtual void get_remote_ip_and_port(std::string& ip, int& port) const {
    ip = connection_.remote();
    port = 0;
  }
  virtual void get_local_ip_and_port(std::string& ip, int& port) const {
    ip.clear();
    port = 0;
  }
  [[nodiscard]] virtual socket_t socket() const {
    return static_cast<socket_t>(connection_.socket());
  }
  [[nodiscard]] virtual time_t duration() const { return 0; }

 private:
  Connection& connection_;
};

// The request that this thread is handling.
struct Current {
  Connection* connection = nullptr;
  double arrived = 0;
  bool parsed = false;  // its head was parsed
  Record record;
};
thread_local Current current;

std::string utc_now() {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::tm parts = platform::utc_time(static_cast<std::time_t>(now.count() / 1000));
  char text[40], out[48];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(out, sizeof out, "%s.%03dZ", text, static_cast<int>(now.count() % 1000));
  return out;
}

bool has_body(const Request& request) {
  return request.has_header("Transfer-Encoding") ||
         (request.has_header("Content-Length") &&
          request.get_header_value("Content-Length") != "0");
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// The key of "Authorization: Bearer KEY", as OpenAI's clients send it, or of "X-Api-Key: KEY", as
// Anthropic's do. Names of schemes are case-insensitive.
std::string api_key_of(const Request& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string value = request.get_header_value("Authorization");
  if (same_word(std::string_view(value).substr(0, kScheme.size()), kScheme)) {
    return value.substr(std::min(value.find_first_not_of(' ', kScheme.size()), value.size()));
  }
  return request.get_header_value("X-Api-Key");
}

// What a preflight asks for, such as "authorization, x-stainless-os"; SDKs have many headers, and a
// "*" does not cover all of them in every browser.
std::string allowed_headers(const Request& request) {
  const std::string asked = request.get_header_value("Access-Control-Request-Headers");
  const bool names = std::all_of(asked.begin(), asked.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == ',' || c == ' ';
  });
  return names && !asked.empty() ? asked : "*, Authorization, Content-Type";
}

// Checks the encoding and length of the request's body.
Problem body_problem(const Request& request, uint64_t max_body) {
  const std::string coding = request.get_header_value("Transfer-Encoding");
  const bool chunked = request.has_header("Transfer-Encoding");
  const size_t lengths = request.get_header_value_count("Content-Length");
  const ApiError unclear{400, "The length of the request's body is ambiguous.", "", "bad_request"};
  if (lengths + (chunked ? 1 : 0) > 1 || (chunked && !same_word(coding, "chunked"))) return unclear;
  if (request.has_header("Content-Encoding") || request.is_multipart_form_data()) {
    return ApiError{415, "The body must be JSON, without an encoding.", "",
                    "unsupported_media_type"};
  }
  if (lengths == 0) return {};
  const std::string text = request.get_header_value("Content-Length");
  uint64_t length = 0;
  const auto [rest, bad] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (bad == std::errc::invalid_argument || rest != text.data() + text.size()) return unclear;
  if (bad == std::errc() && length <= max_body) return {};
  return ApiError{413, "The body has more than " + std::to_string(max_body) + " bytes.", "",
                  "request_too_large"};
}

}  // namespace

struct HttpServer::Impl final : public httplib::Server {
  Impl(Service& s, HttpOptions o);

  bool process_and_close_socket(socket_t socket) override;
  template <typename Setup>
  bool process(HttpStream& stream, bool& closed, const Setup& setup);
  void refuse_connection(int socket) const;
  Decision decide(const Request& request, Response& response);
  void post(const Request& request, Response& response, const httplib::ContentReader& read);
  void send(const Request& request, Response& response, Reply reply);
  bool allow_origin(const Request& request, Response& response) const;
  void log(const Request& request, const Response& response);
  void fail(const Request& request, Response& response, ApiError error) {
    current.record.error = error.code;
    send(request, response,
         {.status = error.status, .body = endpoints::error_body(request.path, error)});
  }
  [[nodiscard]] static Call call_of(const Request& request, std::string_view body) {
    static thread_local std::string api_key;
    api_key = api_key_of(request);
    return {.method = request.method,
            .path = request.path,
            .api_key = api_key,
            .body = body,
            .client = *current.connection,
            .arrived = current.arrived};
  }
  // Calls the library's stop() only once, because it asserts that. False before it listens.
  bool close_listener() {
    if (is_running() && svr_sock_ != INVALID_SOCKET) stop();
    return svr_sock_ == INVALID_SOCKET;
  }
  void lengthen_backlog() { platform::set_backlog(static_cast<int>(svr_sock_), 512); }

  Service& service;
  const HttpOptions options;
  platform::Wakeup closing, aborting;
  std::atomic<size_t> answering{0};
  std::atomic<bool> running{false}, stopping{false};
};

HttpServer::Impl::Impl(Service& s, HttpOptions o) : service(s), options(std::move(o)) {
  new_task_queue = [this] { return new Threads(options.max_connections, service.connections); };
  // Replaces the library's default, which would let two servers share an address.
  set_socket_options(
      [](socket_t socket) { platform::set_reuse_address(static_cast<int>(socket)); });
  set_keep_alive_timeout(static_cast<time_t>(options.idle_ms / 1000));
  set_pre_routing_handler(
      [this](const Request& request, Response& response) { return decide(request, response); });
  Post(".*", [this](const Request& request, Response& response,
                    const httplib::ContentReader& read) { post(request, response, read); });
  set_error_handler(HandlerWithResponse([](const Request& request, Response& response) {
    if (!response.body.empty()) return HandlerResponse::Unhandled;
    const Connection& connection = *current.connection;
    ApiError error{response.status, "The request is not HTTP as this server reads it.", "",
                   "bad_request"};
    if (connection.timed_out()) error = {408, "The request did not come in time.", "", "timeout"};
    if (connection.closing()) error = {503, "The server is shutting down.", "", "unavailable"};
    if (connection.too_large()) error = {431, "The request is too large.", "", "request_too_large"};
    if (response.status == 500) {
      error = {500, "The server failed at this request.", "", "internal"};
    }
    response.status = error.status;
    current.record.error = error.code;
    response.set_content(endpoints::error_body(request.path, error), "application/json");
    return HandlerResponse::Unhandled;
  }));
  set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
    response.status = 500;  // out of memory
    current.connection->give_up();
  });
  set_logger([this](const Request& request, const Response& response) { log(request, response); });
}

// Calls the library, whose later versions also take both addresses.
template <typename Setup>
bool HttpServer::Impl::process(HttpStream& stream, bool& closed, const Setup& setup) {
  const auto call = [&](auto& server) {
    const std::string remote = current.connection->remote();
    if constexpr (requires {
                    server.process_request(stream, remote, 0, "", 0, false, closed, setup);
                  }) {
      return server.process_request(stream, remote, 0, "", 0, false, closed, setup);
    } else {
      return server.process_request(stream, false, closed, setup);
    }
  };
  return call(*this);
}

bool HttpServer::Impl::process_and_close_socket(socket_t handle) {
  const int socket = static_cast<int>(handle);
  if (Threads::refusing) {
    refuse_connection(socket);
    return false;
  }
  Connection connection(socket, {closing.descriptor(), aborting.descriptor()}, options.write_ms);
  HttpStream stream(connection);
  while (!stopping && connection.await_request(options.idle_ms)) {
    const double now = monotonic_ms();
    connection.begin_request(kMaxHead + service.limits().max_body, now + options.read_ms);
    current = {.connection = &connection, .arrived = now, .record = {}};
    ++answering;
    bool closed = false;
    const bool ok = process(stream, closed, [](Request& request) {
      current.parsed = true;
      request.ranges.clear();
      request.headers.erase("Accept-Encoding");  // compression would delay tokens
    });
    --answering;
    if (!ok || closed || !current.parsed || connection.given_up()) break;
  }
  // The client may still be sending the rest of a refused request: see ~Connection.
  connection.give_up();
  return true;
}

// Called by the accepting thread, so it must not block.
void HttpServer::Impl::refuse_connection(int socket) const {
  const std::string body =
      openai::error_body({503, "Too many connections are open.", "", "too_many_connections"});
  const std::string answer =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
      "Retry-After: 1\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  (void)platform::send_now(socket, answer.data(), answer.size());
  platform::end_sending(socket);
  char bytes[4096];
  (void)platform::receive(socket, bytes, sizeof bytes, platform::Receive::kNow);
  platform::close_socket(socket);
}

// Refuses pages of origins that are not allowed. (Browsers send simple requests without a CORS
// preflight, so the server must check.)
bool HttpServer::Impl::allow_origin(const Request& request, Response& response) const {
  const std::string origin = request.get_header_value("Origin");
  if (origin.empty()) return true;
  if (options.cors_origin != "*" && options.cors_origin != origin) return false;
  response.set_header("Access-Control-Allow-Origin", options.cors_origin);
  response.set_header("Access-Control-Expose-Headers", "Retry-After");
  response.set_header("Vary", request.method == "OPTIONS"
                                  ? "Origin, Access-Control-Request-Headers, "
                                    "Access-Control-Request-Private-Network"
                                  : "Origin");
  return true;
}

Decision HttpServer::Impl::decide(const Request& request, Response& response) {
  const bool body = has_body(request);
  const auto refused = [&](ApiError error) {
    if (body) current.connection->give_up();
    fail(request, response, std::move(error));
    return Decision::Handled;
  };
  if (!allow_origin(request, response)) {
    return refused({403, "Pages of this origin may not use this server (--cors-origin).", "",
                    "origin_not_allowed"});
  }
  if (request.method == "OPTIONS" && !options.cors_origin.empty()) {
    if (body) current.connection->give_up();
    response.status = 204;
    response.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE");
    response.set_header("Access-Control-Allow-Headers", allowed_headers(request));
    response.set_header("Access-Control-Max-Age", "86400");
    if (request.has_header("Access-Control-Request-Private-Network")) {
      response.set_header("Access-Control-Allow-Private-Network", "true");
    }
    return Decision::Handled;
  }
  Reply reply;
  if (service.refuse(call_of(request, {}), &reply, &current.record)) {
    if (body) current.connection->give_up();
    send(request, response, std::move(reply));
    return Decision::Handled;
  }
  if (request.method != "POST") {
    if (body) current.connection->give_up();
    send(request, response, service.answer(call_of(request, {}), &current.record));
    return Decision::Handled;
  }
  if (Problem problem = body_problem(request, service.limits().max_body)) {
    return refused(std::move(*problem));
  }
  return Decision::Unhandled;
}

void HttpServer::Impl::post(const Request& request, Response& response,
                            const httplib::ContentReader& read) {
  std::string body;
  const uint64_t most = service.limits().max_body;
  bool fits = true;
  const auto take = [&](const char* bytes, size_t n) {
    fits = body.size() + n <= most;
    if (fits) body.append(bytes, n);
    return fits;
  };
  if (has_body(request) && !read(take)) {
    Connection& connection = *current.connection;
    connection.give_up();
    if (!fits || connection.too_large()) {
      return fail(request, response,
                  {413, "The body has more than " + std::to_string(most) + " bytes.", "",
                   "request_too_large"});
    }
    if (connection.timed_out()) {
      return fail(request, response, {408, "The request did not come in time.", "", "timeout"});
    }
    if (connection.closing()) {
      return fail(request, response, {503, "The server is shutting down.", "", "unavailable"});
    }
    return fail(request, response,
                {400, "The body of the request ended early.", "", "bad_request"});
  }
  send(request, response, service.answer(call_of(request, body), &current.record));
}

void HttpServer::Impl::send(const Request& request, Response& response, Reply reply) {
  response.status = reply.status;
  if (reply.retry_after > 0) response.set_header("Retry-After", std::to_string(reply.retry_after));
  if (*reply.allow != '\0') response.set_header("Allow", reply.allow);
  if (reply.status == 401) response.set_header("WWW-Authenticate", "Bearer");
  if (current.connection->given_up()) response.set_header("Connection", "close");
  if (!reply.stream) return response.set_content(std::move(reply.body), reply.type);
  response.set_header("Cache-Control", "no-cache");
  const auto provide = [stream = std::move(reply.stream)](size_t, httplib::DataSink& sink) {
    const bool whole =
        stream([&sink](std::string_view part) { return sink.write(part.data(), part.size()); });
    if (whole) {
      sink.done();
    } else {
      current.connection->give_up();
    }
    return whole;
  };
  if (request.version == "HTTP/1.0") {
    current.connection->give_up();  // closing the connection marks the end of the body
    return response.set_content_provider(reply.type, provide);
  }
  response.set_chunked_content_provider(reply.type, provide);
}

void HttpServer::Impl::log(const Request& request, const Response& response) {
  const Record& record = current.record;
  const double ms = monotonic_ms() - current.arrived;
  service.metrics().count_request(record.route.empty() ? "other" : record.route, response.status,
                                  ms / 1e3);
  if (!options.log) return;
  const auto tenths = [](double value) {
    return static_cast<double>(static_cast<int64_t>(value * 10)) / 10;
  };
  openai::Json line = {{"time", utc_now()},
                       {"remote", current.connection->remote()},
                       {"method", current.parsed ? request.method : "-"},
                       {"path", record.route.empty() ? "-" : record.route},
                       {"status", response.status},
                       {"ms", tenths(ms)}};
  if (record.queued_ms > 0) {
    line["queued_ms"] = tenths(record.queued_ms);
    line["stream"] = record.stream;
    line["prompt_tokens"] = record.usage.prompt;
    line["cached_tokens"] = record.usage.cached;
    line["completion_tokens"] = record.usage.completion;
  }
  if (*record.finish != '\0') line["finish"] = record.finish;
  if (!record.error.empty()) line["error"] = record.error;
  std::fprintf(stderr, "%s\n", openai::to_text(line).c_str());
}

HttpServer::HttpServer(Service& service, HttpOptions options)
    : impl_(std::make_unique<Impl>(service, std::move(options))) {}

HttpServer::~HttpServer() = default;

Result<int> HttpServer::bind() {
  const HttpOptions& o = impl_->options;
  platform::clear_socket_error();
  const int port = o.port == 0                           ? impl_->bind_to_any_port(o.host)
                   : impl_->bind_to_port(o.host, o.port) ? o.port
                                                         : -1;
  if (port <= 0 || !impl_->closing.usable() || !impl_->aborting.usable()) {
    const std::string reason = platform::socket_error();
    return error(Code::kIo, "the server cannot listen at %.256s, port %d: %s", o.host.c_str(),
                 o.port, reason.empty() ? "no such address" : reason.c_str());
  }
  impl_->lengthen_backlog();
  return port;
}

void HttpServer::run() {
  impl_->running = true;
  if (!impl_->stopping) impl_->listen_after_bind();
  impl_->running = false;
}

void HttpServer::close() {
  impl_->stopping = true;
  impl_->closing.raise();
  while (impl_->running && !impl_->close_listener()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void HttpServer::stop() {
  close();
  impl_->aborting.raise();
}

size_t HttpServer::in_flight() const {
  return impl_->answering;
}

}  // namespace sluice::serve
