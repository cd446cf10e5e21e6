// Solves the knapsack problem by its linear relaxation. Of each tensor's types, only those on the
// lower convex hull of error over bytes are used. Steps along all hulls are taken in order of error
// saved per byte.
#include "convert/bit_allocation.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/round_up.h"
#include "convert/quantized_source.h"

namespace sluice::convert {
namespace {

using gguf::Tensor;
using T = gguf::TensorType;

struct Form {
  T type;
  uint64_t bytes = 0;  // rounded up to the alignment
  double error = 0;
};

uint64_t bytes_as(const Tensor& tensor, T type, uint64_t alignment = 1) {
  const gguf::TypeInfo& info = *gguf::type_info(type);
  return round_up(tensor.ne[0] * tensor.rows() / info.block_size * info.block_bytes, alignment);
}

T kept_type(const Tensor& tensor) {
  const bool is_float = tensor.type == T::kF16 || tensor.type == T::kBF16;
  return tensor.n_dims < 2 && is_float ? T::kF32 : tensor.type;
}

// Above this share, outliers are too many to be clamped.
constexpr double kFewOutliers = 0.001;

// A type must also represent the outliers well, if a tensor has more than a few.
bool holds_outliers(const Errors& errors, const Options& options) {
  return errors.outlier_share() <= kFewOutliers || outliers_kept(errors.outlier_error(), options);
}
bool near(const Errors& errors, const Options& options) {
  return errors.cosine() >= options.cosine();
}

// Measures every type that the tensor may take. The kept type has no error and is not listed.
Status errors_of(const Tensor& tensor, const Options& options, ChunkMaker* maker,
                 std::map<T, Errors>* errors) {
  const Result<const std::vector<float>*> importance = importance_of(options, tensor);
  if (!importance.ok()) return importance.status();
  const std::vector<T> types = types_for(tensor, options.filter());
  if (types.empty()) return {};
  const Result<Bounds> bounds = maker->bounds_of(tensor);
  if (!bounds.ok()) return bounds.status();
  for (const T type : types) {
    SLUICE_RETURN_IF_ERROR(maker->measure(tensor, type, *importance, *bounds, &(*errors)[type]));
  }
  return {};
}

double relative(const Errors& errors) {
  return errors.power > 0 ? errors.counted / errors.power : 0;
}

struct Forms {
  std::vector<Form> all;  // sorted by bytes, on the hull
  bool raised = false;    // a smaller type was ruled out by its outliers
};

// The types that a tensor may take, with bytes and error.
Forms forms_of(const Tensor& tensor, uint64_t alignment, const Options& options,
               const std::map<T, Errors>& errors, const Sensitivity& sensitivity) {
  const T kept = kept_type(tensor);
  std::vector<Form> forms = {{kept, bytes_as(tensor, kept, alignment), 0}};
  uint64_t cut = UINT64_MAX;  // bytes of the smallest type ruled out by outliers
  for (const auto& [type, e] : errors) {
    const uint64_t bytes = bytes_as(tensor, type, alignment);
    if (bytes >= forms[0].bytes || !near(e, options)) continue;
    if (!holds_outliers(e, options)) {
      cut = std::min(cut, bytes);
      continue;
    }
    forms.push_back({type, bytes, sensitivity.change(type, relative(e))});
  }
  std::sort(forms.begin(), forms.end(), [](const Form& a, const Form& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.error < b.error;
  });
  std::vector<Form> hull;
  const auto saved = [](const Form& a, const Form& b) {  // error saved per byte
    return (a.error - b.error) / static_cast<double>(b.bytes - a.bytes);
  };
  for (const Form& f : forms) {
    if (!hull.empty() && (f.bytes == hull.back().bytes || f.error >= hull.back().error)) continue;
    while (hull.size() > 1 && saved(hull[hull.size() - 2], hull.back()) <= saved(hull.back(), f)) {
      hull.pop_back();
    }
    hull.push_back(f);
  }
  return {hull, cut < hull[0].bytes};
}

// The smallest type that `tensor` may take. Without a maker, only its shape is checked.
Result<T> smallest(const Tensor& tensor, const Options& options, ChunkMaker* maker) {
  const T kept = kept_type(tensor);
  const Result<const std::vector<float>*> importance = importance_of(options, tensor);
  if (!importance.ok()) return importance.status();
  std::optional<Bounds> bounds;
  for (const T type : types_for(tensor, options.filter())) {  // sorted by size, smallest first
    if (bytes_as(tensor, type) >= bytes_as(tensor, kept)) break;
    if (maker == nullptr) return type;
    if (!bounds.has_value()) {
      const Result<Bounds> found = maker->bounds_of(tensor);
      if (!found.ok()) return found.status();
      bounds = *found;
    }
    Errors errors;
    SLUICE_RETURN_IF_ERROR(maker->measure(tensor, type, *importance, *bounds, &errors));
    if (near(errors, options) && holds_outliers(errors, options)) return type;
  }
  return kept;
}

Status too_small(const Options& options, uint64_t least) {
  return error(Code::kInvalidArgument,
               "--target-size is too small: with a cosine of at least %.3g per tensor and outliers "
               "kept, the smallest file has %llu bytes",
               options.cosine(), static_cast<unsigned long long>(least));
}

// Whether `type` keeps the tensor as close as options.min_cosine asks.
Result<bool> is_near(const Tensor& tensor, T type, const Options& options, ChunkMaker* maker) {
  const Result<const std::vector<float>*> importance = importance_of(options, tensor);
  if (!importance.ok()) return importance.status();
  Errors errors;
  SLUICE_RETURN_IF_ERROR(maker->measure(tensor, type, *importance, {}, &errors));
  return near(errors, options);
}

struct Step {
  double saved;  // error saved per byte
  size_t tensor, form;
};

// Takes as many steps, in order, as fit in the file; then each later step that still fits and whose
// predecessor was taken. choose() returns the chosen form of each tensor.
class Chooser {
 public:
  Chooser(const std::vector<Forms>& forms, const std::vector<Step>& steps, uint64_t most,
          Sizer* sizer)
      : forms_(forms), steps_(steps), max_(most), sizer_(*sizer), chosen_(forms.size()) {}

