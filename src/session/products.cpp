// Matrix products over units: the rows whose weights are there are done in one parallel region, and
// the cursor remembers where the missing ones begin. A row's result does not depend on how rows are
// grouped, so neither residency nor threads can change a bit of the output.
#include <algorithm>

#include "base/clock.h"
#include "session/session.h"

namespace sluice::session {

using model::Buf;
using model::Op;

namespace {

constexpr int64_t kTaskWork = 1 << 16;  // multiply-adds worth handing to another thread
constexpr int64_t kTasksPerThread = 4;  // for balance between cores of different speed
// Bytes of own reads between two looks at the clock.
constexpr uint64_t kOwnRegion = 16 << 20;

}  // namespace

bool Session::wants_q8(int32_t mat) const {
  const model::Mat& m = engine_.program().mats[static_cast<size_t>(mat)];
  return engine_.table().act_format(m.type) == kernels::ActFormat::kQ8;
}

void Session::quantize(const float* x, int64_t ld, int64_t cols, int32_t n_tokens, uint8_t* out) {
  constexpr int32_t kTile = kernels::kActTile;
  const size_t stride = engine_.table().q8_bytes(cols);
  for_rows((n_tokens + kTile - 1) / kTile, [&](int32_t tile) {
    const int32_t t = tile * kTile;
    engine_.table().quantize_q8(x + t * ld, ld, cols, std::min(kTile, n_tokens - t),
                                out + static_cast<size_t>(t) * stride);
  });
}

void Session::run_pieces() {
  const kernels::Table& table = engine_.table();
  const int64_t group = table.row_group;
  const int64_t n_threads = engine_.pool().n_threads();
  int64_t rows = 0;
  for (const Piece& p : pieces_) rows += p.args.w.rows;
  const int64_t even = rows / (n_threads * kTasksPerThread);
  const uint64_t part = engine_.residency().own_part();
  int64_t n_tasks = 0;
  for (Piece& p : pieces_) {
    const int64_t work_per_row = p.args.w.cols * p.args.x.n_tokens;
    const int64_t least = kTaskWork / std::max<int64_t>(1, work_per_row);
    const int64_t chunk = n_threads == 1 ? p.args.w.rows : std::max(even, least);
    p.chunk = (std::max<int64_t>(1, chunk) + group - 1) / group * group;
    if (p.ring != nullptr) {
      const int64_t fit = static_cast<int64_t>(part) / p.row_bytes / group * group;
      p.chunk = std::min(p.chunk, std::max(fit, group));
    }
    p.first_task = n_tasks;
    n_tasks += (p.args.w.rows + p.chunk - 1) / p.chunk;
  }
  engine_.pool().parallel_for(n_tasks, [&](int64_t task, int thread) {
    size_t i = pieces_.size() - 1;
    while (pieces_[i].first_task > task) --i;
    const Piece& p = pieces_[i];
    kernels::MatmulArgs args = p.args;
    args.r0 = (task - p.first_task) * p.chunk;
    args.r1 = std::min(args.r0 + p.chunk, args.w.rows);
    args.scratch = engine_.scratch(thread);
    if (p.ring != nullptr && !read_own(p, p.ring + static_cast<uint64_t>(thread) * part, &args)) {
      return;
    }
    table.matmul(args);
  });
  residency::Residency& r = engine_.residency();
  for (const Piece& p : pieces_) {
    if (p.ring != nullptr) r.note_own_read(p.unit);
    r.advance_past(p.unit);
  }
  pieces_.clear();
}

// Reads the rows [r0, r1) of a piece into `room`, and makes `args` a product of these.
bool Session::read_own(const Piece& p, uint8_t* room, kernels::MatmulArgs* args) {
  if (own_reads_.failed.load(std::memory_order_relaxed)) return false;
  const int64_t rows = args->r1 - args->r0;
  const residency::Unit& u = engine_.residency().plan().units[p.unit];
  const std::span<uint8_t> out(room, static_cast<size_t>(rows * p.row_bytes));
  const double start = monotonic_ms();
  if (!engine_.reader()->read(u.file, u.offset + static_cast<uint64_t>(args->r0 * p.row_bytes),
                              out)) {
    own_reads_.failed = true;
    return false;
  }
  own_reads_.bytes += out.size();
  own_reads_.ns += static_cast<uint64_t>(1e6 * (monotonic_ms() - start));
  args->w.data = room;
  args->w.rows = rows;
  if (args->bias != nullptr) args->bias += args->r0;
  args->y += args->r0;
  args->r0 = 0;
  args->r1 = rows;
  return true;
}

// After a region with own reads. False when one failed: the pass is to begin anew, without any.
bool Session::settle_own_reads() {
  residency::Residency& r = engine_.residency();
  OwnReadTally& own = own_reads_;
  if (own.failed) {
    own.failed = false;
    r.forbid_own_reads();
    return false;
  }
  if (own.bytes > 0) r.note_rate(own.bytes, own.ns);
  own.bytes = own.ns = 0;
  return true;
}

bool Session::run_products(std::span<const Product> products) {
  residency::Residency& r = engine_.residency();
  const std::vector<model::Mat>& mats = engine_.program().mats;
  while (cursor_.part < static_cast<int32_t>(products.size())) {
    // Gather what is there, or can be read, from the cursor on.
    uint8_t* ring = nullptr;  // lent for own reads, once what it holds is used
    bool from_slots = false;
    uint64_t own_bytes = 0;
    while (cursor_.part < static_cast<int32_t>(products.size()) && pieces_.size() < kMaxPieces) {
      const Product& product = products[static_cast<size_t>(cursor_.part)];
      const int32_t item = engine_.item_of_mat(product.mat);
      const uint32_t unit = r.first_unit(item) + cursor_.unit;
      if (unit == r.end_unit(item)) {
        ++cursor_.part;
        cursor_.unit = 0;
        continue;
      }
      const residency::Unit& u = r.plan().units[unit];
      const bool there = r.ready(unit);
      from_slots = from_slots || (there && !u.pinned);
      if (!there && !u.pinned && !from_slots && ring == nullptr) ring = r.lend_ring();
      const bool own = !there && !u.pinned && ring != nullptr;
      if ((!there && !own) || own_bytes > kOwnRegion) break;
      const model::Mat& m = mats[static_cast<size_t>(product.mat)];
      Piece piece;
      piece.unit = unit;
      if (own) {
        piece.ring = ring;
        piece.row_bytes = m.row_bytes;
        own_bytes += u.bytes;
      }
      piece.args.w = {m.type, r.packed(unit), u.rows, m.cols, own ? nullptr : r.data(unit)};
      piece.args.x = product.acts;
      piece.args.bias = product.bias >= 0 ? engine_.vec(product.bias) + u.row0 : nullptr;
      piece.args.scale = product.scale;
      piece.args.add = product.add;
      piece.args.y = product.y + u.row0;
      piece.args.ldy = product.ldy;
      pieces_.push_back(piece);
      ++cursor_.unit;
    }
    if (!pieces_.empty()) {
      run_pieces();
      if (!settle_own_reads()) {
        read_failed_ = true;
        return false;
      }
      engine_.pump();
      continue;
    }
    if (cursor_.part == static_cast<int32_t>(products.size())) break;
    const int32_t item = engine_.item_of_mat(products[static_cast<size_t>(cursor_.part)].mat);
    if (!need(r.first_unit(item) + cursor_.unit)) return false;
  }
  return true;
}

bool Session::op_matmul(const Op& op) {
  const float* x = engine_.buffer(op.in) + op.in_col;
  const int64_t ld = engine_.width(op.in);
  if (!cursor_.started) {
    bool q8 = false;
    for (int32_t i = 0; i < op.n_parts; ++i) {
      q8 = q8 || wants_q8(op.parts[static_cast<size_t>(i)].mat);
    }
    if (q8) quantize(x, ld, op.n, rows_, engine_.q8());
    cursor_.started = true;
  }
  products_.clear();
  for (int32_t i = 0; i < op.n_parts; ++i) {
    const model::MatPart& part = op.parts[static_cast<size_t>(i)];
    Product product;
    product.mat = part.mat;
    product.bias = part.bias;
    product.acts = {x, ld, engine_.q8(), rows_};
    product.y = engine_.buffer(op.out) + part.out_col;
    product.ldy = engine_.width(op.out);
    product.scale = op.scale;
    product.add = op.add;
    products_.push_back(product);
  }
  return run_products(products_);
}

}  // namespace sluice::session
