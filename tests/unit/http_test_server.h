// A small HTTP/1.1 server for tests: plain sockets on 127.0.0.1 and a thread per connection. A
// function of the test answers requests and can send wrong data, cut, stall and redirect as servers
// do.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::test {

struct HttpRequest {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case
  int number = 0;                              // counts all requests to this server, from 0

  // The requested range, last byte included.
  [[nodiscard]] std::optional<std::pair<uint64_t, uint64_t>> range() const {
    const auto it = headers.find("range");
    unsigned long long first = 0;
    unsigned long long last = 0;
    if (it == headers.end() ||
        std::sscanf(it->second.c_str(), "bytes=%llu-%llu", &first, &last) != 2) {
      return std::nullopt;
    }
    return std::pair<uint64_t, uint64_t>(first, last);
  }
};

struct HttpReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  bool announce_length = true;    // Content-Length of `body`, unless `headers` has one
  size_t cut_after = SIZE_MAX;    // close the connection after this many body bytes
  size_t stall_after = SIZE_MAX;  // then send nothing more until the test ends
};

class HttpTestServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  explicit HttpTestServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_loop(); });
  }

  ~HttpTestServer() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
      stop_.notify_all();
    }
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& t : threads_) t.join();
    ::close(listener_);
  }
  HttpTestServer(const HttpTestServer&) = delete;
  HttpTestServer& operator=(const HttpTestServer&) = delete;

  [[nodiscard]] std::string url(const std::string& target = "/model.gguf") const {
    return std::string("http://127.0.0.1:").append(std::to_string(port_)).append(target);
  }
  [[nodiscard]] int requests() const { return requests_; }
  [[nodiscard]] int connections() const { return connections_; }
  [[nodiscard]] uint64_t body_bytes() const { return body_bytes_; }

 private:
  void accept_loop() {
    for (;;) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (fd < 0 || stopping_) {
        if (fd >= 0) ::close(fd);
        return;
      }
      connections_++;
      open_.push_back(fd);
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  }

  void serve(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::string input;
    HttpRequest request;
    while (receive(fd, &input, &request) && answer(fd, handler_(request))) {
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase(open_, fd);
    ::close(fd);
  }

  bool receive(int fd, std::string* input, HttpRequest* request) {
    size_t end = 0;
    while ((end = input->find("\r\n\r\n")) == std::string::npos) {
      char buffer[4096];
      const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0) return false;
      input->append(buffer, static_cast<size_t>(n));
    }
    *request = {};
    request->number = requests_++;
    size_t at = input->find("\r\n");
    const std::string first = input->substr(0, at);
    const size_t space = first.find(' ');
    request->method = first.substr(0, space);
    request->target = first.substr(space + 1, first.rfind(' ') - space - 1);
    while (at < end) {
      const size_t next = input->find("\r\n", at + 2);
      const std::string line = input->substr(at + 2, next - at - 2);
      const size_t colon = line.find(':');
      if (colon != std::string::npos) {
        std::string name = line.substr(0, colon);
        for (char& c : name) c = static_cast<char>(std::tolower(c));
        request->headers[name] = line.substr(line.find_first_not_of(' ', colon + 1));
      }
      at = next;
    }
    input->erase(0, end + 4);
    return true;
  }

  // Returns false if the connection is to be closed.
  bool answer(int fd, const HttpReply& reply) {
    std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " Status\r\n";
    bool has_length = !reply.announce_length;
    for (const auto& [name, value] : reply.headers) {
      head.append(name).append(": ").append(value).append("\r\n");
      if (name == "Content-Length") has_length = true;
    }
    if (!has_length) {
      head.append("Content-Length: ").append(std::to_string(reply.body.size())).append("\r\n");
    }
    if (!reply.announce_length) head.append("Connection: close\r\n");
    head.append("\r\n");
    if (!send_all(fd, head.data(), head.size())) return false;
    const size_t n = std::min({reply.body.size(), reply.cut_after, reply.stall_after});
    body_bytes_ += n;  // before sending: the client may check right after the last byte
    if (!send_all(fd, reply.body.data(), n)) return false;
    if (reply.stall_after != SIZE_MAX) {
      std::unique_lock<std::mutex> lock(mutex_);
      stop_.wait(lock, [&] { return stopping_; });
      return false;
    }
    return reply.cut_after == SIZE_MAX && reply.announce_length;
  }

  static bool send_all(int fd, const char* data, size_t n) {
    while (n > 0) {
      const ssize_t sent = ::send(fd, data, n, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data += sent;
      n -= static_cast<size_t>(sent);
    }
    return true;
  }

  Handler handler_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread acceptor_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::atomic<int> requests_{0};
  std::atomic<int> connections_{0};
  std::atomic<uint64_t> body_bytes_{0};
};

// The correct response for `file`.
inline HttpReply serve_file(const HttpRequest& request, const std::string& file,
                            const std::string& etag = "\"v1\"") {
  HttpReply reply;
  if (!etag.empty()) reply.headers.emplace_back("ETag", etag);
  const auto range = request.range();
  const std::string total = std::to_string(file.size());
  if (!range) {
    reply.body = file;
  } else if (range->first >= file.size()) {
    reply.status = 416;
    reply.headers.emplace_back("Content-Range", "bytes */" + total);
  } else {
    const uint64_t last = std::min<uint64_t>(range->second, file.size() - 1);
    reply.status = 206;
    reply.body = file.substr(static_cast<size_t>(range->first),
                             static_cast<size_t>(last - range->first + 1));
    reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(range->first) + "-" +
                                                    std::to_string(last) + "/" + total);
  }
  return reply;
}

// Bytes without repetition, so that a shifted range is detected.
inline std::string patterned(size_t n) {
  std::string s(n, '\0');
  uint32_t x = 12345;
  for (char& c : s) {
    x = x * 1664525u + 1013904223u;
    c = static_cast<char>(x >> 24);
  }
  return s;
}

}  // namespace sluice::test
