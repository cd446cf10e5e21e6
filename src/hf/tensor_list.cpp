// Maps tensors to GGUF's names, and describes those that are computed from other tensors.
#include <algorithm>
#include <map>

#include "gguf/printable.h"
#include "hf/architecture.h"

namespace sluice::hf {
namespace {

using gguf::printable;
using gguf::Tensor;
using gguf::TensorType;

class TensorList {
 public:
  TensorList(const Architecture& family, const Facts& facts, const Directory& from, Model* model,
             gguf::MetadataWriter* writer)
      : family_(family), facts_(facts), from_(from), model_(model), writer_(writer) {
    file_ = model->header.n_files + (facts.rope_factors.empty() ? 0 : 1);
  }

  Status read() {
    for (uint32_t file = 0; file < from_.shards.size(); file++) {
      for (const SafetensorsEntry& e : from_.shards[file].entries) {
        if (!by_name_.emplace(e.name, Placed{&e, file}).second) {
          return error(Code::kBadHeader, "the tensor \"%s\" appears twice",
                       printable(e.name).c_str());
        }
        if (family_.tensors->in_file_order) SLUICE_RETURN_IF_ERROR(add(e, file));
      }
    }
    if (family_.tensors->in_file_order) return {};
    for (const auto& [name, placed] : by_name_)
      SLUICE_RETURN_IF_ERROR(add(*placed.entry, placed.file));
    return {};
  }

 private:
  struct Placed {
    const SafetensorsEntry* entry = nullptr;
    uint32_t file = 0;
  };

  Status no_place(const SafetensorsEntry& e) const {
    return error(Code::kUnsupportedArchitecture,
                 "the tensor \"%s\" does not belong to the model family \"%s\"",
                 printable(e.name).c_str(), std::string(family_.model_type).c_str());
  }
  static Status bad_shape(const SafetensorsEntry& e) {
    return error(Code::kBadShape, "the tensor \"%s\" has a shape that does not fit config.json",
                 printable(e.name).c_str());
  }

  Status add(const SafetensorsEntry& e, uint32_t file) {
    Found found = find_name(*family_.tensors, e.name);
    if (found.ours.empty()) return no_place(e);
    const bool unused = (facts_.tied && found.ours == "output.weight") ||
                        (!facts_.scores && found.ours.starts_with("cls."));
    if (found.turn == TensorTransform::kSkip || unused) return {};
    for (size_t at; facts_.one_ffn && (at = found.ours.find("_shexp")) != std::string::npos;) {
      found.ours.erase(at, std::string_view("_shexp").size());
    }
    if (found.turn == TensorTransform::kDeepstack && !number_block(&found)) return no_place(e);
    const size_t bar = found.ours.find('|');
    first_ = std::string_view(found.ours).substr(0, bar);
    second_ = bar == std::string::npos ? std::string_view()
                                       : std::string_view(found.ours).substr(bar + 1);
    if (found.turn == TensorTransform::kMxfp4 || found.turn == TensorTransform::kMxfp4Pairs)
      return blocks(e, file, found);
    SafetensorsEntry stored = e;
    if (found.turn == TensorTransform::kFrames) {  // [rows][channels][frame, row][column]
      if (e.shape.size() != 5 || e.shape[2] != 2) return bad_shape(e);
      stored.shape = {e.shape[0], e.shape[1], 2 * e.shape[3], e.shape[4]};
    }
    Result<Tensor> t = describe_tensor(stored);
    if (!t.ok()) return t.status();
    t->file = file;
    value_ = t->type == TensorType::kF32 ? 4 : 2;
    row_ = t->n_dims == 1 ? value_ : t->ne[0] * value_;
    rows_ = t->n_dims == 1 ? t->ne[0] : t->rows();
    switch (found.turn) {
      case TensorTransform::kHalves:
        return halves(e, *t);
      case TensorTransform::kThirds:
        return thirds(e, *t, found.ours);
      case TensorTransform::kFrames:
        return frames(e, *t);
      case TensorTransform::kPlusOne:
        return plus_one(e, *t);
      case TensorTransform::kPairs:
        return pairs(e, *t);
      case TensorTransform::kNegativeExp:
        return negative_exp(e, *t);
      case TensorTransform::kValueRows:
        return value_rows(e, *t, 0);
      case TensorTransform::kMixedRows:
        return value_rows(e, *t, 2 * facts_.key_heads * facts_.key_size);
      case TensorTransform::kValueColumns:
        return value_columns(e, *t);
      case TensorTransform::kStack:
        return found.number == 0 ? stack(e, *t) : Status();
      case TensorTransform::kPad:
        return pad(e, *t);
      case TensorTransform::kTail:
        return tail(e, *t);
      default:
        return keep(first_, *t);
    }
  }

