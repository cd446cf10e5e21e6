// A request to the engine, and the channel for its results. The engine's thread pushes events, the
// connection's thread pops them. The channel holds a bounded number of bytes: generation pauses for
// a slow reader and ends when the reader has disconnected.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "embed/embedder.h"
#include "generate/generation.h"
#include "platform/wakeup.h"

namespace sluice::serve {

using session::Token;

struct Event {
  enum class Kind : uint8_t {
    kStarted,   // the first generation has begun, so the request is valid
    kPiece,     // a token
    kAnswered,  // one generation is complete
    kDone,      // all generations are complete
    kFailed,
  };
  Kind kind = Kind::kDone;
  int32_t index = 0;  // of the generation
  generate::Piece piece{};
  generate::Finish finish = generate::Finish::kNone;
  std::string stop{};  // the stop string that ended it; "": none
  generate::Counts counts{};
  Status failure{};
};

class Channel {
 public:
  static constexpr size_t kMaxBytes = 256u << 10;

  // False if no file descriptors were available.
  [[nodiscard]] bool usable() const { return there_.usable(); }

  // False if the channel is full; the caller keeps the event.
  bool push(Event&& event);
  // False if the channel is empty.
  bool pop(Event* out);
  // For poll(): readable while the channel has events, and from leave() on.
  [[nodiscard]] int descriptor() const { return there_.descriptor(); }
  // The reader stops reading, or the engine's thread gives it up: later events are discarded.
  void leave();
  [[nodiscard]] bool left() const { return left_; }

 private:
  std::mutex mutex_;
  std::deque<Event> events_;
  size_t bytes_ = 0;
  std::atomic<bool> left_{false};
  platform::Wakeup there_;  // raised while there are events, and from leave() on
};

struct Job {
  // Generation: n outputs for each prompt.
  std::vector<std::vector<Token>> prompts;
  generate::Options options;
  int32_t n = 1;
  // With pictures there is one prompt, which the engine's thread reads: a text with a
  // media::kMediaMark for each of these files, and literal spans.
  std::vector<std::vector<uint8_t>> pictures;
  std::string text;
  tokenizer::EncodeOptions encoding;
  std::string cache_key;  // names the sequence that the generations continue; "": none

  bool embedding = false;
  std::vector<Token> tokens;  // of all texts, concatenated
  std::vector<int32_t> ends;  // where each text ends
  embed::Options embed_options;
  std::vector<float> vectors;  // [texts][width] results; may be read after kDone
  int32_t width = 0;

  double arrived = 0, begun = 0;  // monotonic_ms
  double deadline = 0;
  Channel channel;
};

}  // namespace sluice::serve
