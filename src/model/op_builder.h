// Adds single operations to a program: each call appends one, and the marks that `sluice dump`
// prints under llama.cpp's checkpoint names.
#pragma once

#include <initializer_list>

#include "model/tensor_binder.h"

namespace sluice::model {

// Columns of a buffer: groups of values from `col` on, `step` apart (0: all read the same group).
struct Columns {
  Buf buf;
  int64_t col = 0, step = 0;
  [[nodiscard]] Place place() const { return {buf, static_cast<int32_t>(col)}; }
};

class OpBuilder : public TensorBinder {
 public:
  using TensorBinder::TensorBinder;

  void embed(float scale, int32_t positions = -1, int32_t types = -1);
  // RMS norm or LayerNorm over n values (0: n_embd), by tensor name; uses the bias if present. No
  // name: without weights.
  void norm(int64_t layer, const char* name, Buf in, Buf out, NormKind kind = NormKind::kRms,
            const char* mark = nullptr, int64_t n = 0);
  Op& matmul(int64_t layer, Buf in, Buf out, std::initializer_list<MatPart> parts, bool add = false,
             float scale = 1);
  Op& add(int64_t layer, Buf in, Buf out, float scale = 1);
  void scale(int64_t layer, Buf in, Buf out, int64_t n, float by);
  // RMS norm of `heads` groups of n values; no name: without weights.
  Op& norm_at(int64_t layer, const char* name, Columns in, Columns out, int64_t n,
              int64_t heads = 1);
  void copy(int64_t layer, Columns in, Columns out, int64_t n, int64_t heads = 1);
  // Multiplies each group of `cols` values by its own one of the tensor's `heads` [rows][cols].
  void head_matmul(int64_t layer, const char* name, Columns in, Columns out, int64_t rows,
                   int64_t cols, int64_t heads);
  // From here on only rows whose logits are wanted, n values of kX. Call once, after the last layer
  // that stores anything of the other rows; otherwise head() does it.
  void select(int64_t n);
  // Appends an operation with these fields over n values per row. The next call invalidates the
  // reference.
  Op& op(int64_t layer, Buf in, Buf out, int64_t n, const OpFields& fields);
  Op& op(int64_t layer, Place in, Place out, int64_t n, const OpFields& fields);
  Op& last() { return p.ops.back(); }
  // Reserves `values` floats of the layer's state for the next operation.
  [[nodiscard]] Carried carry(int64_t layer, int64_t values) const;
  int32_t add_recurrence(const Recurrence& recurrence);
  // Makes a buffer at least `width` values wide.
  void widen(Buf buf, int64_t width);
  void mark(const char* name, const char* kind, int64_t layer, Buf buf, int64_t col, int64_t ne0,
            int64_t ne1 = 1, MarkPart part = MarkPart::kValue);
  // `factors`: use the tensors of RoPE factors, if present.
  int32_t add_rope(const RopeHParams& rope, bool factors = true);

 protected:
  void embed_tokens(float scale, int32_t positions = -1, int32_t types = -1);

 private:
  [[nodiscard]] int32_t factor(const MatPart& part);

  int64_t n_head_mats_ = 0;  // in all layers
  bool selected_ = false;
};

}  // namespace sluice::model
