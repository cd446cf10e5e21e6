// Runs the matrix multiplications of a forward pass over synthetic weights, and computes how much
// of reading and computing overlaps.
#include "session/speed_estimate.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "sample/sampler.h"
#include "session/compute_buffer.h"

namespace sluice::session {
namespace {

using model::Mat;

#if defined(__EMSCRIPTEN__)
constexpr uint64_t kSample = 48 << 20;
constexpr double kMeasureMs = 100;  // the browser recompiles hot code meanwhile
#else
constexpr uint64_t kSample = 128 << 20;  // larger than most caches, like a model
constexpr double kMeasureMs = 20;
#endif
// A block filled with this byte has no infinity or subnormal scale in any quantization type.
constexpr int kWeightByte = 0x3c;

// Rows of a matrix that a forward pass multiplies with one token.
struct Piece {
  const Mat* mat = nullptr;
  int64_t rows = 0;
};

// What one operation does: matrix multiplications in one parallel region, or other work, which is
// charged like quantizing `values` values.
struct Work {
  size_t first = 0, count = 0;  // pieces
  int64_t values = 0;
  int64_t tasks = 0;  // attention: heads in a parallel region of their own
};

// Runs one token through the program: the matrix multiplications with their shapes, types and
// order, over weights that lie one behind another like a model's.
class PassBenchmark {
 public:
  explicit PassBenchmark(const Inspection& found)
      : table_(*found.table), program_(found.program), pool_(found.plan.threads.n_threads) {
    const size_t end =
        program_.head >= 0 ? static_cast<size_t>(program_.pool) : program_.ops.size();
    for (size_t i = static_cast<size_t>(program_.decoder); i < end; ++i) {
      if (program_.ops[i].layer < program_.hp.n_layer) add(program_.ops[i]);
    }
  }

  [[nodiscard]] bool allocate() {
    const size_t threads = static_cast<size_t>(pool_.n_threads());
    uint64_t all = 0, largest = 0;
    for (const Piece& p : pieces_) {
      const uint64_t bytes = piece_bytes(p, true);
      all += bytes;
      largest = std::max(largest, bytes);
      cols_ = std::max(cols_, p.mat->cols);
      rows_ = std::max(rows_, p.rows);
      const size_t scratch = table_.matmul_scratch(p.mat->type, p.mat->cols);
      scratch_stride_ = std::max(scratch_stride_, round_up_to_line(scratch));
    }
    for (const Work& w : work_) cols_ = std::max(cols_, w.values);
    if (all == 0) return false;
    const size_t cols = static_cast<size_t>(cols_);
    const bool there = weights_.allocate(std::max(largest, std::min(all, kSample))).ok() &&
                       x_.allocate(cols * sizeof(float)).ok() &&
                       q8_.allocate(table_.q8_bytes(cols_)).ok() &&
                       y_.allocate(static_cast<uint64_t>(rows_) * sizeof(float)).ok() &&
                       scratch_.allocate(scratch_stride_ * threads).ok();
    if (!there) return false;
    std::memset(weights_.data(), kWeightByte, weights_.size());
    for (size_t i = 0; i < cols; ++i) {
      x_.as<float>()[i] = static_cast<float>(static_cast<int>(i % 15) - 7);
    }
    return true;
  }

  // Milliseconds of a pass: the best of several, or a part of one that takes long, scaled by its
  // share of the bytes. `packed`: as weights in memory are, else as they are in the file.
  [[nodiscard]] double pass_ms(bool packed) {
    at_ = 0;
    const double start = monotonic_ms();
    double best = 0, now = start;
    for (int pass = 0; now - start < kMeasureMs || pass < 2; ++pass) {
      double done = 0;
      const double began = now;
      for (const Work& w : work_) {
        done += run(w, packed);
        now = monotonic_ms();
        if (now - began > kMeasureMs && done > 0) break;
      }
      const double ms = (now - began) * (bytes_ / done);
      if (ms > 0 && (best == 0 || ms < best)) best = ms;
    }
    return best;
  }

