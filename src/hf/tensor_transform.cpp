// Large chunks are copied one by one. Small ones are made in lines, from one read of the line's
// whole span.
#include "hf/tensor_transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice::hf {
namespace {

bool by_chunk(const Derived& run) {
  return run.kind == Derived::Kind::kGather && run.chunk >= kWholeChunk;
}

uint64_t span_of(const Derived& run) {
  return (run.counts[2] - 1) * run.strides[2] + run.chunk;
}

// The distance of a line, which is counts[2] chunks, from the first one in bytes.
uint64_t line_offset(const Derived& run, uint64_t line) {
  return line / run.counts[1] * run.strides[0] + line % run.counts[1] * run.strides[1];
}

float float_of(uint32_t bits) {
  float x = 0;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Reads a value of one of the types that checkpoints have.
float value_of(const uint8_t* at, gguf::TensorType type) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, type == gguf::TensorType::kF32 ? 4 : 2);
  if (type == gguf::TensorType::kF32) return float_of(bits);
  if (type == gguf::TensorType::kBF16) return float_of(bits << 16);
  const uint32_t magnitude = bits & 0x7fff;
  // F32's exponent bias is 112 larger. The product is exact, also for subnormal values.
  const float x = magnitude < 0x7c00 ? float_of(magnitude << 13) * 0x1p112f
                                     : float_of(magnitude << 13 | 0x7f800000);
  return bits >> 15 != 0 ? -x : x;
}

// In the checkpoint two adjacent values share a byte; in GGUF two values 16 apart do.
void make_block(const uint8_t* from, uint8_t scale, uint8_t* to) {
  const auto value = [from](int i) { return from[i / 2] >> (i % 2 * 4) & 15; };
  *to++ = scale;
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(value(i) | value(i + 16) << 4);
}

}  // namespace

std::optional<DerivedPart> next_part(std::span<const Derived> runs, uint64_t offset,
                                     uint64_t length) {
  const auto run =
      std::upper_bound(runs.begin(), runs.end(), offset,
                       [](uint64_t at, const Derived& r) { return at < r.begin + r.bytes; });
  if (run == runs.end()) return {};
  DerivedPart part;
  part.run = static_cast<uint32_t>(run - runs.begin());
  // The gaps between tensors are never used.
  const bool gap = offset < run->begin;
  uint64_t left = gap ? run->begin - offset : run->begin + run->bytes - offset;
  if (!gap && run->kind != Derived::Kind::kZero) {
    const uint64_t at = offset - run->begin;
    part.file = run->file;
    if (by_chunk(*run)) {
      const uint64_t chunk = at / run->chunk, within = at % run->chunk;
      part.kind = DerivedPart::Kind::kCopy;
      part.offset = run->offset + line_offset(*run, chunk / run->counts[2]) +
                    chunk % run->counts[2] * run->strides[2] + within;
      left = run->chunk - within;
    } else {
      const uint64_t line = run->made_chunk() * run->counts[2];
      const uint64_t from = line_offset(*run, at / line);
      part.kind = DerivedPart::Kind::kLine;
      part.offset = run->offset + from;
      part.stored = span_of(*run);
      part.within = at % line;
      left = line - part.within;
      if (run->kind == Derived::Kind::kMxfp4) {
        part.scale_file = run->scale_file;
        part.scales = run->scales + from / 16;
        part.scale_bytes = part.stored / 16;
      }
    }
  }
  part.bytes = std::min(left, length);
  return part;
}

LineRoom line_room(std::span<const Derived> runs) {
  LineRoom room;
  for (const Derived& run : runs) {
    if (by_chunk(run) || run.kind == Derived::Kind::kZero) continue;
    room.stored = std::max(room.stored, span_of(run));
    room.made = std::max(room.made, run.made_chunk() * run.counts[2]);
  }
  return room;
}

void make_line(const Derived& run, const uint8_t* stored, const uint8_t* scales, uint8_t* made) {
  for (uint64_t i = 0; i < run.counts[2]; ++i, made += run.made_chunk()) {
    const uint8_t* chunk = stored + i * run.strides[2];
    if (run.kind == Derived::Kind::kNegativeExp || run.kind == Derived::Kind::kPlusOne) {
      const double x = static_cast<double>(value_of(chunk, run.type));
      const double made_of = run.kind == Derived::Kind::kPlusOne ? x + 1 : -std::exp(x);
      const float value = static_cast<float>(made_of);
      std::memcpy(made, &value, 4);
    } else if (run.kind == Derived::Kind::kMxfp4) {
      for (uint64_t block = 0; block < run.chunk / 16; ++block) {
        make_block(chunk + block * 16, scales[i * run.strides[2] / 16 + block], made + block * 17);
      }
    } else {
      std::memcpy(made, chunk, run.chunk);
    }
  }
}

}  // namespace sluice::hf
