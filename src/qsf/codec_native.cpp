// Each packer and unpacker allocates its context once, so nothing is allocated per frame.
#include "qsf/codec.h"

#if !defined(SLUICE_NO_CODECS)
#include <lz4.h>
#include <lz4hc.h>
#include <zstd.h>
#endif

namespace sluice::qsf {

#if defined(SLUICE_NO_CODECS)

struct Packer::Context {};
struct Unpacker::Context {};
Packer::Packer(Compression compression) : compression_(compression) {}
uint64_t Packer::most(Compression, uint64_t n) {
  return n;
}
uint64_t Packer::memory(Compression) {
  return 0;
}
Status Packer::pack(std::span<const uint8_t>, std::vector<uint8_t>*) {
  return error(Code::kInvalidArgument, "this build cannot compress");
}
Unpacker::Unpacker() = default;
bool Unpacker::unpack(std::span<const uint8_t>, std::span<uint8_t>) {
  return false;
}
uint64_t Unpacker::memory() {
  return 0;
}

#else

namespace {

constexpr int kZstdLevel = 9;  // higher levels take longer and do not compress weights further

// Sizes of the contexts, rounded up: to compress frames of 128 kB, and to decompress.
constexpr uint64_t kPackerBytes = 4 << 20, kUnpackerBytes = 160 << 10;

}  // namespace

struct Packer::Context {
  ZSTD_CCtx* zstd = nullptr;
  ~Context() { ZSTD_freeCCtx(zstd); }
};

Packer::Packer(Compression compression)
    : compression_(compression), context_(std::make_unique<Context>()) {
  if (compression == Compression::kZstd) context_->zstd = ZSTD_createCCtx();
}

uint64_t Packer::most(Compression compression, uint64_t n) {
  return compression == Compression::kZstd ? ZSTD_compressBound(static_cast<size_t>(n))
                                           : n + n / 255 + 16;
}

uint64_t Packer::memory(Compression compression) {
  if (compression == Compression::kZstd) return kPackerBytes;
  if (compression == Compression::kNone) return 0;
  return static_cast<uint64_t>(compression == Compression::kLz4 ? LZ4_sizeofState()
                                                                : LZ4_sizeofStateHC());
}

Status Packer::pack(std::span<const uint8_t> in, std::vector<uint8_t>* out) {
  const size_t before = out->size();
  const uint64_t room = most(compression_, in.size());
  out->resize(before + static_cast<size_t>(room));
  uint8_t* to = out->data() + before;
  size_t n = 0;
  if (compression_ == Compression::kZstd) {
    if (context_->zstd == nullptr) return error(Code::kOutOfMemory, "no memory to compress");
    n = ZSTD_compressCCtx(context_->zstd, to, static_cast<size_t>(room), in.data(), in.size(),
                          kZstdLevel);
    if (ZSTD_isError(n)) return error(Code::kInternal, "Zstandard: %s", ZSTD_getErrorName(n));
  } else {
    if (in.size() > LZ4_MAX_INPUT_SIZE) {
      return error(Code::kInvalidArgument, "a layer of more than 2 GB cannot be compressed by LZ4");
    }
    const auto* from = reinterpret_cast<const char*>(in.data());
    const int length = static_cast<int>(in.size()), max_bytes = static_cast<int>(room);
    const int written =
        compression_ == Compression::kLz4
            ? LZ4_compress_default(from, reinterpret_cast<char*>(to), length, max_bytes)
            : LZ4_compress_HC(from, reinterpret_cast<char*>(to), length, max_bytes,
                              LZ4HC_CLEVEL_DEFAULT);
    if (written <= 0 && length > 0) return error(Code::kInternal, "LZ4 could not compress a layer");
    n = static_cast<size_t>(written);
  }
  out->resize(before + n);
  return {};
}

struct Unpacker::Context {
  ZSTD_DCtx* zstd = ZSTD_createDCtx();
  ~Context() { ZSTD_freeDCtx(zstd); }
};

Unpacker::Unpacker() : context_(std::make_unique<Context>()) {}

bool Unpacker::unpack(std::span<const uint8_t> in, std::span<uint8_t> out) {
  return context_->zstd != nullptr && ZSTD_decompressDCtx(context_->zstd, out.data(), out.size(),
                                                          in.data(), in.size()) == out.size();
}

uint64_t Unpacker::memory() {
  return kUnpackerBytes;
}

#endif

Packer::~Packer() = default;
Unpacker::~Unpacker() = default;
Unpacker::Unpacker(Unpacker&&) noexcept = default;
Unpacker& Unpacker::operator=(Unpacker&&) noexcept = default;

}  // namespace sluice::qsf
