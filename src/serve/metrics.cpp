#include "serve/metrics.h"

#include <cstdio>

namespace sluice::serve {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

void head(const char* name, const char* type, const char* help, std::string* out) {
  *out += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void single(const char* name, const char* type, const char* help, double value, std::string* out) {
  head(name, type, help, out);
  *out += std::string(name) + " " + number(value) + "\n";
}

}  // namespace

const char* finish_name(generate::Finish finish) {
  switch (finish) {
    case generate::Finish::kStop:
      return "stop";
    case generate::Finish::kLength:
      return "length";
    case generate::Finish::kContext:
      return "context";
    case generate::Finish::kCancelled:
      return "aborted";
    default:
      return "failed";
  }
}

void Metrics::Histogram::add(double seconds) {
  size_t i = 0;
  while (i < kBounds.size() && seconds > kBounds[i]) ++i;
  ++counts[i];
  sum += seconds;
}

void Metrics::Histogram::print(const std::string& name, const std::string& labels,
                               std::string* out) const {
  const std::string more = labels.empty() ? "" : labels + ",";
  const std::string alone = labels.empty() ? "" : "{" + labels + "}";
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    const std::string bound = i < kBounds.size() ? number(kBounds[i]) : "+Inf";
    *out += name + "_bucket{" + more + "le=\"" + bound + "\"} " + std::to_string(total) + "\n";
  }
  *out += name + "_sum" + alone + " " + number(sum) + "\n";
  *out += name + "_count" + alone + " " + std::to_string(total) + "\n";
}

void Metrics::count_request(const std::string& route, int status, double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++requests_[{route, status}];
  seconds_[route].add(seconds);
}

void Metrics::count_answer(const generate::Counts& counts, generate::Finish finish,
                           double waited_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  prompt_tokens_ += static_cast<uint64_t>(counts.computed);
  cached_tokens_ += static_cast<uint64_t>(counts.cached);
  generated_tokens_ += static_cast<uint64_t>(counts.generated);
  prompt_seconds_ += counts.prompt_ms / 1e3;
  generate_seconds_ += counts.generate_ms / 1e3;
  if (counts.time_to_first_token_ms > 0)
    first_token_.add((waited_ms + counts.time_to_first_token_ms) / 1e3);
  ++finishes_[finish_name(finish)];
}

void Metrics::count_embedding(uint64_t texts, uint64_t tokens) {
  const std::lock_guard<std::mutex> lock(mutex_);
  embedded_texts_ += texts;
  embedded_tokens_ += tokens;
}

void Metrics::set_swapped(const Swapped& swapped) {
  const std::lock_guard<std::mutex> lock(mutex_);
  swapped_ = swapped;
}

void Metrics::count_forgotten() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++forgotten_;
}

void Metrics::set_constant(const std::string& name, double value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  constants_[name] = value;
}

std::string Metrics::text(const Now& now) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto real = [](uint64_t n) { return static_cast<double>(n); };
  std::string out;
  head("sluice_requests_total", "counter", "Requests by path and status.", &out);
  for (const auto& [key, n] : requests_) {
    out += "sluice_requests_total{path=\"" + key.first + "\",status=\"" +
           std::to_string(key.second) + "\"} " + std::to_string(n) + "\n";
  }
  head("sluice_e2e_request_latency_seconds", "histogram",
       "Time from receiving a request to the end of its response.", &out);
  for (const auto& [route, histogram] : seconds_) {
    histogram.print("sluice_e2e_request_latency_seconds", "path=\"" + route + "\"", &out);
  }
  head("sluice_time_to_first_token_seconds", "histogram", "Time to first token.", &out);
  first_token_.print("sluice_time_to_first_token_seconds", "", &out);
  head("sluice_answers_total", "counter", "Generations by finish reason.", &out);
  for (const auto& [finish, n] : finishes_) {
    out += "sluice_answers_total{finish=\"" + finish + "\"} " + std::to_string(n) + "\n";
  }
  const char* c = "counter";
  single("sluice_prompt_tokens_total", c, "Prompt tokens computed.", real(prompt_tokens_), &out);
  single("sluice_prefix_cache_hit_tokens_total", c, "Prompt tokens found in the prefix cache.",
         real(cached_tokens_), &out);
  single("sluice_generation_tokens_total", c, "Tokens generated.", real(generated_tokens_), &out);
  single("sluice_prompt_seconds_total", c, "Time spent on prompts.", prompt_seconds_, &out);
  single("sluice_generate_seconds_total", c, "Time spent on generation.", generate_seconds_, &out);
  single("sluice_embedded_texts_total", c, "Texts embedded.", real(embedded_texts_), &out);
  single("sluice_embedded_tokens_total", c, "Tokens embedded.", real(embedded_tokens_), &out);
  single("sluice_sessions_swapped", "gauge", "Sessions that are swapped out.",
         real(swapped_.conversations), &out);
  single("sluice_swap_out_bytes_total", c, "Bytes written to swap files.",
         real(swapped_.bytes_written), &out);
  single("sluice_swap_in_bytes_total", c, "Bytes read from swap files.", real(swapped_.bytes_read),
         &out);
  single("sluice_forgotten_total", c, "Sessions lost because a swap file failed.", real(forgotten_),
         &out);
  single("sluice_requests_waiting", "gauge", "Requests that are waiting.", real(now.queued), &out);
  single("sluice_requests_running", "gauge", "Requests that are running.", real(now.running), &out);
  single("sluice_connections", "gauge", "Open connections.", real(now.connections), &out);
  for (const auto& [name, value] : constants_) {
    single(name.c_str(), "gauge", "Set when the model was loaded.", value, &out);
  }
  return out;
}

}  // namespace sluice::serve
