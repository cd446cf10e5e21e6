// Tokens are added four at a time, and each thread owns some rows of a triangle.
#include "convert/hessian.h"

#include <algorithm>
#include <set>

#include "convert/gptq.h"
#include "convert/quantize.h"

namespace sluice::convert {
namespace {

constexpr uint64_t kRowsATask = 32;

uint64_t triangle_size(uint64_t n) {
  return n * (n + 1) / 2;
}

}  // namespace

uint64_t Hessian::bytes_for(uint64_t cols, uint64_t span) {
  return (cols / span * triangle_size(span) + triangle_size(cols % span)) * sizeof(float);
}

Hessian::Hessian(uint64_t cols, uint64_t span)
    : cols_(cols), span_(span), sums_(bytes_for(cols, span) / sizeof(float)) {}

std::span<const float> Hessian::triangle(uint64_t index) const {
  return std::span(sums_).subspan(index * triangle_size(span_), triangle_size(span_cols(index)));
}

void Hessian::add(const float* x, int64_t ld, int32_t n, ThreadPool* pool) {
  const Quantizers quantizers = best_quantizers();
  tokens_ += n;
  const auto tasks = static_cast<int64_t>((cols_ + kRowsATask - 1) / kRowsATask);
  pool->parallel_for(tasks, [&](int64_t task, int) {
    const uint64_t first = static_cast<uint64_t>(task) * kRowsATask;
    const uint64_t last = std::min(cols_, first + kRowsATask);
    for (uint64_t col = first; col < last; col += 4) {
      const uint64_t index = col / span_;
      quantizers.add_products(x + index * span_, ld, n, static_cast<int64_t>(span_cols(index)),
                              static_cast<int64_t>(col % span_),
                              sums_.data() + index * triangle_size(span_));
    }
  });
}

void Hessian::add(const Hessian& other, double factor) {
  tokens_ += factor * other.tokens_;
  const auto by = static_cast<float>(factor);
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += by * other.sums_[i];
}

std::unique_ptr<Hessian> sum_of(const TensorHessians& experts) {
  std::unique_ptr<Hessian> sum;
  for (const auto& expert : experts) {
    if (expert == nullptr) continue;
    if (sum == nullptr) sum = std::make_unique<Hessian>(expert->cols(), expert->span());
    sum->add(*expert, 1);
  }
  return sum;
}

Hessian with_prior(const Hessian* expert, const Hessian& all) {
  Hessian out(all.cols(), all.span());
  if (all.tokens() > 0) out.add(all, kPriorTokens / all.tokens());
  if (expert != nullptr) out.add(*expert, 1);
  return out;
}

void Hessians::set(std::string name, TensorHessians hessians) {
  by_name_.insert_or_assign(std::move(name), std::move(hessians));
}

const TensorHessians* Hessians::find(const gguf::Tensor& tensor) const {
  const auto found = by_name_.find(tensor.name);
  if (found == by_name_.end()) return nullptr;
  const TensorHessians& hessians = found->second;
  if (hessians.size() != 1 && hessians.size() != tensor.ne[2]) return nullptr;
  const auto fits = [&tensor](const auto& h) { return h == nullptr || h->cols() == tensor.ne[0]; };
  const auto is = [](const auto& h) { return h != nullptr; };
  return std::ranges::all_of(hessians, fits) && std::ranges::any_of(hessians, is) ? &hessians
                                                                                  : nullptr;
}

uint64_t Hessians::bytes() const {
  std::set<const Hessian*> seen;
  uint64_t bytes = 0;
  for (const auto& [name, hessians] : by_name_) {
    for (const auto& hessian : hessians) {
      if (hessian != nullptr && seen.insert(hessian.get()).second) bytes += hessian->bytes();
    }
  }
  return bytes;
}

uint64_t Hessians::factor_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, hessians] : by_name_) {
    const uint64_t besides = hessians.size() > 1 ? 2 : 0;
    for (const auto& hessian : hessians) {
      if (hessian == nullptr) continue;
      bytes = std::max(bytes, SpanFactors::bytes_for(*hessian) + besides * hessian->bytes());
    }
  }
  return bytes;
}

uint64_t Hessians::max_cols() const {
  uint64_t cols = 0;
  for (const auto& [name, hessians] : by_name_) {
    for (const auto& hessian : hessians) {
      if (hessian != nullptr) cols = std::max(cols, hessian->cols());
    }
  }
  return cols;
}

}  // namespace sluice::convert
