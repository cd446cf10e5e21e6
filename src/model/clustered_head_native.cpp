// Uses the copy of the output head that the file stores in cluster order.
#include "gguf/head_clusters.h"
#include "model/head_clusters.h"
#include "model/program.h"

namespace sluice::model {

Status take_head_in_order(const gguf::Header& header, HeadClusters* clusters, Program* program) {
  const gguf::Tensor* t = header.find_tensor(gguf::kHeadByCluster);
  if (t == nullptr || clusters->most == 0 || clusters->most == clusters->n()) return {};
  Mat head = program->mats[static_cast<size_t>(program->head)];
  if (t->n_dims != 2 || t->type != static_cast<gguf::TensorType>(head.type) ||
      t->cols() != static_cast<uint64_t>(head.cols) ||
      t->rows() != static_cast<uint64_t>(head.rows)) {
    return error(Code::kBadHeader,
                 "the tensor %s does not have the type and shape of the output head",
                 std::string(t->name).c_str());
  }
  head.name = std::string(t->name);
  head.file = t->file;
  head.offset = t->offset;
  if (program->head != program->embedding) {
    program->mats[static_cast<size_t>(program->head)] = std::move(head);
    clusters->in_order = true;
    return {};
  }
  const auto mat = static_cast<int32_t>(program->mats.size());
  for (Op& op : program->ops) {
    auto* product = std::get_if<MatmulOp>(&op.fields);
    if (product != nullptr && op.out == Buf::kLogits) product->all[0].mat = mat;
  }
  program->head = mat;
  program->mats.push_back(std::move(head));
  clusters->in_order = true;
  return {};
}

}  // namespace sluice::model
