// Names checkpoints and recomputes what kernels do not store.
#include "session/eval_callback.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "session/attention.h"

namespace sluice::session {

using model::AttentionOp;
using model::Buf;
using model::Op;

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

// Saves the buffer that an operation will add to, so that checkpoints can show the addend alone.
void EvalCallback::before(const CpuBatch& cx, const Op& op) {
  if (!observer_) return;
  if (const auto* product = op.get<model::MatmulOp>(); product == nullptr || !product->add) return;
  const float* x = cx.buffer(op.out);
  before_.assign(x, x + cx.rows * cx.width(op.out));
}

void EvalCallback::after(CpuBatch& cx, size_t at) {
  if (!observer_) return;
  const model::Program& p = cx.program;
  const int32_t op = static_cast<int32_t>(at);
  // Scores are not shown for layers that use another layer's KV cache or relative position biases.
  const Op& done = p.ops[at];
  const auto* own = done.get<AttentionOp>();
  if (own != nullptr && own->att.owned_by(done.layer) && own->relative < 0) {
    attention(cx, done.layer, *own);
  }
  while (mark_ < p.marks.size() && p.marks[mark_].op < op) ++mark_;
  for (; mark_ < p.marks.size() && p.marks[mark_].op == op; ++mark_) {
    const model::Mark& m = p.marks[mark_];
    const float* data = cx.buffer(m.buf) + m.col;
    const int64_t stride = cx.width(m.buf);
    if (m.part == model::MarkPart::kAddend) {
      for (int64_t i = 0; i < cx.rows * stride; ++i) {
        before_[static_cast<size_t>(i)] = data[i] - before_[static_cast<size_t>(i)];
      }
      data = before_.data();
    } else if (m.part == model::MarkPart::kUnweighted) {
      unweighted_norm(cx, p.ops[at]);
      data = before_.data();
    }
    observer_(checkpoint_name(m.name, m.layer, m.kind).c_str(), m.ne0, m.ne1, cx.rows, data,
              stride);
  }
}

// Recomputes an RMS norm without its weight, which the kernel does not store.
void EvalCallback::unweighted_norm(const CpuBatch& cx, const Op& op) {
  const int64_t ld = cx.width(op.in);
  before_.assign(static_cast<size_t>(cx.rows * ld), 0);
  for (int32_t t = 0; t < cx.rows; ++t) {
    const float* x = cx.buffer(op.in) + t * ld;
    double sum = 0;
    for (int32_t i = 0; i < op.n; ++i) sum += static_cast<double>(x[i]) * x[i];
    const double factor = 1 / std::sqrt(sum / op.n + cx.program.hp.norm.eps);
    for (int32_t i = 0; i < op.n; ++i) {
      before_[static_cast<size_t>(t * ld + i)] = static_cast<float>(x[i] * factor);
    }
  }
}

// Attention of an observed pass, in double precision over the batch's f32 keys and values (an
// observed pass starts at position 0). Checkpoints then show no rounding of the KV cache; with a
// quantized cache, the pass itself continues with attention over the cache. Emits
// kq [n_kv][tokens][heads], the raw scores; kq_soft_max, the probabilities; kqv
// [dv][tokens][heads].
void EvalCallback::attention(CpuBatch& cx, int32_t layer, const AttentionOp& op) {
  const int32_t dk = op.att.dk, dv = op.att.dv, n = cx.rows;
  const int32_t n_head = op.att.heads, n_kv_head = op.att.kv_heads;
  const size_t pairs = static_cast<size_t>(n_head) * static_cast<size_t>(n);
  std::vector<float> scores(pairs * static_cast<size_t>(n)), probabilities(scores.size());
  std::vector<float> mixed(pairs * static_cast<size_t>(dv));
  std::vector<float> rest(static_cast<size_t>(dv));
  const bool quantized = !cx.plan.kv.types.f16();
  const int64_t ld = cx.width(Buf::kQkv);
  const double scale = op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<double>(dk));
  const auto score = [&](int32_t head, int32_t distance, float dot) {
    double x = static_cast<double>(dot) * scale;
    if (op.softcap != 0) x = op.softcap * (1 - 2 / (std::exp(2 * x / op.softcap) + 1));
    return op.alibi != 0 ? x - static_cast<double>(alibi_slope(op, head)) * std::abs(distance) : x;
  };
  for (int32_t h = 0; h < n_head; ++h) {
    const float* keys = cx.buffer(Buf::kQkv) + (n_head + h / (n_head / n_kv_head)) * dk;
    const float* values = op.att.values_in_keys
                              ? keys
                              : cx.buffer(Buf::kQkv) + op.att.values() + h / op.att.group() * dv;
    for (int32_t t = 0; t < n; ++t) {
      const size_t at = static_cast<size_t>(h * n + t);
      float* s = &scores[at * static_cast<size_t>(n)];
      float* p = &probabilities[at * static_cast<size_t>(n)];
      const float* q = cx.buffer(Buf::kQkv) + t * ld + h * dk;
      double max = cx.sink(op, h), sum = 0;
      for (int32_t j = 0; j < n; ++j) {
        double dot = 0;
        for (int32_t i = 0; i < dk; ++i) dot += static_cast<double>(q[i]) * keys[j * ld + i];
        s[j] = static_cast<float>(dot);
      }
      const int32_t begin = window_begin(op, t), end = window_end(op, t, n);
      for (int32_t j = begin; j < end; ++j) max = std::max(max, score(h, t - j, s[j]));
      for (int32_t j = begin; j < end; ++j) sum += std::exp(score(h, t - j, s[j]) - max);
      if (op.sinks >= 0) sum += std::exp(cx.sink(op, h) - max);
      for (int32_t j = begin; j < end; ++j) {
        p[j] = static_cast<float>(std::exp(score(h, t - j, s[j]) - max) / sum);
      }
      float* out =
          quantized ? rest.data() : cx.buffer(Buf::kAtt) + t * cx.width(Buf::kAtt) + h * dv;
      for (int32_t i = 0; i < dv; ++i) {
        double value = 0;
        for (int32_t j = begin; j < end; ++j)
          value += static_cast<double>(p[j]) * values[j * ld + i];
        out[i] = mixed[at * static_cast<size_t>(dv) + static_cast<size_t>(i)] =
            static_cast<float>(value);
      }
    }
  }
  const auto emit = [&](const char* name, const char* kind, int32_t ne0, const float* data) {
    observer_(checkpoint_name(name, layer, kind).c_str(), ne0, n, n_head, data,
              static_cast<int64_t>(n) * ne0);
  };
  emit("kq", "MUL_MAT", n, scores.data());
  emit("kq_soft_max", "SOFT_MAX", n, probabilities.data());
  emit("kqv", "MUL_MAT", dv, mixed.data());
}

}  // namespace sluice::session
