// Pictures for a text model. The projector's encoder shares the model's budget: while a prompt's
// pictures are read, the model lends the memory, and gets it back when the prompt is computed.
// Like a forward pass it does no I/O: step() returns kBlocked while weights of the projector are
// missing, and whoever drives it fills the requests in queue().
//
// Order of calls: make_room() and add(), or add_file(), for each picture, layout(), begin(), step()
// until kDone, close_encoder(), a generation with media(), end(). From begin() on, it may be
// repeated for further sessions; what is encoded stays. No read of the model's weights may be
// pending at any of these calls but step() and media().
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/generation.h"
#include "media/decode.h"
#include "media/plan.h"
#include "media/prompt.h"
#include "session/replanner.h"
#include "vision/encoder.h"
#include "vision/flat_input.h"

namespace sluice::multimodal {

using tokenizer::Token;

// A picture's part of a prompt as a session takes it, without rows.
[[nodiscard]] session::MediaInput input_of(const media::Chunk& chunk, uint64_t hash);
// What tells projectors apart: their metadata, and their tensors' names, shapes and places. Their
// weights are part of saved states (session::Fingerprint).
[[nodiscard]] uint64_t hash_of(const gguf::Header& projector);
// What tells inputs of a projector apart: MediaInput::hash.
[[nodiscard]] uint64_t hash_of(const media::Image& pixels, uint64_t projector);

// The beginning of a prompt that continues another one: text that the model has generated keeps its
// tokens, which need not be those that the tokenizer makes of it.
struct KnownPrompt {
  std::span<const Token> tokens;
  size_t n_pictures = 0;  // among the tokens: the first ones of the prompt
  std::string_view rest;  // of the prompt, behind the tokens' text
};

class Pictures {
 public:
  // `projector` must outlive this object. Errors: media::read_projector's, max_input_tokens' and
  // Encoder::open's; kBadShape (the projector belongs to another model).
  [[nodiscard]] static Result<std::unique_ptr<Pictures>> open(const gguf::Header& projector,
                                                              const media::TextModel& model,
                                                              const media::TokenLimits& limits = {},
                                                              const char* kernels = "");
  // What the options need to be so that the model can compute pictures. Errors:
  // media::max_input_tokens'.
  [[nodiscard]] Status adapt(session::EngineOptions* options) const;
  // Of the text model, which must outlive this object.
  void attach(const session::SessionContext& model, session::Replanner& replanner) {
    text_ = &model;
    replanner_ = &replanner;
  }

  [[nodiscard]] const media::Projector& projector() const { return projector_; }
  // What a picture becomes, before a pixel is read. Errors: media::plan_image's.
  [[nodiscard]] Result<media::PicturePlan> plan(uint32_t width, uint32_t height) const {
    return media::plan_image(projector_, width, height, limits_);
  }
  // The budget that a model needs beside the memory for encoding a picture of this size, without
  // what its decoding takes. Errors: plan()'s, Encoder::plan_for's.
  [[nodiscard]] Result<uint64_t> bytes_for(uint32_t width, uint32_t height) const;

  // Borrows the memory that a picture of this size takes until add() returns, and before that its
  // decoding. Errors: plan()'s, Replanner::lend's.
  [[nodiscard]] Status make_room(uint32_t width, uint32_t height, uint64_t decode_bytes = 0);
  // Preprocesses the next picture of the prompt; its own pixels are then released. Errors:
  // plan()'s, media::preprocess'.
  [[nodiscard]] Status add(media::Image image);
  // Borrows the memory for a picture's file that is passed to add_file() next.
  [[nodiscard]] Status make_room_for_file(uint64_t bytes) { return lend(held() + bytes); }
  // The same for a picture's file, whose bytes count as borrowed until it is decoded. Errors:
  // make_room()'s, media::decode's, add()'s.
  [[nodiscard]] Status add_file(media::Bytes file, const media::DecodeOptions& options);
  // The prompt's tokens, in which each media::kMediaMark is the next picture. Errors:
  // media::layout's.
  [[nodiscard]] Result<std::vector<Token>> layout(std::string_view prompt,
                                                  const tokenizer::EncodeOptions& options,
                                                  const KnownPrompt& known = {});

