// A QSF file as the engine reads it: bytes of compressed layers at the addresses that qsf.h gives
// them, all others where they lie. The first read of a layer checks all of it against its checksum:
// threads that want it meanwhile share that work. A layer that is wrong is fetched again, alone,
// and then an error. What unpacking takes is allocated at once and told beforehand.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/aligned.h"
#include "io/byte_source.h"
#include "qsf/codec.h"
#include "qsf/qsf.h"

namespace sluice::native {

class QsfSource final : public io::ByteSource {
 public:
  // `runs` as qsf::parse gives them. So many threads read at the same time without waiting for each
  // other; 0: as many as take no more than a sixteenth of the file's size, up to four. (Not of a
  // budget: the smallest that works must not depend on the one that is asked about.)
  // Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<QsfSource>> open(std::unique_ptr<io::ByteSource> file,
                                                               std::vector<qsf::Run> runs,
                                                               uint64_t readers = 0);
  // Bytes that it holds.
  [[nodiscard]] uint64_t memory() const { return memory_; }

  [[nodiscard]] uint64_t size() const override { return file_->size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override;
  void will_need(uint64_t offset, uint64_t length) override;
  [[nodiscard]] uint64_t bytes_fetched() const override { return file_->bytes_fetched(); }
  [[nodiscard]] uint64_t bytes_from_cache() const override { return file_->bytes_from_cache(); }
  [[nodiscard]] uint64_t bytes_missing() const override { return file_->bytes_missing(); }
  void abort() override;

 private:
  enum class State : uint8_t { kUnknown, kGood };
  struct Checked {  // a run, and how far its check is
    State state = State::kUnknown;
    bool again = false;          // fetched anew after a wrong sum
    uint32_t next = 0;           // part that nobody checks yet
    uint32_t done = 0;           // parts
    uint32_t first_frame = 0;    // in starts_
    std::vector<uint32_t> sums;  // of the parts that are done
    Status failure;              // of those that check it now
  };
  // Memory of one reader.
  struct Room {
    AlignedBuffer stored, frame;
    qsf::Unpacker unpacker;
    size_t run = SIZE_MAX;  // whose frame is in `frame`
    uint64_t held = 0;      // its number
    bool busy = false;
  };
  class Use;

  QsfSource(std::unique_ptr<io::ByteSource> file, std::vector<qsf::Run> runs);
  void measure();
  [[nodiscard]] Status make_rooms(uint64_t readers);
  [[nodiscard]] size_t find(uint64_t address) const;
  [[nodiscard]] uint64_t parts(const qsf::Run& run) const;
  [[nodiscard]] Status check(size_t run);
  [[nodiscard]] Status sum_part(const qsf::Run& run, uint32_t part, uint32_t* sum);
  void settle(size_t run);
  [[nodiscard]] Status read_list(size_t run);
  [[nodiscard]] Status read_frames(size_t run, uint64_t at, std::span<uint8_t> out);
  [[nodiscard]] Room& take_room(size_t run, uint64_t frame);

  std::unique_ptr<io::ByteSource> file_;
  std::vector<qsf::Run> runs_;    // by address
  std::vector<Checked> checked_;  // the same
  std::vector<uint32_t> starts_;  // of the frames of all compressed layers, each with its end
  std::vector<Room> rooms_;
  uint64_t memory_ = 0;
  uint64_t lists_ = 0;  // of it, whatever the number of rooms
  uint64_t part_ = 0;   // bytes that are checked at a time
  uint64_t frame_ = 0;  // the largest, unpacked
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace sluice::native