 private:
  void add(const model::Op& op) {
    const size_t first = pieces_.size();
    const auto use = [this](int32_t mat) {
      if (mat < 0) return;
      const Mat& m = program_.mats[static_cast<size_t>(mat)];
      // A matrix larger than the sample is multiplied in pieces.
      const auto group = static_cast<int64_t>(table_.row_group);
      const auto fit = static_cast<int64_t>(kSample / table_.packed_group_bytes(m.type, m.cols));
      const int64_t most = std::max<int64_t>(1, fit) * group;
      auto left = static_cast<int64_t>(m.share * static_cast<double>(m.rows));
      for (; left > 0; left -= most) {
        pieces_.push_back({&m, std::min(left, most)});
        bytes_ += static_cast<double>(pieces_.back().rows * m.row_bytes);
      }
    };
    const auto end = [&](size_t from, int64_t values, int64_t tasks) {
      work_.push_back({from, pieces_.size() - from, values, tasks});
    };
    if (const auto* product = op.get<model::MatmulOp>()) {
      for (const model::MatPart& part : product->parts()) use(part.mat);
    } else if (const auto* heads = op.get<model::HeadMatmulOp>()) {
      for (const int32_t mat : program_.by_head[static_cast<size_t>(heads->by_head)]) use(mat);
    } else if (const auto* mixture = op.get<model::MoeOp>()) {
      const model::Moe& moe = program_.moes[static_cast<size_t>(mixture->moe)];
      for (size_t e = 0; e < static_cast<size_t>(moe.n_used) && e < moe.up.size(); ++e) {
        const size_t at = pieces_.size();
        if (e < moe.gate.size()) use(moe.gate[e]);
        use(moe.up[e]);
        end(at, op.n, 0);
        const size_t down = pieces_.size();
        use(moe.down[e]);
        end(down, moe.n_ff, 0);
      }
      return;
    }
    const auto* attention = op.get<model::AttentionOp>();
    end(first, op.n, attention != nullptr ? attention->att.kv_heads : 0);
  }

  [[nodiscard]] uint64_t piece_bytes(const Piece& p, bool packed) const {
    const int64_t group = table_.row_group;
    const auto groups = static_cast<uint64_t>((p.rows + group - 1) / group);
    const uint64_t bytes = packed ? groups * table_.packed_group_bytes(p.mat->type, p.mat->cols)
                                  : static_cast<uint64_t>(p.rows * p.mat->row_bytes);
    return round_up_to_line(bytes);
  }

  // Returns the bytes that it multiplied.
  double run(const Work& work, bool packed) {
    const std::span<const Piece> pieces(pieces_.data() + work.first, work.count);
    const int64_t cols = pieces.empty() ? work.values : pieces[0].mat->cols;
    if (cols > 0) table_.quantize_q8(x_.as<float>(), cols, cols, 1, q8_.data());
    if (work.tasks > 0) pool_.parallel_for(work.tasks, [](int64_t, int) {});
    if (pieces.empty()) return 0;
    const int64_t group = table_.row_group;
    int64_t rows = 0;
    for (const Piece& p : pieces) rows += p.rows;
    const int64_t even = rows / (pool_.n_threads() * kTasksPerThread);
    const int64_t least = kTaskWork / cols;
    const int64_t chunk = (std::max({int64_t{1}, even, least}) + group - 1) / group * group;
    double bytes = 0;
    tasks_.clear();
    for (const Piece& p : pieces) {
      const uint64_t size = piece_bytes(p, packed);
      if (at_ + size > weights_.size()) at_ = 0;
      for (int64_t r = 0; r < p.rows; r += chunk) {
        kernels::MatmulArgs args{};
        args.w = {p.mat->type, packed, p.rows, p.mat->cols, weights_.as<uint8_t>() + at_};
        args.r0 = r;
        args.r1 = std::min(r + chunk, p.rows);
        args.x = {x_.as<float>(), cols, q8_.data(), 1};
        args.scale = 1;
        args.y = y_.as<float>();
        args.ldy = p.rows;
        tasks_.push_back(args);
      }
      at_ += size;
      bytes += static_cast<double>(p.rows * p.mat->row_bytes);
    }
    pool_.parallel_for(static_cast<int64_t>(tasks_.size()), [this](int64_t task, int thread) {
      kernels::MatmulArgs args = tasks_[static_cast<size_t>(task)];
      args.scratch = scratch_.as<uint8_t>() + static_cast<size_t>(thread) * scratch_stride_;
      table_.matmul(args);
    });
    return bytes;
  }

