// Describes the vision projector of a Hugging Face model directory as the gguf::Header of an mmproj
// file: the tensors of the vision tower and of what leads to the text model, and the keys of
// clip.vision. The text model of the same directory is hf/config.h's.
#pragma once

#include <array>
#include <string_view>

#include "hf/config_reader.h"
#include "hf/model.h"

namespace sluice::hf {

// Whether config.json belongs to a model whose vision projector can be read.
[[nodiscard]] bool has_projector(std::string_view config);

// `directory` has config.json, the shards and, optionally, preprocessor_config.json. The model
// types are those of hf/architectures.cpp. Errors: kNotSupported (no vision tower, or none that is
// supported, named), kBadHeader, kBadShape, kUnsupportedType.
[[nodiscard]] Result<Model> describe_projector(const Directory& directory);

// --- parts of field maps that several projectors have

// The text model's width.
void read_projection_dim(ConfigReader& r);
// Mean and deviation of colours, from preprocessor_config.json or as given.
void read_colours(ConfigReader& r, std::array<float, 3> mean, std::array<float, 3> deviation);
void read_half_colours(ConfigReader& r);  // 0.5

}  // namespace sluice::hf
