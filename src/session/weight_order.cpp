// Walks the program's operations in order and lists their tensors.
#include "session/weight_order.h"

namespace sluice::session {
namespace {

using model::Program;

class Ordering {
 public:
  Ordering(const Program& p, const kernels::Table& table, WeightOrder& out)
      : out_(out), p_(p), table_(table) {
    out.mat_item.assign(p.mats.size(), -1);
    out.vec_item.assign(p.vecs.size(), -1);
    for (const model::Rope& r : p.ropes) {
      vec(r.factors_short);
      vec(r.factors_long);
    }
    for (const model::Op& op : p.ops) {
      for (const int32_t v : op.vecs()) vec(v);
      if (const auto* heads = op.get<model::HeadMatmulOp>()) {
        for (const int32_t m : p.by_head[static_cast<size_t>(heads->by_head)]) mat(m);
      } else if (const auto* product = op.get<model::MatmulOp>()) {
        for (const model::MatPart& part : product->parts()) {
          vec(part.bias);
          vec(part.factor);
          mat(part.mat);
        }
      } else if (const auto* mixture = op.get<model::MoeOp>()) {
        experts(p.moes[static_cast<size_t>(mixture->moe)]);
      }
    }
    if (p.embedding >= 0) mat(p.embedding);
  }

 private:
  void experts(const model::Moe& moe) {
    for (const int32_t v : moe.vecs()) vec(v);
    const size_t before = out_.specs.size();
    for (size_t e = 0; e < moe.up.size(); ++e) {
      const size_t first = out_.specs.size();
      if (!moe.gate.empty()) mat(moe.gate[e]);
      mat(moe.up[e]);
      mat(moe.down[e]);
      for (size_t i = first; i < out_.specs.size(); ++i) {
        out_.specs[i].layer = mixtures_;
        out_.specs[i].expert = static_cast<int32_t>(e);
      }
    }
    if (out_.specs.size() > before) ++mixtures_;
  }

  void vec(int32_t index) {
    if (index < 0 || out_.vec_item[static_cast<size_t>(index)] >= 0) return;
    const model::Vec& v = p_.vecs[static_cast<size_t>(index)];
    residency::MatrixSpec s;
    s.kind = residency::MatrixKind::kVector;
    s.file = v.file;
    s.offset = v.offset;
    s.rows = 1;
    s.row_bytes = static_cast<int64_t>(v.bytes);
    s.packed_group_bytes = v.n * static_cast<int64_t>(sizeof(float));
    out_.vec_item[static_cast<size_t>(index)] = static_cast<int32_t>(out_.specs.size());
    out_.specs.push_back(s);
  }

  void mat(int32_t index) {
    if (index < 0 || out_.mat_item[static_cast<size_t>(index)] >= 0) return;
    const model::Mat& m = p_.mats[static_cast<size_t>(index)];
    residency::MatrixSpec s;
    s.kind = index == p_.embedding && p_.embedding != p_.head ? residency::MatrixKind::kEmbedding
             : m.expert                                       ? residency::MatrixKind::kExpert
                                                              : residency::MatrixKind::kDense;
    s.file = m.file;
    s.offset = m.offset;
    s.rows = m.rows;
    s.row_bytes = m.row_bytes;
    s.packed_group_bytes = static_cast<int64_t>(table_.packed_group_bytes(m.type, m.cols));
    s.plain = m.plain;
    out_.mat_item[static_cast<size_t>(index)] = static_cast<int32_t>(out_.specs.size());
    out_.specs.push_back(s);
    mat(m.media);
  }

  WeightOrder& out_;
  int32_t mixtures_ = 0;  // so far
  const Program& p_;
  const kernels::Table& table_;
};

}  // namespace

WeightOrder weight_order(const Program& program, const kernels::Table& table) {
  WeightOrder out;
  static_cast<void>(Ordering(program, table, out));
  return out;
}

}  // namespace sluice::session
