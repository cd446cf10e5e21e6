// A head whose file stores rows in cluster order: multiplies runs of rows, which the weight stream
// finds in memory, waits for, or reads directly.
#include <algorithm>

#include "session/clustered_head.h"

namespace sluice::session {

void ClusteredHead::reserve() {
  if (!clusters().in_order) return;
  order_.logits.resize(clusters().tokens.size());
  order_.parts.reserve(static_cast<size_t>(clusters().n()));
  order_.units.reserve(engine_.plan().weights.units.size());
}

bool ClusteredHead::in_order(int32_t rows) const {
  return clusters().in_order && rows <= kMaxRowsApart;
}

void ClusteredHead::demand(std::span<const Product> products, const WeightStream& feed) {
  feed.units_to_come(products, &order_.units);
  engine_.residency().set_demand(order_.units);
  engine_.poll();
}

// The rows of clusters taken_[from] on, merged into runs in file order.
void ClusteredHead::choose_parts(const Row& row, int32_t from) {
  const model::HeadClusters& c = clusters();
  const auto taken = taken_.begin() + from, end = taken_.begin() + n_taken_;
  std::array<int32_t, model::kMaxClusters> sorted;
  const auto last = std::copy(taken, end, sorted.begin());
  std::sort(sorted.begin(), last);
  order_.parts.clear();
  for (auto i = sorted.begin(); i != last; ++i) {
    const int32_t begins = c.first[static_cast<size_t>(*i)];
    const int32_t ends = c.first[static_cast<size_t>(*i) + 1];
    if (begins == ends) continue;
    if (!order_.parts.empty() && order_.parts.back().row1 == begins) {
      order_.parts.back().row1 = ends;
      continue;
    }
    Product& part = order_.parts.emplace_back();
    part.mat = engine_.program().head;
    part.acts = {row.x, head().cols, engine_.working().q8(), 1};
    part.y = order_.logits.data();
    part.ldy = static_cast<int64_t>(order_.logits.size());
    part.scale = row.scale;
    part.row0 = begins;
    part.row1 = ends;
  }
}

WeightStream::Run ClusteredHead::run_in_order(const model::Op& op, int32_t rows, bool begins,
                                              WeightStream* feed) {
  if (begins) {
    order_.row = 0;
    order_.chosen = false;
  }
  const model::HeadClusters& c = clusters();
  for (; order_.row < rows; ++order_.row) {
    const Row row = row_of(op, order_.row, /*known=*/false);
    if (!order_.chosen) {
      begin_row(row);
      order_.from = 0;
      choose_parts(row, 0);
      feed->restart();
      order_.chosen = true;
    }
    for (;;) {
      demand(order_.parts, *feed);
      const WeightStream::Run ran = feed->run(order_.parts);
      if (ran != WeightStream::Run::kDone) return ran;
      for (int32_t i = order_.from; i < n_taken_; ++i) {
        const auto cluster = static_cast<size_t>(taken_[static_cast<size_t>(i)]);
        for (auto k = static_cast<size_t>(c.first[cluster]);
             k < static_cast<size_t>(c.first[cluster + 1]); ++k) {
          row.logits[c.tokens[k]] = order_.logits[k];
          if (order_.logits[k] > best_) best_ = order_.logits[k];
        }
      }
      if (!c.exact || !any_open()) break;
      order_.from = n_taken_;
      take_further();
      choose_parts(row, order_.from);
      feed->restart();
    }
    finish_row(row);
    order_.chosen = false;
  }
  return WeightStream::Run::kDone;
}

void ClusteredHead::settle_order(const model::Op& op, int32_t rows) {
  const model::HeadClusters& c = clusters();
  for (int32_t t = 0; t < rows; ++t) {
    float* logits = engine_.working().buffer(op.out) + t * engine_.width(op.out);
    std::copy_n(logits, order_.logits.size(), order_.logits.begin());
    for (size_t k = 0; k < order_.logits.size(); ++k) logits[c.tokens[k]] = order_.logits[k];
  }
}

}  // namespace sluice::session
