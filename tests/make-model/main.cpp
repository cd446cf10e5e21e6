// sluice-make-model: writes a GGUF file of random weights with a published shape, so that speed
// figures can be reproduced without a download. The data is cut into chunks, each with a random
// stream given by the seed, the tensor's name and the position. Threads write chunks in place, so
// the file depends only on the options. Models of one seed share the layers that both have. A model
// whose later layers add little (--faint) can have a shorter one as its draft model.
#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "platform/file.h"
#include "tests/make-model/gguf_writer.h"
#include "tests/make-model/model_plan.h"
#include "tests/make-model/random_blocks.h"

namespace sluice::make_model {
namespace {

constexpr uint64_t kChunkBytes = 4 << 20;
// Limits: above any real model, and low enough that no multiplication overflows.
constexpr uint32_t kMaxLayers = 1024, kMaxWidth = 1 << 17, kMaxVocabulary = 1 << 20;

struct Options {
  std::string shape = "tiny", type = "q4_0", arch, out;
  uint32_t n_layer = 0, n_embd = 0, n_head = 0, n_head_kv = 0, head_dim = 0, n_ff = 0, n_vocab = 0;
  uint32_t n_ctx = 0, n_expert = 0, n_expert_used = 2, threads = 2;
  uint32_t faint_from = 0;
  float faint = 1;
  uint64_t seed = 1;
  bool tied = false, pure = false, quiet = false, nextn = false, projector = false;
  bool no_weights = false;
};

struct Chunk {
  const PlannedTensor* tensor;
  uint64_t first_block, n_blocks;
  uint64_t file_offset;
};

template <typename T>
std::vector<std::string> names_of(std::span<const T> entries) {
  std::vector<std::string> names;
  for (const T& entry : entries) names.emplace_back(entry.name);
  return names;
}

template <typename T>
const T& by_name(std::span<const T> entries, const std::string& name) {
  for (const T& entry : entries) {
    if (entry.name == name) return entry;
  }
  return entries[0];  // unreachable: the argument parser has checked the name
}

Shape wanted_shape(const Options& options) {
  Shape shape = by_name(shapes(), options.shape);
  const auto set = [](uint32_t* field, uint32_t value) {
    if (value != 0) *field = value;
  };
  if (!options.arch.empty() && options.arch != shape.arch) {
    shape.arch = options.arch;
    shape.recurrent = {};
    shape.n_rot = 0;
    shape.lists_kv_heads = shape.two_attentions = false;
    shape.value_dim = shape.n_dense = 0;
    shape.plan = nullptr;
    shape.plan_globals = nullptr;
    shape.add_keys = nullptr;
    shape.vision = nullptr;
    shape.llama3_rope = false;
    shape.vocabulary = options.arch != "llama" ? VocabularyKind::kQwen : shape.vocabulary;
  }
  set(&shape.n_layer, options.n_layer);
  set(&shape.n_embd, options.n_embd);
  set(&shape.n_head, options.n_head);
  set(&shape.n_head_kv, options.n_head_kv);
  if (options.n_embd != 0 || options.n_head != 0) shape.head_dim = shape.n_embd / shape.n_head;
  set(&shape.head_dim, options.head_dim);
  set(shape.n_ff_expert > 0 ? &shape.n_ff_expert : &shape.n_ff, options.n_ff);
  set(&shape.n_vocab, options.n_vocab);
  set(&shape.n_ctx, options.n_ctx);
  shape.tied = shape.tied || options.tied;
  shape.nextn = options.nextn;
  if (options.n_expert > 0) {
    shape.n_expert = options.n_expert;
    shape.n_expert_used = options.n_expert_used;
  }
  return shape;
}

// Returns what is wrong with a shape, or "".
std::string complaint(const Shape& s, bool projector) {
  if (s.n_head % s.n_head_kv != 0) return "--heads must be a multiple of --heads-kv";
  if (s.head_dim == 0 || s.head_dim % 2 != 0) return "--head-dim must be even";
  if (s.n_vocab < smallest_vocabulary(s.vocabulary)) {
    return "--vocab must be at least " + std::to_string(smallest_vocabulary(s.vocabulary));
  }
  if (s.plan == nullptr && (s.n_expert > 0) != (s.arch == "qwen3moe") && s.arch != "llama") {
    return "--experts needs --arch llama or qwen3moe";
  }
  if (s.nextn && s.arch != "glm4moe" && s.arch != "qwen35") {
    return "--nextn needs --arch glm4moe or --shape qwen3.5-0.8b";
  }
  if (projector && s.vision == nullptr) return "--projector needs a shape with vision";
  if (s.n_expert_used > s.n_expert) return "--experts-used must be at most --experts";
  return "";
}

std::vector<Chunk> cut(const std::vector<PlannedTensor>& tensors,
                       const std::vector<uint64_t>& offsets) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const BlockType& block = block_type(tensors[i].type);
    const uint64_t n_blocks = tensors[i].n_weights / block.block_size;
    const uint64_t step = kChunkBytes / block.block_bytes;
    for (uint64_t at = 0; at < n_blocks; at += step) {
      const uint64_t n = std::min(step, n_blocks - at);
      chunks.push_back({&tensors[i], at, n, offsets[i] + at * block.block_bytes});
    }
  }
  return chunks;
}