  [[nodiscard]] std::vector<size_t> choose() {
    size_t taken = 0, most = steps_.size();
    while (taken < most) {
      const size_t middle = (taken + most + 1) / 2;
      const bool fits = fits_with(middle);
      (fits ? taken : most) = fits ? middle : middle - 1;
    }
    (void)fits_with(taken);
    for (size_t i = taken; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      if (chosen_[step.tensor] + 1 != step.form) continue;  // its predecessor did not fit
      set(step.tensor, step.form);
      if (!fits()) set(step.tensor, step.form - 1);
    }
    return chosen_;
  }

 private:
  void set(size_t tensor, size_t form) {
    chosen_[tensor] = form;
    sizer_.set(tensor, forms_[tensor].all[form].type);
  }
  [[nodiscard]] bool fits() const {
    const Result<uint64_t> bytes = sizer_.bytes();
    return bytes.ok() && *bytes <= max_;
  }
  [[nodiscard]] bool fits_with(size_t n_steps) {
    for (size_t i = 0; i < forms_.size(); ++i) set(i, 0);
    for (size_t i = 0; i < n_steps; ++i) set(steps_[i].tensor, steps_[i].form);
    return fits();
  }

  const std::vector<Forms>& forms_;
  const std::vector<Step>& steps_;
  uint64_t max_;
  Sizer& sizer_;
  std::vector<size_t> chosen_;
};

}  // namespace

bool outliers_kept(double error, const Options& options) {
  return error <= 1 - options.cosine() * options.cosine();
}

Result<const std::vector<float>*> importance_of(const Options& options, const Tensor& tensor) {
  if (options.importance == nullptr) return nullptr;
  return options.importance->find(tensor);
}

void Sizer::set(size_t tensor, T type) {
  Tensor& t = header_.tensors[tensor];
  t.type = type;
  t.bytes = bytes_as(t, type);
}

Status check_size(const gguf::Header& header, Sizer sizer, const Options& options,
                  ChunkMaker* maker) {
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const Result<T> type = smallest(header.tensors[i], options, maker);
    if (!type.ok()) return type.status();
    sizer.set(i, *type);
  }
  const Result<uint64_t> least = sizer.bytes();
  if (!least.ok()) return least.status();
  if (*least <= options.target_bytes) return {};
  if (maker != nullptr) return too_small(options, *least);
  return error(
      Code::kInvalidArgument,
      "--target-size is too small: this model needs at least %llu bytes in the smallest types",
      static_cast<unsigned long long>(*least));
}

Result<Sized> types_for_size(const gguf::Header& header, Sizer sizer, const Options& options,
                             ChunkMaker* maker) {
  std::vector<std::map<T, Errors>> errors(header.tensors.size());
  std::vector<ErrorsByType> shares(header.tensors.size());
  for (size_t i = 0; i < errors.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(errors_of(header.tensors[i], options, maker, &errors[i]));
    for (const auto& [type, e] : errors[i]) shares[i][type] = relative(e);
  }
  Sized out;
  out.sensitivities = sensitivities_of(header, shares, options.probes);
  std::vector<Forms> forms;
  std::vector<Step> steps;
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    forms.push_back(
        forms_of(header.tensors[i], header.alignment, options, errors[i], out.sensitivities[i]));
    const std::vector<Form>& of = forms.back().all;
    for (size_t f = 1; f < of.size(); ++f) {
      const Form &a = of[f - 1], &b = of[f];
      steps.push_back({(a.error - b.error) / static_cast<double>(b.bytes - a.bytes), i, f});
    }
    sizer.set(i, of[0].type);
  }
  const Result<uint64_t> least = sizer.bytes();
  if (!least.ok()) return least.status();
  if (*least > options.target_bytes) return too_small(options, *least);
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.saved > b.saved; });
  const std::vector<size_t> chosen = Chooser(forms, steps, options.target_bytes, &sizer).choose();
  for (size_t i = 0; i < forms.size(); ++i) {
    const bool raised = forms[i].raised && chosen[i] == 0;
    out.choices.push_back({.type = forms[i].all[chosen[i]].type, .raised = raised});
  }
  return out;
}

Result<Choice> near_enough(const Tensor& tensor, const Choice& choice, const Options& options,
                           ChunkMaker* maker) {
  if (choice.type == tensor.type || gguf::type_info(choice.type)->block_size == 1) return choice;
  Result<bool> enough = is_near(tensor, choice.type, options, maker);
  if (!enough.ok()) return enough.status();
  if (*enough) return choice;
  for (const T type : types_for(tensor, options.filter())) {
    if (bytes_as(tensor, type) <= bytes_as(tensor, choice.type)) continue;
    enough = is_near(tensor, type, options, maker);
    if (!enough.ok()) return enough.status();
    if (*enough) return Choice{.type = type, .fallback = choice.fallback, .raised = true};
  }
  return Choice{.type = kept_type(tensor), .fallback = choice.fallback, .raised = true};
}

T commonest(const gguf::Header& header, const std::vector<Choice>& choices) {
  std::map<T, uint64_t> bytes;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (is_quantizable(header.tensors[i])) {
      bytes[choices[i].type] += bytes_as(header.tensors[i], choices[i].type);
    }
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? T::kF32 : most->first;
}

}  // namespace sluice::convert