  // Rewinds the session to what it holds of the prompt (to nothing, without `reuse_prefix`), and
  // begins encoding the pictures behind that, unless they are encoded. Errors: Replanner::lend's,
  // Encoder::begin's.
  [[nodiscard]] Status begin(session::Session& session, std::span<const Token> prompt,
                             bool reuse_prefix);
  [[nodiscard]] vision::Step step();

  // --- in place of begin(), where another executor may encode: prepare(), then for each input
  // flat_input(), rows() and mark_encoded(). begin_rest() begins what is left, for step().
  [[nodiscard]] Status prepare(session::Session& session, std::span<const Token> prompt,
                               bool reuse_prefix);
  // The next input, within the encoder's budget. Errors: vision::flatten()'s.
  [[nodiscard]] Result<vision::FlatInput> flat_input() const;
  [[nodiscard]] std::span<float> rows() const;  // of that input, to be filled
  void mark_encoded();
  [[nodiscard]] Status begin_rest();

  [[nodiscard]] const Status& status() const { return status_; }  // behind kFailed
  // Frees the encoder after kDone and gives its memory back to the model. Errors:
  // Replanner::lend's.
  [[nodiscard]] Status close_encoder();
  [[nodiscard]] bool encoding() const { return next_ < inputs_.size(); }
  // Whether all pictures of the prompt are among its first `kept` tokens.
  [[nodiscard]] bool held_by(int32_t kept) const {
    return media_.empty() || media_.back().first < kept;
  }
  // Whether the encoder waits for no read; only then may it end.
  [[nodiscard]] bool idle() const { return !encoder_ || encoder_->idle(); }
  // While the encoder runs; another one for each prompt.
  [[nodiscard]] residency::FillQueue* queue() {
    return encoder_ && encoder_->started() ? &encoder_->queue() : nullptr;
  }
  // For Options::media, valid until end().
  [[nodiscard]] std::span<const generate::Media> media() const { return media_; }
  // Forgets the prompt's pictures. An encoder with pending reads must not end. Errors:
  // Replanner::lend's.
  [[nodiscard]] Status end();

 private:
  struct Input {
    media::Image pixels;
    uint64_t hash = 0;
    AlignedBuffer rows;
    bool encoded = false;
  };

  Pictures() = default;
  // Without a budget.
  [[nodiscard]] Result<std::unique_ptr<vision::Encoder>> open_encoder(ThreadPool* pool) const;
  [[nodiscard]] uint64_t held() const;  // bytes of inputs and rows
  // Index of a picture's first input.
  [[nodiscard]] size_t first_input(size_t picture) const;
  // Appends the tokens of chunks, whose first picture is number `first`, and places their inputs.
  void append(std::span<const media::Chunk> chunks, size_t first, std::vector<Token>* tokens);
  // Places the inputs of the first pictures where these tokens have them. false: they do not.
  [[nodiscard]] bool place_inputs(std::span<const Token> tokens, size_t n_pictures);
  [[nodiscard]] Status lend(uint64_t bytes);
  // Borrows an encoder's budget beside what is held: between `least` and `most`. 0: no limit.
  [[nodiscard]] Result<uint64_t> borrow(uint64_t held, uint64_t least, uint64_t most);
  // Whether the input must be encoded for the session.
  [[nodiscard]] bool needed(size_t i) const {
    return media_[i].first >= kept_ && !inputs_[i].encoded;
  }
  // The first such input from `i` on.
  [[nodiscard]] size_t next_needed(size_t i) const;

  const gguf::Header* header_ = nullptr;
  const session::SessionContext* text_ = nullptr;
  session::Replanner* replanner_ = nullptr;
  media::Projector projector_;
  media::TokenLimits limits_;
  media::TextModel model_;
  std::string kernels_;
  uint64_t hash_ = 0;  // of the projector's header

  std::vector<media::PicturePlan> plans_;  // by picture
  std::vector<Input> inputs_;              // of all pictures
  std::vector<generate::Media> media_;     // the same, once they are laid out
  std::unique_ptr<vision::Encoder> encoder_;
  size_t next_ = 0;   // input that is being encoded
  int32_t kept_ = 0;  // tokens that the session holds
  bool draining_ = false;
  Status status_;
};

}  // namespace sluice::multimodal
