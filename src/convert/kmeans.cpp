// Lloyd's iterations over a sample of the rows, then one pass over all of them.
#include "convert/kmeans.h"

#include <algorithm>
#include <cmath>

#include "base/aligned.h"

namespace sluice::convert {
namespace {

constexpr uint64_t kMaxClusters = 256;
constexpr uint64_t kMaxSamples = 8192;
constexpr int kIterations = 8;
constexpr int64_t kVectorsAtOnce = 64;             // vectors processed at a time
constexpr uint64_t kBlock = 32, kBlockBytes = 34;  // of Q8_0

// Finds the nearest of n centres.
class Nearest {
 public:
  Nearest(int64_t n, int64_t cols, uint64_t max_over_even)
      : n_(n),
        cols_(cols),
        max_over_even_(max_over_even),
        table_(kernels::best()),
        lengths_(static_cast<size_t>(n)) {
    products_.resize(static_cast<size_t>(n * kVectorsAtOnce));
    allocated_ = scratch_.allocate(table_.matmul_scratch(kernels::Type::kF32, cols));
  }
  [[nodiscard]] const Status& status() const { return allocated_; }
  void set(const std::vector<float>& centres) {
    centres_ = centres.data();
    for (size_t i = 0; i < lengths_.size(); ++i) {
      double squares = 0;
      for (int64_t c = 0; c < cols_; ++c) {
        const double x = centres_[static_cast<int64_t>(i) * cols_ + c];
        squares += x * x;
      }
      lengths_[i] = static_cast<float>(squares);
    }
  }
  // Resets the capacity of each cluster, for `vectors` vectors in total.
  void make_room(uint64_t vectors) {
    const auto n = static_cast<uint64_t>(n_);
    room_.assign(n, max_over_even_ == 0 ? vectors : (max_over_even_ * vectors + n - 1) / n);
  }
  // Assigns at most kVectorsAtOnce vectors, each of which uses up one place of its cluster.
  void find(const float* rows, int64_t count, uint8_t* out) {
    kernels::MatmulArgs args{};
    args.w = {kernels::Type::kF32, false, n_, cols_, centres_};
    args.r1 = n_;
    args.x = {rows, cols_, nullptr, static_cast<int32_t>(count)};
    args.scale = 2;
    args.y = products_.data();
    args.ldy = n_;
    args.scratch = scratch_.data();
    table_.matmul(args);
    for (int64_t t = 0; t < count; ++t) {
      const float* y = products_.data() + t * n_;
      size_t best = 0;
      float nearest = -HUGE_VALF;
      for (size_t i = 0; i < room_.size(); ++i) {
        if (room_[i] == 0 || y[i] - lengths_[i] < nearest) continue;
        nearest = y[i] - lengths_[i];
        best = i;
      }
      --room_[best];
      out[t] = static_cast<uint8_t>(best);
    }
  }

 private:
  int64_t n_, cols_;
  uint64_t max_over_even_;
  const kernels::Table& table_;
  const float* centres_ = nullptr;
  std::vector<float> lengths_, products_;  // squared lengths; dot products
  std::vector<uint64_t> room_;
  AlignedBuffer scratch_;
  Status allocated_;
};

uint64_t clusters_of(uint64_t rows, const Grouping& grouping) {
  return std::clamp<uint64_t>(rows / grouping.min_members, 1, kMaxClusters);
}

// Reads vectors spread evenly over the tensor.
Status read_samples(const Source& model, const gguf::Tensor& tensor, std::vector<float>* out) {
  const uint64_t cols = tensor.cols(), n = std::min(tensor.rows(), kMaxSamples);
  std::vector<uint8_t> room(cols * Source::kMaxValueBytes);
  out->resize(n * cols);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t row = i * tensor.rows() / n;
    SLUICE_RETURN_IF_ERROR(model.read(tensor, row * cols, cols, room, out->data() + i * cols));
  }
  return {};
}

// Initial centres are samples. A cluster that loses all members keeps its centre.
void iterate(const std::vector<float>& samples, size_t cols, Nearest* nearest,
             std::vector<float>* centres) {
  const size_t n = centres->size() / cols, n_samples = samples.size() / cols;
  for (size_t i = 0; i < n; ++i) {
    std::copy_n(samples.data() + i * n_samples / n * cols, cols, centres->data() + i * cols);
  }
  std::vector<double> sums(centres->size());
  std::vector<uint64_t> members(n);
  uint8_t of[kVectorsAtOnce];
  for (int round = 0; round < kIterations; ++round) {
    nearest->set(*centres);
    nearest->make_room(n_samples);
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(members.begin(), members.end(), 0);
    for (size_t at = 0; at < n_samples; at += kVectorsAtOnce) {
      const size_t count = std::min<size_t>(kVectorsAtOnce, n_samples - at);
      nearest->find(samples.data() + at * cols, static_cast<int64_t>(count), of);
      for (size_t i = 0; i < count; ++i) {
        ++members[of[i]];
        double* to = sums.data() + of[i] * cols;
        for (size_t c = 0; c < cols; ++c)
          to[c] += static_cast<double>(samples[(at + i) * cols + c]);
      }
    }
    for (size_t i = 0; i < centres->size(); ++i) {
      if (members[i / cols] == 0) continue;
      (*centres)[i] = static_cast<float>(sums[i] / static_cast<double>(members[i / cols]));
    }
  }
}

// Takes a tensor's bytes in file format, in chunks of any size, and assigns each vector.
class Members {
 public:
  Members(const gguf::Tensor& tensor, gguf::TensorType type, const std::vector<float>& centres,
          Nearest* nearest)
      : type_(type), cols_(tensor.cols()), centres_(centres), nearest_(nearest) {
    const gguf::TypeInfo& info = *gguf::type_info(type);
    row_bytes_ = cols_ / info.block_size * info.block_bytes;
    rows_.resize(kVectorsAtOnce * cols_);
    squares_.resize(centres.size() / cols_);
  }
  Status take(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const size_t n = std::min<size_t>(bytes.size(), row_bytes_ - begun_.size());
      begun_.insert(begun_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
      bytes = bytes.subspan(n);
      if (begun_.size() < row_bytes_) break;
      kernels::best().dequantize(static_cast<kernels::Type>(type_), begun_.data(),
                                 static_cast<int64_t>(cols_), rows_.data() + held_ * cols_);
      begun_.clear();
      if (++held_ == kVectorsAtOnce) flush();
    }
    return {};
  }
  void flush() {
    if (held_ == 0) return;
    uint8_t of[kVectorsAtOnce];
    nearest_->find(rows_.data(), static_cast<int64_t>(held_), of);
    for (size_t i = 0; i < held_; ++i) {
      double squares = 0;
      for (size_t c = 0; c < cols_; ++c) {
        const double d = static_cast<double>(rows_[i * cols_ + c]) -
                         static_cast<double>(centres_[of[i] * cols_ + c]);
        squares += d * d;
      }
      squares_[of[i]] = std::max(squares_[of[i]], squares);
      cluster_of.push_back(static_cast<char>(of[i]));
    }
    held_ = 0;
  }
  [[nodiscard]] std::vector<float> radii() const {
    std::vector<float> out;
    for (const double s : squares_) {
      out.push_back(std::nextafter(static_cast<float>(std::sqrt(s)), HUGE_VALF));
    }
    return out;
  }

