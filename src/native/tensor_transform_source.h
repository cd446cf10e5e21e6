// Presents tensors that a checkpoint stores differently from GGUF as one more file of the model.
// Reads transform the checkpoint's data on the fly (hf/tensor_transform.h). All memory for that is
// allocated on opening.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/aligned.h"
#include "hf/tensor_transform.h"
#include "io/byte_source.h"

namespace sluice::native {

class TensorTransformSource final : public io::ByteSource {
 public:
  // `runs`: sorted by address; gaps are never read. `files` must outlive the source.
  // Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<TensorTransformSource>> open(
      std::vector<hf::Derived> runs, std::vector<io::ByteSource*> files);
  // Bytes that it holds.
  [[nodiscard]] uint64_t memory() const { return memory_; }

  [[nodiscard]] uint64_t size() const override;
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override;

 private:
  // Buffers of one reader: a line as stored, its scales, and the transformed line.
  struct Room {
    AlignedBuffer stored, scales, made;
    bool busy = false;
  };
  class Use;

  TensorTransformSource(std::vector<hf::Derived> runs, std::vector<io::ByteSource*> files)
      : runs_(std::move(runs)), files_(std::move(files)) {}
  [[nodiscard]] Status make_rooms();
  [[nodiscard]] Status read_line(const hf::DerivedPart& part, std::span<uint8_t> out);
  [[nodiscard]] Room& take_room();

  std::vector<hf::Derived> runs_;
  std::vector<io::ByteSource*> files_;
  std::vector<Room> rooms_;
  uint64_t memory_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace sluice::native
