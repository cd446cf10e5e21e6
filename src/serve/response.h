// The connection's side of a request to the engine: waits for its events, and writes the response
// as they come.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "openai/responder.h"
#include "serve/service.h"

namespace sluice::serve {

// Reads a job's events, and watches for a disconnected client. Its end gives the job up.
class Exchange {
 public:
  // All but the job must outlive it.
  Exchange(Worker& worker, Client& client, std::shared_ptr<Job> job)
      : worker_(worker), client_(client), job_(std::move(job)) {}
  ~Exchange() { leave(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Waits for the next event; false if the client has disconnected or after a timeout.
  bool next(Event* out);

 private:
  void leave();

  Worker& worker_;
  Client& client_;
  const std::shared_ptr<Job> job_;
};

// A request for text and its response. A streamed one outlives the call that began it.
struct Response {
  GenerateRequest request;
  Record* record = nullptr;
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<openai::Responder> answer;

  // Runs until the end of the response. `write` is null if it is not streamed. False: *bad has the
  // error, or the client has disconnected.
  bool run(const Reply::Write* write, Problem* bad);
  // Reply::stream: an error while it runs is the stream's last frame.
  bool stream(const Reply::Write& write);

 private:
  bool show(const Reply::Write* write, const std::string& text);
};

}  // namespace sluice::serve
