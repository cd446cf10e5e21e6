// Parses the header, the index and the list of sections. Metadata and tensor infos go through the
// GGUF parser, after writing a GGUF preamble in front of them.
#include <algorithm>
#include <cstring>

#include "base/sort.h"
#include "gguf/printable.h"
#include "qsf/crc32.h"
#include "qsf/index.h"

namespace sluice::qsf {
namespace {

using gguf::Bytes;

constexpr uint64_t kPreamble = 16;  // of a GGUF header, before the count of its keys

Status bad(const char* what) {
  return error(Code::kBadHeader, "the QSF header is invalid: %s", what);
}

}  // namespace

Status read_front(Bytes in, uint64_t file_size, Front* out) {
  if (const auto version = field<uint32_t>(in, 4); version - 1 >= kNewestVersion) {
    return error(Code::kUnsupportedVersion, "QSF version %u is not supported", version);
  }
  if (crc32(in.first(96)) != field<uint32_t>(in, 96)) {
    return error(Code::kCorrupt,
                 "the checksum of the QSF header is wrong; download the file again");
  }
  if (field<uint32_t>(in, 8) != kHeaderBytes) return bad("its size is not 128");
  out->layers = field<uint32_t>(in, 16);
  out->hidden = field<uint32_t>(in, 20);
  out->vocabulary = field<uint32_t>(in, 32);
  out->index = field<uint64_t>(in, 56);
  out->metadata = field<uint64_t>(in, 100);
  out->metadata_bytes = field<uint32_t>(in, 108);
  if (out->layers > kMaxLayers) return bad("it has too many layers");
  if (field<uint32_t>(in, 92) != static_cast<uint32_t>(file_size)) {
    return error(Code::kTruncated,
                 "the file's length differs from the one in its header; download it again");
  }
  const bool keys = out->metadata_bytes > 0;
  return out->index < kHeaderBytes || (keys && out->metadata < kHeaderBytes + kPreamble)
             ? bad("a section has an impossible offset or size")
             : Status();
}

namespace {

Status read_entry(Bytes in, uint32_t layer, Run* run) {
  run->offset = field<uint64_t>(in, 0);
  run->stored = field<uint32_t>(in, 8);
  run->bytes = field<uint32_t>(in, 12);
  run->tensors = field<uint16_t>(in, 18);
  run->crc = field<uint32_t>(in, 20);
  run->compression = static_cast<Compression>(in[17]);
  run->layer = true;
  run->address = run->offset;
  if (in[17] > static_cast<uint8_t>(Compression::kZstd)) return bad("an unknown compression");
  if (run->compression == Compression::kNone) {
    return run->stored == run->bytes ? Status()
                                     : bad("an uncompressed layer has two different sizes");
  }
  run->frame = field<uint32_t>(in, 28);
  run->address = kUnpacked + (static_cast<uint64_t>(layer) << kUnpackedBits);
  const bool listed = run->frame > 0 && run->frame < run->bytes;
  const uint64_t frame = listed ? run->frame : run->bytes;
  if (listed && (run->bytes + frame - 1) / frame > run->stored / 8) {
    return bad("a layer is too small for the seek table of its frames");
  }
  return frame <= kSmallFrame || frame <= kMaxExpansion * run->stored
             ? Status()
             : bad("a layer has an impossible size");
}

}  // namespace

Status read_index(Bytes index, std::vector<Run>* runs) {
  runs->clear();
  for (uint32_t i = 0; i < index.size() / kEntryBytes; ++i) {
    SLUICE_RETURN_IF_ERROR(
        read_entry(index.subspan(i * kEntryBytes, kEntryBytes), i, &runs->emplace_back()));
  }
  return {};
}

Status check_places(std::vector<Run>& runs, uint64_t file_size) {
  heap_sort(runs, [](const Run& a, const Run& b) { return a.offset < b.offset; });
  uint64_t end = kHeaderBytes;
  for (const Run& run : runs) {
    if (run.offset < end) return bad("layers or sections overlap");
    if (run.offset > file_size || run.stored > file_size - run.offset) {
      return error(Code::kTruncated, "a layer ends beyond the end of the file; download it again");
    }
    end = run.offset + run.stored;
  }
  heap_sort(runs, [](const Run& a, const Run& b) { return a.address < b.address; });
  return {};
}

namespace {

// The tensors of a layer, sorted by address, must fill it: for each its header, then its data at
// the next multiple of the alignment, up to the end of the layer.
Status check_layer(const Run& run, const gguf::Tensor* const* tensors, size_t n,
                   uint64_t alignment) {
  const uint64_t mask = std::max(alignment, kTensorAlignment) - 1;
  uint64_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t data = (at + tensor_header_bytes(tensors[i]->name) + mask) & ~mask;
    if (tensors[i]->offset - run.address != data) return bad("a tensor has a wrong offset");
    at = data + tensors[i]->bytes;
  }
  return n == run.tensors && at == run.bytes ? Status() : bad("tensors do not fill their layer");
}

Status check_tensors(const gguf::Header& header, const std::vector<Run>& runs) {
  std::vector<const gguf::Tensor*> sorted;
  for (const gguf::Tensor& t : header.tensors) sorted.push_back(&t);
  heap_sort(sorted, [](const auto* a, const auto* b) { return a->offset < b->offset; });
  size_t next = 0;
  for (const Run& run : runs) {
    const size_t first = next;
    for (; next < sorted.size() && sorted[next]->offset < run.address + run.bytes; ++next) {
      const gguf::Tensor& t = *sorted[next];
      if (t.offset < run.address || t.bytes > run.address + run.bytes - t.offset) {
        return error(Code::kBadHeader, "tensor \"%s\" is in no layer or section",
                     gguf::printable(t.name).c_str());
      }
    }
    if (run.layer) {
      SLUICE_RETURN_IF_ERROR(
          check_layer(run, sorted.data() + first, next - first, header.alignment));
    }
  }
  const bool experts = next < sorted.size() && sorted[next]->offset >= kExperts;
  return next == sorted.size() || experts ? Status()
                                          : bad("a tensor lies beyond all layers and sections");
}

Status read_metadata(std::span<uint8_t> prefix, const Front& front, uint32_t tensors,
                     gguf::Header* out) {
  const uint32_t preamble[4] = {0x46554747, 3, tensors, 0};  // "GGUF", version, tensors in 64 bits
  uint8_t* start = prefix.data() + front.metadata - kPreamble;
  std::memcpy(start, preamble, kPreamble);
  const Bytes gguf{start, static_cast<size_t>(kPreamble + front.metadata_bytes)};
  const Result<gguf::ParseProgress> parsed = gguf::parse_header(gguf, 0, out);
  if (!parsed.ok()) return parsed.status();
  if (!parsed->done) return bad("its metadata section is too short");
  for (gguf::Tensor& t : out->tensors) t.offset -= out->data_offset;
  out->data_offset = front.metadata + front.metadata_bytes;
  if (const gguf::Tensor* table = out->find_tensor("token_embd.weight");
      table != nullptr && (table->ne[0] != front.hidden || table->ne[1] != front.vocabulary)) {
    return error(Code::kBadShape, "the QSF header and the embedding have different dimensions");
  }
  return {};
}

}  // namespace

