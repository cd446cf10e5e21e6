// Writes QSF: the embedding, each layer, experts side by side if asked for, tensors that the format
// has no section for (such as the exact final norm), the final section, and then the front, whose
// space was left free because sizes and checksums are known last. The same steps compute a file's
// size, counting bytes instead of writing.
#include <algorithm>
#include <optional>

#include "base/round_up.h"
#include "convert/expert_records.h"
#include "convert/layout.h"
#include "convert/qsf_header.h"
#include "kernels/reference/reference.h"
#include "qsf/codec.h"
#include "qsf/crc32.h"

namespace sluice::convert {
namespace {

using gguf::Header;
using gguf::Tensor;
using gguf::TensorType;
using qsf::Compression;

constexpr uint64_t kLayerAlignment = 4096;

enum Part : int32_t { kEmbedding, kLayer, kRecords, kElse, kHead };

// "blk.7." of "blk.7.attn_q.weight"; empty for a tensor outside the layers.
std::string_view layer_key(std::string_view name) {
  const size_t stack = name.starts_with("enc.") || name.starts_with("dec.") ? 4 : 0;
  if (layer_of(name.substr(stack)) < 0) return {};
  return name.substr(0, name.find('.', stack + 4) + 1);
}

// The header of a tensor within a layer, with its name if the format has no code for it.
Bytes tensor_header(const Tensor& t) {
  Bytes out;
  const int32_t code = qsf::tensor_code(t.name);
  out.put(code < 0 ? qsf::kNamed + static_cast<uint32_t>(t.name.size())
                   : static_cast<uint32_t>(code));
  out.put(static_cast<uint32_t>(t.rows()));
  out.put(static_cast<uint32_t>(t.cols()));
  out.put(qsf_type_code(t.type));
  out.pad_to(qsf::kTensorHeaderBytes);
  if (code < 0) out.put_text(t.name);
  out.pad_to(qsf::tensor_header_bytes(t.name));
  return out;
}

class QsfLayout final : public Layout {
 public:
  QsfLayout(Packing packing, bool expert_records)
      : packing_(packing), expert_records_(expert_records) {}

  [[nodiscard]] int32_t place(std::string_view tensor) const override {
    if (tensor == "token_embd.weight") return kEmbedding;
    if (in_records(tensor)) return kRecords;
    if (!layer_key(tensor).empty()) return kLayer;
    return tensor == "output.weight" ? kHead : kElse;
  }
  [[nodiscard]] bool takes_clusters() const override { return true; }
  [[nodiscard]] uint64_t memory(const Header& source) const override;
  [[nodiscard]] uint64_t front_bytes(const Header& header) const override {
    return front_of(header).bytes();
  }
  [[nodiscard]] Result<uint64_t> file_bytes(Header* header, uint64_t front) const override;
  [[nodiscard]] Status begin(Header* header, Output* output) override;
  [[nodiscard]] Status start(size_t i) override;
  [[nodiscard]] Status write(std::span<const uint8_t> bytes) override;
  [[nodiscard]] Status finish() override;

 private:
  struct Counts {
    uint32_t layers = 0, others = 1;  // the final section always exists
    uint64_t group_bytes = 0;         // of the table of experts
  };
  [[nodiscard]] Counts counts_of(const Header& header) const;
  [[nodiscard]] QsfHeaderWriter front_of(const Header& header) const {
    const Counts n = counts_of(header);
    return {header, n.layers, n.others, n.group_bytes};
  }
  [[nodiscard]] bool in_records(std::string_view tensor) const {
    return expert_records_ && has_experts(tensor) && !layer_key(tensor).empty();
  }
  [[nodiscard]] Status open(size_t i);
  [[nodiscard]] Status close();
  [[nodiscard]] Status close_all();
  [[nodiscard]] Status put(std::span<const uint8_t> bytes);
  void advance(uint64_t n);
  [[nodiscard]] Status put_zeros(uint64_t to);
  [[nodiscard]] Status store(std::span<const uint8_t> bytes);
  [[nodiscard]] Status pack(std::span<const uint8_t> bytes);
  [[nodiscard]] Status begin_final(const Tensor* head);
  [[nodiscard]] Compression compression_of(size_t first) const;
  [[nodiscard]] uint64_t alignment() const {
    return std::max(header_->alignment, qsf::kTensorAlignment);
  }
  [[nodiscard]] uint32_t count(bool layers) const {
    return static_cast<uint32_t>(
        std::count_if(sections_.begin(), sections_.end(),
                      [layers](const QsfSection& s) { return s.layer == layers; }));
  }

