// Moves every index behind the new operation.
#include "approximate/insert_op.h"

namespace sluice::approximate {

void insert_op(model::Program* program, size_t at, const model::Op& op) {
  model::Program& p = *program;
  const auto place = static_cast<int32_t>(at);
  const auto move = [place](int32_t& index) { index += index >= place ? 1 : 0; };
  for (size_t i = 0; i < p.ops.size(); ++i) {
    auto* own = std::get_if<model::ApproximateOp>(&p.ops[i].fields);
    if (own == nullptr) continue;
    const auto from = static_cast<int32_t>(i), to = from + own->jump;
    if (from < place && to >= place) ++own->jump;
    if (to < place && from >= place) --own->jump;
  }
  p.ops.insert(p.ops.begin() + place, op);
  for (model::Mark& mark : p.marks) move(mark.op);
  for (model::Tail* tail : {&p.embed_tail, &p.rank_tail}) {
    move(tail->first);
    move(tail->end);
  }
  move(p.pool);
  if (p.hidden > place) ++p.hidden;
  if (p.decoder > place) ++p.decoder;
}

}  // namespace sluice::approximate
