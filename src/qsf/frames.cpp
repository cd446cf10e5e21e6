// Zstandard's seek table, little-endian: magic of a skippable frame u32, bytes that follow u32; for
// each frame its compressed and unpacked bytes, u32 each; number of frames u32, flags u8, magic
// u32.
#include <algorithm>
#include <cstring>

#include "qsf/codec.h"

namespace sluice::qsf {
namespace {

constexpr uint32_t kSkippable = 0x184D2A5E, kSeekable = 0x8F92EAB1;
constexpr uint64_t kHead = 8, kEntry = 8, kFoot = 9;

void put(std::vector<uint8_t>* out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<uint8_t>(value >> shift));
}

uint32_t get(std::span<const uint8_t> in, uint64_t at) {
  uint32_t value = 0;
  std::memcpy(&value, in.data() + at, 4);
  return value;
}

}  // namespace

std::vector<uint8_t> frame_list(std::span<const uint32_t> stored, uint64_t bytes) {
  std::vector<uint8_t> out;
  put(&out, kSkippable);
  put(&out, static_cast<uint32_t>(kEntry * stored.size() + kFoot));
  for (const uint32_t n : stored) {
    put(&out, n);
    put(&out, static_cast<uint32_t>(std::min<uint64_t>(bytes, kFrameBytes)));
    bytes -= std::min<uint64_t>(bytes, kFrameBytes);
  }
  put(&out, static_cast<uint32_t>(stored.size()));
  out.push_back(0);
  put(&out, kSeekable);
  return out;
}

uint64_t frame_list_bytes(const Run& run) {
  return frame_count(run) == 1 ? 0 : kHead + kEntry * frame_count(run) + kFoot;
}

Status read_frame_list(const Run& run, std::span<const uint8_t> list, std::span<uint32_t> starts) {
  const auto wrong = [] { return error(Code::kBadHeader, "a layer's seek table is invalid"); };
  const uint64_t n = frame_count(run);
  const uint64_t most = run.stored - std::min(run.stored, frame_list_bytes(run));
  if (starts.size() != n + 1 || list.size() != frame_list_bytes(run)) return wrong();
  starts[0] = 0;
  starts[n] = static_cast<uint32_t>(most);
  if (n == 1) return {};
  if (get(list, 0) != kSkippable || get(list, 4) != list.size() - kHead ||
      get(list, list.size() - 4) != kSeekable || list[list.size() - 5] != 0 ||
      get(list, list.size() - kFoot) != n) {
    return wrong();
  }
  uint64_t at = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t bytes = std::min<uint64_t>(run.frame, run.bytes - i * run.frame);
    if (get(list, kHead + kEntry * i + 4) != bytes) return wrong();
    starts[i] = static_cast<uint32_t>(at);
    at += get(list, kHead + kEntry * i);
    if (at > most) return wrong();
  }
  return at == most ? Status() : wrong();
}

}  // namespace sluice::qsf
