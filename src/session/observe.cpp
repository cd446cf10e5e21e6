// Checkpoints for `sluice dump`: hands the marks of the operation just done to the observer, and
// recomputes what the fused attention never materialises (scores and probabilities).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "session/session.h"

namespace sluice::session {

using model::Op;
using model::OpKind;

namespace {

std::string checkpoint_name(const char* name, int32_t layer, const char* kind) {
  char text[96];
  if (layer < 0) {
    std::snprintf(text, sizeof text, "%s.%s", name, kind);
  } else {
    std::snprintf(text, sizeof text, "%s-%d.%s", name, layer, kind);
  }
  return text;
}

}  // namespace

void Session::observe_marks() {
  if (!observer_) return;
  const model::Program& p = engine_.program();
  const int32_t op = static_cast<int32_t>(pc_);
  if (p.ops[pc_].kind == OpKind::kAttention) observe_attention(p.ops[pc_]);
  while (mark_ < p.marks.size() && p.marks[mark_].op < op) ++mark_;
  for (; mark_ < p.marks.size() && p.marks[mark_].op == op; ++mark_) {
    const model::Mark& m = p.marks[mark_];
    observer_(checkpoint_name(m.name, m.layer, m.kind).c_str(), m.ne0, m.ne1, rows_,
              engine_.buffer(m.buf) + m.col, engine_.width(m.buf));
  }
}

// kq: [n_kv][tokens][heads] raw products, kq_soft_max: probabilities, kqv: [dv][tokens][heads].
void Session::observe_attention(const Op& op) {
  const model::HParams& hp = engine_.program().hp;
  const int32_t dk = static_cast<int32_t>(hp.head_dim_k), dv = static_cast<int32_t>(hp.head_dim_v);
  const int32_t n_head = static_cast<int32_t>(hp.n_head);
  const int32_t group = static_cast<int32_t>(hp.n_head / hp.kv_heads(op.layer));
  const int32_t n_kv = position_ + rows_;
  std::vector<float> scores(static_cast<size_t>(n_head) * static_cast<size_t>(rows_ * n_kv));
  std::vector<float> probabilities(scores.size());
  std::vector<float> mixed(static_cast<size_t>(n_head) * static_cast<size_t>(rows_ * dv));
  std::vector<float> row(static_cast<size_t>(std::max(dk, dv)));
  const float scale =
      op.scale != 0 ? op.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(dk)));
  for (int32_t h = 0; h < n_head; ++h) {
    for (int32_t t = 0; t < rows_; ++t) {
      const size_t at = static_cast<size_t>(h * rows_ + t);
      float* s = &scores[at * static_cast<size_t>(n_kv)];
      float* p = &probabilities[at * static_cast<size_t>(n_kv)];
      const float* q = engine_.buffer(op.in) + t * engine_.width(op.in) + h * dk;
      const int32_t begin = window_begin(op, position_ + t), end = position_ + t + 1;
      double sum = 0, max = -INFINITY;
      for (int32_t j = 0; j < n_kv; ++j) {
        engine_.table().f16_to_f32(kv_.keys(op.layer, h / group) + static_cast<int64_t>(j) * dk, dk,
                                   row.data());
        double dot = 0;
        for (int32_t i = 0; i < dk; ++i)
          dot += static_cast<double>(q[i]) * row[static_cast<size_t>(i)];
        s[j] = static_cast<float>(dot);
      }
      const auto score = [&](int32_t j) {
        const double x = static_cast<double>(s[j]) * scale;
        return op.softcap != 0 ? op.softcap * std::tanh(x / op.softcap) : x;
      };
      for (int32_t j = begin; j < end; ++j) max = std::max(max, score(j));
      for (int32_t j = begin; j < end; ++j) sum += std::exp(score(j) - max);
      float* out = &mixed[at * static_cast<size_t>(dv)];
      for (int32_t j = begin; j < end; ++j) {
        p[j] = static_cast<float>(std::exp(score(j) - max) / sum);
        engine_.table().f16_to_f32(kv_.values(op.layer, h / group) + static_cast<int64_t>(j) * dv,
                                   dv, row.data());
        for (int32_t i = 0; i < dv; ++i) out[i] += p[j] * row[static_cast<size_t>(i)];
      }
    }
  }
  observer_(checkpoint_name("kq", op.layer, "MUL_MAT").c_str(), n_kv, rows_, n_head, scores.data(),
            static_cast<int64_t>(rows_) * n_kv);
  observer_(checkpoint_name("kq_soft_max", op.layer, "SOFT_MAX").c_str(), n_kv, rows_, n_head,
            probabilities.data(), static_cast<int64_t>(rows_) * n_kv);
  observer_(checkpoint_name("kqv", op.layer, "MUL_MAT").c_str(), dv, rows_, n_head, mixed.data(),
            static_cast<int64_t>(rows_) * dv);
}

}  // namespace sluice::session