  Status keep(std::string_view name, const Tensor& t) {
    return add_tensor(name, t, &model_->header, writer_);
  }

  // Adds a tensor made of consecutive `runs`.
  Status derive(const SafetensorsEntry& e, std::string_view name, Tensor t,
                std::vector<Derived> runs) {
    t.file = file_;
    t.offset = at_;
    SLUICE_RETURN_IF_ERROR(gguf::set_tensor_bytes(&t));
    uint64_t sum = 0;
    for (Derived& run : runs) {
      run.begin = at_ + sum;
      run.bytes = run.made_chunk();
      bool fits = true;
      for (const uint64_t n : run.counts)
        fits = fits && !__builtin_mul_overflow(run.bytes, n, &run.bytes);
      const bool whole = run.kind == Derived::Kind::kZero ||
                         (run.kind == Derived::Kind::kGather && run.chunk >= kWholeChunk);
      if (!whole)
        fits = fits && (run.counts[2] - 1) * run.strides[2] + run.chunk <= kMaxDerivedSpan;
      if (!fits || run.bytes > t.bytes - sum) return bad_shape(e);
      sum += run.bytes;
    }
    if (sum != t.bytes || t.bytes > uint64_t{1} << 56 || at_ > uint64_t{1} << 60)
      return bad_shape(e);
    at_ += (sum + 31) / 32 * 32;
    model_->derived.insert(model_->derived.end(), runs.begin(), runs.end());
    return keep(name, t);
  }

  static Derived run_of(const Tensor& t, uint64_t skip, uint64_t chunk) {
    Derived run;
    run.type = t.type;
    run.file = t.file;
    run.offset = t.offset + skip;
    run.chunk = chunk;
    return run;
  }

  Status halves(const SafetensorsEntry& e, const Tensor& t) {
    if (t.ne[1] % 2 != 0 || t.n_dims < 2 || t.n_dims > 3) return bad_shape(e);
    Tensor half = t;
    half.ne[1] /= 2;
    const uint64_t chunk = half.ne[1] * row_;
    for (const std::string_view name : {first_, second_}) {
      const uint64_t skip = name == first_ ? 0 : chunk;
      if (t.n_dims == 2) {
        Tensor part = half;
        part.offset += skip;
        SLUICE_RETURN_IF_ERROR(gguf::set_tensor_bytes(&part));
        SLUICE_RETURN_IF_ERROR(keep(name, part));
        continue;
      }
      Derived run = run_of(t, skip, chunk);
      run.counts[0] = t.ne[2];
      run.strides[0] = 2 * chunk;
      SLUICE_RETURN_IF_ERROR(derive(e, name, half, {run}));
    }
    return {};
  }

  Status thirds(const SafetensorsEntry& e, Tensor t, std::string_view names) {
    uint64_t& rows = t.ne[t.n_dims - 1];
    if (t.n_dims > 2 || rows % 3 != 0) return bad_shape(e);
    rows /= 3;
    SLUICE_RETURN_IF_ERROR(gguf::set_tensor_bytes(&t));
    for (; !names.empty(); t.offset += t.bytes) {
      const size_t end = std::min(names.find('|'), names.size());
      SLUICE_RETURN_IF_ERROR(keep(names.substr(0, end), t));
      names.remove_prefix(std::min(end + 1, names.size()));
    }
    return {};
  }

  Status frames(const SafetensorsEntry& e, Tensor t) {
    constexpr uint64_t kMaxLine = 64;  // planes that are read together
    const uint64_t planes = t.ne[2] * t.ne[3], chunk = t.ne[1] / 2 * row_;
    uint64_t line = std::min(planes, kMaxLine);
    if (line == 0) return bad_shape(e);
    while (planes % line != 0) line--;
    t.ne[1] /= 2;
    for (const std::string_view name : {first_, second_}) {
      Derived run = run_of(t, name == first_ ? 0 : chunk, chunk);
      run.counts = {planes / line, 1, line};
      run.strides = {2 * line * chunk, 0, 2 * chunk};
      SLUICE_RETURN_IF_ERROR(derive(e, name, t, {run}));
    }
    return {};
  }

