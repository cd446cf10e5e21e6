// PyTorch checkpoints in memory: a zip with stored members, and the pickle that torch.save writes
// for a dictionary of tensors, instruction by instruction.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::test {

template <typename T>
std::string le(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Members are aligned by an extra field of the local header, like torch.save's.
class ZipBuilder {
 public:
  ZipBuilder& add(const std::string& name, const std::string& bytes, uint16_t method = 0) {
    const auto header = static_cast<uint32_t>(file_.size());
    const auto size = static_cast<uint32_t>(bytes.size());
    const size_t padding = 64 - (file_.size() + 34 + name.size()) % 64;
    const std::string sizes = le(uint32_t{0}) + le(size) + le(size);
    const std::string lengths =
        le(static_cast<uint16_t>(name.size())) + le(static_cast<uint16_t>(padding + 4));
    file_ += le(uint32_t{0x04034b50}) + le(uint16_t{0}) + le(uint16_t{0}) + le(method) +
             le(uint32_t{0}) + sizes + lengths + name + "FB" + le(static_cast<uint16_t>(padding)) +
             std::string(padding, 'Z') + bytes;
    directory_ += le(uint32_t{0x02014b50}) + le(uint16_t{0}) + le(uint16_t{0}) + le(uint16_t{0}) +
                  le(method) + le(uint32_t{0}) + sizes + le(static_cast<uint16_t>(name.size())) +
                  std::string(12, '\0') + le(header) + name;
    ++members_;
    return *this;
  }
  // zip64: with the records for files of more than 4 GB, although this file is small.
  [[nodiscard]] std::string build(bool zip64 = false) const {
    const auto at = static_cast<uint32_t>(file_.size());
    const auto size = static_cast<uint32_t>(directory_.size());
    std::string out = file_ + directory_;
    if (zip64) {
      const uint64_t record = out.size();
      out += le(uint32_t{0x06064b50}) + le(uint64_t{44}) + std::string(12, '\0') +
             le(uint64_t{members_}) + le(uint64_t{members_}) + le(uint64_t{size}) +
             le(uint64_t{at}) + le(uint32_t{0x07064b50}) + le(uint32_t{0}) + le(record) +
             le(uint32_t{1});
    }
    return out + le(uint32_t{0x06054b50}) + le(uint32_t{0}) +
           (zip64 ? std::string(12, '\xff') : le(members_) + le(members_) + le(size) + le(at)) +
           le(uint16_t{0});
  }

 private:
  std::string file_, directory_;
  uint16_t members_ = 0;
};

inline std::string pickled_text(std::string_view text) {
  return "X" + le(static_cast<uint32_t>(text.size())) + std::string(text);
}
inline std::string pickled_number(uint64_t n) {
  if (n < 256) return "K" + le(static_cast<uint8_t>(n));
  if (n < 65536) return "M" + le(static_cast<uint16_t>(n));
  if (n < (uint64_t{1} << 31)) return "J" + le(static_cast<uint32_t>(n));
  return std::string("\x8a\x08") + le(n);
}

struct TorchTensor {
  std::string name, type = "BFloat16Storage", storage = "0";
  std::vector<uint64_t> shape, strides = {};  // strides: empty for contiguous rows
  uint64_t offset = 0, storage_values = 0;
};

inline std::string pickled_tuple(const std::vector<uint64_t>& numbers) {
  std::string out = "(";
  for (const uint64_t n : numbers) out += pickled_number(n);
  return out + "t";
}

inline std::string pickled_tensor(const TorchTensor& t) {
  std::vector<uint64_t> strides = t.strides;
  if (strides.empty()) {
    strides.resize(t.shape.size(), 1);
    for (size_t i = t.shape.size(); i-- > 1;) strides[i - 1] = strides[i] * t.shape[i];
  }
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + pickled_text("storage") + "ctorch\n" + t.type +
         "\n" + pickled_text(t.storage) + pickled_text("cpu") + pickled_number(t.storage_values) +
         "tQ" + pickled_number(t.offset) + pickled_tuple(t.shape) + pickled_tuple(strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR";
}

// The dictionary, with the attribute of a module's state_dict.
inline std::string pickled(const std::vector<TorchTensor>& tensors) {
  std::string out =
      "\x80\x02"
      "ccollections\nOrderedDict\nq" +
      std::string(1, '\0') + ")Rq\x01(";
  for (const TorchTensor& t : tensors) out += pickled_text(t.name) + pickled_tensor(t);
  return out + "u}" + pickled_text("_metadata") + "h" + std::string(1, '\0') + ")Rsb.";
}

}  // namespace sluice::test
