// Collects the second moments of each matrix's inputs (convert/hessian.h). A matrix whose inputs
// are those of the matrix before it, as with queries, keys and values, shares that one's moments.
// An expert's come from the tokens routed to it; where these take too much memory, the experts of a
// layer have one in common.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "convert/hessian.h"
#include "convert/types.h"
#include "measure/imatrix_collector.h"
#include "session/session.h"

namespace sluice::measure {

// What is collected.
struct HessianPlan {
  uint64_t span = 0;      // columns
  bool by_expert = true;  // each expert has second moments of its own
  uint64_t bytes = 0;     // of all matrices, if none are shared
};

// The widest span whose second moments fit into half of the budget, and if none does, the widest
// with one for all experts of a layer. Errors: kBudgetTooSmall.
[[nodiscard]] Result<HessianPlan> plan_hessians(const gguf::Header& header, uint64_t budget);

class HessianCollector {
 public:
  HessianCollector(const gguf::Header& header, const HessianPlan& plan, int threads)
      : header_(header), plan_(plan), pool_(threads > 0 ? threads : default_thread_count()) {}

  // Inputs of `mat`: row t of n at x + t * ld.
  void add(const model::Mat& mat, const float* x, int64_t ld, int32_t n) {
    const gguf::Tensor* t = header_.find_tensor(mat.name);
    if (t == nullptr || static_cast<uint64_t>(mat.cols) != t->ne[0]) return;
    if (!convert::is_quantizable(*t)) return;
    const uint64_t matrices = plan_.by_expert ? t->ne[2] : 1;
    const uint64_t which = plan_.by_expert ? matrix_of(mat) : 0;
    if (which >= matrices) return;
    const Inputs inputs{static_cast<uint64_t>(mat.cols), n, checksum(mat, x, ld, n)};
    const bool same = inputs == last_inputs_;
    last_inputs_ = inputs;
    std::vector<Entry>& entries = by_name_[t->name];
    entries.resize(matrices);
    Entry& entry = entries[which];
    if (entry.hessian == nullptr) {
      entry.owns = !same;
      entry.hessian = same ? last_ : std::make_shared<convert::Hessian>(inputs.cols, plan_.span);
    }
    last_ = entry.hessian;
    if (entry.owns) entry.hessian->add(x, ld, n, &pool_);
  }

  [[nodiscard]] convert::Hessians hessians() const {
    convert::Hessians out;
    for (const auto& [name, entries] : by_name_) {
      convert::TensorHessians of;
      for (const Entry& entry : entries) of.push_back(entry.hessian);
      out.set(std::string(name), std::move(of));
    }
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
  HessianPlan plan_;
  ThreadPool pool_;
  std::map<std::string_view, std::vector<Entry>> by_name_;
  Inputs last_inputs_;
  std::shared_ptr<convert::Hessian> last_;
};

}  // namespace sluice::measure
