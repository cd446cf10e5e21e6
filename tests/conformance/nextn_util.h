// Models with a multi-token prediction (MTP) head for tests: random weights, small enough for a
// test to compute by itself.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "session/nextn.h"
#include "tests/make-model/gguf_writer.h"
#include "tests/make-model/made_vocabulary.h"
#include "tests/make-model/model_plan.h"
#include "tests/make-model/random_blocks.h"

namespace sluice::test {

struct NextnModel {
  bool recurrent = false;
  bool right = false;     // the layers add nothing, so the head is right; else it is random
  bool own_norm = false;  // nextn.shared_head_norm
  uint64_t seed = 1;
  uint32_t n_ctx = 512;
};

inline make_model::Shape nextn_shape_of(const NextnModel& wanted) {
  const char* const like = wanted.recurrent ? "qwen3.5-0.8b" : "tiny";
  make_model::Shape shape;
  for (const make_model::Shape& s : make_model::shapes()) {
    if (s.name == like) shape = s;
  }
  shape.nextn = true;
  shape.n_ctx = wanted.n_ctx;
  shape.n_vocab = 1024;
  shape.vocabulary = make_model::VocabularyKind::kQwen;
  if (!wanted.recurrent) {
    shape.arch = "glm4moe";
    shape.n_layer = 3;
    shape.n_embd = 64;
    shape.n_head = 4;
    shape.n_head_kv = 2;
    shape.head_dim = 16;
    shape.n_ff = 96;
    return shape;
  }
  shape.n_layer = 4;
  shape.n_embd = 64;
  shape.n_head = 2;
  shape.n_head_kv = 1;
  shape.head_dim = 32;
  shape.n_rot = 16;
  shape.n_ff = 96;
  shape.recurrent.inner = 64;
  shape.recurrent.heads = shape.recurrent.groups = 2;
  shape.recurrent.state = 32;
  return shape;
}

// Owns the model file and removes it.
class MadeNextn {
 public:
  explicit MadeNextn(const NextnModel& wanted) {
    const make_model::Shape shape = nextn_shape_of(wanted);
    const make_model::FileType& type = make_model::file_types()[0];  // f32
    make_model::GgufWriter writer;
    make_model::add_hyperparameters(&writer, shape, type);
    make_model::add_vocabulary(&writer, shape.vocabulary, shape.n_vocab, wanted.seed);
    std::vector<make_model::PlannedTensor> tensors = make_model::plan_tensors(shape, type, false);
    if (wanted.own_norm) {
      make_model::PlannedTensor norm = tensors.back();
      norm.name = "blk." + std::to_string(shape.n_layer) + ".nextn.shared_head_norm.weight";
      tensors.push_back(norm);
    }
    std::string data;
    for (make_model::PlannedTensor& t : tensors) {
      const bool adds = t.name.find("attn_output.") != std::string::npos ||
                        t.name.find("ffn_down.") != std::string::npos ||
                        t.name.find("ssm_out.") != std::string::npos;
      if (wanted.right && adds) t.sigma = 0;
      if (!wanted.right && t.name.find(".nextn.") != std::string::npos) {
        t.sigma = t.picks ? 0.1f : 0.2f;
        t.picks = false;
      }
      const uint64_t offset = writer.add_tensor(t.name, t.type, t.ne, t.bytes);
      data.resize(offset + t.bytes);
      fill_blocks(t, 0, t.n_weights / make_model::block_type(t.type).block_size, wanted.seed,
                  reinterpret_cast<uint8_t*>(&data[offset]));
    }
    static int made = 0;
    const std::string name =
        "sluice-nextn-" + std::to_string(getpid()) + "-" + std::to_string(made++) + ".gguf";
    path = (std::filesystem::temp_directory_path() / name).string();
    data.resize(writer.data_bytes());
    std::ofstream(path, std::ios::binary) << writer.header() << data;
  }
  ~MadeNextn() { std::filesystem::remove(path); }
  MadeNextn(const MadeNextn&) = delete;
  MadeNextn& operator=(const MadeNextn&) = delete;

  std::string path;
};

// Whether drafting speeds up decoding depends on the clock, so tests set latencies with which it
// does.
inline void make_it_pay(session::Engine& engine) {
  engine.context().costs.clear();
  engine.nextn()->costs().clear();
  engine.nextn()->known() = {};
  for (int n = 1; n <= draft::kMaxPass; ++n) {
    for (int i = 0; i < 3; ++i) {
      engine.context().costs.note(n, 1000 + n);
      engine.nextn()->costs().note(n, 1e-3);
    }
  }
}

}  // namespace sluice::test
