// Large chunks are read to where they are wanted; small ones by lines, one read of all that a line
// lies in.
#include "native/derived_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"

namespace sluice::native {
namespace {

using hf::Derived;

constexpr size_t kReaders = 3;  // at the same time without waiting for each other

bool by_chunk(const Derived& run) {
  return run.kind == Derived::Kind::kGather && run.chunk >= hf::kWholeChunk;
}

uint64_t span_of(const Derived& run) {
  return (run.counts[2] - 1) * run.strides[2] + run.chunk;
}

// How far the chunk (or line, which is counts[2] chunks) is from the first one.
uint64_t line_offset(const Derived& run, uint64_t line) {
  return line / run.counts[1] * run.strides[0] + line % run.counts[1] * run.strides[1];
}

float value_of(const uint8_t* at, gguf::TensorType type) {
  float x = 0;
  kernels::reference::dequantize(static_cast<kernels::Type>(type), at, 1, &x);
  return x;
}

// Two neighbours share a byte in the checkpoint, values 16 apart in GGUF.
void make_block(const uint8_t* from, uint8_t scale, uint8_t* to) {
  const auto value = [from](int i) { return from[i / 2] >> (i % 2 * 4) & 15; };
  *to++ = scale;
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(value(i) | value(i + 16) << 4);
}

}  // namespace

class DerivedSource::Use {
 public:
  explicit Use(DerivedSource* source) : source_(source), room_(source->take_room()) {}
  ~Use() {
    const std::lock_guard<std::mutex> lock(source_->mutex_);
    room_.busy = false;
    source_->changed_.notify_one();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Room& room() { return room_; }

 private:
  DerivedSource* source_;
  Room& room_;
};

Result<std::unique_ptr<DerivedSource>> DerivedSource::open(std::vector<Derived> runs,
                                                           std::vector<io::ByteSource*> files) {
  std::unique_ptr<DerivedSource> source(new DerivedSource(std::move(runs), std::move(files)));
  SLUICE_RETURN_IF_ERROR(source->make_rooms());
  return source;
}

Status DerivedSource::make_rooms() {
  uint64_t stored = 0, made = 0;
  for (const Derived& run : runs_) {
    if (by_chunk(run) || run.kind == Derived::Kind::kZero) continue;
    stored = std::max(stored, span_of(run));
    made = std::max(made, run.made_chunk() * run.counts[2]);
  }
  rooms_ = std::vector<Room>(kReaders);
  for (Room& room : rooms_) {
    SLUICE_RETURN_IF_ERROR(room.stored.allocate(stored));
    SLUICE_RETURN_IF_ERROR(room.scales.allocate(stored / 16));
    SLUICE_RETURN_IF_ERROR(room.made.allocate(made));
  }
  memory_ = kReaders * (round_up_to_line(stored) + round_up_to_line(stored / 16) +
                        round_up_to_line(made) + sizeof(Room)) +
            runs_.size() * sizeof(Derived);
  return {};
}

uint64_t DerivedSource::size() const {
  return runs_.empty() ? 0 : runs_.back().begin + runs_.back().bytes;
}

DerivedSource::Room& DerivedSource::take_room() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    for (Room& room : rooms_) {
      if (room.busy) continue;
      room.busy = true;
      return room;
    }
    changed_.wait(lock);
  }
}

Status DerivedSource::read(uint64_t offset, std::span<uint8_t> out) {
  while (!out.empty()) {
    const auto next = std::upper_bound(
        runs_.begin(), runs_.end(), offset,
        [](uint64_t at, const Derived& run) { return at < run.begin + run.bytes; });
    if (next == runs_.end()) {
      return error(Code::kTruncated, "a tensor of the model ends before what is read of it");
    }
    // Between tensors there is nothing that anybody looks at.
    const bool gap = offset < next->begin;
    const uint64_t left = gap ? next->begin - offset : next->begin + next->bytes - offset;
    const auto part = out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), left)));
    if (gap || next->kind == Derived::Kind::kZero) {
      std::fill(part.begin(), part.end(), uint8_t{0});
    } else {
      const uint64_t at = offset - next->begin;
      SLUICE_RETURN_IF_ERROR(by_chunk(*next) ? read_whole_chunks(*next, at, part)
                                             : read_lines(*next, at, part));
    }
    offset += part.size();
    out = out.subspan(part.size());
  }
  return {};
}

Status DerivedSource::read_whole_chunks(const Derived& run, uint64_t at, std::span<uint8_t> out) {
  while (!out.empty()) {
    const uint64_t chunk = at / run.chunk, within = at % run.chunk;
    const auto part =
        out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), run.chunk - within)));
    const uint64_t from =
        line_offset(run, chunk / run.counts[2]) + chunk % run.counts[2] * run.strides[2] + within;
    SLUICE_RETURN_IF_ERROR(files_[run.file]->read(run.offset + from, part));
    at += part.size();
    out = out.subspan(part.size());
  }
  return {};
}

Status DerivedSource::read_lines(const Derived& run, uint64_t at, std::span<uint8_t> out) {
  Use use(this);
  const uint64_t bytes = run.made_chunk() * run.counts[2];
  while (!out.empty()) {
    const uint64_t within = at % bytes;
    SLUICE_RETURN_IF_ERROR(make_line(run, at / bytes, use.room()));
    const size_t n = static_cast<size_t>(std::min<uint64_t>(out.size(), bytes - within));
    std::memcpy(out.data(), use.room().made.as<uint8_t>() + within, n);
    at += n;
    out = out.subspan(n);
  }
  return {};
}

Status DerivedSource::make_line(const Derived& run, uint64_t line, Room& room) {
  const uint64_t from = line_offset(run, line);
  const std::span<uint8_t> stored{room.stored.as<uint8_t>(), static_cast<size_t>(span_of(run))};
  SLUICE_RETURN_IF_ERROR(files_[run.file]->read(run.offset + from, stored));
  const uint8_t* scales = room.scales.as<uint8_t>();
  if (run.kind == Derived::Kind::kMxfp4) {
    SLUICE_RETURN_IF_ERROR(files_[run.scale_file]->read(
        run.scales + from / 16, {room.scales.as<uint8_t>(), stored.size() / 16}));
  }
  uint8_t* to = room.made.as<uint8_t>();
  for (uint64_t i = 0; i < run.counts[2]; ++i, to += run.made_chunk()) {
    const uint8_t* chunk = stored.data() + i * run.strides[2];
    if (run.kind == Derived::Kind::kNegativeExp) {
      const float made =
          static_cast<float>(-std::exp(static_cast<double>(value_of(chunk, run.type))));
      std::memcpy(to, &made, 4);
    } else if (run.kind == Derived::Kind::kMxfp4) {
      for (uint64_t block = 0; block < run.chunk / 16; ++block) {
        make_block(chunk + block * 16, scales[i * run.strides[2] / 16 + block], to + block * 17);
      }
    } else {
      std::memcpy(to, chunk, run.chunk);
    }
  }
  return {};
}

}  // namespace sluice::native
