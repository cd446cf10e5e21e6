// Verifies layers in parts, shared by all waiting threads, and unpacks frames and blocks. Complete
// frames are unpacked directly into the destination. Partial frames at the ends of a read go
// through a reader's buffer, which keeps the last frame. Blocks are decoded into the destination.
#include "native/qsf_source.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "qsf/crc32.h"

namespace sluice::native {
namespace {

using qsf::Compression;
using qsf::Run;

// Stored bytes read at a time: a share of the file, within these limits.
constexpr uint64_t kMinRead = 64 << 10, kMaxRead = 512 << 10, kShare = 64;
constexpr uint64_t kMaxReaders = 4;

// Whether the layer is decoded from its start by Lz4Stream.
bool is_block(const Run& run) {
  return run.compression == Compression::kLz4 || run.compression == Compression::kLz4Hc;
}

uint64_t frame_bytes(const Run& run) {
  return qsf::frame_count(run) == 1 ? run.bytes : run.frame;
}
// Maximum stored bytes of a frame.
uint64_t stored_bytes(const Run& run) {
  if (qsf::frame_count(run) == 1) return run.stored;
  return std::min(run.stored, qsf::Packer::most(Compression::kZstd, run.frame));
}

}  // namespace

// Holds a reader's buffers while they are in use.
class QsfSource::Use {
 public:
  Use(QsfSource* source, size_t run, uint64_t frame)
      : source_(source), room_(source->take_room(run, frame)) {}
  ~Use() {
    const std::lock_guard<std::mutex> lock(source_->mutex_);
    room_.busy = false;
    source_->changed_.notify_all();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Room& operator*() { return room_; }
  Room* operator->() { return &room_; }

 private:
  QsfSource* source_;
  Room& room_;
};

QsfSource::QsfSource(std::unique_ptr<io::ByteSource> file, std::vector<Run> runs)
    : file_(std::move(file)), runs_(std::move(runs)), checked_(runs_.size()) {
  measure();
}

Result<std::unique_ptr<QsfSource>> QsfSource::open(std::unique_ptr<io::ByteSource> file,
                                                   std::vector<Run> runs, uint64_t readers) {
  std::unique_ptr<QsfSource> source(new QsfSource(std::move(file), std::move(runs)));
  SLUICE_RETURN_IF_ERROR(source->make_rooms(readers));
  SLUICE_RETURN_IF_ERROR(source->make_records());
  return source;
}

// Computes the buffer sizes that layers and frames need.
void QsfSource::measure() {
  uint64_t largest = 1, stored = 0, starts = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    largest = std::max(largest, run.stored);
    if (read_once(run)) record_ = std::max(record_, run.stored);
    if (run.compression == Compression::kNone) continue;
    if (is_block(run)) {  // the window, and as much for what is skipped
      frame_ = std::max<uint64_t>(frame_, 2 * qsf::Lz4Stream::kWindow);
      continue;
    }
    frame_ = std::max(frame_, frame_bytes(run));
    stored = std::max({stored, stored_bytes(run), qsf::frame_list_bytes(run)});
    checked_[i].first_frame = static_cast<uint32_t>(starts);
    starts += qsf::frame_count(run) + 1;
  }
  const uint64_t read = std::clamp(file_->size() / kShare, kMinRead, kMaxRead);
  part_ = std::max(std::min(read, largest), stored);
  lists_ = starts * sizeof(uint32_t) + runs_.size() * (sizeof(Run) + sizeof(Checked));
  for (size_t i = 0; i < runs_.size(); ++i) {
    checked_[i].sums.resize(static_cast<size_t>(parts(runs_[i])));
    lists_ += checked_[i].sums.size() * sizeof(uint32_t);
  }
  starts_.resize(static_cast<size_t>(starts));
}

Status QsfSource::make_rooms(uint64_t readers) {
  const uint64_t one = round_up_to_line(part_) + round_up_to_line(frame_) + sizeof(Room) +
                       (frame_ > 0 ? qsf::Unpacker::memory() : 0);
  if (readers == 0) readers = std::clamp<uint64_t>(file_->size() / 16 / one, 1, kMaxReaders);
  rooms_ = std::vector<Room>(static_cast<size_t>(readers));
  for (Room& room : rooms_) {
    SLUICE_RETURN_IF_ERROR(room.stored.allocate(part_));
    SLUICE_RETURN_IF_ERROR(room.frame.allocate(frame_));
  }
  memory_ = readers * one + lists_;
  return {};
}

Decompression QsfSource::decompression() const {
  Decompression kind = Decompression::kNone;
  for (const Run& run : runs_) {
    if (run.compression == Compression::kNone) continue;
    kind = std::max(kind, is_block(run) ? Decompression::kBlocks : Decompression::kFrames);
  }
  return kind;
}

void QsfSource::abort() {
  file_->abort();
}

// The run that contains this address, or the first one after it.
size_t QsfSource::find(uint64_t address) const {
  const auto at = std::partition_point(runs_.begin(), runs_.end(), [address](const Run& run) {
    return run.address + run.bytes <= address;
  });
  return static_cast<size_t>(at - runs_.begin());
}

Status QsfSource::read(uint64_t offset, std::span<uint8_t> out) {
  while (!out.empty()) {
    const size_t i = find(offset);
    const bool inside = i < runs_.size() && runs_[i].address <= offset;
    const uint64_t end = i == runs_.size() ? UINT64_MAX
                         : inside          ? runs_[i].address + runs_[i].bytes
                                           : runs_[i].address;
    const auto part = out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), end - offset)));
    const bool once = inside && read_once(runs_[i]);
    if (inside && !once && deferred_ && runs_[i].compression == Compression::kNone) {
      SLUICE_RETURN_IF_ERROR(read_unchecked(i, offset - runs_[i].address, part));
      offset += part.size();
      out = out.subspan(part.size());
      continue;
    }
    if (inside && !once) SLUICE_RETURN_IF_ERROR(check(i));
    if (once) {
      SLUICE_RETURN_IF_ERROR(read_record(i, offset - runs_[i].address, part));
    } else if (inside && is_block(runs_[i])) {
      SLUICE_RETURN_IF_ERROR(read_block(i, offset - runs_[i].address, part));
    } else if (inside && runs_[i].compression != Compression::kNone) {
      SLUICE_RETURN_IF_ERROR(read_frames(i, offset - runs_[i].address, part));
    } else {
      SLUICE_RETURN_IF_ERROR(file_->read(offset, part));
    }
    offset += part.size();
    out = out.subspan(part.size());
  }
  return {};
}

