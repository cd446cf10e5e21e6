// Walks the program's operations once.
#include "measure/text_chunks.h"

#include <algorithm>

namespace sluice::measure {

TextChunks::TextChunks(const model::Program& p) : end(static_cast<size_t>(p.pool)) {
  layer.assign(static_cast<size_t>(p.hp.n_layer), SIZE_MAX);
  for (size_t i = 0; i < end; ++i) {
    if (p.ops[i].layer < 0) continue;
    size_t& first = layer[static_cast<size_t>(p.ops[i].layer)];
    first = std::min(first, i);
    tail = i + 1;
  }
  for (size_t l = layer.size(), next = tail; l-- > 0;) {
    if (layer[l] == SIZE_MAX) layer[l] = next;
    next = layer[l];
  }
}

std::vector<size_t> even(size_t n, size_t of) {
  std::vector<size_t> out;
  n = std::min(n, of);
  for (size_t i = 0; i < n; ++i) out.push_back((2 * i + 1) * of / (2 * n));
  return out;
}

int32_t window_of(const gguf::Header& header) {
  const std::string arch(header.get_string("general.architecture").value_or(""));
  const uint64_t most = header.get_u64(arch + ".context_length").value_or(kWindow);
  return static_cast<int32_t>(std::clamp<uint64_t>(most, 2, kWindow));
}

double work_between(const model::Program& program, int32_t first, int32_t end) {
  const double experts = static_cast<double>(program.hp.moe.n_expert_used) /
                         static_cast<double>(std::max<int64_t>(1, program.hp.moe.n_expert));
  double sum = 0;
  for (const model::Mat& m : program.mats) {
    if (m.layer < first || m.layer >= end) continue;
    sum += (m.expert ? experts : 1) * static_cast<double>(m.rows) * static_cast<double>(m.cols);
  }
  return sum;
}

Status run_part(native::Model& model, session::Session& session,
                std::span<const session::Token> window, const session::PartialForward& part) {
  if (part.first == part.end) {
    if (part.to != nullptr) part.to->assign(part.from.begin(), part.from.end());
    return {};
  }
  session.clear();
  SLUICE_RETURN_IF_ERROR(session.begin_part(window, part));
  return model.run(session);
}

}  // namespace sluice::measure