  const kernels::Table& table_;
  const model::Program& program_;
  ThreadPool pool_;
  std::vector<Piece> pieces_;
  std::vector<Work> work_;
  std::vector<kernels::MatmulArgs> tasks_;
  double bytes_ = 0;  // of all pieces, in the file's layout
  int64_t cols_ = 0, rows_ = 0;
  uint64_t at_ = 0;  // of the next piece in weights_
  size_t scratch_stride_ = 0;
  AlignedBuffer weights_, x_, q8_, y_, scratch_;
};

// Milliseconds to sample a token with the default parameters.
double sample_ms(int64_t n_vocab) {
  constexpr int kTimes = 3;
  sample::Sampler sampler({}, n_vocab);
  AlignedBuffer memory;
  const auto n = static_cast<size_t>(n_vocab);
  if (!sampler.allocated() || !memory.allocate(n * sizeof(float)).ok()) return 0;
  const std::span<float> logits(memory.as<float>(), n);
  uint32_t random = 1;
  for (float& x : logits) {  // a sum of uniform values, roughly normal
    x = 0;
    for (int i = 0; i < 4; ++i) {
      random = random * 1664525 + 1013904223;
      x += static_cast<float>(random >> 8) * 0x1p-23f - 1;
    }
  }
  double best = 0;
  for (int i = 0; i < kTimes; ++i) {
    const double start = monotonic_ms();
    if (sampler.sample(logits, {}) == sample::kNoToken) return 0;
    const double ms = monotonic_ms() - start;
    if (i == 0 || ms < best) best = ms;
  }
  return best;
}

}  // namespace

Prediction predict(const Inspection& found, const ReadSpeed& reading,
                   std::optional<double> hit_rate) {
  Prediction out;
  out.streamed = streamed_bytes(found);
  out.hit_rate = hit_rate.value_or(out.streamed.in_memory);
  PassBenchmark benchmark(found);
  if (!benchmark.allocate()) return out;
  const double sampling = sample_ms(found.program.hp.n_vocab);
  const double packed = benchmark.pass_ms(true);
  if (packed <= 0) return out;
  out.compute_ms = packed + sampling;
  const double streamed = out.streamed.per_token(out.hit_rate);
  if (streamed == 0) {
    out.token_ms = out.compute_ms;
    return out;
  }
  if (reading.bytes_per_second <= 0) return out;
  // Streaming promises no more than weights in memory, however the measurements vary.
  const double plain = std::max(packed, benchmark.pass_ms(false));
  const double all = work_per_token(found.program).bytes;
  const double share = std::min(1.0, streamed / all);
  const double compute = packed + (plain - packed) * share + sampling;
  const double read = streamed * 1000 / reading.bytes_per_second;
  // A router's choice is known late: its missing experts are read while the others are computed.
  const double missing = read - out.streamed.dense * 1000 / reading.bytes_per_second;
  const double experts = compute * std::min(1.0, out.streamed.experts / all);
  const double waiting = reading.shared ? 0 : std::max(0.0, missing - experts);
  // Reading and computing overlap as far as there are CPUs for both.
  const int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const double work = compute * std::min(found.plan.threads.n_threads, cpus) + read * reading.busy;
  const int hands = reading.shared ? std::min(found.plan.threads.n_threads, cpus) : cpus;
  out.token_ms = std::max({compute + waiting, reading.shared ? 0 : read, work / hands});
  return out;
}

void report_speed(const Inspection& found, const ReadSpeed& reading, const ReportSink& sink,
                  std::optional<double> hit_rate) {
  const auto put = [&sink](const char* key, double value) {
    if (value >= 0) sink("speed", key, value);
  };
  const auto rate = [](double ms) { return ms > 0 ? 1000 / ms : -1; };
  const Prediction p = predict(found, reading, hit_rate);
  put("tokensPerSecond", rate(p.token_ms));
  put("computeTokensPerSecond", rate(p.compute_ms));
  put("cacheBytesPerSecond", reading.bytes_per_second > 0 ? reading.bytes_per_second : -1);
  if (found.program.moes.empty()) return;
  put("expertsInMemory", p.streamed.in_memory);
  put("expertHitRate", p.hit_rate);
  put("bytesReadPerToken", p.streamed.per_token(p.hit_rate));
}

}  // namespace sluice::session
