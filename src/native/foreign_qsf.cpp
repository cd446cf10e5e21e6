// Walks the layers of a QSF file for their tensors.
#include "native/foreign_qsf.h"

#include <algorithm>
#include <array>

#include "base/concat.h"
#include "gguf/metadata_writer.h"
#include "gguf/printable.h"
#include "hf/tokenizer.h"
#include "qsf/index.h"

namespace sluice::native {
namespace {

using gguf::Tensor;
using qsf::field;

constexpr uint32_t kNoToken = UINT32_MAX;
constexpr uint8_t kTypeOfLayer = 0xff;
constexpr uint8_t kTied = 0xff;  // in place of the output head
constexpr uint64_t kPreamble = 16;

Status bad(const char* what) {
  return error(Code::kBadHeader, "the QSF file is invalid: %s", what);
}

Status set_type(uint8_t code, Tensor* t) {
  if (code == 0) {
    return error(Code::kUnsupportedType, "\"%s\" has type 0, a block that QSF does not define",
                 gguf::printable(t->name).c_str());
  }
  t->type = static_cast<gguf::TensorType>(static_cast<uint8_t>(code - 32));
  return gguf::set_tensor_bytes(t);
}

class Reader {
 public:
  Reader(io::ByteSource* file, QsfSource* source) : file_(file), source_(source) {}

  // Layers that are not compressed are read around their checksum, which needs all of a layer. The
  // first read of its weights verifies it.
  [[nodiscard]] Status read(uint64_t address, std::span<uint8_t> out) {
    if (address >= qsf::kUnpacked) return source_->read(address, out);
    if (address > file_->size() || out.size() > file_->size() - address) {
      return error(Code::kTruncated, "the file ends inside a section; download it again");
    }
    return file_->read(address, out);
  }

  // Reads the header of a tensor at `at` into *t and sets *at behind it.
  [[nodiscard]] Status read_tensor(uint32_t layer, uint8_t layer_type, uint64_t* at, Tensor* t,
                                   std::string* name) {
    std::array<uint8_t, qsf::kTensorHeaderBytes> head;
    SLUICE_RETURN_IF_ERROR(read(*at, head));
    *at += head.size();
    const auto kind = field<uint32_t>(head, 0);
    const bool named = (kind & qsf::kNamed) != 0;
    if (named) {
      const uint32_t n = kind & ~qsf::kNamed;
      if (n == 0 || n > gguf::kMaxNameBytes) return bad("a tensor's name has an impossible length");
      name->resize(n);
      SLUICE_RETURN_IF_ERROR(read(*at, {reinterpret_cast<uint8_t*>(name->data()), name->size()}));
      *at += (n + 15) / 16 * 16;
    } else if (qsf::tensor_name(kind).empty()) {
      return error(Code::kUnsupportedType, "layer %u has a tensor of the unknown kind %u", layer,
                   kind);
    } else {
      *name = concat({"blk.", std::to_string(layer), ".", qsf::tensor_name(kind)});
    }
    t->name = *name;
    const uint64_t rows = field<uint32_t>(head, 4), cols = field<uint32_t>(head, 8);
    const bool vector = rows <= 1 || cols == 1 || (!named && kind > 6);
    t->n_dims = vector ? 1 : 2;
    t->ne[0] = vector ? std::max<uint64_t>(rows, 1) * cols : cols;
    t->ne[1] = vector ? 1 : rows;
    return set_type(head[12] == kTypeOfLayer ? layer_type : head[12], t);
  }

