// Presents a QSF file to the engine. Compressed layers appear unpacked at the addresses that qsf.h
// assigns; all other bytes appear at their file offsets. The first read of a layer verifies its
// checksum, and threads that need the same layer share that work. A layer with a wrong checksum is
// fetched once more, then it is an error. All memory for unpacking is allocated on opening.
//
// Layers that are not compressed are read twice, unless checks are deferred, since it is too large
// to be held until its checksum is known. The record of an expert is read once: its first read
// takes all of it into a buffer, and the slices that are read soon after are copied from there.
// Later reads go to the file.
//
// A layer of Zstandard frames can be read anywhere. One that is a single LZ4 block is decoded from
// its start, so a read behind the previous one continues, and any other decodes anew what precedes
// it. native/model_file.h therefore reads such files in order, ahead of the computation.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/aligned.h"
#include "io/byte_source.h"
#include "qsf/codec.h"
#include "qsf/lz4_stream.h"
#include "qsf/qsf.h"

namespace sluice::native {

// What a read does besides copying bytes.
enum class Decompression : uint8_t {
  kNone,
  kFrames,  // decompresses the small frames that it touches
  kBlocks,  // decompresses all that precedes it in its layer, unless it continues an earlier read
};

class QsfSource final : public io::ByteSource {
 public:
  // `runs`: as returned by qsf::parse. `readers`: threads that can read at the same time without
  // waiting; 0: up to four, whose memory is at most a sixteenth of the file's size. (That does not
  // depend on the budget, because the smallest budget that works must not depend on the given one.)
  // Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<QsfSource>> open(std::unique_ptr<io::ByteSource> file,
                                                               std::vector<qsf::Run> runs,
                                                               uint64_t readers = 0);
  // The most expensive kind in this file.
  [[nodiscard]] Decompression decompression() const;
  // Bytes that it holds.
  [[nodiscard]] uint64_t memory() const { return memory_; }

  [[nodiscard]] uint64_t size() const override { return file_->size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override;
  // What must be verified or unpacked has no place.
  [[nodiscard]] uint64_t place(uint64_t offset, uint64_t length) override;
  [[nodiscard]] Status read_parts(std::span<const io::ReadPart> parts) override;
  [[nodiscard]] bool use_direct_io(std::shared_ptr<io::DirectBuffers> buffers) override {
    return file_->use_direct_io(std::move(buffers));
  }
  [[nodiscard]] io::SystemReads system_reads() const override { return file_->system_reads(); }
  void will_need(uint64_t offset, uint64_t length) override;
  [[nodiscard]] uint64_t bytes_fetched() const override { return file_->bytes_fetched(); }
  [[nodiscard]] uint64_t bytes_from_cache() const override { return file_->bytes_from_cache(); }
  [[nodiscard]] uint64_t bytes_missing() const override { return file_->bytes_missing(); }
  [[nodiscard]] uint64_t decompress_ns() const override { return decompress_ns_; }
  void defer_checks() override { deferred_ = true; }
  [[nodiscard]] Status run_deferred_checks() override;
  void abort() override;

 private:
  enum class State : uint8_t { kUnknown, kGood };
  struct Piece {  // bytes of a run that were read while checks were deferred
    uint64_t at = 0, bytes = 0;
    uint32_t crc = 0;
  };
  struct Checked {  // verification state of a run
    State state = State::kUnknown;
    bool again = false;          // was fetched again after a wrong checksum
    uint32_t next = 0;           // the next part to check
    uint32_t done = 0;           // parts checked
    uint32_t first_frame = 0;    // index in starts_
    std::vector<uint32_t> sums;  // checksums of the parts
    Status failure;              // first failure of the current attempt
    std::vector<Piece> pieces;   // in order, without two that touch
  };
  // Buffers of one reader.
  struct Room {
    AlignedBuffer stored, frame;
    qsf::Unpacker unpacker;
    qsf::Lz4Stream block;   // its window is the start of `frame`
    size_t run = SIZE_MAX;  // the run whose frame is in `frame`, or whose block is being decoded
    uint64_t held = 0;      // that frame's number; of a block, how many of its bytes are decoded
    uint64_t taken = 0;     // stored bytes of the block that are decoded
    std::span<const uint8_t> input;  // those after them that are in `stored`
    uint64_t used = 0;               // when it was taken
    bool busy = false;
  };
  // The record of an expert that is being verified, or was verified last.
  struct Record {
    AlignedBuffer bytes;
    size_t run = SIZE_MAX;
    uint64_t used = 0;   // when it was taken
    uint32_t users = 0;  // threads that verify it or copy from it
  };
  class Use;

  QsfSource(std::unique_ptr<io::ByteSource> file, std::vector<qsf::Run> runs);
  void measure();
  [[nodiscard]] Status make_rooms(uint64_t readers);
  [[nodiscard]] Status make_records();
  [[nodiscard]] size_t find(uint64_t address) const;
  [[nodiscard]] uint64_t parts(const qsf::Run& run) const;
  // `into`: keeps what it reads.
  [[nodiscard]] Status check(size_t run, uint8_t* into = nullptr);
  [[nodiscard]] Status sum_part(const qsf::Run& run, uint32_t part, uint8_t* into, uint32_t* sum);
  void settle(size_t run);
  [[nodiscard]] static bool read_once(const qsf::Run& run);
  [[nodiscard]] Status read_record(size_t run, uint64_t at, std::span<uint8_t> out);
  // The buffer that holds the record or will hold it; null: the record is verified and in the file.
  [[nodiscard]] Record* take_record(size_t run);
  [[nodiscard]] Status read_unchecked(size_t run, uint64_t at, std::span<uint8_t> out);
  // Checks a run from its pieces, and reads what is between them.
  [[nodiscard]] Status join_pieces(size_t run);
  [[nodiscard]] Status damaged(const qsf::Run& run, const char* how) const;
  [[nodiscard]] Status read_list(size_t run);
  [[nodiscard]] Status read_frames(size_t run, uint64_t at, std::span<uint8_t> out);
  [[nodiscard]] Status read_block(size_t run, uint64_t at, std::span<uint8_t> out);
  [[nodiscard]] Status decode(Room& room, std::span<uint8_t> out);
  [[nodiscard]] Room& take_room(size_t run, uint64_t frame);
  [[nodiscard]] bool continues(const Room& room, size_t run, uint64_t at) const;

  std::unique_ptr<io::ByteSource> file_;
  std::vector<qsf::Run> runs_;    // by address
  std::vector<Checked> checked_;  // in the same order
  std::vector<uint32_t> starts_;  // frame offsets of all compressed layers, each list with its end
  std::vector<Room> rooms_;
  std::vector<Record> records_;
  uint64_t memory_ = 0;  // bytes
  uint64_t lists_ = 0;   // the part of memory_ that does not depend on the number of readers
  uint64_t part_ = 0;    // bytes that are checked at a time
  uint64_t frame_ = 0;   // bytes of the largest unpacked frame, or for decoding a block
  uint64_t record_ = 0;  // bytes of the largest record that is read once
  uint64_t clock_ = 0;   // counts buffers taken
  std::atomic<uint64_t> decompress_ns_{0};
  std::atomic<bool> deferred_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace sluice::native
