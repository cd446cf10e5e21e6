// Pictures for an engine, as typed in web/worker/binding.ts. Only the full engines have this class.
// It converts arguments, and owns the projector's header and the picture that is being passed.
#include "multimodal/pictures.h"

#include <emscripten/bind.h>

#include "bindings/engine_binding.h"
#ifdef SLUICE_GPU
#include "gpu/gpu_executor.h"
#endif

namespace sluice::bindings {

#ifdef SLUICE_GPU
// An input as web/gpu/pictures/input.ts reads it: addresses, and numbers of what is there. `rows`:
// where its rows go, [n_rows][width] f32.
struct GpuInput {
  uint32_t ops, n_ops, mats, n_mats, vecs, n_vecs;
  uint32_t tables, n_tables, patches, n_patches, rows, n_rows, width;
  uint32_t neighbours, halves;
  std::array<uint32_t, vision::kBuffers> buffers;  // floats of each
};
#endif

class PictureBinding {
 public:
  static PictureBinding* of(EngineBinding* engine) { return new PictureBinding(*engine); }

  // Reads the projector's header. Of its functions only those about the header may be used.
  EngineBinding* header() { return &header_; }
  // Before inspect() and open() of the engine, whose header has been read.
  bool open(const val& options);
  // After open() of the engine.
  void attach() {
    session::Engine& text = *engine_.engine;
    pictures_->attach(text.context(), text.replanner());
    engine_.projector = &header_.opener->header();
  }
  std::string cost(unsigned width, unsigned height);

  // --- a prompt: idle engine, no reads of its weights pending
  unsigned room(unsigned width, unsigned height);
  // In place of room(): address of the bytes of a picture's file, which add_file() decodes.
  unsigned file(unsigned length);
  bool add_file();
  bool add() { return checked(pictures_->add(std::move(image_))); }
  val layout(const val& bytes, unsigned how, const val& known, unsigned n_pictures,
             const val& rest);
  // Begins encoding the pictures that the selected slot does not hold.
  bool begin(bool reuse_prefix) { return prepare(reuse_prefix) && begin_rest(); }
  // --- its parts, where the GPU may encode: between them, gpu_input() and mark_encoded() for each
  // input. begin_rest() begins what is left on the CPU.
  bool prepare(bool reuse_prefix);
  bool begin_rest();
#ifdef SLUICE_GPU
  // Address of a GpuInput, valid until mark_encoded() or begin_rest(). 0: none is left, or its
  // description does not fit.
  unsigned gpu_input();
  void mark_encoded();
#endif
  int step();
  bool close_encoder() {
    return checked(pictures_->close_encoder());
  }
  // Address of the encoder's FillQueue; 0: there is none.
  unsigned queue();
  // Whether the encoder waits for no read; only then may end() be called.
  bool idle() {
    return pictures_->idle();
  }
  // The selected slot's generation has computed its prompt: forgets the pictures.
  bool release();
  // Ends the selected slot's work, too.
  bool end();

 private:
  explicit PictureBinding(EngineBinding& engine) : engine_(engine) {}
  bool checked(const Status& status) {
    return engine_.checked(status);
  }

  EngineBinding& engine_;
  EngineBinding header_;
  std::string kernels_;
  std::unique_ptr<multimodal::Pictures> pictures_;
  media::Image image_;
  AlignedBuffer file_;
  unsigned file_bytes_ = 0;
  std::vector<Token> tokens_;  // of the prompt
#ifdef SLUICE_GPU
  vision::FlatInput flat_;
  GpuInput gpu_input_{};
#endif
};

bool PictureBinding::open(const val& options) {
  kernels_ = text_or_none(options, "kernels");
  const media::TokenLimits limits{static_cast<uint32_t>(number_or(options, "minTokens", 0)),
                                  static_cast<uint32_t>(number_or(options, "maxTokens", 0))};
  auto opened = multimodal::Pictures::open(header_.opener->header(),
                                           media::TextModel::from(engine_.opener->header()), limits,
                                           kernels_.c_str());
  if (!opened.ok()) return engine_.fail(opened.status());
  pictures_ = std::move(*opened);
  session::EngineOptions adapted;
  if (!checked(pictures_->adapt(&adapted))) return false;
  engine_.min_batch = adapted.min_batch;
  engine_.note_base();
  return true;
}

std::string PictureBinding::cost(unsigned width, unsigned height) {
  val out = val::object();
  const auto plan = pictures_->plan(width, height);
  const Result<uint64_t> bytes =
      plan.ok() ? pictures_->bytes_for(width, height) : Result<uint64_t>(plan.status());
  if (!bytes.ok()) {
    engine_.fail(bytes.status());
    put(out, "error", last_error(engine_));
    return to_text(out);
  }
  put(out, "tokens", plan->n_tokens);
  put(out, "bytes", static_cast<double>(*bytes));
  return to_text(out);
}

unsigned PictureBinding::room(unsigned width, unsigned height) {
  if (!checked(pictures_->make_room(width, height))) return 0;
  Result<media::Image> image = media::Image::create(width, height);
  if (!image.ok()) return engine_.fail(image.status()), 0;
  image_ = std::move(*image);
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(image_.row(0)));
}

unsigned PictureBinding::file(unsigned length) {
  if (!checked(pictures_->make_room_for_file(length)) || !checked(file_.allocate(length))) return 0;
  file_bytes_ = length;
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(file_.data()));
}

