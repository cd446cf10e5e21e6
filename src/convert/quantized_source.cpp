// A read quantizes the blocks it covers; the first and the last may be partial.
#include "convert/quantized_source.h"

#include <algorithm>
#include <cstring>

#include "convert/chunks.h"
#include "convert/quantize.h"

namespace sluice::convert {
namespace {

using gguf::Tensor;
using T = gguf::TensorType;

constexpr T kCandidates[] = {T::kIQ1_S,  T::kIQ1_M, T::kIQ2_XXS, T::kIQ2_XS, T::kIQ2_S, T::kIQ3_XXS,
                             T::kIQ3_S,  T::kQ1_0,  T::kQ2_0,    T::kNVFP4,  T::kQ2_K,  T::kQ3_K,
                             T::kIQ4_XS, T::kQ4_K,  T::kQ5_K,    T::kQ6_K,   T::kQ4_0,  T::kIQ4_NL,
                             T::kQ5_0,   T::kQ5_1,  T::kQ8_0};
constexpr T kQsfCandidates[] = {T::kQSFT, T::kQSF2, T::kQSF3, T::kQSF4};
constexpr uint64_t kAlignment = 64;

}  // namespace

std::vector<T> types_for(const Tensor& tensor, const TypeFilter& filter) {
  std::vector<T> types;
  if (!is_quantizable(tensor) || !Source::readable(tensor.type)) return types;
  const auto bytes = [&tensor](T type) {
    const gguf::TypeInfo& info = *gguf::type_info(type);
    return tensor.ne[0] * tensor.rows() / info.block_size * info.block_bytes;
  };
  const auto consider = [&](T type) {
    const bool fits = tensor.ne[0] % gguf::type_info(type)->block_size == 0;
    const bool known = filter.has_imatrix || !needs_imatrix(tensor.name, type, nullptr);
    if (fits && known && bytes(type) < tensor.bytes) types.push_back(type);
  };
  std::ranges::for_each(kCandidates, consider);
  if (filter.qsf) std::ranges::for_each(kQsfCandidates, consider);
  std::stable_sort(types.begin(), types.end(), [&](T a, T b) { return bytes(a) < bytes(b); });
  return types;
}

Result<Tensor> QuantizedSource::add(const Tensor& tensor, T type,
                                    const std::vector<float>* importance, uint32_t file) {
  Part part{tensor, tensor, importance};
  part.as.type = type;
  SLUICE_RETURN_IF_ERROR(gguf::set_tensor_bytes(&part.as));
  part.as.file = file;
  part.as.offset = size_;
  size_ = (size_ + part.as.bytes + kAlignment - 1) / kAlignment * kAlignment;
  parts_.push_back(part);
  return part.as;
}

Status QuantizedSource::read(uint64_t offset, std::span<uint8_t> out) {
  std::vector<uint8_t> stored(kSubstitutePiece * Source::kMaxValueBytes);
  std::vector<uint8_t> made(kSubstitutePiece * 4);
  std::vector<float> x(kSubstitutePiece), w(kSubstitutePiece, 1);
  while (!out.empty()) {
    const auto behind =
        std::upper_bound(parts_.begin(), parts_.end(), offset,
                         [](uint64_t at, const Part& part) { return at < part.as.offset; });
    if (behind == parts_.begin() || offset >= size_) {
      return error(Code::kInternal, "a read beyond the end of the quantized tensors");
    }
    const Part& part = *(behind - 1);
    const gguf::TypeInfo& info = *gguf::type_info(part.as.type);
    const uint64_t at = offset - part.as.offset;
    if (at >= part.as.bytes) {  // padding between two tensors
      const uint64_t gap = (behind == parts_.end() ? size_ : behind->as.offset) - offset;
      const auto n = static_cast<size_t>(std::min<uint64_t>(out.size(), gap));
      std::memset(out.data(), 0, n);
      out = out.subspan(n);
      offset += n;
      continue;
    }
    const uint64_t first_block = at / info.block_bytes, cut = at % info.block_bytes;
    const uint64_t n_blocks = std::min(
        {kSubstitutePiece / info.block_size, part.as.bytes / info.block_bytes - first_block,
         (cut + out.size() + info.block_bytes - 1) / info.block_bytes});
    // The source's blocks may be larger; read whole ones.
    const uint64_t whole = gguf::type_info(part.from.type)->block_size;
    const uint64_t first = first_block * info.block_size, lead = first % whole;
    uint64_t n = lead + n_blocks * info.block_size;
    n = std::min((n + whole - 1) / whole * whole, kSubstitutePiece);
    SLUICE_RETURN_IF_ERROR(from_.read(part.from, first - lead, n, stored, x.data()));
    if (part.importance != nullptr) weigh(part.from, *part.importance, first - lead, n, w.data());
    const uint64_t values = (n - lead) / info.block_size * info.block_size;
    const uint64_t use = std::min(values, n_blocks * info.block_size);
    best_quantizers().of(static_cast<kernels::Type>(part.as.type))(
        x.data() + lead, w.data() + lead, static_cast<int64_t>(use), made.data());
    const uint64_t bytes = use / info.block_size * info.block_bytes;
    const auto copied = static_cast<size_t>(std::min<uint64_t>(out.size(), bytes - cut));
    std::memcpy(out.data(), made.data() + cut, copied);
    out = out.subspan(copied);
    offset += copied;
  }
  return {};
}

}  // namespace sluice::convert
