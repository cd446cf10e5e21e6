// Projector files that are damaged, contradict themselves, or are quantized.
#include <cmath>
#include <limits>

#include "convert/quantize.h"
#include "gguf/write.h"
#include "vision_encoder_util.h"

namespace sluice::test {
namespace {

using kernels::Type;

// A projector whose tensors a test changes before it is written again.
class ChangedProjector {
 public:
  explicit ChangedProjector(const ParsedFile& file) : header(file.header) {
    for (const gguf::Tensor& tensor : header.tensors) {
      const auto from = file.bytes.begin() + static_cast<ptrdiff_t>(tensor.offset);
      data.emplace_back(from, from + static_cast<ptrdiff_t>(tensor.bytes));
    }
  }
  void remove(size_t i) {
    header.tensors.erase(header.tensors.begin() + static_cast<ptrdiff_t>(i));
    data.erase(data.begin() + static_cast<ptrdiff_t>(i));
  }
  // Adds an f32 vector of zeros.
  void add_vector(std::string_view name, uint64_t n) {
    gguf::Tensor tensor = header.tensors.front();
    tensor.name = name;
    tensor.type = gguf::TensorType::kF32;
    tensor.n_dims = 1;
    tensor.ne = {n, 1, 1, 1};
    header.tensors.push_back(tensor);
    data.emplace_back(static_cast<size_t>(n) * sizeof(float));
  }
  // Writes and parses the file.
  [[nodiscard]] std::unique_ptr<ParsedFile> file() {
    for (gguf::Tensor& tensor : header.tensors) {
      EXPECT_TRUE(gguf::set_tensor_bytes(&tensor).ok());
    }
    const std::string front = gguf::place_and_write(&header);
    auto out = std::make_unique<ParsedFile>();
    out->bytes.assign(front.begin(), front.end());
    for (size_t i = 0; i < data.size(); ++i) {
      out->bytes.resize(static_cast<size_t>(header.tensors[i].offset));
      data[i].resize(static_cast<size_t>(header.tensors[i].bytes));
      out->bytes.insert(out->bytes.end(), data[i].begin(), data[i].end());
    }
    const auto parsed = gguf::parse_header(out->bytes, out->bytes.size(), &out->header);
    EXPECT_TRUE(parsed.ok() && parsed->done) << parsed.status().message();
    return out;
  }

