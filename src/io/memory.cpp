// A ByteSource over bytes in memory, for tests, embedded models and small files.
#include <cstring>

#include "io/byte_source.h"

namespace sluice::io {

namespace {

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] uint64_t size() const override { return bytes_.size(); }

  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return error(Code::kTruncated, "a read at byte %llu exceeds the end (%zu bytes)",
                   static_cast<unsigned long long>(offset), bytes_.size());
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace

std::unique_ptr<ByteSource> open_memory(std::span<const uint8_t> bytes) {
  return std::make_unique<MemorySource>(bytes);
}

}  // namespace sluice::io
