// Builds the operations of the MTP head from parts of its family.
#include "model/nextn.h"

#include <algorithm>

#include "model/builder.h"
#include "model/families.h"

namespace sluice::model {
namespace {

// Operations of the program that the head reuses.
struct Shared {
  const Op* embed = nullptr;
  const Op* state_norm = nullptr;
  size_t head = 0;  // from here to the end of a pass
};

bool find_shared(const Program& p, Shared* out) {
  for (size_t i = 0; i < static_cast<size_t>(p.pool); ++i) {
    const Op& op = p.ops[i];
    if (op.is<EmbedOp>()) out->embed = &op;
    if (op.is<NormOp>() && op.out == Buf::kH && op.layer < 0) {
      out->state_norm = &op;
      out->head = i + 1;
    }
  }
  return out->embed != nullptr && out->state_norm != nullptr && out->head > 0;
}

void add_layer(Builder& b, int64_t layer) {
  const Family& family = *find_family(b.hp().arch);
  if (family.build == build_qwen35) {
    build_qwen35_layer(b, layer, 0, /*attends=*/true);
  } else {
    build_moe_layer(b, layer, b.hp().rope.disabled ? -1 : 0);
  }
}

}  // namespace

Status add_nextn(const gguf::Header& header, Program* program) {
  Program& p = *program;
  const HParams& hp = p.hp;
  Shared shared;
  if (hp.n_layer_nextn == 0 || !hp.attention.causal || p.head < 0 || !find_shared(p, &shared)) {
    return error(Code::kInvalidArgument,
                 "this \"%s\" model has no multi-token prediction (MTP) layer, which draft nextn "
                 "needs",
                 hp.arch.c_str());
  }
  const int64_t layer = hp.n_layer, n = hp.n_embd;
  const size_t marks = p.marks.size(), mats = p.mats.size();
  const std::vector<Op> head(p.ops.begin() + static_cast<ptrdiff_t>(shared.head),
                             p.ops.begin() + p.pool);
  const Op embed = *shared.embed;
  Op state_norm = *shared.state_norm;
  state_norm.in = state_norm.out = Buf::kT;
  Builder b(header, p);
  p.nextn.layer = static_cast<int32_t>(layer);
  p.nextn.first = static_cast<int32_t>(p.ops.size());
  p.ops.push_back(embed);
  b.norm_at(layer, "nextn.enorm", {Buf::kX}, {Buf::kGateUp}, n);
  b.widen(Buf::kT, n);
  p.nextn.state_norm = static_cast<int32_t>(p.ops.size());
  p.ops.push_back(state_norm);
  b.norm_at(layer, "nextn.hnorm", {Buf::kT}, {Buf::kGateUp, n}, n);
  b.matmul(layer, Buf::kGateUp, Buf::kX, {{b.mat(layer, "nextn.eh_proj", n, 2 * n), -1, 0}});
  if (!b.status().ok()) return b.status();
  add_layer(b, layer);
  b.select(n);
  const char* const norms[] = {"nextn.shared_head_norm", "layer_output_norm"};
  const auto own = std::find_if(std::begin(norms), std::end(norms),
                                [&](const char* name) { return b.has(layer, name); });
  if (own != std::end(norms)) {
    b.norm(layer, *own, Buf::kX, Buf::kH);
  } else {
    p.ops.push_back(state_norm);
    b.last().in = Buf::kX;
    b.last().out = Buf::kH;
  }
  p.ops.insert(p.ops.end(), head.begin(), head.end());
  if (!b.status().ok()) return b.status();
  p.nextn.end = static_cast<int32_t>(p.ops.size());
  p.marks.resize(marks);
  for (size_t i = mats; i < p.mats.size(); ++i) {
    Mat& m = p.mats[i];
    const uint64_t bytes = static_cast<uint64_t>(m.rows * m.row_bytes);
    const auto used = static_cast<uint64_t>(std::max<int64_t>(hp.moe.n_expert_used, 1));
    const auto all = static_cast<uint64_t>(std::max<int64_t>(hp.moe.n_expert, 1));
    p.nextn.matrix_bytes += m.expert ? bytes * used / all : bytes;
    m.expert = true;
  }
  return {};
}

}  // namespace sluice::model