  Status plus_one(const SafetensorsEntry& e, Tensor t) {
    if (t.n_dims != 1 || rows_ == 0) return bad_shape(e);
    Derived run = run_of(t, 0, value_);
    run.kind = Derived::Kind::kPlusOne;
    run.counts = {1, 1, rows_};
    run.strides = {0, 0, value_};
    t.type = TensorType::kF32;
    return derive(e, first_, t, {run});
  }

  // Replaces the number in a list of parts by that of the block.
  bool number_block(Found* found) const {
    const std::string number = "." + std::to_string(found->number) + ".";
    const size_t at = found->ours.find(number);
    if (found->number >= facts_.deepstack.size() || at == std::string::npos) return false;
    found->ours.replace(at + 1, number.size() - 2, std::to_string(facts_.deepstack[found->number]));
    return true;
  }

  Status pairs(const SafetensorsEntry& e, const Tensor& t) {
    if (t.ne[0] % 2 != 0) return bad_shape(e);
    Tensor half = t;
    half.ne[0] /= 2;
    for (const std::string_view name : {first_, second_}) {
      Derived run = run_of(t, name == first_ ? 0 : value_, value_);
      run.counts = {t.rows(), 1, half.ne[0]};
      run.strides = {t.ne[0] * value_, 0, 2 * value_};
      SLUICE_RETURN_IF_ERROR(derive(e, name, half, {run}));
    }
    return {};
  }

  // Reorders value heads. The checkpoint groups them by their key head; GGUF has the first value
  // head of each key head, then the second of each, and so on. A head has `rows` rows; the first
  // one begins after `skip` bytes.
  Derived ordered(const Tensor& t, uint64_t skip, uint64_t rows) const {
    const auto keys = static_cast<uint64_t>(std::max<int64_t>(1, facts_.key_heads));
    const auto shared = static_cast<uint64_t>(facts_.value_heads) / keys;
    Derived run = run_of(t, skip, rows * row_);
    run.counts = {1, shared, keys};
    run.strides = {0, run.chunk, shared * run.chunk};
    return run;
  }

  // Whether the order of value heads differs from GGUF's.
  [[nodiscard]] bool reorders() const { return facts_.value_heads > facts_.key_heads; }

  Status negative_exp(const SafetensorsEntry& e, const Tensor& t) {
    const auto heads = static_cast<uint64_t>(facts_.value_heads);
    if (rows_ == 0 || t.n_dims != 1 || (heads > 0 && rows_ != heads)) return bad_shape(e);
    Derived run = ordered(t, 0, 1);
    if (heads == 0) {
      run.counts = {1, 1, rows_};
      run.strides = {0, 0, value_};
    }
    run.kind = Derived::Kind::kNegativeExp;
    Tensor out = t;
    out.type = TensorType::kF32;
    return derive(e, first_, out, {run});
  }

  Status value_rows(const SafetensorsEntry& e, const Tensor& t, int64_t before) {
    if (!reorders()) return keep(first_, t);
    const auto skipped = static_cast<uint64_t>(before),
               heads = static_cast<uint64_t>(facts_.value_heads);
    if (rows_ <= skipped || (rows_ - skipped) % heads != 0) return bad_shape(e);
    std::vector<Derived> runs;
    if (skipped > 0) runs.push_back(run_of(t, 0, skipped * row_));
    runs.push_back(ordered(t, skipped * row_, (rows_ - skipped) / heads));
    return derive(e, first_, t, std::move(runs));
  }

  Status value_columns(const SafetensorsEntry& e, const Tensor& t) {
    if (!reorders()) return keep(first_, t);
    const auto heads = static_cast<uint64_t>(facts_.value_heads);
    if (t.n_dims != 2 || t.ne[0] % heads != 0) return bad_shape(e);
    const auto keys = static_cast<uint64_t>(facts_.key_heads);
    Derived run = run_of(t, 0, t.ne[0] / heads * value_);
    run.counts = {rows_, heads / keys, keys};
    run.strides = {row_, run.chunk, heads / keys * run.chunk};
    return derive(e, first_, t, {run});
  }

