// The server's metrics in Prometheus text format.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "generate/generation.h"

namespace sluice::serve {

class Metrics {
 public:
  // Counts a finished request. `route` is one of the server's own paths.
  void count_request(const std::string& route, int status, double seconds);
  void count_answer(const generate::Counts& counts, generate::Finish finish, double waited_ms);
  void count_embedding(uint64_t texts, uint64_t tokens);
  struct Swapped {
    uint64_t conversations = 0;  // swapped out now
    uint64_t bytes_written = 0, bytes_read = 0;
  };
  void set_swapped(const Swapped& swapped);
  void count_forgotten();  // a conversation was lost because a swap file failed
  // A constant value, such as the memory of a part of the engine.
  void set_constant(const std::string& name, double value);

  struct Now {
    size_t queued = 0, running = 0, connections = 0;
  };
  [[nodiscard]] std::string text(const Now& now) const;

 private:
  // Upper bounds of the buckets in seconds; one more bucket has no bound.
  static constexpr std::array<double, 11> kBounds = {.005, .01, .025, .05, .1, .25,
                                                     .5,   1,   2.5,  5,   10};
  struct Histogram {
    std::array<uint64_t, kBounds.size() + 1> counts{};
    double sum = 0;
    void add(double seconds);
    void print(const std::string& name, const std::string& labels, std::string* out) const;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;
  std::map<std::string, Histogram> seconds_;
  std::map<std::string, uint64_t> finishes_;
  std::map<std::string, double> constants_;
  Histogram first_token_;
  uint64_t prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  uint64_t embedded_texts_ = 0, embedded_tokens_ = 0;
  Swapped swapped_;
  uint64_t forgotten_ = 0;
  double prompt_seconds_ = 0, generate_seconds_ = 0;
};

[[nodiscard]] const char* finish_name(generate::Finish finish);

}  // namespace sluice::serve
