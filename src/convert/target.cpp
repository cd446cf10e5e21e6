// The knapsack by its linear relaxation: of each tensor only the types on the lower convex hull of
// error over bytes count, and steps along all hulls are taken in the order of error saved per byte.
#include "convert/target.h"

#include <algorithm>
#include <map>

#include "convert/substitute.h"
#include "gguf/write.h"

namespace sluice::convert {
namespace {

using gguf::Tensor;
using T = gguf::TensorType;

struct Form {
  T type;
  uint64_t bytes = 0;  // in the file, aligned
  double error = 0;
};

uint64_t bytes_as(const Tensor& tensor, T type, uint64_t alignment) {
  const gguf::TypeInfo& info = *gguf::type_info(type);
  const uint64_t bytes = tensor.ne[0] * tensor.rows() / info.block_size * info.block_bytes;
  return (bytes + alignment - 1) / alignment * alignment;
}

T kept_type(const Tensor& tensor) {
  const bool is_float = tensor.type == T::kF16 || tensor.type == T::kBF16;
  return tensor.n_dims < 2 && is_float ? T::kF32 : tensor.type;
}

// By type, of all that a tensor may become; as it is it loses nothing.
Status errors_of(const Tensor& tensor, const Options& options, PieceMaker* maker,
                 std::map<T, Errors>* errors) {
  const Result<const std::vector<float>*> importance = importance_of(options, tensor);
  if (!importance.ok()) return importance.status();
  for (const T type : types_for(tensor)) {
    SLUICE_RETURN_IF_ERROR(maker->measure(tensor, type, *importance, &(*errors)[type]));
  }
  return {};
}

double relative(const Errors& errors) {
  return errors.power > 0 ? errors.counted / errors.power : 0;
}

// What a tensor may become, ascending in bytes and on the hull.
std::vector<Form> forms_of(const Tensor& tensor, uint64_t alignment, const Options& options,
                           const std::map<T, Errors>& errors, const Sensitivity& sensitivity) {
  const T kept = kept_type(tensor);
  std::vector<Form> forms = {{kept, bytes_as(tensor, kept, alignment), 0}};
  for (const auto& [type, e] : errors) {
    const uint64_t bytes = bytes_as(tensor, type, alignment);
    if (bytes >= forms[0].bytes || e.cosine() < options.least_cosine) continue;
    forms.push_back({type, bytes, sensitivity.change(type, relative(e))});
  }
  std::sort(forms.begin(), forms.end(), [](const Form& a, const Form& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.error < b.error;
  });
  std::vector<Form> hull;
  const auto saved = [](const Form& a, const Form& b) {  // by a byte, from a to b
    return (a.error - b.error) / static_cast<double>(b.bytes - a.bytes);
  };
  for (const Form& f : forms) {
    if (!hull.empty() && (f.bytes == hull.back().bytes || f.error >= hull.back().error)) continue;
    while (hull.size() > 1 && saved(hull[hull.size() - 2], hull.back()) <= saved(hull.back(), f)) {
      hull.pop_back();
    }
    hull.push_back(f);
  }
  return hull;
}

// Of everything but the tensors, keys of the file's types included.
uint64_t front_bytes(const gguf::Header& header) {
  gguf::Header copy = header;
  return gguf::place_and_write(&copy).size() + 128;
}

struct Step {
  double saved;  // error by a byte
  size_t tensor, form;
};

}  // namespace

Result<const std::vector<float>*> importance_of(const Options& options, const Tensor& tensor) {
  if (options.importance == nullptr) return nullptr;
  return options.importance->find(tensor);
}

Status check_size(const gguf::Header& header, uint64_t target_bytes) {
  uint64_t least = front_bytes(header);
  for (const Tensor& t : header.tensors) {
    uint64_t bytes = bytes_as(t, kept_type(t), header.alignment);
    for (const T type : types_for(t)) bytes = std::min(bytes, bytes_as(t, type, header.alignment));
    least += bytes;
  }
  if (least <= target_bytes) return {};
  return error(Code::kInvalidArgument,
               "the smallest file of this model has at least %llu bytes, whatever it loses",
               static_cast<unsigned long long>(least));
}

Result<Sized> types_for_size(const gguf::Header& header, uint64_t reserved, const Options& options,
                             PieceMaker* maker) {
  std::vector<std::map<T, Errors>> errors(header.tensors.size());
  std::vector<ErrorsByType> shares(header.tensors.size());
  for (size_t i = 0; i < errors.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(errors_of(header.tensors[i], options, maker, &errors[i]));
    for (const auto& [type, e] : errors[i]) shares[i][type] = relative(e);
  }
  Sized out;
  out.sensitivities = sensitivities_of(header, shares, options.probes);
  std::vector<std::vector<Form>> forms;
  std::vector<Step> steps;
  uint64_t total = front_bytes(header) + reserved;
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    std::vector<Form> of =
        forms_of(header.tensors[i], header.alignment, options, errors[i], out.sensitivities[i]);
    for (size_t f = 1; f < of.size(); ++f) {
      const Form &a = of[f - 1], &b = of[f];
      steps.push_back({(a.error - b.error) / static_cast<double>(b.bytes - a.bytes), i, f});
    }
    total += of[0].bytes;
    forms.push_back(std::move(of));
  }
  if (total > options.target_bytes) {
    return error(
        Code::kInvalidArgument,
        "the smallest file of this model whose tensors keep a cosine of %.3g has %llu bytes",
        options.least_cosine, static_cast<unsigned long long>(total));
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.saved > b.saved; });
  std::vector<size_t> chosen(forms.size());
  for (const Step& step : steps) {  // a step that does not fit also bars the tensor's later ones
    const std::vector<Form>& of = forms[step.tensor];
    if (chosen[step.tensor] + 1 != step.form) continue;
    const uint64_t more = of[step.form].bytes - of[step.form - 1].bytes;
    if (total + more > options.target_bytes) continue;
    total += more;
    chosen[step.tensor] = step.form;
  }
  for (size_t i = 0; i < forms.size(); ++i) out.choices.push_back({forms[i][chosen[i]].type});
  return out;
}

T commonest(const gguf::Header& header, const std::vector<Choice>& choices) {
  std::map<T, uint64_t> bytes;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (is_quantizable(header.tensors[i])) {
      bytes[choices[i].type] += bytes_as(header.tensors[i], choices[i].type, 1);
    }
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? T::kF32 : most->first;
}

}  // namespace sluice::convert
