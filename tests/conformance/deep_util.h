// Builds deeper or shallower versions of the sample model from its own layers.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "fixtures_util.h"
#include "gguf/layer_importance.h"

namespace sluice::test {

using Layers = std::vector<int32_t>;

// The sample model with the layers `from` of its own, in this order, and their importance. Tensor
// bytes are read from the original file.
class Deep {
 public:
  explicit Deep(const Layers& from, const std::vector<float>& worth = {}) {
    Result<native::ModelHeader> model = native::read_header(sample_model(), {});
    EXPECT_TRUE(model.ok());
    header = std::move(*model);
    gguf::Header& h = header.header;
    std::vector<gguf::Tensor> tensors;
    for (const gguf::Tensor& t : h.tensors) {
      if (!t.name.starts_with("blk.")) tensors.push_back(t);
    }
    for (size_t i = 0; i < from.size(); ++i) {
      const std::string own = "blk." + std::to_string(from[i]) + ".";
      for (const gguf::Tensor& t : h.tensors) {
        if (!t.name.starts_with(own)) continue;
        texts_.push_back("blk." + std::to_string(i) + "." + std::string(t.name.substr(own.size())));
        tensors.push_back(t);
        tensors.back().name = texts_.back();
      }
    }
    h.tensors = std::move(tensors);
    count_ = static_cast<uint32_t>(from.size());
    for (gguf::KeyValue& kv : h.metadata) {
      if (kv.key.ends_with(".block_count")) kv.value.bytes = bytes_of(&count_, 1);
    }
    EXPECT_TRUE(gguf::index_tensors(&h).ok());
    if (!worth.empty()) set(gguf::kLayerImportance, worth);
  }

  // Adds a metadata value.
  void set(std::string_view key, const std::vector<float>& values) {
    values_.push_back(values);
    header.header.metadata.push_back(
        {key,
         {gguf::ValueType::kArray, gguf::ValueType::kF32, values.size(),
          bytes_of(values_.back().data(), values.size())}});
  }

  // Opens the model; can be called once.
  Opened open(const session::EngineOptions& options) {
    Opened out;
    Result<std::unique_ptr<native::Model>> model = native::Model::open(std::move(header), options);
    if (!model.ok()) {
      ADD_FAILURE() << model.status().message();
      return out;
    }
    out.model = std::move(*model);
    out.session = std::move(*session::Session::create(out.model->engine().context()));
    return out;
  }

  native::ModelHeader header;

 private:
  template <typename T>
  static gguf::Bytes bytes_of(const T* values, size_t n) {
    return {reinterpret_cast<const uint8_t*>(values), n * sizeof(T)};
  }
  std::deque<std::string> texts_;
  std::deque<std::vector<float>> values_;
  uint32_t count_ = 0;
};

}  // namespace sluice::test
