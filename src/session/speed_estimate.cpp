// Measures kernels, and computes how much of reading and computing overlaps.
#include "session/speed_estimate.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "base/clock.h"

namespace sluice::session {
namespace {

using model::Mat;

#if defined(__EMSCRIPTEN__)
constexpr uint64_t kSample = 48 << 20;
constexpr double kMeasureMs = 150;  // the browser recompiles hot code meanwhile
#else
constexpr uint64_t kSample = 128 << 20;  // larger than the caches, like a model
constexpr double kMeasureMs = 15;
#endif
// A block filled with this byte has no infinity or subnormal scale in any quantization type.
constexpr int kWeightByte = 0x3c;

bool by_rows(const model::Program& p, const Mat& m) {
  return p.by_rows(static_cast<size_t>(&m - p.mats.data()));
}

// The largest matrix of the type that accounts for most bytes.
const Mat* main_matrix(const model::Program& p) {
  std::map<kernels::Type, int64_t> bytes;
  for (const Mat& m : p.mats) {
    if (!by_rows(p, m)) bytes[m.type] += m.rows * m.row_bytes;
  }
  const Mat* best = nullptr;
  for (const Mat& m : p.mats) {
    if (by_rows(p, m)) continue;
    const auto worth = [&](const Mat& x) { return std::pair(bytes[x.type], x.rows * x.row_bytes); };
    if (best == nullptr || worth(m) > worth(*best)) best = &m;
  }
  return best;
}

// Multiplies one token with copies of a matrix of the model, as many as fit the sample.
class Bench {
 public:
  Bench(const Inspection& found, const Mat& m)
      : table_(*found.table), m_(m), pool_(found.plan.n_threads) {
    const int64_t total = std::max<int64_t>(
        1, static_cast<int64_t>(work_per_token(found.program).bytes) / (m.rows * m.row_bytes));
    group_bytes_ = static_cast<int64_t>(table_.packed_group_bytes(m.type, m.cols));
    const int64_t packed = (m.rows + table_.row_group - 1) / table_.row_group * group_bytes_;
    count_ = std::clamp<int64_t>(static_cast<int64_t>(kSample) / packed, 1, total);
    matrix_bytes_ = packed;
    scratch_stride_ = round_up_to_line(table_.matmul_scratch(m.type, m.cols));
  }

  [[nodiscard]] bool allocate() {
    const size_t cols = static_cast<size_t>(m_.cols);
    const size_t threads = static_cast<size_t>(pool_.n_threads());
    const bool there = weights_.allocate(static_cast<uint64_t>(count_ * matrix_bytes_)).ok() &&
                       x_.allocate(cols * sizeof(float)).ok() &&
                       q8_.allocate(table_.q8_bytes(m_.cols)).ok() &&
                       y_.allocate(static_cast<uint64_t>(m_.rows) * sizeof(float)).ok() &&
                       scratch_.allocate(scratch_stride_ * threads).ok();
    if (!there) return false;
    std::memset(weights_.data(), kWeightByte, weights_.size());
    for (size_t i = 0; i < cols; ++i) {
      x_.as<float>()[i] = static_cast<float>(static_cast<int>(i % 15) - 7);
    }
    table_.quantize_q8(x_.as<float>(), m_.cols, m_.cols, 1, q8_.data());
    return true;
  }

  // Bytes in the file's layout that are multiplied per millisecond, in the best of several runs.
  [[nodiscard]] double bytes_per_ms(bool packed) {
    const int64_t step = packed ? matrix_bytes_ : m_.rows * m_.row_bytes;
    const double start = monotonic_ms();
    double best = 0, now = start;
    for (int pass = 0; pass < 3 || now - start < kMeasureMs; ++pass) {
      for (int64_t i = 0; i < count_; ++i) product(weights_.as<uint8_t>() + i * step, packed);
      const double ms = monotonic_ms() - now;
      now += ms;
      if (ms > 0) best = std::max(best, static_cast<double>(count_ * m_.rows * m_.row_bytes) / ms);
      if (now - start > 10 * kMeasureMs) break;
    }
    return best;
  }

