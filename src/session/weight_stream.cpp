// Collects pieces of weights, and multiplies them in parallel regions.
#include "session/weight_stream.h"

#include <algorithm>

#include "base/clock.h"

namespace sluice::session {
namespace {

// Bytes of direct reads per parallel region, between two time measurements.
constexpr uint64_t kDirectRegion = 16 << 20;

}  // namespace

WeightStream::WeightStream(const ExecutionContext& context) : cx_(context) {
  pieces_.reserve(kMaxPieces);
}

bool WeightStream::need(uint32_t unit) {
  residency::Residency& r = cx_.weights.residency();
  if (r.ready(unit)) return true;
  r.set_cursor(unit);
  cx_.weights.poll();
  return r.ready(unit);
}

bool WeightStream::need_vec(int32_t vec) {
  if (vec < 0) return true;
  const int32_t item = cx_.plan.items.vec[static_cast<size_t>(vec)];
  return need(cx_.weights.residency().plan().first_unit_of(item));
}

void WeightStream::run_pieces() {
  const kernels::Table& table = cx_.table;
  const int64_t group = table.row_group;
  const int64_t n_threads = cx_.pool.n_threads();
  int64_t rows = 0;
  for (const Piece& p : pieces_) rows += p.args.w.rows;
  const int64_t even = rows / (n_threads * kTasksPerThread);
  const uint64_t part = cx_.weights.residency().own_part();
  int64_t n_tasks = 0;
  for (Piece& p : pieces_) {
    const int64_t work_per_row = p.args.w.cols * p.args.x.n_tokens;
    const int64_t min_chunk = kTaskWork / std::max<int64_t>(1, work_per_row);
    const int64_t chunk = n_threads == 1 ? p.args.w.rows : std::max(even, min_chunk);
    p.chunk = (std::max<int64_t>(1, chunk) + group - 1) / group * group;
    if (p.ring != nullptr) {
      const int64_t fit = static_cast<int64_t>(part) / p.row_bytes / group * group;
      p.chunk = std::min(p.chunk, std::max(fit, group));
    }
    p.first_task = n_tasks;
    n_tasks += (p.args.w.rows + p.chunk - 1) / p.chunk;
  }
  reads_.decompress_before = decompress_ns();
  FiniteCheck& check = cx_.weights.finite_check();
  cx_.pool.parallel_for(n_tasks, [&](int64_t task, int thread) {
    size_t i = pieces_.size() - 1;
    while (pieces_[i].first_task > task) --i;
    const Piece& p = pieces_[i];
    kernels::MatmulArgs args = p.args;
    args.r0 = (task - p.first_task) * p.chunk;
    args.r1 = std::min(args.r0 + p.chunk, args.w.rows);
    args.scratch = cx_.working.scratch(thread);
    if (p.ring != nullptr && !read_piece(p, p.ring + static_cast<uint64_t>(thread) * part, &args)) {
      return;
    }
    if (!args.w.packed && check.due(p.unit)) {
      const auto* rows = static_cast<const uint8_t*>(args.w.data) + args.r0 * p.row_bytes;
      check.look(p.unit, args.w.type, rows, (args.r1 - args.r0) * args.w.cols);
    }
    table.matmul(args);
  });
  residency::Residency& r = cx_.weights.residency();
  for (const Piece& p : pieces_) {
    if (!reads_.failed && p.args.w.rows == r.plan().units[p.unit].rows) check.done(p.unit);
    if (p.ring != nullptr) {
      r.note_own_read(static_cast<uint64_t>(p.args.w.rows * p.row_bytes));
    }
    r.advance_past(p.unit);
  }
  pieces_.clear();
  cx_.weights.settle_check();
}

// So far, of all reads; 0 without a breakdown.
uint64_t WeightStream::decompress_ns() const {
  const RangeReader* reader = cx_.times.running() ? cx_.weights.reader() : nullptr;
  return reader != nullptr ? reader->decompress_ns() : 0;
}

// Reads rows [r0, r1) of a piece into `room`, and makes `args` multiply these.
bool WeightStream::read_piece(const Piece& p, uint8_t* room, kernels::MatmulArgs* args) {
  if (reads_.failed.load(std::memory_order_relaxed)) return false;
  const int64_t rows = args->r1 - args->r0;
  const residency::Unit& u = cx_.weights.residency().plan().units[p.unit];
  const std::span<uint8_t> out(room, static_cast<size_t>(rows * p.row_bytes));
  const double start = monotonic_ms();
  if (!cx_.weights.reader()->read(
          u.file, u.offset + static_cast<uint64_t>((p.row0 + args->r0) * p.row_bytes), out)) {
    reads_.failed = true;
    return false;
  }
  reads_.bytes += out.size();
  reads_.ns += static_cast<uint64_t>(1e6 * (monotonic_ms() - start));
  args->w.data = room;
  args->w.rows = rows;
  if (args->bias != nullptr) args->bias += args->r0;
  args->y += args->r0;
  args->r0 = 0;
  args->r1 = rows;
  return true;
}

// After a region with direct reads. False if one failed: the pass must restart without them.
bool WeightStream::settle_reads() {
  residency::Residency& r = cx_.weights.residency();
  Tally& own = reads_;
  if (own.failed) {
    own.failed = false;
    r.forbid_direct_reads();
    return false;
  }
  if (own.bytes > 0) {
    r.requests().note_rate(own.bytes, own.ns);
    // All threads read and multiply in the region: the reads took their share of it.
    cx_.times.share_reads(own.ns, decompress_ns() - own.decompress_before, cx_.pool.n_threads());
  }
  own.bytes = own.ns = 0;
  return true;
}

// Collects pieces that are in memory or can be read directly, from the current unit on.
void WeightStream::gather(std::span<const Product> products) {
  residency::Residency& r = cx_.weights.residency();
  uint8_t* ring = nullptr;  // borrowed for direct reads, once its units are used
  bool from_slots = false;
  uint64_t direct_bytes = 0;
  while (part_ < static_cast<int32_t>(products.size()) && pieces_.size() < kMaxPieces) {
    const Product& product = products[static_cast<size_t>(part_)];
    const int32_t item = cx_.weights.item_of_mat(product.mat);
    const uint32_t unit = r.plan().first_unit_of(item) + unit_;
    if (unit == r.plan().end_unit_of(item)) {
      ++part_;
      unit_ = 0;
      continue;
    }
    const residency::Unit& u = r.plan().units[unit];
    const int64_t first = std::max(product.row0 - u.row0, int64_t{0});
    const int64_t rows = std::min(product.row1 - u.row0, u.rows) - first;
    if (rows <= 0) {
      ++unit_;
      continue;
    }
    const bool there = r.ready(unit);
    from_slots = from_slots || (there && !u.pinned);
    if (!there && !u.pinned && !from_slots && ring == nullptr) ring = r.borrow_ring();
    const bool direct = !there && !u.pinned && ring != nullptr;
    if ((!there && !direct) || direct_bytes > kDirectRegion) break;
    const model::Mat& m = cx_.program.mats[static_cast<size_t>(product.mat)];
    Piece piece;
    piece.unit = unit;
    piece.row_bytes = m.row_bytes;
    if (direct) {
      piece.ring = ring;
      direct_bytes += static_cast<uint64_t>(rows * m.row_bytes);
    }
    const uint8_t* data = direct ? nullptr : r.data(unit) + first * m.row_bytes;
    piece.row0 = first;
    piece.args.w = {m.type, r.packed(unit), rows, m.cols, data};
    piece.args.x = product.acts;
    piece.args.bias =
        product.bias >= 0 ? cx_.vec(product.bias) + product.bias_at + u.row0 : nullptr;
    piece.args.scale = product.scale;
    piece.args.factor = product.factor;
    piece.args.add = product.add;
    piece.args.y = product.y + u.row0 + first;
    piece.args.ldy = product.ldy;
    pieces_.push_back(piece);
    ++unit_;
  }
}

void WeightStream::units_to_come(std::span<const Product> products,
                                 std::vector<uint32_t>* out) const {
  const residency::Residency& r = cx_.weights.residency();
  out->clear();
  for (auto i = static_cast<size_t>(part_); i < products.size(); ++i) {
    const int32_t item = cx_.weights.item_of_mat(products[i].mat);
    const uint32_t done = i == static_cast<size_t>(part_) ? unit_ : 0;
    for (uint32_t unit = r.plan().first_unit_of(item) + done; unit < r.plan().end_unit_of(item);
         ++unit) {
      const residency::Unit& u = r.plan().units[unit];
      const bool wanted = u.row0 < products[i].row1 && u.row0 + u.rows > products[i].row0;
      const bool there = u.pinned && r.ready(unit);
      if (!wanted || there || (!out->empty() && out->back() == unit)) continue;
      out->push_back(unit);
    }
  }
}

WeightRun WeightStream::run(std::span<const Product> products) {
  while (part_ < static_cast<int32_t>(products.size())) {
    gather(products);
    if (!pieces_.empty()) {
      run_pieces();
      if (!settle_reads()) return WeightRun::kReadFailed;
      cx_.weights.poll();
      continue;
    }
    if (part_ == static_cast<int32_t>(products.size())) break;
    const int32_t item = cx_.weights.item_of_mat(products[static_cast<size_t>(part_)].mat);
    if (!need(cx_.weights.residency().plan().first_unit_of(item) + unit_))
      return WeightRun::kBlocked;
  }
  return WeightRun::kDone;
}

}  // namespace sluice::session
