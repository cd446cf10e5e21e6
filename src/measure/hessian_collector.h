// Collects the second moments of each matrix's inputs (convert/hessian.h). A matrix whose inputs
// are those of the matrix before it, as with queries, keys and values, shares that one's moments.
// Experts have none: few tokens reach each of them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "convert/hessian.h"
#include "convert/types.h"
#include "session/session.h"

namespace sluice::measure {

class HessianCollector {
 public:
  HessianCollector(const gguf::Header& header, uint64_t span, int threads)
      : header_(header), span_(span), pool_(threads > 0 ? threads : default_thread_count()) {}

  // The matrices that have second moments.
  [[nodiscard]] static bool covers(const gguf::Tensor& tensor) {
    return tensor.ne[2] == 1 && convert::is_quantizable(tensor);
  }

  // Inputs of `mat`: row t of n at x + t * ld.
  void add(const model::Mat& mat, const float* x, int64_t ld, int32_t n) {
    const gguf::Tensor* t = header_.find_tensor(mat.name);
    if (t == nullptr || static_cast<uint64_t>(mat.cols) != t->ne[0] || !covers(*t)) return;
    const Inputs inputs{static_cast<uint64_t>(mat.cols), n, checksum(mat, x, ld, n)};
    const bool same = inputs == last_inputs_;
    last_inputs_ = inputs;
    auto [found, isnew] = by_name_.try_emplace(t->name);
    Entry& entry = found->second;
    if (isnew) {
      entry.owns = !same;
      entry.hessian =
          same ? last_ : std::make_shared<convert::Hessian>(static_cast<uint64_t>(mat.cols), span_);
    }
    last_ = entry.hessian;
    if (entry.owns) entry.hessian->add(x, ld, n, &pool_);
  }

  [[nodiscard]] convert::Hessians hessians() const {
    convert::Hessians out;
    for (const auto& [name, entry] : by_name_) out.set(std::string(name), entry.hessian);
    return out;
  }

 private:
  struct Inputs {
    uint64_t cols = 0;
    int32_t n = 0;
    uint64_t checksum = 0;
    bool operator==(const Inputs&) const = default;
  };
  struct Entry {
    std::shared_ptr<convert::Hessian> hessian;
    bool owns = false;
  };

  static uint64_t checksum(const model::Mat& mat, const float* x, int64_t ld, int32_t n) {
    Hash64 hash;
    for (int32_t t = 0; t < n; ++t) {
      hash.add(std::string_view(reinterpret_cast<const char*>(x + t * ld),
                                static_cast<size_t>(mat.cols) * sizeof(float)));
    }
    return hash.value();
  }

  const gguf::Header& header_;
  uint64_t span_;
  ThreadPool pool_;
  std::map<std::string_view, Entry> by_name_;
  Inputs last_inputs_;
  std::shared_ptr<convert::Hessian> last_;
};

}  // namespace sluice::measure
