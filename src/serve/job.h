// One request on its way through the engine, and the channel in which its answer comes back. The
// engine's thread pushes, the connection's thread pops. The channel holds a bounded number of
// bytes: an answer waits for a reader that is slow, and ends for one that has gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "embed/embedder.h"
#include "generate/generation.h"
#include "platform/wakeup.h"

namespace sluice::serve {

using session::Token;

struct Event {
  enum class Kind : uint8_t {
    kStarted,  // the first answer has begun: what could be wrong with the request is not
    kPiece,
    kAnswered,  // one answer is whole
    kDone,      // all are
    kFailed,
  };
  Kind kind = Kind::kDone;
  int32_t index = 0;  // of the answer
  generate::Piece piece{};
  generate::Finish finish = generate::Finish::kNone;
  generate::Counts counts{};
  Status failure{};
};

class Channel {
 public:
  static constexpr size_t kMaxBytes = 256u << 10;

  // False where the platform gave no descriptors.
  [[nodiscard]] bool usable() const { return there_.usable(); }

  // False, and the event stays the caller's, while the channel is full.
  bool push(Event&& event);
  // False when there is nothing.
  bool pop(Event* out);
  // Readable when pop() has something: for poll().
  [[nodiscard]] int descriptor() const { return there_.descriptor(); }
  // The reader goes.
  void leave();
  [[nodiscard]] bool left() const { return left_; }

 private:
  std::mutex mutex_;
  std::deque<Event> events_;
  size_t bytes_ = 0;
  std::atomic<bool> left_{false};
  platform::Wakeup there_;  // raised while there are events
};

struct Job {
  // Answers: n for each prompt.
  std::vector<std::vector<Token>> prompts;
  generate::Options options;
  int32_t n = 1;

  bool embedding = false;
  std::vector<Token> tokens;  // of all texts
  std::vector<int32_t> ends;  // of each
  embed::Options embed_options;
  std::vector<float> vectors;  // the answer; the reader's after kDone
  int32_t width = 0;

  double arrived = 0, begun = 0;  // monotonic_ms
  double deadline = 0;
  Channel channel;
};

}  // namespace sluice::serve