  gguf::Header header;
  std::vector<std::vector<uint8_t>> data;
};

// A picture that every family takes: its size is a multiple of tokens and of windows' squares.
media::Image some_input(const media::Projector& projector) {
  const bool fixed =
      projector.sizing == media::Sizing::kFixed || projector.sizing == media::Sizing::kPinpoints ||
      projector.sizing == media::Sizing::kGrids || projector.sizing == media::Sizing::kIdefics;
  const uint32_t side = fixed ? projector.image_size : 12 * projector.patch_size;
  auto image = media::Image::create(side, side);
  EXPECT_TRUE(image.ok());
  for (uint64_t i = 0; i < image->size(); ++i) {
    image->row(0)[i] = static_cast<uint8_t>(i * i / 7 + i);
  }
  return std::move(*image);
}

std::vector<std::string> projectors() {
  std::vector<std::string> out;
  for (const nlohmann::json& family : vision_manifest()) out.push_back(family["mmproj"]);
  EXPECT_GE(out.size(), 7u);
  return out;
}

// Opens and encodes. Whatever the file says, the answer is a status.
Status open_and_encode(const ParsedFile& file) {
  auto encoder = try_encoder(file.header, file.bytes, {}, 1);
  if (!encoder.ok()) return encoder.status();
  std::vector<float> out;
  return encode_one(**encoder, some_input((*encoder)->projector()), &out);
}

bool of_vision(std::string_view name) {
  return !name.starts_with("a.") && !name.starts_with("mm.a.");
}
// One block stands for all, except for the last.
bool worth_changing(std::string_view name) {
  return of_vision(name) && (!name.starts_with("v.blk.") || name.starts_with("v.blk.1."));
}

TEST(VisionProjectorFiles, AMissingTensorIsNamedOrOptional) {
  size_t refused = 0;
  for (const std::string& name : projectors()) {
    const auto whole = parse_file(vision_folder() / name);
    EXPECT_TRUE(open_and_encode(*whole).ok()) << name;
    for (size_t i = 0; i < whole->header.tensors.size(); ++i) {
      const std::string tensor(whole->header.tensors[i].name);
      if (!worth_changing(tensor)) continue;
      ChangedProjector changed(*whole);
      changed.remove(i);
      const Status status = open_and_encode(*changed.file());
      if (status.ok()) continue;
      SCOPED_TRACE(name + " without " + tensor);
      ++refused;
      EXPECT_TRUE(status.code() == Code::kMissingTensor || status.code() == Code::kBadShape)
          << status.message();
      // Without v.class_embd or a merger, it is another tensor that does not fit any more.
      if (status.code() == Code::kMissingTensor && tensor != "v.blk.1.attn_qkv.weight") {
        EXPECT_NE(status.message().find(tensor.substr(0, tensor.rfind('.'))), std::string::npos)
            << status.message();
      }
    }
  }
  EXPECT_GT(refused, 80u);
}

TEST(VisionProjectorFiles, AWrongShapeIsAnError) {
  size_t refused = 0;
  for (const std::string& name : projectors()) {
    const auto whole = parse_file(vision_folder() / name);
    for (size_t i = 0; i < whole->header.tensors.size(); ++i) {
      for (uint32_t d = 0; d < whole->header.tensors[i].n_dims; ++d) {
        for (const int by : {-1, 1}) {
          ChangedProjector changed(*whole);
          gguf::Tensor& tensor = changed.header.tensors[i];
          const uint64_t wide = tensor.ne[d];
          if (!worth_changing(tensor.name) || (wide == 1 && by < 0)) continue;
          tensor.ne[d] = wide + static_cast<uint64_t>(static_cast<int64_t>(by));
          const Status status = open_and_encode(*changed.file());
          if (status.ok()) continue;  // an unused tensor, or a table with more rows
          SCOPED_TRACE(name + " " + std::string(tensor.name));
          EXPECT_TRUE(status.code() == Code::kBadShape || status.code() == Code::kBadHeader)
              << status.message();
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 300u);
}

// A class vector is one more row. Where a family's output has places for patches alone, it is an
// error and not a row behind the end.
TEST(VisionProjectorFiles, AClassVectorThatTheFamilyHasNoPlaceFor) {
  size_t refused = 0;
  for (const std::string& name : projectors()) {
    const auto whole = parse_file(vision_folder() / name);
    if (whole->header.find_tensor("v.class_embd") != nullptr) continue;
    const gguf::Tensor* norm = whole->header.find_tensor("v.blk.0.ln1.weight");
    if (norm == nullptr) continue;
    ChangedProjector changed(*whole);
    changed.add_vector("v.class_embd", norm->ne[0]);
    const Status status = open_and_encode(*changed.file());
    SCOPED_TRACE(name);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kBadShape) << status.message();
      ++refused;
    }
    EXPECT_FALSE(status.ok() && name.starts_with("pixtral"));
  }
  EXPECT_GT(refused, 5u);
}

TEST(VisionProjectorFiles, ATruncatedFileIsAnError) {
  const auto whole = parse_file(vision_folder() / "gemma3.mmproj.gguf");
  auto encoder = try_encoder(whole->header, std::span(whole->bytes).first(whole->bytes.size() / 2));
  ASSERT_TRUE(encoder.ok());
  std::vector<float> out;
  const media::Image input = some_input((*encoder)->projector());
  EXPECT_EQ(encode_one(**encoder, input, &out).code(), Code::kTruncated);
  for (size_t bytes = 0; bytes < whole->header.data_offset; bytes += 101) {
    gguf::Header header;
    auto parsed = gguf::parse_header(std::span(whole->bytes).first(bytes), bytes, &header);
    EXPECT_FALSE(parsed.ok() && parsed->done);
  }
}

TEST(VisionProjectorFiles, ValuesThatAreNotFiniteAreNamed) {
  const auto whole = parse_file(vision_folder() / "gemma3.mmproj.gguf");
  for (const std::string wanted : {"v.blk.1.ffn_up.weight", "v.blk.0.ln1.bias",
                                   "v.position_embd.weight", "mm.input_projection.weight"}) {
    ChangedProjector changed(*whole);
    for (size_t i = 0; i < changed.data.size(); ++i) {
      const gguf::Tensor& tensor = changed.header.tensors[i];
      if (tensor.name != wanted) continue;
      const size_t value = tensor.type == gguf::TensorType::kF16 ? 2 : 4;
      std::fill_n(changed.data[i].end() - static_cast<ptrdiff_t>(value), value, uint8_t{0xff});
    }
    const auto file = changed.file();
    const auto resident = open_encoder(*file);
    const media::Image input = some_input(resident->projector());
    auto plan = resident->encoder().plan_for(input.width, input.height, 0);
    ASSERT_TRUE(plan.ok());
    for (const uint64_t budget : {uint64_t{0}, plan->minimum}) {
      const auto encoder = open_encoder(*file, {.memory_budget = budget});
      std::vector<float> out;
      const Status status = encode_one(*encoder, input, &out);
      EXPECT_EQ(status.code(), Code::kBadWeights);
      EXPECT_NE(status.message().find(wanted), std::string::npos) << status.message();
    }
  }
}

// Replaces matrices whose rows are whole blocks; `as_f32`: by what the blocks decode to.
size_t quantize(ChangedProjector* changed, Type type, int64_t block, bool as_f32) {
  size_t n = 0;
  for (size_t i = 0; i < changed->data.size(); ++i) {
    gguf::Tensor& tensor = changed->header.tensors[i];
    if (tensor.type != gguf::TensorType::kF16 || tensor.n_dims != 2 ||
        tensor.ne[0] % static_cast<uint64_t>(block) != 0 || !of_vision(tensor.name)) {
      continue;
    }
    const auto values = static_cast<int64_t>(tensor.ne[0] * tensor.ne[1]);
    std::vector<float> x(static_cast<size_t>(values)), ones(static_cast<size_t>(values), 1.0f);
    kernels::best().dequantize(Type::kF16, changed->data[i].data(), values, x.data());
    tensor.type = static_cast<gguf::TensorType>(type);
    EXPECT_TRUE(gguf::set_tensor_bytes(&tensor).ok());
    std::vector<uint8_t> blocks(static_cast<size_t>(tensor.bytes));
    convert::best_quantizers().of(type)(x.data(), ones.data(), values, blocks.data());
    if (as_f32) {
      kernels::best().dequantize(type, blocks.data(), values, x.data());
      tensor.type = gguf::TensorType::kF32;
      blocks.resize(x.size() * sizeof(float));
      std::memcpy(blocks.data(), x.data(), blocks.size());
    }
    changed->data[i] = std::move(blocks);
    ++n;
  }
  return n;
}

TEST(VisionProjectorFiles, QuantizedProjectorsAreEncoded) {
  struct Case {
    Type type;
    int64_t block;
  };
  size_t tensors = 0;
  for (const Case& c : {Case{Type::kQ8_0, 32}, Case{Type::kQ4_0, 32}, Case{Type::kQ4_K, 256}}) {
    for (const std::string& name : projectors()) {
      SCOPED_TRACE(name + " type " + std::to_string(static_cast<int>(c.type)));
      const auto whole = parse_file(vision_folder() / name);
      ChangedProjector blocks(*whole), decoded(*whole);
      const size_t n = quantize(&blocks, c.type, c.block, false);
      (void)quantize(&decoded, c.type, c.block, true);
      if (n == 0) continue;
      tensors += n;
      const auto file = blocks.file(), reference = decoded.file();
      const auto encoder = open_encoder(*file);
      ASSERT_NE(encoder, nullptr);
      const media::Image input = some_input(encoder->projector());
      std::vector<float> got, want, streamed;
      ASSERT_TRUE(encode_one(*encoder, input, &got).ok());
      ASSERT_TRUE(encode_one(*open_encoder(*reference), input, &want).ok());
      EXPECT_LT(relative_error(got, want), 1e-3);  // activations are rounded to int8
      auto plan = encoder->encoder().plan_for(input.width, input.height, 0);
      ASSERT_TRUE(plan.ok());
      const auto small = open_encoder(*file, {.memory_budget = plan->minimum});
      ASSERT_TRUE(encode_one(*small, input, &streamed).ok());
      EXPECT_EQ(streamed, got);
    }
  }
  EXPECT_GT(tensors, 50u);
}

}  // namespace
}  // namespace sluice::test