bool is_qsf(Bytes prefix) {
  return prefix.size() >= 4 && field<uint32_t>(prefix, 0) == kMagic;
}

Result<gguf::ParseProgress> parse(std::span<uint8_t> prefix, uint64_t file_size, gguf::Header* out,
                                  std::vector<Run>* runs) {
  const gguf::ParseProgress more{.done = false, .need_bytes = kHeaderBytes};
  if (prefix.size() < kHeaderBytes) return more;
  Front front;
  SLUICE_RETURN_IF_ERROR(read_front(prefix, file_size, &front));
  if (front.metadata_bytes == 0) {
    return error(Code::kBadTokenizer,
                 "the QSF file has no metadata section and therefore no tokenizer; the command "
                 "line takes one by --tokenizer FILE");
  }
  if (front.index > gguf::kMaxHeaderBytes || front.metadata > gguf::kMaxHeaderBytes ||
      front.metadata_bytes < 8 + kTrailerBytes) {
    return bad("a section has an impossible offset or size");
  }
  const uint64_t end =
      std::max(front.index + front.index_bytes(), front.metadata + front.metadata_bytes);
  if (end > file_size) return error(Code::kTruncated, "the file ends inside its header");
  if (prefix.size() < end) return gguf::ParseProgress{.done = false, .need_bytes = end};

  const Bytes in = prefix;
  const Bytes index = in.subspan(front.index, front.index_bytes());
  const Bytes metadata = in.subspan(front.metadata, front.metadata_bytes);
  const Bytes trailer = metadata.last(kTrailerBytes);
  const auto tensors = field<uint32_t>(trailer, 0), sections = field<uint32_t>(trailer, 4);
  if (field<uint32_t>(trailer, 12) != kTrailerMagic) {
    return error(Code::kUnsupportedVersion,
                 "the QSF file has no tensor list: another program wrote it");
  }
  const uint32_t sum = crc32(metadata.first(metadata.size() - 8),
                             crc32(index, crc32(in.subspan(100, kHeaderBytes - 100))));
  if (sum != field<uint32_t>(trailer, 8)) {
    return error(Code::kCorrupt,
                 "the checksum of the QSF metadata is wrong; download the file again");
  }
  if (tensors > gguf::kMaxTensorCount || sections > kMaxSections ||
      sections * kSectionBytes + kTrailerBytes > metadata.size()) {
    return bad("it has too many tensors or sections");
  }
  SLUICE_RETURN_IF_ERROR(read_index(index, runs));
  const Bytes listed = metadata.last(kTrailerBytes + sections * kSectionBytes);
  for (uint32_t i = 0; i < sections; ++i) {
    const Bytes at = listed.subspan(i * kSectionBytes);
    Run run;
    run.offset = run.address = field<uint64_t>(at, 0);
    run.stored = run.bytes = field<uint64_t>(at, 8);
    run.crc = field<uint32_t>(at, 16);
    runs->push_back(run);
  }
  SLUICE_RETURN_IF_ERROR(check_places(*runs, file_size));
  SLUICE_RETURN_IF_ERROR(read_metadata(prefix, front, tensors, out));
  SLUICE_RETURN_IF_ERROR(check_tensors(*out, *runs));
  return gguf::ParseProgress{.done = true, .need_bytes = 0};
}

namespace {
constexpr std::string_view kNames[] = {
    "attn_q.weight", "attn_k.weight",   "attn_v.weight",    "attn_output.weight", "ffn_gate.weight",
    "ffn_up.weight", "ffn_down.weight", "attn_norm.weight", "ffn_norm.weight",    "attn_q.bias",
    "attn_k.bias",   "attn_v.bias",     "attn_output.bias"};
}  // namespace

std::string_view tensor_name(uint32_t code) {
  return code < std::size(kNames) ? kNames[code] : std::string_view();
}

int32_t tensor_code(std::string_view name) {
  if (!name.starts_with("blk.")) return -1;
  const size_t dot = name.find('.', 4);
  if (dot == std::string_view::npos) return -1;
  const auto found = std::find(std::begin(kNames), std::end(kNames), name.substr(dot + 1));
  return found == std::end(kNames) ? -1 : static_cast<int32_t>(found - std::begin(kNames));
}

uint64_t tensor_header_bytes(std::string_view name) {
  return kTensorHeaderBytes + (tensor_code(name) < 0 ? (name.size() + 15) / 16 * 16 : 0);
}

}  // namespace sluice::qsf
