// Deferred checks: each byte of a layer is read once, and its checksum is joined from those of the
// ranges that were read, in whatever order.
#include <algorithm>

#include "native/qsf_source.h"
#include "qsf/crc32.h"

namespace sluice::native {

Status QsfSource::read_unchecked(size_t i, uint64_t at, std::span<uint8_t> out) {
  SLUICE_RETURN_IF_ERROR(file_->read(runs_[i].offset + at, out));
  Piece piece{at, out.size(), qsf::crc32(out)};
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Piece>& pieces = checked_[i].pieces;
  auto next = std::upper_bound(pieces.begin(), pieces.end(), at,
                               [](uint64_t from, const Piece& p) { return from < p.at; });
  const auto end_before = [&](auto place) { return (place - 1)->at + (place - 1)->bytes; };
  const bool again = (next != pieces.begin() && end_before(next) > at) ||
                     (next != pieces.end() && at + out.size() > next->at);
  if (again || checked_[i].state == State::kGood) return {};
  const auto joined = [](const Piece& a, const Piece& b) {
    return Piece{a.at, a.bytes + b.bytes, qsf::crc32_joined(a.crc, b.crc, b.bytes)};
  };
  if (next != pieces.begin() && end_before(next) == at) {
    piece = joined(*(next - 1), piece);
    next = pieces.erase(next - 1);
  }
  if (next != pieces.end() && piece.at + piece.bytes == next->at) {
    *next = joined(piece, *next);
  } else {
    pieces.insert(next, piece);
  }
  return {};
}

Status QsfSource::join_pieces(size_t i) {
  const qsf::Run& run = runs_[i];
  Checked& c = checked_[i];
  Room& room = take_room(SIZE_MAX, 0);
  room.input = {};
  uint32_t sum = 0;
  uint64_t at = 0;
  Status status;
  const auto read_to = [&](uint64_t end) {
    while (at < end && status.ok()) {
      const std::span<uint8_t> part{room.stored.as<uint8_t>(),
                                    static_cast<size_t>(std::min(part_, end - at))};
      status = file_->read(run.offset + at, part);
      sum = qsf::crc32(part, sum);
      at += part.size();
    }
  };
  for (const Piece& piece : c.pieces) {
    read_to(piece.at);
    sum = qsf::crc32_joined(sum, piece.crc, piece.bytes);
    at = piece.at + piece.bytes;
  }
  read_to(run.stored);
  const std::lock_guard<std::mutex> lock(mutex_);
  room.busy = false;
  changed_.notify_all();
  c.pieces = {};
  if (!status.ok()) return status;
  if (sum != run.crc) return damaged(run, "is wrong");
  c.state = State::kGood;
  c.next = static_cast<uint32_t>(c.sums.size());
  return {};
}

Status QsfSource::run_deferred_checks() {
  deferred_ = false;
  Status first;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (checked_[i].pieces.empty()) continue;
    const Status status = join_pieces(i);
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace sluice::native