uint64_t QsfSource::place(uint64_t offset, uint64_t length) {
  const size_t i = find(offset);
  if (i == runs_.size() || runs_[i].address >= offset + length) return file_->place(offset, length);
  const Run& run = runs_[i];
  const bool inside = run.address <= offset && offset + length <= run.address + run.bytes;
  if (!inside || run.compression != Compression::kNone) return kNoPlace;
  const std::lock_guard<std::mutex> lock(mutex_);
  return checked_[i].state == State::kGood ? file_->place(offset, length) : kNoPlace;
}

Status QsfSource::read_parts(std::span<const io::ReadPart> parts) {
  for (const io::ReadPart& part : parts) {
    if (place(part.offset, part.out.size()) == kNoPlace) return ByteSource::read_parts(parts);
  }
  return file_->read_parts(parts);
}

void QsfSource::will_need(uint64_t offset, uint64_t length) {
  const size_t i = find(offset);
  if (i == runs_.size() || runs_[i].compression == Compression::kNone ||
      runs_[i].address > offset) {
    return file_->will_need(offset, length);
  }
  // Scaled, because the exact frame offsets are unknown until the layer has been verified.
  const Run& run = runs_[i];
  const auto scaled = [&run](uint64_t at) {
    return static_cast<uint64_t>(static_cast<double>(std::min(at, run.bytes)) *
                                 static_cast<double>(run.stored) / static_cast<double>(run.bytes));
  };
  const uint64_t from = scaled(offset - run.address), to = scaled(offset + length - run.address);
  file_->will_need(run.offset + from, to - from);
}

// --- checksums

uint64_t QsfSource::parts(const Run& run) const {
  return std::max<uint64_t>(1, (run.stored + part_ - 1) / part_);
}

Status QsfSource::sum_part(const Run& run, uint32_t part, uint8_t* into, uint32_t* sum) {
  const uint64_t at = part * part_;
  const uint64_t n = std::min(part_, run.stored - std::min(run.stored, at));
  if (into != nullptr) {
    const std::span<uint8_t> bytes{into + at, static_cast<size_t>(n)};
    SLUICE_RETURN_IF_ERROR(file_->read(run.offset + at, bytes));
    *sum = qsf::crc32(bytes);
    return {};
  }
  Use room(this, SIZE_MAX, 0);
  room->input = {};
  const std::span<uint8_t> bytes{room->stored.as<uint8_t>(), static_cast<size_t>(n)};
  SLUICE_RETURN_IF_ERROR(file_->read(run.offset + at, bytes));
  *sum = qsf::crc32(bytes);
  return {};
}