  Packing packing_;
  bool expert_records_;
  bool counts_alone_ = false;  // count bytes, write nothing
  Header* header_ = nullptr;
  Output* output_ = nullptr;
  std::optional<QsfHeaderWriter> front_;
  std::optional<ExpertRecords> records_;
  std::vector<QsfSection> sections_;
  bool opened_ = false, final_written_ = false;
  std::optional<qsf::Packer> packer_;
  std::vector<uint8_t> gathered_, packed_;
  std::vector<uint32_t> frames_;
  // The current tensor, and the values of the final norm when they were written.
  const Tensor* now_ = nullptr;
  std::vector<uint8_t> norm_, norm_bias_;
  TensorType norm_type_ = TensorType::kF32, bias_type_ = TensorType::kF32;
};

uint64_t QsfLayout::memory(const Header& source) const {
  uint64_t most = 0, layer = 0, norms = 0;
  std::string_view key;
  for (const Tensor& t : source.tensors) {
    if (in_records(t.name)) norms += 8 * t.ne[2];  // checksums
    if (t.name.starts_with("output_norm.")) norms += 8 * t.rows() * t.cols();
    if (layer_key(t.name).empty() || in_records(t.name)) continue;
    if (layer_key(t.name) != key) layer = 0;
    key = layer_key(t.name);
    layer += 4 * t.rows() * t.cols() + 256;  // as f32, the largest type it can have
    most = std::max(most, layer);
  }
  const auto kind =
      packing_ == Packing::kAuto ? Compression::kZstd : static_cast<Compression>(packing_);
  const uint64_t front = qsf::kEntryBytes * source.tensors.size();
  if (kind == Compression::kNone) return front + norms;
  const uint64_t once = kind == Compression::kZstd ? qsf::kFrameBytes : most;
  return front + norms + once + qsf::Packer::most(kind, once) + qsf::Packer::memory(kind) +
         (kind == Compression::kZstd ? most / qsf::kFrameBytes * 16 : 0);
}

QsfLayout::Counts QsfLayout::counts_of(const Header& header) const {
  Counts n;
  std::string_view key, of_experts;
  bool others[2] = {};
  for (const Tensor& t : header.tensors) {
    const std::string_view k = layer_key(t.name);
    if (in_records(t.name)) {
      n.group_bytes += k == of_experts ? sizeof(uint32_t) : ExpertRecords::entry_bytes(1, t.ne[2]);
      of_experts = k;
      continue;
    }
    if (!k.empty() && k != key) ++n.layers;
    if (!k.empty()) key = k;
    if (k.empty() && place(t.name) != kHead) others[place(t.name) == kEmbedding] = true;
  }
  n.others += (others[0] ? 1u : 0) + (others[1] ? 1u : 0);
  return n;
}

Status QsfLayout::begin(Header* header, Output* output) {
  header_ = header;
  output_ = output;
  if (counts_of(*header).layers > qsf::kMaxLayers) {
    return error(Code::kInvalidArgument, "this model has more than the %u layers that QSF allows",
                 qsf::kMaxLayers);
  }
  front_.emplace(front_of(*header));
  records_.emplace(header, output);
  uint64_t weights = 0;
  for (const Tensor& t : header->tensors) weights += t.bytes;
  const uint64_t front = front_->bytes();
  output->expect(front + weights);
  return output->pad_to(front);
}

// Runs all steps without bytes.
Result<uint64_t> QsfLayout::file_bytes(Header* header, uint64_t front) const {
  Output output;
  output.count(front);
  QsfLayout counter(packing_, expert_records_);
  counter.counts_alone_ = true;
  counter.header_ = header;
  counter.output_ = &output;
  counter.records_.emplace(header, &output);
  for (size_t i = 0; i < header->tensors.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(counter.start(i));
    const Tensor& t = header->tensors[i];
    if (t.name.starts_with("output_norm.")) {  // stored twice
      SLUICE_RETURN_IF_ERROR(counter.write(std::vector<uint8_t>(t.bytes)));
    } else if (!in_records(t.name)) {  // whose bytes are counted by their records
      counter.advance(t.bytes);
    }
  }
  SLUICE_RETURN_IF_ERROR(counter.close_all());
  return output.done();
}

// --- sections

Status QsfLayout::start(size_t i) {
  Tensor& t = header_->tensors[i];
  now_ = &t;
  const std::string_view key = layer_key(t.name);
  if (in_records(t.name)) {
    SLUICE_RETURN_IF_ERROR(close());
    return records_->start(i, key);
  }
  const bool same = opened_ && sections_.back().layer == !key.empty() &&
                    sections_.back().key == key && place(t.name) != kHead &&
                    place(header_->tensors[i - 1].name) == place(t.name);
  if (!same) {
    SLUICE_RETURN_IF_ERROR(close());
    SLUICE_RETURN_IF_ERROR(place(t.name) == kHead ? begin_final(&t) : open(i));
  }
  QsfSection& section = sections_.back();
  if (section.layer || place(t.name) == kHead) {
    SLUICE_RETURN_IF_ERROR(put(tensor_header(t).all()));
    ++section.tensors;
  }
  const uint64_t base = section.layer ? 0 : section.offset;
  SLUICE_RETURN_IF_ERROR(put_zeros(round_up(base + section.bytes, alignment()) - base));
  const uint64_t layer = count(true) - 1;
  t.offset = section.bytes + (section.compression == Compression::kNone
                                  ? section.offset
                                  : qsf::kUnpacked + (layer << qsf::kUnpackedBits));
  return {};
}

Status QsfLayout::open(size_t i) {
  const Tensor& t = header_->tensors[i];
  QsfSection& section = sections_.emplace_back();
  section.key = layer_key(t.name);
  section.layer = !section.key.empty();
  opened_ = true;
  if (section.layer) {
    section.compression = compression_of(i);
    if (section.compression != Compression::kNone) packer_.emplace(section.compression);
    SLUICE_RETURN_IF_ERROR(
        output_->pad_to(round_up(output_->done(), std::max(kLayerAlignment, header_->alignment))));
  } else if (place(t.name) == kEmbedding) {
    SLUICE_RETURN_IF_ERROR(output_->pad_to(round_up(output_->done() + 16, alignment()) - 16));
  }
  section.offset = output_->done();
  if (place(t.name) != kEmbedding) return {};
  if (t.bytes > UINT32_MAX || t.rows() > UINT32_MAX) {
    return error(Code::kInvalidArgument, "QSF does not support an embedding of more than 4 GB");
  }
  Bytes head;
  head.put<uint32_t>(qsf_type_code(t.type));
  head.put(static_cast<uint32_t>(t.bytes));
  head.put(static_cast<uint32_t>(t.rows()));
  head.put(static_cast<uint32_t>(t.cols()));
  return put(head.all());
}

// The final norm as other readers expect it: f16, ones if the model has none. Its exact values are
// stored as an ordinary tensor.
Status QsfLayout::begin_final(const Tensor* head) {
  const auto half = [](const std::vector<uint8_t>& bytes, TensorType type, Bytes* out) {
    const size_t n = bytes.size() / gguf::type_info(type)->block_bytes;
    std::vector<float> values(n);
    kernels::reference::dequantize(static_cast<kernels::Type>(type), bytes.data(),
                                   static_cast<int64_t>(n), values.data());
    for (const float v : values) out->put(kernels::reference::f32_to_f16(v));
  };
  Bytes norm;
  const auto hidden = header_->get_u64(std::string(*header_->get_string("general.architecture")) +
                                       ".embedding_length");
  if (norm_.empty()) {
    for (uint64_t i = 0; i < hidden.value_or(0); ++i) norm.put<uint16_t>(0x3c00);
  }
  half(norm_, norm_type_, &norm);
  half(norm_bias_, bias_type_, &norm);
  norm.put<uint8_t>(head == nullptr ? 0xff : 0);
  final_written_ = opened_ = true;
  const uint64_t before =
      norm.all().size() + (head == nullptr ? 0 : qsf::tensor_header_bytes(head->name));
  SLUICE_RETURN_IF_ERROR(output_->pad_to(round_up(output_->done() + before, alignment()) - before));
  sections_.emplace_back().offset = output_->done();
  return put(norm.all());
}

// Maximum bytes of a compressed layer.
uint64_t max_of(const QsfSection& layer) {
  const uint64_t once = layer.compression == Compression::kZstd ? qsf::kFrameBytes : layer.bytes;
  const uint64_t whole = once > 0 ? layer.bytes / once : 0, rest = layer.bytes - whole * once;
  qsf::Run run;
  run.bytes = layer.bytes;
  run.frame = layer.compression == Compression::kZstd ? qsf::kFrameBytes : 0;
  return whole * qsf::Packer::most(layer.compression, once) +
         (rest > 0 ? qsf::Packer::most(layer.compression, rest) : 0) + qsf::frame_list_bytes(run);
}

Status QsfLayout::close() {
  if (!opened_) return {};
  opened_ = false;
  QsfSection& section = sections_.back();
  if (counts_alone_ && section.compression != Compression::kNone) {
    section.stored = max_of(section);
    output_->count(section.stored);
  } else if (section.compression != Compression::kNone) {
    if (!gathered_.empty()) SLUICE_RETURN_IF_ERROR(pack(gathered_));
    gathered_.clear();
    if (frames_.size() > 1) SLUICE_RETURN_IF_ERROR(store(qsf::frame_list(frames_, section.bytes)));
    frames_.clear();
    packer_.reset();
  }
  if (section.layer &&
      (section.bytes > UINT32_MAX || section.stored > UINT32_MAX || section.tensors > UINT16_MAX)) {
    return error(Code::kInvalidArgument, "QSF does not support a layer of more than 4 GB");
  }
  return {};
}

Compression QsfLayout::compression_of(size_t first) const {
  if (packing_ != Packing::kAuto) return static_cast<Compression>(packing_);
  uint64_t bytes = 0, of_bf16 = 0;
  const std::string_view key = layer_key(header_->tensors[first].name);
  for (size_t i = first; i < header_->tensors.size(); ++i) {
    const Tensor& t = header_->tensors[i];
    if (layer_key(t.name) != key) break;
    bytes += t.bytes;
    if (t.type == TensorType::kBF16) of_bf16 += t.bytes;
  }
  return 2 * of_bf16 > bytes ? Compression::kZstd : Compression::kNone;
}

// --- bytes of the open section

Status QsfLayout::write(std::span<const uint8_t> bytes) {
  if (in_records(now_->name)) return records_->write(bytes);
  if (now_->name == "output_norm.weight") {
    norm_.insert(norm_.end(), bytes.begin(), bytes.end());
    norm_type_ = now_->type;
  } else if (now_->name == "output_norm.bias") {
    norm_bias_.insert(norm_bias_.end(), bytes.begin(), bytes.end());
    bias_type_ = now_->type;
  }
  return put(bytes);
}

void QsfLayout::advance(uint64_t n) {
  QsfSection& section = sections_.back();
  section.bytes += n;
  if (section.compression == Compression::kNone) output_->count(n);
}

Status QsfLayout::put(std::span<const uint8_t> bytes) {
  if (counts_alone_) {
    advance(bytes.size());
    return {};
  }
  QsfSection& section = sections_.back();
  section.bytes += bytes.size();
  if (section.compression == Compression::kNone) return store(bytes);
  const size_t once = section.compression == Compression::kZstd ? qsf::kFrameBytes : SIZE_MAX;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), once - gathered_.size());
    gathered_.insert(gathered_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (gathered_.size() < once) continue;
    SLUICE_RETURN_IF_ERROR(pack(gathered_));
    gathered_.clear();
  }
  return {};
}

