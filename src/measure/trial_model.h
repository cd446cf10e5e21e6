// Engines that read one model's open files, one after another: the model itself, and the model with
// some tensors in other types.
#pragma once

#include <memory>

#include "convert/imatrix.h"
#include "convert/sensitivity.h"
#include "convert/source.h"
#include "native/model_file.h"

namespace sluice::measure {

struct TrialModel {
  std::unique_ptr<native::Model> model;
  std::unique_ptr<session::Session> session;
};

// Another header over the open files of `model`, which must outlive it.
[[nodiscard]] native::ModelHeader shared(const native::ModelHeader& model);

// The model's tensors in stored order, for conversion; row permutations are not undone. `header`
// must outlive the source.
[[nodiscard]] Result<convert::Source> as_stored(const native::ModelHeader& model,
                                                gguf::Header* header);

// Opens the model with a probe's tensors in place of its own; null: the model as it is. The
// quantized tensors are in one more file, which computes them on reading. Opening it is cheap
// compared with its forward passes. `importance` may be null. Errors: those of opening the model.
[[nodiscard]] Result<TrialModel> open_trial(const native::ModelHeader& model,
                                            const convert::Source& stored,
                                            const convert::Probe* probe,
                                            const convert::Imatrix* importance,
                                            const session::EngineOptions& options);

}  // namespace sluice::measure
