// Presents the experts of a QSF file as whole tensors, where the file has a record per expert
// (qsf/experts.h). A read of their virtual addresses is a read of one slice after another. All
// other addresses are those of the source below, which verifies records as it does layers.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "io/byte_source.h"
#include "qsf/experts.h"

namespace sluice::native {

// Reads the table of experts of a QSF file; empty for files without one. Errors: those of the
// source, of qsf::read_experts and qsf::check_experts.
[[nodiscard]] Result<qsf::Experts> read_experts(io::ByteSource& file, const gguf::Header& header);

class ExpertSource final : public io::ByteSource {
 public:
  ExpertSource(std::unique_ptr<io::ByteSource> file, std::vector<qsf::ExpertTensor> tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}
  // Bytes that it holds besides those of the file.
  [[nodiscard]] uint64_t memory() const { return tensors_.capacity() * sizeof(qsf::ExpertTensor); }

  [[nodiscard]] uint64_t size() const override { return file_->size(); }
  // Errors: also kTruncated for a range that is in no tensor.
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override;
  // A part that is in more than one slice has no place.
  [[nodiscard]] uint64_t place(uint64_t offset, uint64_t length) override;
  [[nodiscard]] Status read_parts(std::span<const io::ReadPart> parts) override;
  [[nodiscard]] bool use_direct_io(std::shared_ptr<io::DirectBuffers> buffers) override {
    return file_->use_direct_io(std::move(buffers));
  }
  [[nodiscard]] io::SystemReads system_reads() const override { return file_->system_reads(); }
  void will_need(uint64_t offset, uint64_t length) override;
  [[nodiscard]] uint64_t bytes_fetched() const override { return file_->bytes_fetched(); }
  [[nodiscard]] uint64_t bytes_from_cache() const override { return file_->bytes_from_cache(); }
  [[nodiscard]] uint64_t bytes_missing() const override { return file_->bytes_missing(); }
  [[nodiscard]] uint64_t decompress_ns() const override { return file_->decompress_ns(); }
  void defer_checks() override { file_->defer_checks(); }
  [[nodiscard]] Status run_deferred_checks() override { return file_->run_deferred_checks(); }
  void abort() override { file_->abort(); }

 private:
  // Calls body(offset in the file, bytes) for each slice of a range; stops at its first error.
  template <typename Body>
  [[nodiscard]] Status for_slices(uint64_t offset, uint64_t length, Body&& body) const;

  std::unique_ptr<io::ByteSource> file_;
  std::vector<qsf::ExpertTensor> tensors_;  // by address
};

}  // namespace sluice::native
