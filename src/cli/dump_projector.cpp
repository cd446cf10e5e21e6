#include "cli/dump_projector.h"

#include <cstdio>

#include "cli/dump_writer.h"
#include "media/preprocess.h"
#include "native/picture_source.h"
#include "vision/encoder_file_native.h"

namespace sluice::cli {
namespace {

// Names of operations, in the order of vision::OpKind; ggml's where it has the operation.
constexpr const char* kOpNames[] = {
    "IM2COL", "MUL_MAT", "MUL_MAT", "NORM",  "ADD",         "ADD_POSITIONS", "CONCAT", "VIEW",
    "ROPE",   "ATTN",    "ACT",     "MERGE", "RESHAPE",     "POOL_2D",       "SCALE",  "AFFINE",
    "CLAMP",  "SCALE",   "CPY",     "CONST", "ADD_SIN_COS", "ADD_MEAN",      "OUTPUT"};
static_assert(std::size(kOpNames) == static_cast<size_t>(vision::OpKind::kEmit) + 1);

// "v.blk.3.attn_q" of "v.blk.3.attn_q.weight".
std::string without_ending(const std::string& name) {
  const size_t end = name.rfind(".weight");
  return end == std::string::npos ? name : name.substr(0, end) + name.substr(end + 7);
}

// The block of "v.blk.3.attn_q" is 3; of "mm.0" it is -1.
int block_of(const std::string& name) {
  constexpr std::string_view kBlock = "v.blk.";
  return name.starts_with(kBlock) ? std::atoi(name.c_str() + kBlock.size()) : -1;
}

// Names operations by their tensors. Those without one have the block of the operation before.
class OpNames {
 public:
  explicit OpNames(const vision::Program& program) : program_(program) {}
  std::string next(size_t i) {
    const vision::Op& op = program_.ops[i];
    std::string name = before_;
    if (op.mat >= 0) {
      name = without_ending(program_.mats[static_cast<size_t>(op.mat)].name);
    } else if (op.vec >= 0) {
      name = without_ending(program_.vecs[static_cast<size_t>(op.vec)].name);
    }
    const int block = block_of(name);
    before_ = block >= 0 ? "v.blk." + std::to_string(block) : name.substr(0, name.find('.'));
    char number[16];
    std::snprintf(number, sizeof number, "%03zu.", i);
    return number + name + "." + kOpNames[static_cast<size_t>(op.kind)];
  }
  [[nodiscard]] int block() const { return block_of(before_); }

 private:
  const vision::Program& program_;
  std::string before_ = "v";
};

Status encode_input(vision::EncoderFile& file, const media::Image& input, const std::string& prefix,
                    DumpWriter* writer, int32_t* tokens) {
  vision::Encoder& encoder = file.encoder();
  const Result<uint32_t> n = encoder.n_tokens(input.width, input.height);
  if (!n.ok()) return n.status();
  *tokens += static_cast<int32_t>(*n);
  const auto width = static_cast<int32_t>(encoder.width());
  std::vector<float> out(size_t{*n} * encoder.width());
  OpNames names(encoder.program());
  size_t done = 0;
  const auto write_done = [&] {
    for (; done < encoder.n_done() && done + 1 < encoder.program().ops.size(); ++done) {
      const std::string name = names.next(done);
      const vision::Op& op = encoder.program().ops[done];
      const vision::Buf buffer = op.out == vision::Buf::kNone ? op.in : op.out;
      const auto [shape, values] = encoder.values_of(buffer);
      writer->write(prefix + name, names.block(),
                    {static_cast<int32_t>(shape.cols), 1, static_cast<int32_t>(shape.rows)}, values,
                    shape.cols);
    }
    return false;  // goes on
  };
  SLUICE_RETURN_IF_ERROR(file.encode(input, out, write_done));
  write_done();
  writer->write(prefix + names.next(done), -1, {width, 1, static_cast<int32_t>(*n)}, out.data(),
                width);
  return {};
}

}  // namespace

Result<Dumped> write_projector_dump(const DumpOptions& options, const ImageReading& reading) {
  const Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return load.status();
  const Result<media::TokenLimits> limits = reading.limits();
  if (!limits.ok()) return limits.status();
  const Result<media::DecodeOptions> decoding = reading.decoding();
  if (!decoding.ok()) return decoding.status();
  Result<native::ModelHeader> header =
      native::read_projector_header(options.common.model, load->source);
  if (!header.ok()) return header.status();
  vision::EncoderOptions encoding;
  encoding.memory_budget = load->engine.memory_budget;
  encoding.base_bytes = header->held;
  encoding.kernels = load->engine.kernels;
  Result<std::unique_ptr<vision::EncoderFile>> file = vision::EncoderFile::open(
      header->header, std::move(header->sources), encoding, load->engine.n_threads);
  if (!file.ok()) return file.status();
  const media::Projector& projector = (*file)->projector();
  const Result<media::Image> image = native::read_picture(options.image, *decoding);
  if (!image.ok()) return image.status();
  const Result<media::PicturePlan> plan =
      media::plan_image(projector, image->width, image->height, *limits);
  if (!plan.ok()) return plan.status();
  const Result<std::vector<media::Image>> inputs = media::preprocess(projector, *plan, *image);
  if (!inputs.ok()) return inputs.status();
  Result<DumpWriter> writer = DumpWriter::create(options, projector.n_layers);
  if (!writer.ok()) return writer.status();
  Dumped out;
  for (size_t i = 0; i < inputs->size(); ++i) {
    const std::string prefix = inputs->size() == 1 ? "" : "input" + std::to_string(i) + ".";
    SLUICE_RETURN_IF_ERROR(encode_input(**file, (*inputs)[i], prefix, &*writer, &out.tokens));
  }
  SLUICE_RETURN_IF_ERROR(writer->finish());
  out.tensors = writer->count();
  out.kernels = (*file)->encoder().kernels();
  return out;
}

}  // namespace sluice::cli