// Returns when the run is verified, or the error. A thread that arrives during verification takes
// the next unchecked part, and waits if there is none.
Status QsfSource::check(size_t i, uint8_t* into) {
  const Run& run = runs_[i];
  Checked& c = checked_[i];
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (c.state == State::kGood) return {};
    if (c.next < c.sums.size()) {
      if (c.next == 0) c.failure = {};
      const uint32_t part = c.next++;
      lock.unlock();
      uint32_t sum = 0;
      const Status read = sum_part(run, part, into, &sum);
      lock.lock();
      c.sums[part] = sum;
      if (!read.ok() && c.failure.ok()) c.failure = read;
      if (++c.done == c.sums.size()) {
        lock.unlock();
        settle(i);
        lock.lock();
        changed_.notify_all();
      }
      if (c.done == 0 && !c.failure.ok()) return c.failure;
      continue;
    }
    changed_.wait(lock, [&c] { return c.state == State::kGood || c.next < c.sums.size(); });
    if (c.done == 0 && !c.failure.ok()) return c.failure;
  }
}

Status QsfSource::damaged(const Run& run, const char* how) const {
  return error(Code::kCorrupt,
               "%s of the model is damaged: its checksum %s; download the file again",
               run.layer    ? "a layer"
               : run.expert ? "an expert"
                            : "a section",
               how);
}

// Called when all parts are done, by the thread that did the last one. The run is marked as good,
// fetched again, or its failure is stored.
void QsfSource::settle(size_t i) {
  const Run& run = runs_[i];
  Checked& c = checked_[i];
  uint32_t sum = 0;
  for (uint64_t part = 0; part < c.sums.size(); ++part) {
    const uint64_t n = std::min(part_, run.stored - std::min(run.stored, part * part_));
    sum = part == 0 ? c.sums[0] : qsf::crc32_joined(sum, c.sums[part], n);
  }
  Status failure = c.failure;
  const bool good = failure.ok() && sum == run.crc;
  if (good) failure = read_list(i);
  const bool retry = !good && failure.ok() && !c.again;
  if (retry) failure = file_->refresh(run.offset, run.stored);
  if (!good && !retry && failure.ok()) {
    failure = damaged(run, "was wrong twice");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  c.failure = failure;
  c.next = c.done = 0;
  c.again = retry && failure.ok();
  if (good && failure.ok()) {
    c.state = State::kGood;
    c.next = static_cast<uint32_t>(c.sums.size());
  }
}

// --- compressed layers

Status QsfSource::read_list(size_t i) {
  const Run& run = runs_[i];
  if (run.compression == Compression::kNone || is_block(run)) return {};
  const uint64_t n = qsf::frame_list_bytes(run);
  Use room(this, SIZE_MAX, 0);
  room->input = {};
  if (n > run.stored || n > room->stored.size()) {
    return error(Code::kBadHeader, "a layer's list of frames is wrong");
  }
  const std::span<uint8_t> list{room->stored.as<uint8_t>(), static_cast<size_t>(n)};
  SLUICE_RETURN_IF_ERROR(file_->read(run.offset + run.stored - n, list));
  return qsf::read_frame_list(
      run, list,
      std::span(starts_).subspan(checked_[i].first_frame,
                                 static_cast<size_t>(qsf::frame_count(run) + 1)));
}

// Whether these buffers hold frame `at` of the run, or their block continues at byte `at` or
// before.
bool QsfSource::continues(const Room& room, size_t run, uint64_t at) const {
  if (run == SIZE_MAX || room.run != run) return false;
  return is_block(runs_[run]) ? room.held <= at : room.held == at;
}

// Takes the buffers that spare most work if they are free, else those that were not used for the
// longest time; waits for them.
QsfSource::Room& QsfSource::take_room(size_t run, uint64_t at) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    Room* best = nullptr;
    bool best_has = false;
    for (Room& room : rooms_) {
      if (room.busy) continue;
      const bool has = continues(room, run, at);
      if (best == nullptr || (has && !best_has) ||
          (has == best_has && (has ? room.held > best->held : room.used < best->used))) {
        best = &room;
        best_has = has;
      }
    }
    if (best != nullptr) {
      best->busy = true;
      best->used = ++clock_;
      return *best;
    }
    changed_.wait(lock);
  }
}

