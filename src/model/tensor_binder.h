// Adds the tensors of a file to a program: looks them up by their GGUF names and checks their
// shapes and types. The first error is kept; later calls do nothing.
#pragma once

#include <string>

#include "model/program.h"

namespace sluice::model {

class TensorBinder {
 public:
  TensorBinder(const gguf::Header& header, Program& program) : header_(header), p(program) {}

  const HParams& hp() const { return p.hp; }
  [[nodiscard]] const Status& status() const { return status_; }

  // Names are without the "blk.N." and ".weight".
  [[nodiscard]] bool has(int64_t layer, const char* name, const char* suffix = ".weight") const;
  // Rows of a matrix, capped; 0 if it is absent (looking it up reports the error).
  [[nodiscard]] int64_t rows_of(int64_t layer, const char* name) const;
  // A matrix [rows][cols]. If it is `optional` and absent, -1.
  int32_t mat(int64_t layer, const char* name, int64_t rows, int64_t cols, bool optional = false);
  // Gives each matrix of a layer the one that takes its place for the rows of pictures: `vis_NAME`,
  // of ffn_NAME too.
  void media_mats(int64_t layer);
  // A small tensor. `suffix` may be ".bias" or ".scale" instead of ".weight".
  int32_t vec(int64_t layer, const char* name, int64_t n, bool optional = false,
              const char* suffix = ".weight", float add = 0);

  // The first row of a small tensor whose rows have n_embd values.
  int32_t first_row(const char* name);
  // Rows [first, first + rows) of a matrix [all_rows][cols].
  int32_t mat_rows(int64_t layer, const char* name, int64_t all_rows, int64_t cols, int64_t first,
                   int64_t rows);
  // A tensor with rows of `columns` values in the file, [columns][n / columns] in memory.
  int32_t vec_transposed(int64_t layer, const char* name, int64_t n, int64_t columns,
                         const char* suffix = ".weight");

  // Layers from `first` on have names "<prefix>blk.<layer - first>...".
  void name_layers(const char* prefix, int64_t first) {
    prefix_ = prefix;
    first_layer_ = first;
  }

  // A table [n_vocab][cols] of which each token reads one row, `part` values at a time. Returns its
  // index.
  int32_t add_table(const char* name, int64_t cols, int64_t part);

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

 protected:
  void enter(int64_t layer);
  int32_t add_mat(const gguf::Tensor& tensor, int64_t first_row, int64_t rows, int64_t layer,
                  bool expert);
  // The tensor of a matrix whose type has a kernel; null if absent or wrong, after fail().
  const gguf::Tensor* matrix(int64_t layer, const char* name, int64_t rows, int64_t cols,
                             bool optional);
  [[nodiscard]] const gguf::Tensor* tensor(int64_t layer, const char* name,
                                           const char* suffix) const;

  const gguf::Header& header_;
  Program& p;

 private:
  [[nodiscard]] std::string full_name(int64_t layer, const char* name, const char* suffix) const;

  Status status_;
  const char* prefix_ = "";  // of layer names
  int64_t first_layer_ = 0;
  int64_t layer_ = -1;  // the current layer
  struct {              // sizes of the program's lists before a skipped layer
    size_t ops, mats, vecs, moes, by_head, marks;
  } before_{};
};

}  // namespace sluice::model