Status QsfLayout::put_zeros(uint64_t to) {
  static constexpr uint8_t kZeros[64] = {};
  while (sections_.back().bytes < to) {
    SLUICE_RETURN_IF_ERROR(put(
        std::span(kZeros).first(std::min<uint64_t>(sizeof kZeros, to - sections_.back().bytes))));
  }
  return {};
}

Status QsfLayout::pack(std::span<const uint8_t> bytes) {
  packed_.clear();
  SLUICE_RETURN_IF_ERROR(packer_->pack(bytes, &packed_));
  frames_.push_back(static_cast<uint32_t>(packed_.size()));
  return store(packed_);
}

Status QsfLayout::store(std::span<const uint8_t> bytes) {
  QsfSection& section = sections_.back();
  section.stored += bytes.size();
  section.crc = qsf::crc32(bytes, section.crc);
  return output_->write(bytes);
}

Status QsfLayout::close_all() {
  SLUICE_RETURN_IF_ERROR(close());
  if (final_written_) return {};
  SLUICE_RETURN_IF_ERROR(begin_final(nullptr));
  return close();
}

Status QsfLayout::finish() {
  SLUICE_RETURN_IF_ERROR(close_all());
  records_->finish();
  return output_->patch(0, front_->write(sections_, records_->groups(), output_->done()));
}

}  // namespace

std::unique_ptr<Layout> make_qsf_layout(Packing packing, bool expert_records) {
  return std::make_unique<QsfLayout>(packing, expert_records);
}

}  // namespace sluice::convert
