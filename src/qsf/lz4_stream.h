// Decodes an LZ4 block from its first byte to its last, in any pieces of input and output. LZ4
// layers are one block (docs/qsf.md): a decoder that needs all of it would hold a layer twice, and
// deliver its first tensor after its last. Written here, because the LZ4 library resumes only
// between blocks. Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::qsf {

class Lz4Stream {
 public:
  // Decoded bytes that matches may refer to.
  static constexpr size_t kWindow = 64 << 10;

  // Begins a block. `window`: kWindow bytes, borrowed until the next start().
  void start(std::span<uint8_t> window);
  // Decodes until *in is used up or *out is full, and removes from both what was read and written.
  // False if the block is damaged.
  [[nodiscard]] bool decode(std::span<const uint8_t>* in, std::span<uint8_t>* out);
  // Whether a block may end here.
  [[nodiscard]] bool at_end() const { return state_ == State::kOffsetLow; }

 private:
  enum class State : uint8_t {
    kToken,
    kLiteralLength,
    kLiterals,
    kOffsetLow,  // behind literals
    kOffsetHigh,
    kMatchLength,
    kMatch,
  };
  struct Cursor {
    const uint8_t *from, *from_end;
    uint8_t *begin, *to, *end;
    [[nodiscard]] size_t readable() const { return static_cast<size_t>(from_end - from); }
    [[nodiscard]] size_t writable() const { return static_cast<size_t>(end - to); }
    [[nodiscard]] size_t written() const { return static_cast<size_t>(to - begin); }
  };

  [[nodiscard]] bool take(uint8_t byte, size_t written);
  void copy_literals(Cursor& c);
  void copy_match(Cursor& c);
  void keep(const Cursor& c);

  State state_ = State::kToken;
  uint8_t match_ = 0;           // the token's code of the match length
  size_t distance_ = 0;         // of the match
  size_t length_ = 0;           // literals or match bytes that are left
  std::span<uint8_t> window_;   // a ring
  size_t next_ = 0, kept_ = 0;  // where its next byte goes; bytes in it
};

}  // namespace sluice::qsf
