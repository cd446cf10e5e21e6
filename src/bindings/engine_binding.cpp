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

namespace {

// --- header
bool opened(EngineBinding& b, double bytes) {
  return b.checked(b.opener->opened(static_cast<uint64_t>(bytes)));
}
bool supply(EngineBinding& b) {
  return b.checked(b.opener->supply());
}

// --- I/O
unsigned fill_queue(EngineBinding& b) {
  return static_cast<unsigned>(
      reinterpret_cast<uintptr_t>(&b.engine->residency().requests().queue()));
}
void poll(EngineBinding& b) {
  b.poll();
}

// Selects the slot that all later calls about the sequence, its state, the generation and
// embeddings use.
void select(EngineBinding& b, unsigned slot) {
  b.slot = &b.all_slots[slot];
}

// --- the sequence and its state
std::string detokenize(EngineBinding& b, const val& tokens, bool special) {
  return b.engine->tokenizer().decode(to_tokens(tokens), special);
}
int position(EngineBinding& b) {
  return b.session().position();
}
val tokens(EngineBinding& b) {
  return copy_out(b.session().tokens());
}
val logits(EngineBinding& b) {
  return copy_out(std::span<const float>(b.session().logits()));
}
unsigned state_stage(EngineBinding& b) {
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(b.stage.data()));
}
double state_bytes(EngineBinding& b) {
  return static_cast<double>(b.session().sequence().state_bytes());
}

#ifdef SLUICE_GPU
// --- the GPU, which computes from here on. Returns GpuExecutor::describe().
std::string attach_gpu(EngineBinding& b) {
  auto executor = std::make_unique<gpu::GpuExecutor>(b.engine->context(), b.engine->replanner());
  const std::string about = executor->describe();
  b.gpu = executor.get();
  b.engine->compute_with(std::move(executor));
  return about;
}
// Leaves the weights of the first `layers` layers to the GPU only.
bool offload_layers(EngineBinding& b, int layers) {
  return b.checked(b.engine->replanner().offload_layers(layers));
}
unsigned missing_states(EngineBinding& b) {
  return b.gpu->missing_states(b.session().sequence());
}
#endif

std::string kernel_name(EngineBinding& b) {
  return b.engine->table().name;
}
int threads(EngineBinding& b) {
  return b.engine->pool().n_threads();
}

}  // namespace

EMSCRIPTEN_BINDINGS(sluice) {
  emscripten::class_<EngineBinding>("Engine")
      .constructor<>()
      .function("source", &source)
      .function("need", &need)
      .function("opened", &opened)
      .function("reserve", &reserve)
      .function("supply", &supply)
      .function("adapter", &adapter)
      .function("setAdapters", &set_adapters)
      .function("forgetAdapters", &forget_adapters)
      .function("reserveStructuredOutput", &reserve_structured_output)
      .function("inspect", &inspect)
      .function("open", &open)
      .function("error", &last_error)
      .function("fillQueue", &fill_queue)
      .function("poll", &poll)
      .function("tokenize", &tokenize)
      .function("pairTokens", &pair_tokens)
      .function("embed", &begin_embed)
      .function("embedNext", &embed_next)
      .function("embedResults", &embed_results)
      .function("embedInfo", &embed_info)
      .function("controlTokens", &control_tokens)
      .function("tokenBytes", &token_bytes)
      .function("detokenize", &detokenize)
      .function("select", &select)
      .function("position", &position)
      .function("tokens", &tokens)
      .function("clear", &clear)
      .function("append", &append)
      .function("appendWhole", &append_whole)
      .function("logits", &logits)
      .function("begin", &begin)
      .function("step", &step)
      .function("outcome", &outcome)
      .function("cancel", &cancel)
      .function("takePieces", &take_pieces)
      .function("answer", &answer)
      .function("weightSamples", &weight_samples)
      .function("identify", &identify)
      .function("stateStage", &state_stage)
      .function("stateBytes", &state_bytes)
      .function("readState", &read_state)
      .function("beginRestore", &begin_restore)
      .function("writeState", &write_state)
#ifdef SLUICE_GPU
      .function("attachGpu", &attach_gpu)
      .function("offloadLayers", &offload_layers)
      .function("missingStates", &missing_states)
#endif
      .function("draft", &draft, emscripten::allow_raw_pointers())
      .function("drafting", &drafting)
      .function("memory", &memory)
      .function("stats", &stats)
      .function("unitStates", &unit_states)
      .function("kernelName", &kernel_name)
      .function("threads", &threads);
}

}  // namespace sluice::bindings