 private:
  void product(const uint8_t* data, bool packed) {
    const int64_t group = table_.row_group;
    const int64_t even = m_.rows / (pool_.n_threads() * kTasksPerThread);
    const int64_t chunk = (std::max<int64_t>(1, even) + group - 1) / group * group;
    pool_.parallel_for((m_.rows + chunk - 1) / chunk, [&](int64_t task, int thread) {
      kernels::MatmulArgs args{};
      args.w = {m_.type, packed, m_.rows, m_.cols, data};
      args.r0 = task * chunk;
      args.r1 = std::min(args.r0 + chunk, m_.rows);
      args.x = {x_.as<float>(), m_.cols, q8_.data(), 1};
      args.scale = 1;
      args.y = y_.as<float>();
      args.ldy = m_.rows;
      args.scratch = scratch_.as<uint8_t>() + static_cast<size_t>(thread) * scratch_stride_;
      table_.matmul(args);
    });
  }

  const kernels::Table& table_;
  const Mat& m_;
  ThreadPool pool_;
  int64_t count_ = 0, group_bytes_ = 0, matrix_bytes_ = 0;
  size_t scratch_stride_ = 0;
  AlignedBuffer weights_, x_, q8_, y_, scratch_;
};

// Bytes that a token reads of weights that are not pinned.
double streamed_per_token(const Inspection& found) {
  const model::HParams& hp = found.program.hp;
  const double used = hp.n_expert > 0
                          ? static_cast<double>(hp.n_expert_used) / static_cast<double>(hp.n_expert)
                          : 1;
  double bytes = 0;
  for (const residency::Unit& u : found.plan.weights.units) {
    if (u.pinned || u.kind == residency::MatrixKind::kEmbedding) continue;
    double share = u.kind == residency::MatrixKind::kExpert ? used : 1;
    if constexpr (model::kHeadInOrder) {
      const model::HeadClusters& clusters = found.program.head_clusters;
      const auto head = static_cast<size_t>(found.program.head);
      const bool by_cluster = clusters.in_order && u.matrix == found.plan.mat_item[head];
      if (by_cluster) share = clusters.share();
    }
    bytes += share * static_cast<double>(u.bytes);
  }
  return bytes;
}

}  // namespace

Prediction predict(const Inspection& found, const ReadSpeed& reading) {
  Prediction out;
  const Mat* m = main_matrix(found.program);
  if (m == nullptr) return out;
  Bench bench(found, *m);
  if (!bench.allocate()) return out;
  const double all = work_per_token(found.program).bytes;
  const double packed = bench.bytes_per_ms(true);
  if (packed <= 0) return out;
  out.compute_ms = all / packed;
  const double streamed = streamed_per_token(found);
  if (streamed == 0) {
    out.token_ms = out.compute_ms;
    return out;
  }
  const double plain = bench.bytes_per_ms(false);
  if (reading.bytes_per_second <= 0 || plain <= 0) return out;
  const double compute = (all - streamed) / packed + streamed / plain;
  const double read = streamed * 1000 / reading.bytes_per_second;
  // Reading and computing overlap as far as there are CPUs for both.
  const int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const double work = compute * std::min(found.plan.n_threads, cpus) + read * reading.busy;
  const int hands = reading.shared ? std::min(found.plan.n_threads, cpus) : cpus;
  out.token_ms = std::max({compute, reading.shared ? 0 : read, work / hands});
  return out;
}

void report_speed(const Inspection& found, const ReadSpeed& reading, const ReportSink& sink) {
  const auto rate = [&sink](const char* key, double value) {
    if (value > 0) sink("speed", key, value);
  };
  const Prediction p = predict(found, reading);
  rate("tokensPerSecond", p.token_ms > 0 ? 1000 / p.token_ms : 0);
  rate("computeTokensPerSecond", p.compute_ms > 0 ? 1000 / p.compute_ms : 0);
  rate("cacheBytesPerSecond", reading.bytes_per_second);
}

}  // namespace sluice::session
