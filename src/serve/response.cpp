#include "serve/response.h"

#include <utility>

#include "base/clock.h"

namespace sluice::serve {

void Exchange::leave() {
  job_->channel.leave();
  worker_.look();
}

bool Exchange::next(Event* out) {
  while (!job_->channel.pop(out)) {
    if (job_->channel.left()) return false;  // the engine's thread gave up a slow reader
    const double patience = job_->deadline + 60'000 - monotonic_ms();
    if (client_.wait(job_->channel.descriptor(), patience) != Client::Woken::kReadable) {
      leave();
      return false;
    }
  }
  return true;
}

bool Response::run(const Reply::Write* write, Problem* bad) {
  using Kind = Event::Kind;
  if (write != nullptr && !show(write, answer->take_frames())) return false;
  for (Event event; exchange->next(&event);) {
    if (event.kind == Kind::kFailed) {
      *bad = openai::api_error(event.failure);
      return false;
    }
    if (event.kind == Kind::kDone) {
      record->usage = answer->usage();
      record->finish = answer->finish();
      return show(write, answer->last_frames());
    }
    if (event.kind == Kind::kStarted) continue;
    if (event.kind == Kind::kPiece) {
      answer->push(event.index, event.piece, event.counts);
    } else {
      answer->set_stop_string(std::move(event.stop));
      answer->end(event.index, event.finish, event.counts);
    }
    if (write != nullptr && !show(write, answer->take_frames())) return false;
  }
  record->finish = "aborted";
  return false;
}

bool Response::stream(const Reply::Write& write) {
  Problem bad;
  if (run(&write, &bad)) return true;
  if (!bad) return false;
  record->error = bad->code;
  return write(answer->error_frames(*bad));
}

bool Response::show(const Reply::Write* write, const std::string& text) {
  const bool ok = write == nullptr || text.empty() || (*write)(text);
  if (!ok) record->finish = "aborted";
  return ok;
}

}  // namespace sluice::serve
