// Random sequences of operations, for tests of state. A sequence is a seed and the numbers of its
// operations. Each operation draws from a generator of its own, so that the others stay the same
// when one is dropped. A failing sequence is shrunk: operations are dropped while it still fails.
// The shortest one is printed with its seed, and with what replays it:
//   SLUICE_RANDOM_SEED        the first seed (default: random)
//   SLUICE_RANDOM_SEQUENCES   how many seeds from there on; also prints how far the test has come
//   SLUICE_RANDOM_OPERATIONS  operations of a sequence
//   SLUICE_RANDOM_ONLY        numbers of the operations to perform, "0,4,7"; others are dropped
//   SLUICE_RANDOM_TRACE       1: prints each operation before it runs, to find a crash or a hang
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "extent.h"

namespace sluice::test {

// A number from the environment.
inline uint64_t random_setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

// The numbers of operations to perform: those of SLUICE_RANDOM_ONLY, or all.
inline std::vector<uint32_t> random_operations(uint64_t count) {
  std::vector<uint32_t> out;
  if (const char* text = std::getenv("SLUICE_RANDOM_ONLY")) {
    for (char* end = nullptr; *text != '\0'; text = *end == ',' ? end + 1 : end) {
      out.push_back(static_cast<uint32_t>(std::strtoul(text, &end, 10)));
      if (end == text) break;
    }
    return out;
  }
  for (uint32_t i = 0; i < count; ++i) out.push_back(i);
  return out;
}

// One run of a sequence. A failed assertion ends it.
class RandomSequence {
 public:
  RandomSequence(uint64_t seed, std::vector<uint32_t> operations)
      : seed_(seed), operations_(std::move(operations)) {}

  [[nodiscard]] uint64_t seed() const { return seed_; }
  // For what precedes the operations.
  [[nodiscard]] std::mt19937_64 setup() const { return std::mt19937_64(seed_); }
  // Calls `operation(random)` for each operation until one fails.
  template <typename Operation>
  void run(Operation&& operation) {
    for (const uint32_t number : operations_) {
      if (failed()) return;
      log_.push_back("operation " + std::to_string(number));
      // The generator's own seeding mixes these well enough.
      std::mt19937_64 random(seed_ * 0x9e3779b97f4a7c15u + number + 1);
      operation(random);
    }
  }
  // Begins a part after the operations.
  void begin_part(const std::string& name) { log_.push_back(name); }
  // Describes the running operation.
  void note(const std::string& text) {
    if (log_.empty()) log_.push_back("setup");
    log_.back() += ": " + text;
    if (traced()) std::fprintf(stderr, "seed %llu %s\n", number(seed_), log_.back().c_str());
  }
  // Whether an assertion of this run has failed. (testing::Test::HasFailure() does not see it.)
  [[nodiscard]] bool failed() const { return found_.size() > 0; }

  [[nodiscard]] const std::vector<uint32_t>& operations() const { return operations_; }
  [[nodiscard]] const std::vector<std::string>& log() const { return log_; }
  [[nodiscard]] std::string message() const {
    if (!failed()) return {};
    const testing::TestPartResult& first = found_.GetTestPartResult(0);
    const std::string file = first.file_name() == nullptr ? "" : first.file_name();
    return file + ":" + std::to_string(first.line_number()) + ": " + first.message();
  }
  static unsigned long long number(uint64_t n) { return n; }

  using Run = std::function<void(RandomSequence&)>;
  // Runs it and collects its failures.
  void perform(const Run& body) {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &found_);
    body(*this);
  }

 private:
  static bool traced() {
    static const bool on = random_setting("SLUICE_RANDOM_TRACE", 0) != 0;
    return on;
  }
  uint64_t seed_;
  std::vector<uint32_t> operations_;
  std::vector<std::string> log_;
  testing::TestPartResultArray found_;
};

