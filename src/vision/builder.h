// Makes programs: finds tensors, checks their shapes, and has the parts that families share. The
// first tensor that is missing or wrong becomes the status, and names it.
#pragma once

#include <string>

#include "media/projector.h"
#include "vision/program.h"

namespace sluice::vision {

// A row of the table of families (families.cpp).
struct Traits {
  const char* type;  // clip.projector_type
  NormKind norm = NormKind::kLayer;
  Order order = Order::kRaster;
  Positions positions = Positions::kNone;
  Rope rope = Rope::kNone;
  bool norm_after = false;   // of attention and FFN, instead of before
  bool post_norm = false;    // v.post_ln behind the blocks
  bool two_convs = false;    // two patch matrices, on the same picture
  bool unit_scale = false;   // attention scores are not divided by sqrt(D)
  bool value_norm = false;   // RMS norm of the values, without weight
  bool shifted = false;      // pixels are 2x - 1
  bool own_patches = false;  // the family's function begins with the patches
};

class Builder {
 public:
  Builder(const gguf::Header& header, const media::Projector& projector, const Traits& traits);

  // --- tensors -------------------------------------------------------------------------------
  [[nodiscard]] bool has(const std::string& name) const;
  // A matrix of `cols` inputs; rows 0: any number. Errors leave index 0.
  int32_t mat(const std::string& name, int64_t rows, int64_t cols, bool plain = false);
  int32_t vec(const std::string& name, int64_t n);
  // -1 where there is none.
  int32_t optional_vec(const std::string& name, int64_t n);
  [[nodiscard]] int64_t rows_of(int32_t mat) const;
  [[nodiscard]] int64_t rows_of(const std::string& name) const;  // 0: there is none
  void fail(const Status& status);
  [[nodiscard]] const Status& status() const { return status_; }

  // --- operations ----------------------------------------------------------------------------
  Op& op(OpKind kind, Buf in, Buf out);
  // NAME.weight with NAME.bias where there is one, and the clamps of NAME, into columns from
  // out_col on of `total`. Returns the matrix' rows.
  int64_t matmul(const std::string& name, Buf in, int64_t cols, Buf out, int64_t rows = 0,
                 int64_t out_col = 0, int64_t total = 0);
  void norm(const std::string& name, Buf in, Buf out, int64_t n, NormKind kind, float eps);
  void activation(Activation act, Buf out) { op(OpKind::kActivation, out, out).act = act; }
  void gated(Activation act, Buf gate, Buf out);
  void merge(int32_t side, bool channels_first, Buf in, Buf out);
  void emit(Buf in, int64_t rows);

  // --- parts ---------------------------------------------------------------------------------
  void patches();
  void blocks(int32_t first, int32_t end);
  void post_norm();
  void attention(const std::string& prefix, const std::string& norm, Reach reach);
  void deepstack(int32_t layer);

  [[nodiscard]] int64_t width() const { return width_; }
  [[nodiscard]] float eps() const { return projector.norm_epsilon; }
  [[nodiscard]] Activation block_activation() const { return activation_; }

  const gguf::Header& header;
  const media::Projector& projector;
  const Traits& traits;
  Program program;
  int32_t n_deepstack = 0;

 private:
  const gguf::Tensor* find(const std::string& name);
  void qkv(const std::string& prefix);
  void ffn(const std::string& prefix);
  void add_back(const std::string& scale, const std::string& post_norm, const std::string& norm);
  [[nodiscard]] bool deepens(int32_t layer) const;
  [[nodiscard]] Reach reach_of(int32_t layer) const;
  void clamp(const std::string& name, Buf in, Buf out, int64_t col, int64_t n);

  int64_t width_ = 0;
  Activation activation_ = Activation::kGeluQuick;
  uint64_t window_pattern_ = 0;
  Status status_;
};

// The program of a projector. Errors: kNotSupported (its type has no encoder, named),
// kMissingTensor, kBadShape, kUnsupportedType, kBadHeader.
[[nodiscard]] Result<Program> build(const gguf::Header& header, const media::Projector& projector);

}  // namespace sluice::vision
