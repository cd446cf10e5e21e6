// Compares values in double precision, in one pass over the reference.
#include "measure/checkpoints.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <system_error>

namespace sluice::measure {
namespace {

namespace fs = std::filesystem;

bool is_scores(const Checkpoint& checkpoint) {
  return checkpoint.name.starts_with("kq-") || checkpoint.name.starts_with("kq_soft_max");
}

// Names become file names, so they must not contain a path.
bool is_plain(const std::string& name) {
  return name.find('/') == std::string::npos && name.find('\\') == std::string::npos &&
         !name.starts_with('.');
}

bool parse_line(const std::string& line, Checkpoint* out) {
  std::istringstream fields(line);
  if (!(fields >> out->name >> out->op) || !is_plain(out->name)) return false;
  uint64_t total = 1;
  for (uint64_t& n : out->ne) {
    if (!(fields >> n) || n == 0 || n > kMaxCheckpointValues / total) return false;
    total *= n;
  }
  std::string more;
  return !(fields >> more);
}

std::string shape_text(const Checkpoint& c) {
  std::ostringstream text;
  text << c.ne[0] << " x " << c.ne[1] << " x " << c.ne[2] << " x " << c.ne[3];
  return text.str();
}

// Sums over pairs of values, from which all measures are computed.
class Sums {
 public:
  void add(double ours, double reference) {
    const double difference = ours - reference;
    squared_error_ += difference * difference;
    our_squares_ += ours * ours;
    reference_squares_ += reference * reference;
    products_ += ours * reference;
    largest_ = std::max(largest_, std::fabs(difference));
    finite_ = finite_ && std::isfinite(difference);
    ++n_;
  }

  [[nodiscard]] Difference result() const {
    Difference d;
    d.n_compared = n_;
    if (!finite_) {
      d.nmse = d.mse = d.largest = std::numeric_limits<double>::infinity();
      d.cosine = 0;
      return d;
    }
    if (n_ == 0) return d;
    d.largest = largest_;
    d.mse = squared_error_ / static_cast<double>(n_);
    if (reference_squares_ > 0) {
      d.nmse = squared_error_ / reference_squares_;
    } else if (squared_error_ > 0) {
      d.nmse = std::numeric_limits<double>::infinity();
    }
    const double lengths = std::sqrt(our_squares_) * std::sqrt(reference_squares_);
    if (lengths > 0) d.cosine = products_ / lengths;
    return d;
  }

 private:
  double squared_error_ = 0, our_squares_ = 0, reference_squares_ = 0, products_ = 0, largest_ = 0;
  uint64_t n_ = 0;
  bool finite_ = true;
};

}  // namespace

Result<std::vector<Checkpoint>> read_index(const fs::path& folder) {
  const fs::path path = folder / "index.txt";
  std::error_code failed;
  const uint64_t size = fs::file_size(path, failed);
  if (failed) return error(Code::kNotFound, "%s does not exist", path.string().c_str());
  if (size > kMaxIndexBytes)
    return error(Code::kBadHeader, "the index %s is too large", path.string().c_str());
  std::ifstream file(path);
  std::vector<Checkpoint> checkpoints;
  int n = 0;
  for (std::string line; std::getline(file, line);) {
    ++n;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Checkpoint checkpoint;
    if (!parse_line(line, &checkpoint)) {
      return error(Code::kBadHeader, "%s, line %d: expected a name, an operation and four sizes",
                   path.string().c_str(), n);
    }
    checkpoints.push_back(std::move(checkpoint));
  }
  return checkpoints;
}

Result<std::vector<float>> read_values(const fs::path& folder, const Checkpoint& checkpoint) {
  const fs::path path = folder / (checkpoint.name + ".f32");
  std::error_code failed;
  const uint64_t size = fs::file_size(path, failed);
  if (failed) return error(Code::kNotFound, "%s does not exist", path.string().c_str());
  if (size != checkpoint.n_values() * sizeof(float)) {
    return error(Code::kBadShape, "%s has %llu bytes, which is not the size of %s values",
                 path.string().c_str(), static_cast<unsigned long long>(size),
                 shape_text(checkpoint).c_str());
  }
  std::vector<float> values(checkpoint.n_values());
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(size));
  if (!file) return error(Code::kIo, "cannot read %s", path.string().c_str());
  return values;
}

Result<Difference> compare_values(const Checkpoint& ours, const std::vector<float>& our_values,
                                  const Checkpoint& reference,
                                  const std::vector<float>& reference_values) {
  const bool scores = is_scores(reference);
  const bool padded = scores && ours.ne[0] < reference.ne[0];
  const bool same_rows = ours.n_values() * reference.ne[0] == reference.n_values() * ours.ne[0];
  // A reshape moves no data: without padding only the number of values must agree.
  if (padded ? !same_rows : ours.n_values() != reference.n_values()) {
    return error(Code::kBadShape, "our shape is %s, the reference's is %s",
                 shape_text(ours).c_str(), shape_text(reference).c_str());
  }
  const uint64_t n_cols = reference.ne[0], n_our_cols = padded ? ours.ne[0] : n_cols;
  Sums sums;
  for (uint64_t i = 0; i < reference_values.size(); ++i) {
    const uint64_t row = i / n_cols, col = i % n_cols;
    if (scores && col < n_our_cols && col > row % reference.ne[1]) continue;
    const double our_value = col < n_our_cols ? our_values[row * n_our_cols + col] : 0.0f;
    sums.add(our_value, reference_values[i]);
  }
  return sums.result();
}

}  // namespace sluice::measure
