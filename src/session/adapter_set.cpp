// Binds adapters to matrices by name and shape, and loads them.
#include "session/adapter_set.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/hash.h"
#include "gguf/printable.h"
#include "hf/row_order.h"

namespace sluice::session {
namespace {

using adapter::Pair;
using gguf::printable;
using hf::RowOrder;

uint64_t packed_bytes(const kernels::Table& table, const kernels::Matrix& m) {
  const int64_t groups = (m.rows + table.row_group - 1) / table.row_group;
  return round_up_to_line(static_cast<size_t>(groups) * table.packed_group_bytes(m.type, m.cols));
}

int64_t value_bytes(kernels::Type type) {
  return type == kernels::Type::kF32 ? 4 : 2;
}

// GGUF files of Mistral say "llama"; only Hugging Face directories say "mistral".
std::string_view family(std::string_view arch) {
  return arch == "mistral" ? "llama" : arch;
}

kernels::Matrix matrix(const gguf::Tensor& t, bool packed, int64_t rows, int64_t cols) {
  return {static_cast<kernels::Type>(t.type), packed, rows, cols, nullptr};
}

}  // namespace

class AdapterSet::Binder {
 public:
  Binder(const model::Program& program, const kernels::Table& table) : p_(program), table_(table) {
    for (size_t i = 0; i < p_.mats.size(); ++i) {
      mats_[p_.mats[i].name].push_back(static_cast<int32_t>(i));
    }
  }

  Status add(const adapter::Adapter& adapter, size_t source, float factor) {
    SLUICE_RETURN_IF_ERROR(check_family(adapter));
    for (const Pair& pair : adapter.pairs) {
      const double by = adapter.scale(pair.rank) * static_cast<double>(factor);
      bound_.scale = static_cast<float>(by);
      if (!std::isfinite(bound_.scale)) {
        return error(Code::kInvalidArgument, "the adapter's scale for %s is not a finite number",
                     printable(pair.name).c_str());
      }
      bound_.origin = {source, &pair, 0, 0, 0, false};
      if (pair.name == adapter::kEmbedding) {
        SLUICE_RETURN_IF_ERROR(add_embedding(pair));
      } else {
        SLUICE_RETURN_IF_ERROR(add_mats(adapter, pair));
      }
    }
    return {};
  }

  void finish(AdapterSet* set) {
    if (found_.empty()) return;
    // Sort by place; terms of one place keep their order.
    set->first_.assign(p_.mats.size() + 2, 0);
    for (const Bound& b : found_) ++set->first_[b.place + 1];
    for (size_t i = 1; i < set->first_.size(); ++i) set->first_[i] += set->first_[i - 1];
    std::vector<uint32_t> next(set->first_.begin(), set->first_.end() - 1);
    set->terms_.resize(found_.size());
    set->origins_.resize(found_.size());
    uint64_t low = 0, pack = 0;
    for (const Bound& b : found_) {
      const uint32_t at = next[b.place]++;
      set->terms_[at] = {b.a, b.b, b.scale};
      set->origins_[at] = b.origin;
      const Pair& pair = *b.origin.pair;
      const uint64_t slices = pair.b.ne[2];
      set->held_ += b.a.packed ? packed_bytes(table_, b.a)
                               : round_up_to_line(static_cast<size_t>(pair.a.bytes));
      set->held_ += packed_bytes(table_, b.b);
      set->staged_ = std::max(set->staged_, pair.b.bytes / slices);
      if (b.a.packed || pair.turned) set->staged_ = std::max(set->staged_, pair.a.bytes / slices);
      low = std::max(low, static_cast<uint64_t>(pair.rank));
      pack = std::max<uint64_t>(pack, table_.matmul_scratch(b.a.type, b.a.cols));
      pack = std::max<uint64_t>(pack, table_.matmul_scratch(b.b.type, b.b.cols));
    }
    const uint64_t lists =
        set->first_.size() * sizeof(uint32_t) + found_.size() * (sizeof(Term) + sizeof(Origin));
    set->needs_.bytes = set->held_ + set->staged_ + lists;
    set->needs_.scratch =
        round_up_to_line(static_cast<size_t>(kLowRankTokens * low * sizeof(float))) + pack;
  }

