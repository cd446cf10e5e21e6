// A trial's header is the model's with other tensors, over the same files and one more
// (convert/quantized_source.h).
#include "measure/trial_model.h"

#include <algorithm>

#include "convert/quantized_source.h"

namespace sluice::measure {
namespace {

class SharedSource final : public io::ByteSource {
 public:
  explicit SharedSource(io::ByteSource* file) : file_(file) {}
  [[nodiscard]] uint64_t size() const override { return file_->size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    return file_->read(offset, out);
  }
  void will_need(uint64_t offset, uint64_t length) override { file_->will_need(offset, length); }
  [[nodiscard]] Status refresh(uint64_t offset, uint64_t length) override {
    return file_->refresh(offset, length);
  }

 private:
  io::ByteSource* file_;
};

// Replaces the probe's tensors in the header by quantized ones.
Status substitute(const convert::Source& stored, const convert::Probe& probe,
                  const convert::Imatrix* importance, native::ModelHeader* header) {
  auto file = std::make_unique<convert::QuantizedSource>(stored);
  const auto at = static_cast<uint32_t>(header->sources.size());
  for (size_t i = 0; i < probe.tensors.size(); ++i) {
    const auto is = [&](const gguf::Tensor& t) { return t.name == probe.tensors[i]; };
    const auto t = std::ranges::find_if(header->header.tensors, is);
    const std::vector<float>* weights = nullptr;
    if (importance != nullptr) {
      const Result<const std::vector<float>*> found = importance->find(*t);
      if (!found.ok()) return found.status();
      weights = *found;
    }
    Result<gguf::Tensor> as = file->add(*t, probe.types[i], weights, at);
    if (!as.ok()) return as.status();
    *t = *as;
  }
  header->sources.push_back(std::move(file));
  header->header.n_files = static_cast<uint32_t>(header->sources.size());
  return {};
}

}  // namespace

native::ModelHeader shared(const native::ModelHeader& model) {
  native::ModelHeader out;
  out.header = model.header;
  for (const auto& file : model.sources) {
    out.sources.push_back(std::make_unique<SharedSource>(file.get()));
  }
  out.remote = model.remote;
  out.held = model.held;
  out.decompression = model.decompression;
  return out;
}

Result<convert::Source> as_stored(const native::ModelHeader& model, gguf::Header* header) {
  *header = model.header;
  std::erase_if(header->metadata, [](const gguf::KeyValue& kv) {
    return kv.key == "sluice.rope_neox" || kv.key == "sluice.norm_offset";
  });
  return convert::Source::create(*header, model.sources);
}

Result<TrialModel> open_trial(const native::ModelHeader& model, const convert::Source& stored,
                              const convert::Probe* probe, const convert::Imatrix* importance,
                              const session::EngineOptions& options) {
  native::ModelHeader header = shared(model);
  if (probe != nullptr) {
    SLUICE_RETURN_IF_ERROR(substitute(stored, *probe, importance, &header));
  }
  TrialModel out;
  Result<std::unique_ptr<native::Model>> opened = native::Model::open(std::move(header), options);
  if (!opened.ok()) return opened.status();
  out.model = std::move(*opened);
  Result<std::unique_ptr<session::Session>> session =
      session::Session::create(out.model->engine().context());
  if (!session.ok()) return session.status();
  out.session = std::move(*session);
  return out;
}

}  // namespace sluice::measure
