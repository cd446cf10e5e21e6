// Writes GGUF: the header, then the tensors one after another, each aligned.
#include "base/round_up.h"
#include "convert/layout.h"
#include "gguf/write.h"

namespace sluice::convert {
namespace {

using gguf::Header;
using gguf::Tensor;

bool is_of_qsf(gguf::TensorType type) {
  switch (type) {
#define SLUICE_QSF_TYPE(NAME, name, id, values, bytes) case gguf::TensorType::k##NAME:
#include "kernels/types.def"
    return true;
    default:
      return false;
  }
}

class GgufLayout final : public Layout {
 public:
  [[nodiscard]] uint64_t front_bytes(const Header& header) const override {
    Header copy = header;
    return gguf::place_and_write(&copy).size();
  }
  [[nodiscard]] Result<uint64_t> file_bytes(Header* header, uint64_t front) const override {
    uint64_t at = round_up(front, header->alignment);
    for (const Tensor& t : header->tensors) at += round_up(t.bytes, header->alignment);
    return at;
  }
  [[nodiscard]] Status begin(Header* header, Output* output) override {
    header_ = header;
    output_ = output;
    for (const Tensor& t : header->tensors) {
      if (!is_of_qsf(t.type)) continue;
      return error(Code::kInvalidArgument,
                   "the type %s exists only in QSF: OUT must end in .qsf, or choose another --type",
                   gguf::type_info(t.type)->name);
    }
    const std::string bytes = gguf::place_and_write(header);
    output->expect(header->tensors.empty()
                       ? bytes.size()
                       : header->tensors.back().offset + header->tensors.back().bytes);
    return output->write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
  [[nodiscard]] Status start(size_t i) override {
    return output_->pad_to(header_->tensors[i].offset);
  }
  [[nodiscard]] Status write(std::span<const uint8_t> bytes) override {
    return output_->write(bytes);
  }
  [[nodiscard]] Status finish() override {
    const uint64_t whole = header_->alignment;
    return output_->pad_to((output_->done() + whole - 1) / whole * whole);
  }

 private:
  Header* header_ = nullptr;
  Output* output_ = nullptr;
};

}  // namespace

std::unique_ptr<Layout> make_gguf_layout() {
  return std::make_unique<GgufLayout>();
}

}  // namespace sluice::convert