 private:
  struct Bound {
    size_t place = 0;  // index of a mat; the number of mats: the embedding
    kernels::Matrix a{}, b{};
    float scale = 0;
    Origin origin;
  };

  Status check_family(const adapter::Adapter& adapter) const {
    const std::string& arch = p_.hp.arch;
    if (adapter.hugging_face && hf::row_order(arch) == RowOrder::kUnknown) {
      return error(Code::kUnsupportedArchitecture,
                   "PEFT adapters are not supported for \"%s\"; convert the adapter to GGUF",
                   arch.c_str());
    }
    if (adapter.hugging_face || family(adapter.arch) == family(arch)) return {};
    return error(Code::kUnsupportedArchitecture,
                 "the adapter was made for the model family \"%s\", not for \"%s\"",
                 printable(adapter.arch).c_str(), arch.c_str());
  }

  Status bad_shape(const Pair& pair, int64_t cols, int64_t rows) const {
    return error(Code::kBadShape,
                 "the adapter expects %s to be [%llu, %llu], but it is [%lld, %lld]",
                 printable(pair.name).c_str(), static_cast<unsigned long long>(pair.a.ne[0]),
                 static_cast<unsigned long long>(pair.b.ne[1]), static_cast<long long>(cols),
                 static_cast<long long>(rows));
  }

  void keep(size_t place) {
    bound_.place = place;
    if (bound_.scale != 0) found_.push_back(bound_);
  }

  // Token embeddings. An output head that shares the matrix is not changed.
  Status add_embedding(const Pair& pair) {
    if (p_.embedding < 0) return no_place(pair);
    const model::Mat& m = p_.mats[static_cast<size_t>(p_.embedding)];
    const uint64_t tokens = pair.a.ne[pair.turned ? 0 : 1];
    if (tokens != static_cast<uint64_t>(m.rows) || pair.b.ne[1] != static_cast<uint64_t>(m.cols)) {
      return error(
          Code::kBadShape,
          "the adapter expects %s to have %llu tokens and %llu columns, but it has %lld and "
          "%lld",
          printable(pair.name).c_str(), static_cast<unsigned long long>(tokens),
          static_cast<unsigned long long>(pair.b.ne[1]), static_cast<long long>(m.rows),
          static_cast<long long>(m.cols));
    }
    bound_.a = matrix(pair.a, false, m.rows, pair.rank);
    bound_.b = matrix(pair.b, true, m.cols, pair.rank);
    keep(p_.mats.size());
    return {};
  }

  // All matrices that are rows of the pair's tensor: experts, heads, or halves.
  Status add_mats(const adapter::Adapter& adapter, const Pair& pair) {
    const auto named = mats_.find(pair.name);
    std::span<const int32_t> mats;
    if (named != mats_.end()) {
      mats = named->second;
    } else if (pair.name == "output.weight" && p_.head >= 0) {
      mats = {&p_.head, 1};  // named like the embedding if the two are tied
    }
    if (mats.empty()) return no_place(pair);
    for (const int32_t index : mats) {
      const model::Mat& m = p_.mats[static_cast<size_t>(index)];
      const int64_t slices = m.tensor_rows / m.slice_rows;
      if (pair.a.ne[0] != static_cast<uint64_t>(m.cols) ||
          pair.b.ne[1] != static_cast<uint64_t>(m.slice_rows) ||
          pair.b.ne[2] != static_cast<uint64_t>(slices)) {
        return bad_shape(pair, m.cols, m.tensor_rows);
      }
      bound_.origin.slice = m.row0 / m.slice_rows;
      bound_.origin.first_row = m.row0 % m.slice_rows;
      if (p_.by_rows(static_cast<size_t>(index)) ||
          bound_.origin.first_row + m.rows > m.slice_rows) {
        return no_place(pair);
      }
      SLUICE_RETURN_IF_ERROR(reorder(adapter, pair));
      bound_.a = matrix(pair.a, true, pair.rank, m.cols);
      bound_.b = matrix(pair.b, true, m.rows, pair.rank);
      keep(static_cast<size_t>(index));
    }
    return {};
  }