  std::string cluster_of;

 private:
  gguf::TensorType type_;
  size_t cols_, row_bytes_ = 0, held_ = 0;
  const std::vector<float>& centres_;
  Nearest* nearest_;
  std::vector<uint8_t> begun_;
  std::vector<float> rows_;
  std::vector<double> squares_;
};

}  // namespace

uint64_t clustering_memory(const gguf::Tensor& tensor, const Grouping& grouping) {
  const uint64_t n = clusters_of(tensor.rows(), grouping),
                 samples = std::min(tensor.rows(), kMaxSamples);
  const uint64_t vectors = samples + 2 * n + kVectorsAtOnce;  // f32
  return (vectors * 4 + n * (8 + 2)) * tensor.cols() + 10 * tensor.rows();
}

uint64_t clusters_bytes(const gguf::Tensor& tensor, const Grouping& grouping) {
  constexpr uint64_t kKeys = 512;
  const uint64_t blocks = tensor.cols() / kBlock;
  return kKeys + tensor.rows() + clusters_of(tensor.rows(), grouping) * (blocks * kBlockBytes + 4);
}

Result<KMeansClusters> find_clusters(const Source& model, const gguf::Tensor& tensor,
                                     gguf::TensorType type, const std::vector<float>* importance,
                                     const Grouping& grouping, ChunkMaker* maker) {
  const uint64_t n = clusters_of(tensor.rows(), grouping), cols = tensor.cols();
  Nearest nearest(static_cast<int64_t>(n), static_cast<int64_t>(cols), grouping.max_over_even);
  SLUICE_RETURN_IF_ERROR(nearest.status());
  std::vector<float> centres(n * cols);
  {
    std::vector<float> samples;
    SLUICE_RETURN_IF_ERROR(read_samples(model, tensor, &samples));
    iterate(samples, cols, &nearest, &centres);
  }
  KMeansClusters out;
  out.centres.assign(n * cols / kBlock * kBlockBytes, '\0');
  auto* bytes = reinterpret_cast<uint8_t*>(out.centres.data());
  const std::vector<float> ones(centres.size(), 1);
  best_quantizers().of(kernels::Type::kQ8_0)(centres.data(), ones.data(),
                                             static_cast<int64_t>(centres.size()), bytes);
  kernels::best().dequantize(kernels::Type::kQ8_0, bytes, static_cast<int64_t>(centres.size()),
                             centres.data());
  nearest.set(centres);
  nearest.make_room(tensor.rows());
  Members members(tensor, type, centres, &nearest);
  TensorReport unused;
  SLUICE_RETURN_IF_ERROR(maker->make(
      tensor, type, importance, [&](std::span<const uint8_t> piece) { return members.take(piece); },
      &unused));
  members.flush();
  out.radii = members.radii();
  out.of = std::move(members.cluster_of);
  return out;
}

}  // namespace sluice::convert
