// Split models ("-00001-of-00003.gguf"): reads the number of files from the first one, and merges
// the tensors of the others into it. Metadata of the later files is only checked.
#include "gguf/gguf.h"

namespace sluice::gguf {

Result<uint32_t> split_count(const Header& first) {
  const Value* value = first.find("split.count");
  if (value == nullptr) return uint32_t{1};
  const std::optional<uint64_t> count = value->as_u64();
  if (!count || *count > kMaxSplits) {
    return error(Code::kBadHeader, "split.count is not a number between 1 and %u", kMaxSplits);
  }
  if (*count <= 1) return uint32_t{1};
  if (const uint64_t no = first.get_u64("split.no").value_or(0); no != 0) {
    return error(Code::kInvalidArgument,
                 "this is file %llu of a model in %llu files; name the first one",
                 static_cast<unsigned long long>(no + 1), static_cast<unsigned long long>(*count));
  }
  return static_cast<uint32_t>(*count);
}

Status merge_split(Header* model, const Header& part, uint32_t index) {
  const Result<uint32_t> count = split_count(*model);
  if (!count.ok()) return count.status();
  if (index == 0 || index >= *count || index != model->n_files) {
    return error(Code::kInvalidArgument, "split %u does not follow the %u files read so far", index,
                 model->n_files);
  }
  if (part.get_u64("split.no") != index || part.get_u64("split.count") != *count) {
    return error(Code::kBadHeader, "file %u of %u has the split.no or split.count of another part",
                 index + 1, *count);
  }
  if (part.tensors.size() > kMaxTensorCount - model->tensors.size()) {
    return error(Code::kBadHeader, "the files together have more than %llu tensors",
                 static_cast<unsigned long long>(kMaxTensorCount));
  }
  for (Tensor t : part.tensors) {
    t.file = index;
    model->tensors.push_back(t);
  }
  model->n_files++;
  SLUICE_RETURN_IF_ERROR(index_tensors(model));
  if (index + 1 == *count) {
    const Value* total = model->find("split.tensors.count");
    if (total != nullptr && total->as_u64() != model->tensors.size()) {
      return error(Code::kBadHeader,
                   "this model's files have %zu tensors, which differs from split.tensors.count",
                   model->tensors.size());
    }
  }
  return {};
}

}  // namespace sluice::gguf