// Scales what the layers from `from` on add to the residual stream.
void make_faint(std::vector<PlannedTensor>& tensors, uint32_t from, float scale) {
  for (PlannedTensor& tensor : tensors) {
    unsigned layer = 0;
    if (std::sscanf(tensor.name.c_str(), "blk.%u.", &layer) != 1 || layer < from) continue;
    const std::string_view part = std::string_view(tensor.name).substr(tensor.name.find('.', 4));
    if (part.starts_with(".attn_output.") || part.starts_with(".ffn_down")) tensor.sigma *= scale;
  }
}

bool write_chunks(const platform::File& file, const std::vector<Chunk>& chunks, uint64_t seed,
                  uint32_t n_threads) {
  std::atomic<size_t> next{0};
  std::atomic<bool> ok{true};
  const auto work = [&] {
    std::vector<uint8_t> buffer(kChunkBytes);
    for (size_t i = next++; i < chunks.size() && ok; i = next++) {
      const Chunk& chunk = chunks[i];
      const BlockType& block = block_type(chunk.tensor->type);
      fill_blocks(*chunk.tensor, chunk.first_block, chunk.n_blocks, seed, buffer.data());
      const uint64_t bytes = chunk.n_blocks * block.block_bytes;
      if (!file.write_at(chunk.file_offset, buffer.data(), bytes)) ok = false;
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i < n_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return ok;
}

int make(const Options& options) {
  const Shape shape = wanted_shape(options);
  const FileType& type = by_name(file_types(), options.type);
  if (const std::string wrong = complaint(shape, options.projector); !wrong.empty()) {
    std::fprintf(stderr, "sluice-make-model: %s\n", wrong.c_str());
    return 1;
  }
  GgufWriter writer;
  if (options.projector) {
    add_projector_keys(&writer, shape, type);
  } else {
    add_hyperparameters(&writer, shape, type);
    add_vocabulary(&writer, shape.vocabulary, shape.n_vocab, options.seed);
  }

  const std::vector<float> factors = llama3_rope_factors(shape);
  uint64_t factors_offset = 0;
  std::vector<uint64_t> offsets;
  std::vector<PlannedTensor> tensors =
      options.projector ? plan_projector(shape, type) : plan_tensors(shape, type, options.pure);
  if (options.faint != 1) make_faint(tensors, options.faint_from, options.faint);
  for (const PlannedTensor& tensor : tensors) {
    if (shape.llama3_rope && tensor.name == "token_embd.weight") {
      const uint64_t ne[] = {factors.size()};
      factors_offset = writer.add_tensor("rope_freqs.weight", gguf::TensorType::kF32, ne,
                                         factors.size() * sizeof(float));
    }
    offsets.push_back(writer.add_tensor(tensor.name, tensor.type, tensor.ne, tensor.bytes));
  }
  const std::string header = writer.header();
  for (uint64_t& offset : offsets) offset += header.size();

  const auto file = platform::File::open(options.out, platform::Access::kCreate);
  if (!file.valid()) {
    std::fprintf(stderr, "sluice-make-model: cannot write %s\n", options.out.c_str());
    return 1;
  }
  const uint64_t size = header.size() + writer.data_bytes();
  bool ok = file.resize(0) && file.resize(size);
  ok = ok && file.write_at(0, header.data(), header.size());
  if (shape.llama3_rope) {
    ok = ok && file.write_at(header.size() + factors_offset, factors.data(),
                             factors.size() * sizeof(float));
  }
  if (!options.no_weights) {
    ok = ok && write_chunks(file, cut(tensors, offsets), options.seed, options.threads);
  }
  if (!ok) {
    std::fprintf(stderr, "sluice-make-model: writing %s failed (disk full?)\n",
                 options.out.c_str());
    return 1;
  }
  if (!options.quiet) {
    std::printf("%s: %s %s, %zu tensors, %llu bytes\n", options.out.c_str(), shape.name.c_str(),
                options.type.c_str(), tensors.size() + (shape.llama3_rope ? 1 : 0),
                static_cast<unsigned long long>(size));
  }
  return 0;
}

}  // namespace
}  // namespace sluice::make_model

