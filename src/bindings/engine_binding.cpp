// Registers the engine's functions under the names used in web/worker/binding.ts.
#include "bindings/engine_binding.h"

#include <emscripten/bind.h>

#ifdef SLUICE_GPU
#include "gpu/gpu_executor.h"
#endif

namespace sluice::bindings {

extern "C" int sluice_read(uint32_t file, double offset, uint8_t* dst, uint32_t length);

bool SharedFiles::read(uint32_t file, uint64_t offset, std::span<uint8_t> out) {
  const uint32_t length = static_cast<uint32_t>(out.size());
  return sluice_read(file, static_cast<double>(offset), out.data(), length) ==
         static_cast<int>(length);
}

#ifdef SLUICE_GPU
std::string EngineBinding::attach_gpu() {
  auto executor = std::make_unique<gpu::GpuExecutor>(engine_->context(), engine_->replanner());
  const std::string about = executor->describe();
  engine_->compute_with(std::move(executor));
  return about;
}
#endif

EMSCRIPTEN_BINDINGS(sluice) {
  emscripten::class_<EngineBinding>("Engine")
      .constructor<>()
      .function("source", &EngineBinding::source)
      .function("need", &EngineBinding::need)
      .function("opened", &EngineBinding::opened)
      .function("reserve", &EngineBinding::reserve)
      .function("supply", &EngineBinding::supply)
      .function("adapter", &EngineBinding::adapter)
      .function("setAdapters", &EngineBinding::set_adapters)
      .function("forgetAdapters", &EngineBinding::forget_adapters)
      .function("reserveStructuredOutput", &EngineBinding::reserve_structured_output)
      .function("inspect", &EngineBinding::inspect)
      .function("open", &EngineBinding::open)
      .function("error", &EngineBinding::error)
      .function("fillQueue", &EngineBinding::fill_queue)
      .function("poll", &EngineBinding::poll)
      .function("tokenize", &EngineBinding::tokenize)
      .function("pairTokens", &EngineBinding::pair_tokens)
      .function("embed", &EngineBinding::begin_embed)
      .function("embedNext", &EngineBinding::embed_next)
      .function("embedResults", &EngineBinding::embed_results)
      .function("embedInfo", &EngineBinding::embed_info)
      .function("controlTokens", &EngineBinding::control_tokens)
      .function("tokenBytes", &EngineBinding::token_bytes)
      .function("detokenize", &EngineBinding::detokenize)
      .function("select", &EngineBinding::select)
      .function("position", &EngineBinding::position)
      .function("tokens", &EngineBinding::tokens)
      .function("clear", &EngineBinding::clear)
      .function("append", &EngineBinding::append)
      .function("appendWhole", &EngineBinding::append_whole)
      .function("logits", &EngineBinding::logits)
      .function("begin", &EngineBinding::begin)
      .function("step", &EngineBinding::step)
      .function("outcome", &EngineBinding::outcome)
      .function("cancel", &EngineBinding::cancel)
      .function("takePieces", &EngineBinding::take_pieces)
      .function("answer", &EngineBinding::answer)
      .function("weightSamples", &EngineBinding::weight_samples)
      .function("identify", &EngineBinding::identify)
      .function("stateStage", &EngineBinding::state_stage)
      .function("stateBytes", &EngineBinding::state_bytes)
      .function("readState", &EngineBinding::read_state)
      .function("beginRestore", &EngineBinding::begin_restore)
      .function("writeState", &EngineBinding::write_state)
#ifdef SLUICE_GPU
      .function("attachGpu", &EngineBinding::attach_gpu)
      .function("offloadLayers", &EngineBinding::offload_layers)
#else
      .function("draft", &EngineBinding::draft, emscripten::allow_raw_pointers())
      .function("drafting", &EngineBinding::drafting)
#endif
      .function("memory", &EngineBinding::memory)
      .function("stats", &EngineBinding::stats)
      .function("unitStates", &EngineBinding::unit_states)
      .function("kernelName", &EngineBinding::kernel_name)
      .function("threads", &EngineBinding::threads);
}

}  // namespace sluice::bindings
