#include "cli/info_projector.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "cli/cli.h"
#include "gguf/printable.h"
#include "vision/encoder.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

json tensors_json(const gguf::Header& header) {
  json out = json::array();
  for (const gguf::Tensor& tensor : header.tensors) {
    json shape = json::array();
    for (uint32_t i = 0; i < tensor.n_dims; ++i) shape.push_back(tensor.ne[i]);
    out.push_back({{"name", gguf::printable(tensor.name)},
                   {"type", gguf::type_info(tensor.type)->name},
                   {"shape", std::move(shape)},
                   {"bytes", tensor.bytes}});
  }
  return out;
}

json projector_json(const gguf::Header& header, const media::Projector& projector,
                    const vision::Encoder& encoder) {
  uint64_t parameters = 0, bytes = 0;
  json types = json::object();
  for (const gguf::Tensor& tensor : header.tensors) {
    parameters += tensor.rows() * tensor.cols();
    bytes += tensor.bytes;
    json& sum = types[gguf::type_info(tensor.type)->name];
    sum = (sum.is_null() ? 0 : sum.get<uint64_t>()) + tensor.bytes;
  }
  return {{"architecture", "clip"},
          {"name", gguf::printable(header.get_string("general.name").value_or(""), 256)},
          {"projectorType", projector.family->type},
          {"parameters", parameters},
          {"bytes", bytes},
          {"types", std::move(types)},
          {"layers", projector.n_layers},
          {"embeddingLength", projector.n_embd},
          {"attentionHeads", projector.n_heads},
          {"imageSize", projector.image_size},
          {"patchSize", projector.patch_size},
          {"tokenSize", projector.token_side()},
          {"dimensions", encoder.width()},
          {"tensors", tensors_json(header)}};
}

void print_projector(const json& info) {
  const auto line = [](const char* label, const std::string& value) {
    std::printf("%-16s %s\n", label, value.c_str());
  };
  const auto number = [&info](const char* key) {
    return std::to_string(info[key].get<uint64_t>());
  };
  line("architecture", "clip, " + info["projectorType"].get<std::string>());
  line("name", info["name"].get<std::string>());
  line("parameters", number("parameters"));
  line("weights", human_bytes(info["bytes"].get<uint64_t>()));
  for (const auto& [type, bytes] : info["types"].items()) {
    line("", type + " " + human_bytes(bytes.get<uint64_t>()));
  }
  line("layers", number("layers"));
  line("widths", number("embeddingLength") + " hidden, " + number("dimensions") + " of a token");
  line("heads", number("attentionHeads"));
  line("pixels", number("imageSize") + " a side, patches of " + number("patchSize") +
                     ", tokens of " + number("tokenSize"));
  std::printf("\n%-40s %-6s %s\n", "tensor", "type", "shape");
  for (const json& tensor : info["tensors"]) {
    std::string shape;
    for (const json& n : tensor["shape"]) {
      shape += (shape.empty() ? "" : " x ") + std::to_string(n.get<uint64_t>());
    }
    std::printf("%-40s %-6s %s\n", tensor["name"].get<std::string>().c_str(),
                tensor["type"].get<std::string>().c_str(), shape.c_str());
  }
}

}  // namespace

bool is_projector(const gguf::Header& header) {
  return header.get_string("general.architecture") == std::string_view("clip");
}

int info_of_projector(const gguf::Header& header, bool as_json) {
  const Result<media::Projector> projector = media::read_projector(header);
  if (!projector.ok()) return fail(projector.status());
  ThreadPool pool(1);
  const Result<std::unique_ptr<vision::Encoder>> encoder =
      vision::Encoder::open(header, *projector, {.pool = &pool});
  if (!encoder.ok()) return fail(encoder.status());
  const json info = projector_json(header, *projector, **encoder);
  if (as_json) {
    print_json(info, 2);
  } else {
    print_projector(info);
  }
  return 0;
}

}  // namespace sluice::cli