// Decodes the next out.size() bytes of the block that `room` is in.
Status QsfSource::decode(Room& room, std::span<uint8_t> out) {
  const Run& run = runs_[room.run];
  const auto damaged = [] {
    return error(Code::kCorrupt, "a layer of the model cannot be decompressed");
  };
  room.held += out.size();
  const bool last = room.held == run.bytes;
  for (;;) {
    const size_t before = room.input.size();
    const double start = monotonic_ms();
    const bool good = room.block.decode(&room.input, &out);
    decompress_ns_ += static_cast<uint64_t>(1e6 * (monotonic_ms() - start));
    room.taken += before - room.input.size();
    if (!good) return damaged();
    if (!room.input.empty() || room.taken == run.stored) break;
    if (out.empty() && !last) return {};
    const uint64_t n = std::min<uint64_t>(part_, run.stored - room.taken);
    const std::span<uint8_t> to{room.stored.as<uint8_t>(), static_cast<size_t>(n)};
    SLUICE_RETURN_IF_ERROR(file_->read(run.offset + room.taken, to));
    room.input = to;
    const uint64_t next = std::min<uint64_t>(part_, run.stored - room.taken - n);
    if (next > 0) file_->will_need(run.offset + room.taken + n, next);
  }
  // The last byte of the layer must be decoded from the last one that is stored.
  const bool ends = room.input.empty() && room.block.at_end();
  return !out.empty() || (last && !ends) ? damaged() : Status();
}

// Reads bytes [at, at + out.size()) of a verified layer that is one block.
Status QsfSource::read_block(size_t i, uint64_t at, std::span<uint8_t> out) {
  Use room(this, i, at);
  const std::span<uint8_t> frame(room->frame.as<uint8_t>(), 2 * qsf::Lz4Stream::kWindow);
  if (!continues(*room, i, at)) {
    room->block.start(frame.first(qsf::Lz4Stream::kWindow));
    room->input = {};
    room->run = i;
    room->held = room->taken = 0;
  }
  Status status;
  while (status.ok() && room->held < at) {
    const uint64_t n = std::min<uint64_t>(at - room->held, qsf::Lz4Stream::kWindow);
    status = decode(*room, frame.subspan(qsf::Lz4Stream::kWindow).first(n));
  }
  if (status.ok()) status = decode(*room, out);
  if (!status.ok()) room->run = SIZE_MAX;
  return status;
}

// Reads bytes [at, at + out.size()) of a verified layer.
Status QsfSource::read_frames(size_t i, uint64_t at, std::span<uint8_t> out) {
  const Run& run = runs_[i];
  const uint64_t frame = frame_bytes(run), count = qsf::frame_count(run);
  const uint32_t* starts = &starts_[checked_[i].first_frame];
  while (!out.empty()) {
    const uint64_t first = at / frame, last = (at + out.size() - 1) / frame;
    Use room(this, i, first);
    room->input = {};
    uint64_t end = first + 1;  // frames [first, end) are read at once
    while (end <= last && starts[end + 1] - starts[first] <= room->stored.size()) ++end;
    const uint64_t n = starts[end] - starts[first];
    if (n > room->stored.size()) return error(Code::kBadHeader, "a frame of a layer is too long");
    const std::span<uint8_t> stored{room->stored.as<uint8_t>(), static_cast<size_t>(n)};
    const bool held = room->run == i && room->held == first;
    if (!held || end > first + 1)
      SLUICE_RETURN_IF_ERROR(file_->read(run.offset + starts[first], stored));
    for (uint64_t f = first; f < end; ++f) {
      const uint64_t skip = at - f * frame;
      const uint64_t bytes = f + 1 == count ? run.bytes - f * frame : frame;
      const auto part =
          out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), bytes - skip)));
      const bool whole = part.size() == bytes;
      const std::span<uint8_t> to =
          whole ? part : std::span(room->frame.as<uint8_t>(), static_cast<size_t>(bytes));
      if (!(room->run == i && room->held == f)) {
        if (!whole) room->run = SIZE_MAX;
        const double start = monotonic_ms();
        if (!room->unpacker.unpack(
                stored.subspan(starts[f] - starts[first], starts[f + 1] - starts[f]), to)) {
          return error(Code::kCorrupt, "a layer of the model cannot be decompressed");
        }
        decompress_ns_ += static_cast<uint64_t>(1e6 * (monotonic_ms() - start));
        if (!whole) {
          room->run = i;
          room->held = f;
        }
        if (!whole) std::memcpy(part.data(), to.data() + skip, part.size());
      } else {
        std::memcpy(part.data(), room->frame.as<uint8_t>() + skip, part.size());
      }
      at += part.size();
      out = out.subspan(part.size());
    }
  }
  return {};
}

}  // namespace sluice::native