bool PictureBinding::add_file() {
  const bool added = checked(pictures_->add_file({file_.as<uint8_t>(), file_bytes_}, {}));
  file_ = {};
  return added;
}

val PictureBinding::layout(const val& bytes, unsigned how, const val& known, unsigned n_pictures,
                           const val& rest) {
  AlignedBuffer text, more;
  if (!engine_.copy_bytes(bytes, &text) || !engine_.copy_bytes(rest, &more)) return val::null();
  const std::vector<Token> before = to_tokens(known);
  auto tokens =
      pictures_->layout(view_of(text), tokenize_options(how), {before, n_pictures, view_of(more)});
  if (!tokens.ok()) return engine_.fail(tokens.status()), val::null();
  tokens_ = std::move(*tokens);
  return copy_out(std::span<const Token>(tokens_));
}

bool PictureBinding::prepare(bool reuse_prefix) {
  engine_.drop_work();
  if (!checked(pictures_->prepare(engine_.session(), tokens_, reuse_prefix))) return false;
  engine_.media = pictures_->media();
  return true;
}

bool PictureBinding::begin_rest() {
#ifdef SLUICE_GPU
  flat_ = {};
#endif
  return checked(pictures_->begin_rest());
}

#ifdef SLUICE_GPU
unsigned PictureBinding::gpu_input() {
  flat_ = {};
  if (!pictures_->encoding()) return 0;
  Result<vision::FlatInput> flat = pictures_->flat_input();
  if (!flat.ok()) return 0;
  flat_ = std::move(*flat);
  const std::span<float> rows = pictures_->rows();
  const auto n_rows = static_cast<uint32_t>(flat_.sizes.n_tokens);
  const auto count = [](size_t n) { return static_cast<uint32_t>(n); };
  gpu_input_ = {.ops = gpu::address(flat_.ops.data()),
                .n_ops = count(flat_.ops.size()),
                .mats = gpu::address(flat_.mats.data()),
                .n_mats = count(flat_.mats.size()),
                .vecs = gpu::address(flat_.vecs.data()),
                .n_vecs = count(flat_.vecs.size()),
                .tables = gpu::address(flat_.tables.data()),
                .n_tables = count(flat_.n_tables),
                .patches = gpu::address(flat_.patches.data()),
                .n_patches = count(flat_.n_patches),
                .rows = gpu::address(rows.data()),
                .n_rows = n_rows,
                .width = count(rows.size()) / n_rows,
                .neighbours = flat_.neighbours ? 1u : 0u,
                .halves = flat_.halves ? 1u : 0u,
                .buffers = {}};
  for (size_t i = 0; i < vision::kBuffers; ++i) {
    gpu_input_.buffers[i] = static_cast<uint32_t>(flat_.sizes.buffers[i]);
  }
  return gpu::address(&gpu_input_);
}

void PictureBinding::mark_encoded() {
  flat_ = {};
  pictures_->mark_encoded();
}
#endif

int PictureBinding::step() {
  switch (pictures_->step()) {
    case vision::Step::kBlocked:
      return static_cast<int>(session::Step::kBlocked);
    case vision::Step::kProgress:
      return static_cast<int>(session::Step::kProgress);
    case vision::Step::kDone:
      return static_cast<int>(session::Step::kDone);
    case vision::Step::kFailed:
      break;
  }
  engine_.fail(pictures_->status());
  return static_cast<int>(session::Step::kFailed);
}

unsigned PictureBinding::queue() {
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(pictures_->queue()));
}

bool PictureBinding::release() {
  engine_.media = {};
  image_ = {};
  file_ = {};
  tokens_ = {};
  if (!checked(pictures_->end())) return false;
  generate::Scheduler* const scheduler = engine_.scheduler();
  return scheduler == nullptr || checked(scheduler->add(engine_.session()));
}

bool PictureBinding::end() {
#ifdef SLUICE_GPU
  flat_ = {};
#endif
  engine_.drop_work();
  engine_.media = {};
  image_ = {};
  file_ = {};
  tokens_ = {};
  return checked(pictures_->end());
}

EMSCRIPTEN_BINDINGS(sluice_pictures) {
  emscripten::class_<PictureBinding>("Pictures")
      .constructor(&PictureBinding::of, emscripten::allow_raw_pointers())
      .function("header", &PictureBinding::header, emscripten::allow_raw_pointers())
      .function("open", &PictureBinding::open)
      .function("attach", &PictureBinding::attach)
      .function("cost", &PictureBinding::cost)
      .function("room", &PictureBinding::room)
      .function("add", &PictureBinding::add)
      .function("file", &PictureBinding::file)
      .function("addFile", &PictureBinding::add_file)
      .function("layout", &PictureBinding::layout)
      .function("begin", &PictureBinding::begin)
#ifdef SLUICE_GPU
      .function("prepare", &PictureBinding::prepare)
      .function("gpuInput", &PictureBinding::gpu_input)
      .function("markEncoded", &PictureBinding::mark_encoded)
      .function("beginRest", &PictureBinding::begin_rest)
#endif
      .function("step", &PictureBinding::step)
      .function("closeEncoder", &PictureBinding::close_encoder)
      .function("queue", &PictureBinding::queue)
      .function("idle", &PictureBinding::idle)
      .function("release", &PictureBinding::release)
      .function("end", &PictureBinding::end);
}

}  // namespace sluice::bindings
