// Writes the response of one request that generates text: one JSON document, or the frames of a
// stream. Each API has its own. Without I/O, and without a tokenizer: whoever calls it says which
// bytes a token has.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "generate/generation.h"
#include "openai/error.h"

namespace sluice::openai {

struct Usage {
  int64_t prompt = 0, cached = 0, completion = 0;
};

// The bytes of a token, and the names of control tokens.
using TokenBytes = std::function<std::string(session::Token)>;

class Responder {
 public:
  virtual ~Responder() = default;

  // Adds a token of the output `index`, with the counts so far.
  virtual void push(int32_t index, const generate::Piece& piece,
                    const generate::Counts& counts) = 0;
  // Before end(): the stop string that ended the output; "": none.
  void set_stop_string(std::string stop) { stop_string_ = std::move(stop); }
  // The output `index` is complete.
  virtual void end(int32_t index, generate::Finish finish, const generate::Counts& counts) = 0;
  // Not streaming, after all events: the complete response.
  [[nodiscard]] virtual std::string document() const = 0;
  // Streaming: returns the frames since the last call. The first ones exist before any event.
  [[nodiscard]] std::string take_frames() { return std::exchange(frames_, {}); }
  // Streaming, after all events: the frames that end the stream.
  [[nodiscard]] virtual std::string last_frames() = 0;
  // Streaming: the frames that end the stream with an error.
  [[nodiscard]] virtual std::string error_frames(const ApiError& error) = 0;

  [[nodiscard]] const Usage& usage() const { return usage_; }
  // The finish reason of the last output, as in OpenAI's API.
  [[nodiscard]] const char* finish() const { return finish_; }

 protected:
  std::string frames_, stop_string_;
  Usage usage_;
  const char* finish_ = "";
};

}  // namespace sluice::openai
