// Reads both formats of imatrix files and writes the newer one. The older format is a count of
// entries; each has a name, a number of calls and the sums of means, all 32-bit. The newer format
// is a GGUF file with two tensors per matrix, NAME.in_sum2 and NAME.counts. Source: llama.cpp,
// tools/imatrix and tools/quantize (MIT).
#include "convert/imatrix.h"

#include <cstring>

#include "gguf/metadata_writer.h"
#include "gguf/printable.h"
#include "gguf/write.h"

namespace sluice::convert {
namespace {

constexpr int32_t kMaxEntries = 1 << 17;
constexpr int32_t kMaxNameBytes = 1 << 10;
constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

// Reads the older format with bounds checks.
struct Reader {
  gguf::Bytes rest;

  [[nodiscard]] bool number(int32_t* out) {
    if (rest.size() < 4) return false;
    std::memcpy(out, rest.data(), 4);
    rest = rest.subspan(4);
    return true;
  }
};

Status cut() {
  return error(Code::kTruncated, "the importance matrix ends inside an entry");
}
Status impossible() {
  return error(Code::kBadHeader,
               "this is not an importance matrix: the length of an entry is out of range");
}

std::vector<float> floats_at(const uint8_t* bytes, uint64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  if (n > 0) std::memcpy(out.data(), bytes, out.size() * 4);
  return out;
}

Status parse_old(gguf::Bytes file, Imatrix* out) {
  Reader in{file};
  int32_t n = 0;
  if (!in.number(&n)) return cut();
  if (n < 1 || n > kMaxEntries) return impossible();
  for (int32_t i = 0; i < n; ++i) {
    int32_t length = 0, calls = 0, count = 0;
    if (!in.number(&length)) return cut();
    if (length < 1 || length > kMaxNameBytes) return impossible();
    if (in.rest.size() < static_cast<size_t>(length)) return cut();
    std::string name(reinterpret_cast<const char*>(in.rest.data()), static_cast<size_t>(length));
    in.rest = in.rest.subspan(static_cast<size_t>(length));
    if (!in.number(&calls) || !in.number(&count)) return cut();
    if (count < 1) return impossible();
    if (in.rest.size() / 4 < static_cast<size_t>(count)) return cut();
    std::vector<float> moments = floats_at(in.rest.data(), static_cast<uint64_t>(count));
    in.rest = in.rest.subspan(static_cast<size_t>(count) * 4);
    for (float& m : moments) m = calls > 0 ? m / static_cast<float>(calls) : m;
    SLUICE_RETURN_IF_ERROR(out->set(std::move(name), std::move(moments)));
  }
  return {};
}

Status parse_gguf(gguf::Bytes file, Imatrix* out) {
  gguf::Header header;
  const Result<gguf::ParseProgress> parsed = gguf::parse_header(file, file.size(), &header);
  if (!parsed.ok()) return parsed.status();
  if (!parsed->done) return cut();
  for (const gguf::Tensor& t : header.tensors) {
    if (!t.name.ends_with(kSums)) continue;
    const std::string name(t.name.substr(0, t.name.size() - kSums.size()));
    const gguf::Tensor* counts = header.find_tensor(name + std::string(kCounts));
    const auto f32 = [](const gguf::Tensor& x) { return x.type == gguf::TensorType::kF32; };
    if (counts == nullptr || !f32(t) || !f32(*counts) ||
        counts->ne[0] * counts->rows() != t.rows()) {
      return error(Code::kBadHeader, "the importance matrix has no matching counts for \"%s\"",
                   gguf::printable(name).c_str());
    }
    std::vector<float> moments = floats_at(file.data() + t.offset, t.bytes / 4);
    const std::vector<float> by = floats_at(file.data() + counts->offset, counts->bytes / 4);
    for (size_t i = 0; i < moments.size(); ++i) {
      const float n = by[i / t.ne[0]];
      moments[i] = n > 0 ? moments[i] / n : 1;  // 1: an expert that was never selected
    }
    SLUICE_RETURN_IF_ERROR(out->set(name, std::move(moments)));
  }
  if (out->size() > 0) return {};
  return error(Code::kBadHeader, "this GGUF file is not an importance matrix");
}

}  // namespace

Result<Imatrix> Imatrix::parse(gguf::Bytes file) {
  Imatrix out;
  const bool newer = file.size() >= 4 && std::memcmp(file.data(), "GGUF", 4) == 0;
  SLUICE_RETURN_IF_ERROR(newer ? parse_gguf(file, &out) : parse_old(file, &out));
  return out;
}

Status Imatrix::set(std::string name, std::vector<float> moments) {
  for (const float m : moments) {
    if (m >= 0 && m <= 3.402823466e38f) continue;
    return error(Code::kBadWeights, "the importance of \"%s\" has a negative or non-finite value",
                 gguf::printable(name).c_str());
  }
  double sum = 0;
  for (const float m : moments) sum += m;
  const auto least = static_cast<float>(1e-3 * sum / static_cast<double>(moments.size()));
  for (float& m : moments) m = m < least ? least : m;
  by_name_.insert_or_assign(std::move(name), std::move(moments));
  return {};
}

Result<const std::vector<float>*> Imatrix::find(const gguf::Tensor& tensor) const {
  const auto found = by_name_.find(tensor.name);
  if (found == by_name_.end()) return nullptr;
  const size_t n = found->second.size();
  if (n == tensor.ne[0] || n == tensor.ne[0] * tensor.ne[2]) return &found->second;
  return error(
      Code::kBadShape, "the importance of \"%s\" has %zu values, but its matrix has %llu columns",
      gguf::printable(tensor.name).c_str(), n, static_cast<unsigned long long>(tensor.ne[0]));
}

std::string Imatrix::file(std::string_view dataset) const {
  gguf::Header header;
  header.version = 3;
  header.alignment = 32;
  gguf::MetadataWriter writer(&header);
  writer.string("general.type", "imatrix");
  std::string datasets;
  gguf::MetadataWriter::append_string(&datasets, dataset);
  writer.strings("imatrix.datasets", 1, std::move(datasets));
  writer.number("imatrix.chunk_count", uint32_t{1});
  writer.number("imatrix.chunk_size", uint32_t{1});
  const auto add = [&](const std::string& name, uint64_t values) {
    gguf::Tensor t;
    t.name = writer.keep_text(name);
    t.type = gguf::TensorType::kF32;
    t.n_dims = 1;
    t.ne[0] = values;
    t.bytes = 4 * values;
    header.tensors.push_back(t);
  };
  for (const auto& [name, moments] : by_name_) {
    add(name + std::string(kSums), moments.size());
    add(name + std::string(kCounts), 1);
  }
  std::string out = gguf::place_and_write(&header);
  const auto put = [&](const float* values, size_t n) {
    out.append(reinterpret_cast<const char*>(values), 4 * n);
    out.resize((out.size() + 31) / 32 * 32);
  };
  constexpr float kOnce = 1;  // one count, so that the means are the sums
  for (const auto& [name, moments] : by_name_) {
    put(moments.data(), moments.size());
    put(&kOnce, 1);
  }
  return out;
}

uint64_t Imatrix::bytes() const {
  uint64_t n = 0;
  for (const auto& [name, moments] : by_name_) n += name.size() + moments.size() * 4;
  return n;
}

}  // namespace sluice::convert
