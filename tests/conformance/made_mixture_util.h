// A made mixture of experts: small, but most of its bytes are experts, so that a budget decides
// which of them are in memory.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/make-model/gguf_writer.h"
#include "tests/make-model/made_vocabulary.h"
#include "tests/make-model/model_plan.h"
#include "tests/make-model/random_blocks.h"

namespace sluice::test {

// A file with `used` of 16 experts in each of four layers, most of its bytes.
class MadeMixture {
 public:
  explicit MadeMixture(uint32_t used = 2) {
    make_model::Shape shape;
    for (const make_model::Shape& s : make_model::shapes()) {
      if (s.name == "tiny") shape = s;
    }
    shape.n_ff = 128;
    shape.n_expert = 16;
    shape.n_expert_used = used;
    const make_model::FileType* type = nullptr;
    for (const make_model::FileType& t : make_model::file_types()) {
      if (t.name == "q4_0") type = &t;
    }
    make_model::GgufWriter writer;
    make_model::add_hyperparameters(&writer, shape, *type);
    make_model::add_vocabulary(&writer, shape.vocabulary, shape.n_vocab, 1);
    std::string data;
    for (const make_model::PlannedTensor& t : make_model::plan_tensors(shape, *type, false)) {
      const uint64_t offset = writer.add_tensor(t.name, t.type, t.ne, t.bytes);
      data.resize(offset + t.bytes);
      fill_blocks(t, 0, t.n_weights / make_model::block_type(t.type).block_size, 1,
                  reinterpret_cast<uint8_t*>(&data[offset]));
    }
    data.resize(writer.data_bytes());
    std::ofstream(path, std::ios::binary) << writer.header() << data;
  }
  ~MadeMixture() { std::filesystem::remove(path); }
  MadeMixture(const MadeMixture&) = delete;
  MadeMixture& operator=(const MadeMixture&) = delete;

  const std::string path = (std::filesystem::temp_directory_path() /
                            ("sluice-mixture-" + std::to_string(getpid()) + ".gguf"))
                               .string();
};

// Tokens of its vocabulary.
inline std::vector<int32_t> mixture_tokens() {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < 96; ++i) out.push_back(1 + (i * i * 37 + i) % 280);
  return out;
}

}  // namespace sluice::test