  // Handles queries and keys whose rows are in another order in the adapter than in the model.
  Status reorder(const adapter::Adapter& adapter, const Pair& pair) {
    const bool rotated =
        pair.name.ends_with(".attn_q.weight") || pair.name.ends_with(".attn_k.weight");
    if (!rotated || hf::row_order(p_.hp.arch) != RowOrder::kPermuted ||
        adapter.hugging_face == p_.hp.rope.neox) {
      return {};
    }
    bound_.origin.head = p_.hp.attention.head_dim_k;
    bound_.origin.interleaves = adapter.hugging_face;
    if (bound_.origin.head % 2 == 0 &&
        pair.b.ne[1] % static_cast<uint64_t>(p_.hp.attention.head_dim_k) == 0) {
      return {};
    }
    return no_place(pair);
  }

  static Status no_place(const Pair& pair) {
    return error(Code::kMissingTensor,
                 "the adapter changes the tensor %s, which is not a matrix of this model",
                 printable(pair.name).c_str());
  }

  const model::Program& p_;
  const kernels::Table& table_;
  std::map<std::string_view, std::vector<int32_t>> mats_;
  Bound bound_;
  std::vector<Bound> found_;
};

Result<AdapterSet> AdapterSet::bind(const model::Program& program, const kernels::Table& table,
                                    std::span<const adapter::Source> sources) {
  AdapterSet set;
  if (sources.empty()) return set;
  if (program.approximated.changed) {
    return error(Code::kInvalidArgument,
                 "adapters need the whole model: turn off layer skipping, early exit and the "
                 "clustered head");
  }
  if (sources.size() > adapter::kMaxAdapters) {
    return error(Code::kInvalidArgument, "%zu adapters given, but at most %zu are supported",
                 sources.size(), adapter::kMaxAdapters);
  }
  Binder binder(program, table);
  for (size_t i = 0; i < sources.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(binder.add(*sources[i].adapter, i, sources[i].scale));
  }
  binder.finish(&set);
  return set;
}

class AdapterSet::Loader {
 public:
  Loader(const kernels::Table& table, std::span<const adapter::Source> sources, AdapterSet* set)
      : table_(table), sources_(sources), set_(*set) {}

  Status run() {
    SLUICE_RETURN_IF_ERROR(set_.memory_.allocate(set_.held_));
    SLUICE_RETURN_IF_ERROR(staging_.allocate(set_.staged_));
    to_ = set_.memory_.as<uint8_t>();
    for (size_t i = 0; i < set_.terms_.size(); ++i) {
      Term& term = set_.terms_[i];
      const Origin& from = set_.origins_[i];
      sum_.add(std::string_view(from.pair->name));
      sum_.add(uint64_t{__builtin_bit_cast(uint32_t, term.scale)});
      SLUICE_RETURN_IF_ERROR(term.a.packed ? load_packed(from, from.pair->a, 0, false, &term.a)
                                           : load_rows(from, &term.a));
      SLUICE_RETURN_IF_ERROR(load_packed(from, from.pair->b, from.first_row, true, &term.b));
    }
    set_.sum_ = sum_.value();
    return {};
  }