int main(int argc, char** argv) {
  using namespace sluice::make_model;
  Options o;
  CLI::App app("Writes a GGUF model of random weights with a working vocabulary.");
  app.add_option("out", o.out, "The file to write")->required();
  app.add_option("-s,--shape", o.shape, "Published shape")
      ->check(CLI::IsMember(names_of(shapes())))
      ->capture_default_str();
  app.add_option("-t,--type", o.type, "Quantization type or mix")
      ->check(CLI::IsMember(names_of(file_types())))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Seed of the random weights")->capture_default_str();
  app.add_flag(
      "--pure", o.pure,
      "Give the output head the same type as other matrices instead of Q6_K (default: off)");
  app.add_flag("--projector", o.projector,
               "Write the shape's vision projector, not its text model (default: off)");
  app.add_flag("--no-weights", o.no_weights,
               "Leave the weights 0, in a sparse file of full size, to look at a shape without its "
               "disk space (default: off)");
  const auto size = [&](const char* flag, uint32_t* field, uint32_t most, const char* help) {
    app.add_option(flag, *field, help)
        ->check(CLI::Range(1u, most))
        ->group("Dimensions (default: those of the shape)");
  };
  size("--layers", &o.n_layer, kMaxLayers, "Layers");
  size("--embd", &o.n_embd, kMaxWidth, "Hidden size");
  size("--heads", &o.n_head, kMaxWidth, "Query heads");
  size("--heads-kv", &o.n_head_kv, kMaxWidth, "Key and value heads");
  size("--head-dim", &o.head_dim, kMaxWidth, "Head size (default: hidden size / heads)");
  size("--ff", &o.n_ff, kMaxWidth, "Feed-forward size");
  size("--vocab", &o.n_vocab, kMaxVocabulary, "Vocabulary size");
  size("--ctx", &o.n_ctx, kMaxVocabulary, "Context length in the metadata");
  size("--experts", &o.n_expert, kMaxLayers, "Experts per layer");
  size("--experts-used", &o.n_expert_used, kMaxLayers,
       "Experts used per token, with --experts (default: 2)");
  app.add_option("--arch", o.arch, "Architecture (default: the shape's)")
      ->check(CLI::IsMember({"llama", "qwen3", "qwen3moe", "glm4moe"}))
      ->group("Dimensions (default: those of the shape)");
  app.add_option("--faint", o.faint,
                 "Factor, 0 to 1, for what the layers from --faint-from on add (default: 1)")
      ->check(CLI::Range(0.0f, 1.0f))
      ->group("Dimensions (default: those of the shape)");
  size("--faint-from", &o.faint_from, kMaxLayers, "First layer that --faint applies to");
  app.add_flag("--nextn", o.nextn,
               "Add a multi-token prediction layer, which is right if the other layers add nothing "
               "(default: off)")
      ->group("Dimensions (default: those of the shape)");
  app.add_flag("--tied", o.tied, "Use the embedding as the output head (default: the shape's)")
      ->group("Dimensions (default: those of the shape)");
  app.add_option("--threads", o.threads, "Threads (default: 2)")->check(CLI::Range(1u, 64u));
  app.add_flag("-q,--quiet", o.quiet, "Print nothing (default: off)");
  CLI11_PARSE(app, argc, argv);
  return make(o);
}