// The shortest list of operations that still fails: halves, quarters and so on are dropped, then
// single ones, until none can be. `run` is called at most `most` times.
inline std::vector<uint32_t> shrink(std::vector<uint32_t> operations,
                                    const std::function<bool(const std::vector<uint32_t>&)>& fails,
                                    int most = 400) {
  for (size_t part = (operations.size() + 1) / 2; part > 0;) {
    bool dropped = false;
    for (size_t at = 0; at < operations.size() && most > 0;) {
      std::vector<uint32_t> fewer(operations.begin(),
                                  operations.begin() + static_cast<std::ptrdiff_t>(at));
      if (at + part < operations.size())
        fewer.insert(fewer.end(), operations.begin() + static_cast<std::ptrdiff_t>(at + part),
                     operations.end());
      --most;
      if (fails(fewer)) {
        operations = std::move(fewer);
        dropped = true;
      } else {
        at += part;
      }
    }
    if (most <= 0) break;
    if (part > 1) {
      part = (part + 1) / 2;
    } else if (!dropped) {
      break;
    }
  }
  return operations;
}

// What is printed about a failing sequence after it was shrunk.
inline std::string shortest_failure(const RandomSequence& failed, const RandomSequence::Run& body) {
  const auto described = [](const RandomSequence& sequence) {
    std::string out;
    for (const std::string& line : sequence.log()) out += "  " + line + "\n";
    return out + sequence.message();
  };
  std::string last = described(failed), only;
  const std::vector<uint32_t> operations =
      shrink(failed.operations(), [&](const std::vector<uint32_t>& fewer) {
        RandomSequence sequence(failed.seed(), fewer);
        sequence.perform(body);
        if (sequence.failed()) last = described(sequence);
        return sequence.failed();
      });
  for (const uint32_t n : operations) only += (only.empty() ? "" : ",") + std::to_string(n);
  const std::string seed = std::to_string(failed.seed());
  return "seed " + seed + ": " + std::to_string(operations.size()) + " of " +
         std::to_string(failed.operations().size()) + " operations still fail\n" + last +
         "\nreplay: SLUICE_RANDOM_SEED=" + seed +
         " SLUICE_RANDOM_SEQUENCES=1 SLUICE_RANDOM_ONLY=" + only + "\n";
}

// Runs `sequences` sequences of `operations` each, ten times as many in the long suite, or as many
// as the environment says. Stops at the first that fails.
inline void run_random_sequences(uint64_t sequences, uint64_t operations,
                                 const RandomSequence::Run& body) {
  using Clock = std::chrono::steady_clock;
  const uint64_t first = random_setting("SLUICE_RANDOM_SEED", std::random_device()());
  const bool range = std::getenv("SLUICE_RANDOM_SEQUENCES") != nullptr;
  const std::vector<uint32_t> numbers =
      random_operations(random_setting("SLUICE_RANDOM_OPERATIONS", operations));
  sequences = random_setting("SLUICE_RANDOM_SEQUENCES", long_suite() ? 10 * sequences : sequences);
  std::printf("seeds from %llu\n", RandomSequence::number(first));
  std::fflush(stdout);
  const Clock::time_point begin = Clock::now();
  Clock::time_point told = begin;
  uint64_t done = 0, performed = 0;
  for (; done < sequences; ++done) {
    RandomSequence sequence(first + done, numbers);
    sequence.perform(body);
    if (sequence.failed()) {
      ADD_FAILURE() << sequence.message() << "\n" << shortest_failure(sequence, body);
      return;
    }
    performed += numbers.size();
    if (range && (Clock::now() - told > std::chrono::seconds(10) || done + 1 == sequences)) {
      told = Clock::now();
      std::printf("seeds %llu to %llu: %llu operations, %.1f s\n", RandomSequence::number(first),
                  RandomSequence::number(first + done), RandomSequence::number(performed),
                  std::chrono::duration<double>(told - begin).count());
      std::fflush(stdout);
    }
  }
}

}  // namespace sluice::test