 private:
  // Reads a slice of the tensor to `to` and checks that its values are finite.
  Status read(const Origin& from, const gguf::Tensor& t, uint8_t* to) {
    const uint64_t bytes = t.bytes / t.ne[2];
    const std::span<uint8_t> out(to, static_cast<size_t>(bytes));
    const uint64_t at = t.offset + static_cast<uint64_t>(from.slice) * bytes;
    SLUICE_RETURN_IF_ERROR(sources_[from.source].read(at, out));
    const kernels::Type type = static_cast<kernels::Type>(t.type);
    if (!kernels::all_finite(type, to, static_cast<int64_t>(bytes) / value_bytes(type))) {
      return error(Code::kBadWeights, "the adapter's pair for %s has a value that is not finite",
                   printable(from.pair->name).c_str());
    }
    sum_.add(out);
    return {};
  }

  // Packs rows of the slice from `first` on; rows of b in the model's order.
  Status load_packed(const Origin& from, const gguf::Tensor& t, int64_t first, bool is_b,
                     kernels::Matrix* m) {
    const uint8_t* staged = staging_.as<uint8_t>();
    SLUICE_RETURN_IF_ERROR(read(from, t, staging_.as<uint8_t>()));
    m->data = to_;
    const int64_t row_bytes = m->cols * value_bytes(m->type);
    const bool moved = is_b && from.head > 0;
    std::vector<uint8_t> aside(moved ? static_cast<size_t>(table_.row_group * row_bytes) : 0);
    uint8_t* to = to_;
    for (int64_t row = 0; row < m->rows; row += table_.row_group) {
      const int32_t n = static_cast<int32_t>(std::min<int64_t>(table_.row_group, m->rows - row));
      const uint8_t* rows = staged + (first + row) * row_bytes;
      for (int32_t i = 0; i < n && moved; ++i) {
        std::memcpy(&aside[static_cast<size_t>(i * row_bytes)],
                    staged + row_in_file(from, first + row + i) * row_bytes,
                    static_cast<size_t>(row_bytes));
        rows = aside.data();
      }
      table_.pack_group(m->type, rows, n, m->cols, to);
      to += table_.packed_group_bytes(m->type, m->cols);
    }
    to_ += packed_bytes(table_, *m);
    return {};
  }

  // A head's rows are pairs (2i, 2i + 1) in GGUF, halves (i, i + head / 2) in Hugging Face files.
  static int64_t row_in_file(const Origin& from, int64_t row) {
    const int64_t in_head = row % from.head, half = from.head / 2;
    const int64_t other =
        from.interleaves ? in_head % 2 * half + in_head / 2 : in_head % half * 2 + in_head / half;
    return row - in_head + other;
  }

  // The embedding's a: one row per token.
  Status load_rows(const Origin& from, kernels::Matrix* m) {
    const size_t bytes = static_cast<size_t>(from.pair->a.bytes);
    uint8_t* to = to_;
    m->data = to;
    to_ += round_up_to_line(bytes);
    if (!from.pair->turned) return read(from, from.pair->a, to);
    const uint8_t* staged = staging_.as<uint8_t>();
    SLUICE_RETURN_IF_ERROR(read(from, from.pair->a, staging_.as<uint8_t>()));
    const int64_t size = value_bytes(m->type);
    for (int64_t token = 0; token < m->rows; ++token) {
      for (int64_t r = 0; r < m->cols; ++r, to += size) {
        std::memcpy(to, staged + (r * m->rows + token) * size, static_cast<size_t>(size));
      }
    }
    return {};
  }

  const kernels::Table& table_;
  const std::span<const adapter::Source> sources_;
  AdapterSet& set_;
  AlignedBuffer staging_;
  uint8_t* to_ = nullptr;
  Hash64 sum_;
};

Status AdapterSet::load(const kernels::Table& table, std::span<const adapter::Source> sources) {
  if (terms_.empty()) return {};
  SLUICE_RETURN_IF_ERROR(Loader(table, sources, this).run());
  origins_ = {};
  return {};
}

}  // namespace sluice::session
