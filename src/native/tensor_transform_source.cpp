// Each read of a line takes one of a few sets of buffers, and waits if all are in use.
#include "native/tensor_transform_source.h"

#include <algorithm>
#include <cstring>

namespace sluice::native {
namespace {

constexpr size_t kReaders = 3;  // threads that can read at the same time without waiting

}  // namespace

class TensorTransformSource::Use {
 public:
  explicit Use(TensorTransformSource* source) : source_(source), room_(source->take_room()) {}
  ~Use() {
    const std::lock_guard<std::mutex> lock(source_->mutex_);
    room_.busy = false;
    source_->changed_.notify_one();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Room& room() { return room_; }

 private:
  TensorTransformSource* source_;
  Room& room_;
};

Result<std::unique_ptr<TensorTransformSource>> TensorTransformSource::open(
    std::vector<hf::Derived> runs, std::vector<io::ByteSource*> files) {
  std::unique_ptr<TensorTransformSource> source(
      new TensorTransformSource(std::move(runs), std::move(files)));
  SLUICE_RETURN_IF_ERROR(source->make_rooms());
  return source;
}

Status TensorTransformSource::make_rooms() {
  const hf::LineRoom line = hf::line_room(runs_);
  rooms_ = std::vector<Room>(kReaders);
  for (Room& room : rooms_) {
    SLUICE_RETURN_IF_ERROR(room.stored.allocate(line.stored));
    SLUICE_RETURN_IF_ERROR(room.scales.allocate(line.stored / 16));
    SLUICE_RETURN_IF_ERROR(room.made.allocate(line.made));
  }
  memory_ = kReaders * (round_up_to_line(line.stored) + round_up_to_line(line.stored / 16) +
                        round_up_to_line(line.made) + sizeof(Room)) +
            runs_.size() * sizeof(hf::Derived);
  return {};
}

uint64_t TensorTransformSource::size() const {
  return runs_.empty() ? 0 : runs_.back().begin + runs_.back().bytes;
}

TensorTransformSource::Room& TensorTransformSource::take_room() {
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

Status TensorTransformSource::read(uint64_t offset, std::span<uint8_t> out) {
  while (!out.empty()) {
    const std::optional<hf::DerivedPart> part = hf::next_part(runs_, offset, out.size());
    if (!part) {
      return error(Code::kTruncated, "a read goes past the end of a tensor of the model");
    }
    const auto to = out.first(static_cast<size_t>(part->bytes));
    if (part->kind == hf::DerivedPart::Kind::kZero) {
      std::fill(to.begin(), to.end(), uint8_t{0});
    } else if (part->kind == hf::DerivedPart::Kind::kCopy) {
      SLUICE_RETURN_IF_ERROR(files_[part->file]->read(part->offset, to));
    } else {
      SLUICE_RETURN_IF_ERROR(read_line(*part, to));
    }
    offset += to.size();
    out = out.subspan(to.size());
  }
  return {};
}

Status TensorTransformSource::read_line(const hf::DerivedPart& part, std::span<uint8_t> out) {
  Use use(this);
  auto* stored = use.room().stored.as<uint8_t>();
  auto* scales = use.room().scales.as<uint8_t>();
  auto* made = use.room().made.as<uint8_t>();
  SLUICE_RETURN_IF_ERROR(
      files_[part.file]->read(part.offset, {stored, static_cast<size_t>(part.stored)}));
  if (part.scale_bytes > 0) {
    SLUICE_RETURN_IF_ERROR(files_[part.scale_file]->read(
        part.scales, {scales, static_cast<size_t>(part.scale_bytes)}));
  }
  hf::make_line(runs_[part.run], stored, scales, made);
  std::memcpy(out.data(), made + part.within, out.size());
  return {};
}

}  // namespace sluice::native