  Status stack(const SafetensorsEntry& e, Tensor t) {
    std::string name = e.name;
    const size_t digit = name.rfind(".0.");
    if (t.n_dims != 2 || digit == std::string::npos) return bad_shape(e);
    std::vector<Derived> runs = {run_of(t, 0, t.bytes)};
    for (uint64_t i = 1;; i++) {
      name = e.name;
      const auto next = by_name_.find(name.replace(digit + 1, 1, std::to_string(i)));
      if (next == by_name_.end()) break;
      const Placed& other = next->second;
      if (other.entry->dtype != e.dtype || other.entry->shape != e.shape) return bad_shape(e);
      Tensor of = t;
      of.offset = other.entry->begin;
      of.file = other.file;
      runs.push_back(run_of(of, 0, t.bytes));
    }
    t.n_dims = 3;
    t.ne[2] = runs.size();
    return derive(e, first_, t, std::move(runs));
  }

  Status pad(const SafetensorsEntry& e, Tensor t) {
    const auto rows = static_cast<uint64_t>(facts_.n_vocab);
    if (t.n_dims != 2) return bad_shape(e);
    if (t.ne[1] >= rows) return keep(first_, t);
    Derived none;
    none.kind = Derived::Kind::kZero;
    none.chunk = row_;
    none.counts[0] = rows - t.ne[1];
    const Derived given = run_of(t, 0, t.bytes);
    t.ne[1] = rows;
    return derive(e, first_, t, {given, none});
  }

  Status tail(const SafetensorsEntry& e, Tensor t) {
    const auto skipped = static_cast<uint64_t>(facts_.skipped_rows);
    if (t.n_dims != 2 || t.ne[1] <= skipped) return bad_shape(e);
    t.ne[1] -= skipped;
    t.offset += skipped * row_;
    SLUICE_RETURN_IF_ERROR(gguf::set_tensor_bytes(&t));
    return keep(first_, t);
  }

  // Shape [experts][rows][blocks of a row][16], and a scale for each block.
  Status blocks(const SafetensorsEntry& e, uint32_t file, const Found& found) {
    constexpr std::string_view kBlocks = "blocks", kScales = "scales";
    std::string name = e.name;
    const bool named = name.ends_with(kBlocks);
    if (named) name.replace(name.size() - kBlocks.size(), kBlocks.size(), kScales);
    const auto scales = by_name_.find(name);
    if (!named || scales == by_name_.end()) {
      return error(Code::kMissingTensor, "the tensor \"%s\" is missing", printable(name).c_str());
    }
    const SafetensorsEntry& s = *scales->second.entry;
    const bool fits = e.dtype == "U8" && s.dtype == "U8" && e.shape.size() == 4 &&
                      s.shape.size() == 3 && e.shape[3] == 16 &&
                      std::equal(s.shape.begin(), s.shape.end(), e.shape.begin());
    const uint64_t step = found.turn == TensorTransform::kMxfp4Pairs ? 2 : 1;
    if (!fits || e.shape[1] % step != 0 || e.begin == e.end) return bad_shape(e);
    const uint64_t rows = e.shape[1] / step, chunk = e.shape[2] * 16;
    uint64_t together = std::min<uint64_t>(rows, 256 * 1024 / (chunk * step) + 1);
    while (rows % together != 0) together--;
    Tensor t;
    t.type = TensorType::kMXFP4;
    t.n_dims = 3;
    t.ne[0] = e.shape[2] * 32;
    t.ne[1] = rows;
    t.ne[2] = e.shape[0];
    for (uint64_t i = 0; i < step; i++) {
      Derived run;
      run.kind = Derived::Kind::kMxfp4;
      run.file = file;
      run.scale_file = scales->second.file;
      run.offset = e.begin + i * chunk;
      run.scales = s.begin + i * chunk / 16;
      run.chunk = chunk;
      run.counts = {e.shape[0], rows / together, together};
      run.strides = {e.shape[1] * chunk, together * step * chunk, step * chunk};
      SLUICE_RETURN_IF_ERROR(derive(e, i == 0 ? first_ : second_, t, {run}));
    }
    return {};
  }

  const Architecture& family_;
  const Facts& facts_;
  const Directory& from_;
  Model* model_;
  gguf::MetadataWriter* writer_;
  std::map<std::string_view, Placed, std::less<>> by_name_;
  uint32_t file_ = 0;  // index of the virtual file
  uint64_t at_ = 0;    // its end
  // The current tensor: names, bytes of a value and of a row, rows.
  std::string_view first_, second_;
  uint64_t value_ = 0, row_ = 0, rows_ = 0;
};

}  // namespace

Status read_tensors(const Architecture& architecture, const Facts& facts, const Directory& from,
                    Model* model, gguf::MetadataWriter* writer) {
  return TensorList(architecture, facts, from, model, writer).read();
}

}  // namespace sluice::hf