 private:
  io::ByteSource* file_;
  QsfSource* source_;
};

struct Named {
  std::string name;
  Tensor tensor;
};

// Appends the tensors of a layer whose data lies at multiples of `alignment`. False if they do not
// fill the layer.
Result<bool> walk_layer(Reader& reader, const qsf::Run& run, uint32_t layer, uint8_t type,
                        uint64_t alignment, std::vector<Named>* out) {
  uint64_t at = run.address;
  const uint64_t end = run.address + run.bytes;
  for (uint32_t i = 0; i < run.tensors; ++i) {
    if (end - at < qsf::kTensorHeaderBytes) return false;
    Named& next = out->emplace_back();
    SLUICE_RETURN_IF_ERROR(reader.read_tensor(layer, type, &at, &next.tensor, &next.name));
    const uint64_t inside = at - run.address;
    at = run.address + (inside + alignment - 1) / alignment * alignment;
    if (at > end || next.tensor.bytes > end - at) return false;
    next.tensor.offset = at;
    at += next.tensor.bytes;
  }
  return at == end;
}

// Data follows its header directly, or at the next multiple of 64 bytes as in our files.
Status add_layer(Reader& reader, const qsf::Run& run, uint32_t layer, uint8_t type,
                 std::vector<Named>* out) {
  const size_t before = out->size();
  Status failure = bad("tensors do not fill their layer");
  for (const uint64_t alignment : {uint64_t{1}, qsf::kTensorAlignment}) {
    const Result<bool> fills = walk_layer(reader, run, layer, type, alignment, out);
    if (fills.ok() && *fills) return {};
    // Behind the first header, an impossible one may be data.
    if (!fills.ok() && out->size() == before + 1) failure = fills.status();
    out->resize(before);
  }
  return failure;
}

Status add_sections(Reader& reader, gguf::Bytes head, std::vector<Named>* out) {
  const uint64_t hidden = field<uint32_t>(head, 20), vocabulary = field<uint32_t>(head, 32);
  const auto embedding = field<uint64_t>(head, 64), last = field<uint64_t>(head, 72);
  std::array<uint8_t, 16> section;
  SLUICE_RETURN_IF_ERROR(reader.read(embedding, section));
  Named table{"token_embd.weight", {}};
  table.tensor.n_dims = 2;
  table.tensor.ne = {field<uint32_t>(section, 12), field<uint32_t>(section, 8), 1, 1};
  table.tensor.offset = embedding + section.size();
  if (table.tensor.ne[0] != hidden || table.tensor.ne[1] != vocabulary) {
    return error(Code::kBadShape, "the QSF header and the embedding have different dimensions");
  }
  if (field<uint32_t>(section, 0) > 255) return bad("the embedding has an unknown type");
  SLUICE_RETURN_IF_ERROR(set_type(section[0], &table.tensor));
  if (table.tensor.bytes != field<uint32_t>(section, 4)) {
    return bad("the embedding does not fill its section");
  }
  out->push_back(std::move(table));

  Named norm{"output_norm.weight", {}};
  norm.tensor.n_dims = 1;
  norm.tensor.ne[0] = hidden;
  norm.tensor.type = gguf::TensorType::kF16;
  norm.tensor.offset = last;
  SLUICE_RETURN_IF_ERROR(gguf::set_tensor_bytes(&norm.tensor));
  uint64_t at = last + norm.tensor.bytes;
  out->push_back(std::move(norm));
  uint8_t follows = 0;
  SLUICE_RETURN_IF_ERROR(reader.read(at++, {&follows, 1}));
  if (follows == kTied) return {};
  if (follows != 0) return bad("the final section names no output head");
  Named output;
  SLUICE_RETURN_IF_ERROR(reader.read_tensor(0, kTypeOfLayer, &at, &output.tensor, &output.name));
  output.name = "output.weight";
  output.tensor.offset = at;
  out->push_back(std::move(output));
  return {};
}

// Hyperparameters of a Llama, which the header's fields describe completely but for the epsilon of
// its norms: it is Llama 2's.
Status describe(gguf::Bytes head, gguf::MetadataWriter* writer) {
  const auto number = [head](uint64_t at) { return field<uint32_t>(head, at); };
  const auto refuse = [](const char* what) {
    return error(Code::kUnsupportedArchitecture,
                 "the QSF file has no metadata section, and its header asks for %s; without "
                 "metadata only Llama and Mistral models can be read",
                 what);
  };
  if (number(12) != 1 && number(12) != 2) return refuse("another architecture");
  if (head[49] != 1) return refuse("another activation than SiLU");
  if (head[50] != 1) return refuse("another norm than RMSNorm");
  if (head[51] != 1) return refuse("other positions than RoPE");
  const uint32_t hidden = number(20), heads = number(24), kv = number(28), size = number(44);
  if (heads == 0) return bad("it has no attention heads");
  writer->string("general.architecture", "llama");
  const std::pair<const char*, uint32_t> fields[] = {
      {"block_count", number(16)},
      {"embedding_length", hidden},
      {"attention.head_count", heads},
      {"attention.head_count_kv", kv == 0 ? heads : kv},
      {"context_length", number(36)},
      {"feed_forward_length", number(40)},
      {"attention.key_length", size == 0 ? hidden / heads : size},
      {"attention.value_length", size == 0 ? hidden / heads : size},
      {"rope.dimension_count", size == 0 ? hidden / heads : size}};
  for (const auto& [key, value] : fields) writer->number("llama." + std::string(key), value);
  writer->number("llama.rope.freq_base", field<float>(head, 52));
  writer->number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  return {};
}

// Adds the tokenizer, and the header's token ids where it has none.
Status add_tokenizer(const TokenizerSource& tokenizer, gguf::Bytes head, gguf::Header* header,
                     gguf::MetadataWriter* writer) {
  const auto is_tokenizer = [](const gguf::KeyValue& kv) {
    return kv.key.starts_with("tokenizer.");
  };
  if (tokenizer.header != nullptr || !tokenizer.json.empty()) {
    std::erase_if(header->metadata, is_tokenizer);
  }
  if (tokenizer.header != nullptr) {
    for (const gguf::KeyValue& kv : tokenizer.header->metadata) {
      if (!is_tokenizer(kv)) continue;
      gguf::Value value = kv.value;
      value.bytes = writer->keep({value.bytes.begin(), value.bytes.end()});
      header->metadata.push_back({writer->keep_text(kv.key), value});
    }
  } else if (!tokenizer.json.empty()) {
    hf::Directory directory;
    directory.tokenizer = tokenizer.json;
    SLUICE_RETURN_IF_ERROR(
        hf::describe_tokenizer(directory, hf::Json::object(), field<uint32_t>(head, 32), writer));
  }
  if (std::none_of(header->metadata.begin(), header->metadata.end(), is_tokenizer)) {
    return error(Code::kBadTokenizer,
                 "the QSF file has no tokenizer: --tokenizer FILE names a tokenizer.json, or a "
                 "model with the same tokenizer");
  }
  uint64_t at = 80;
  for (const char* name : {"bos", "eos", "padding"}) {
    const std::string key = "tokenizer.ggml." + std::string(name) + "_token_id";
    const auto id = field<uint32_t>(head, at);
    if (id != kNoToken && header->find(key) == nullptr) writer->number(key, id);
    at += 4;
  }
  return {};
}

// The keys of a metadata section, which end where it does. Without a section there are none.
Status read_keys(io::ByteSource& file, const qsf::Front& front, gguf::Header* out) {
  if (front.metadata_bytes == 0) return {};
  if (front.metadata_bytes > gguf::kMaxHeaderBytes || front.metadata > file.size() ||
      front.metadata_bytes > file.size() - front.metadata) {
    return error(Code::kTruncated, "the metadata ends beyond the end of the file");
  }
  const auto bytes = std::make_shared<std::vector<uint8_t>>(kPreamble + front.metadata_bytes);
  const uint32_t preamble[4] = {0x46554747, 3, 0, 0};  // "GGUF", version, tensors in 64 bits
  std::memcpy(bytes->data(), preamble, kPreamble);
  SLUICE_RETURN_IF_ERROR(file.read(front.metadata, std::span(*bytes).subspan(kPreamble)));
  const Result<gguf::ParseProgress> parsed = gguf::parse_header(*bytes, 0, out);
  if (!parsed.ok()) return parsed.status();
  out->owned = bytes;
  return parsed->done ? Status() : bad("its metadata section is too short");
}

Status read_front(io::ByteSource& file, std::span<uint8_t> head, qsf::Front* front) {
  if (file.size() < head.size()) return error(Code::kTruncated, "the file ends inside its header");
  SLUICE_RETURN_IF_ERROR(file.read(0, head));
  SLUICE_RETURN_IF_ERROR(qsf::read_front(head, file.size(), front));
  return front->index > file.size() || front->index_bytes() > file.size() - front->index
             ? error(Code::kTruncated, "the file ends inside its header")
             : Status();
}

Status describe_model(io::ByteSource& file, const qsf::Front& front, gguf::Bytes head,
                      const TokenizerSource& tokenizer, std::vector<Named>& tensors,
                      gguf::Header* out) {
  SLUICE_RETURN_IF_ERROR(read_keys(file, front, out));
  const bool has_keys = front.metadata_bytes > 0;
  Status failure;
  gguf::add_keys(out, [&](gguf::MetadataWriter& writer) {
    if (!has_keys) failure = describe(head, &writer);
    if (failure.ok()) failure = add_tokenizer(tokenizer, head, out, &writer);
    for (Named& next : tensors) {
      next.tensor.name = writer.keep_text(next.name);
      out->tensors.push_back(next.tensor);
    }
  });
  SLUICE_RETURN_IF_ERROR(failure);
  return gguf::index_tensors(out);
}

}  // namespace

bool is_foreign_qsf(io::ByteSource& file) {
  std::array<uint8_t, qsf::kHeaderBytes> head;
  qsf::Front front;
  if (file.size() < head.size() || !file.read(0, head).ok() || !qsf::is_qsf(head) ||
      !read_front(file, head, &front).ok()) {
    return false;
  }
  if (field<uint32_t>(head, 4) != 1) return false;
  if (front.metadata_bytes == 0) return true;
  std::array<uint8_t, 4> magic{};
  const uint64_t end = front.metadata + front.metadata_bytes;
  if (front.metadata_bytes < magic.size() || end > file.size()) return false;
  return file.read(end - magic.size(), magic).ok() &&
         field<uint32_t>(magic, 0) != qsf::kTrailerMagic;
}

Result<ForeignQsf> read_foreign_qsf(std::unique_ptr<io::ByteSource> file,
                                    const TokenizerSource& tokenizer) {
  std::array<uint8_t, qsf::kHeaderBytes> head;
  qsf::Front front;
  SLUICE_RETURN_IF_ERROR(read_front(*file, head, &front));
  std::vector<uint8_t> index(front.index_bytes());
  SLUICE_RETURN_IF_ERROR(file->read(front.index, index));
  std::vector<qsf::Run> layers;
  SLUICE_RETURN_IF_ERROR(qsf::read_index(index, &layers));
  std::vector<qsf::Run> runs = layers;
  SLUICE_RETURN_IF_ERROR(qsf::check_places(runs, file->size()));
  io::ByteSource& raw = *file;
  Result<std::unique_ptr<QsfSource>> source = QsfSource::open(std::move(file), std::move(runs));
  if (!source.ok()) return source.status();
  Reader reader(&raw, source->get());
  std::vector<Named> tensors;
  SLUICE_RETURN_IF_ERROR(add_sections(reader, head, &tensors));
  for (uint32_t i = 0; i < layers.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        add_layer(reader, layers[i], i, index[i * qsf::kEntryBytes + 16], &tensors));
  }
  ForeignQsf out;
  SLUICE_RETURN_IF_ERROR(describe_model(raw, front, head, tokenizer, tensors, &out.header));
  out.source = std::move(*source);
  return out;
}

}  // namespace sluice::native
