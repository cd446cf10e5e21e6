#include "multimodal/pictures.h"

#include <algorithm>

#include "base/hash.h"

namespace sluice::multimodal {
namespace {

// Of a decoded picture that is preprocessed.
uint64_t reading_bytes(const media::PicturePlan& picture) {
  return picture.preprocess_bytes + 3ull * picture.width * picture.height;
}

uint64_t bytes_of_rows(int64_t n_tokens, const vision::Encoder& encoder) {
  return round_up_to_line(static_cast<uint64_t>(n_tokens) * encoder.width() * sizeof(float));
}

}  // namespace

uint64_t hash_of(const gguf::Header& header) {
  Hash64 hash;
  for (const gguf::KeyValue& kv : header.metadata) {
    hash.add(kv.key);
    hash.add(static_cast<uint64_t>(kv.value.element));
    hash.add(kv.value.bytes);
  }
  for (const gguf::Tensor& tensor : header.tensors) {
    hash.add(tensor.name);
    for (const uint64_t n : tensor.ne) hash.add(n);
    hash.add(static_cast<uint64_t>(tensor.type));
    hash.add(tensor.offset);
  }
  return hash.value();
}

uint64_t hash_of(const media::Image& pixels, uint64_t projector) {
  Hash64 hash;
  hash.add(projector);
  hash.add(uint64_t{pixels.width});
  hash.add(uint64_t{pixels.height});
  hash.add({pixels.row(0), static_cast<size_t>(pixels.size())});
  return hash.value();
}

session::MediaInput input_of(const media::Chunk& chunk, uint64_t hash) {
  session::MediaInput input;
  input.n_tokens = static_cast<int32_t>(chunk.n_tokens);
  input.n_positions = static_cast<int32_t>(chunk.n_positions);
  input.columns = chunk.grid ? static_cast<int32_t>(chunk.columns) : 0;
  input.non_causal = chunk.non_causal;
  input.hash = hash;
  return input;
}

Result<std::unique_ptr<Pictures>> Pictures::open(const gguf::Header& projector,
                                                 const media::TextModel& model,
                                                 const media::TokenLimits& limits,
                                                 const char* kernels) {
  Result<media::Projector> read = media::read_projector(projector);
  if (!read.ok()) return read.status();
  if (const auto most = media::max_input_tokens(*read, limits); !most.ok()) return most.status();
  std::unique_ptr<Pictures> out(new Pictures);
  out->header_ = &projector;
  out->projector_ = std::move(*read);
  out->limits_ = limits;
  out->model_ = model;
  out->kernels_ = kernels;
  out->hash_ = hash_of(projector);
  ThreadPool pool(1);
  const auto encoder = out->open_encoder(&pool);
  if (!encoder.ok()) return encoder.status();
  SLUICE_RETURN_IF_ERROR((*encoder)->check_fits(model.media_width));
  return out;
}

Status Pictures::adapt(session::EngineOptions* options) const {
  if (!projector_.family->non_causal) return {};
  const Result<uint32_t> most = media::max_input_tokens(projector_, limits_);
  if (!most.ok()) return most.status();
  options->min_batch = std::max(options->min_batch, static_cast<int32_t>(*most));
  return {};
}

Result<std::unique_ptr<vision::Encoder>> Pictures::open_encoder(ThreadPool* pool) const {
  vision::EncoderOptions options;
  options.kernels = kernels_.c_str();
  options.pool = pool;
  return vision::Encoder::open(*header_, projector_, options);
}

Result<uint64_t> Pictures::bytes_for(uint32_t width, uint32_t height) const {
  const Result<media::PicturePlan> picture = plan(width, height);
  if (!picture.ok()) return picture.status();
  const auto encoder = open_encoder(&text_->pool);
  if (!encoder.ok()) return encoder.status();
  uint64_t encoding = 0, held = 0;
  for (const media::EncoderInput& input : picture->inputs) {
    const auto planned = (*encoder)->plan_for(input.width, input.height, 0);
    if (!planned.ok()) return planned.status();
    encoding = std::max(encoding, planned->minimum);
    held += bytes_of_rows(input.n_tokens, **encoder) + 3ull * input.width * input.height;
  }
  return held + std::max(encoding, reading_bytes(*picture));
}

uint64_t Pictures::held() const {
  uint64_t bytes = 0;
  for (const Input& input : inputs_) bytes += input.pixels.size() + input.rows.size();
  return bytes;
}

Status Pictures::lend(uint64_t bytes) {
  if (text_->plan.budget.bytes == 0) return {};
  text_->weights.residency().collect();
  const Status status = replanner_->lend(bytes);
  if (status.ok()) return status;
  return error(status.code(), "reading a picture: %s", status.message().c_str());
}

// A quarter of the model's budget, or as little as works.
Result<uint64_t> Pictures::borrow(uint64_t held, uint64_t least, uint64_t most) {
  const uint64_t budget = text_->plan.budget.bytes;
  if (budget == 0) return uint64_t{0};
  const uint64_t modest = std::clamp(budget / 4, least, most);
  if (lend(held + modest).ok()) return modest;
  const Status status = lend(held + least);
  if (!status.ok()) return status;
  return least;
}

Status Pictures::make_room(uint32_t width, uint32_t height, uint64_t decode_bytes) {
  const Result<media::PicturePlan> picture = plan(width, height);
  if (!picture.ok()) return picture.status();
  return lend(held() + std::max(reading_bytes(*picture), decode_bytes));
}

Status Pictures::add_file(media::Bytes file, const media::DecodeOptions& options) {
  const Result<media::ImageInfo> info = media::image_info(file, options);
  if (!info.ok()) return info.status();
  SLUICE_RETURN_IF_ERROR(make_room(info->width, info->height, info->decode_bytes));
  Result<media::Image> image = media::decode(file, options);
  if (!image.ok()) return image.status();
  return add(std::move(*image));
}

Status Pictures::add(media::Image image) {
  Result<media::PicturePlan> picture = plan(image.width, image.height);
  if (!picture.ok()) return picture.status();
  Result<std::vector<media::Image>> made = media::preprocess(projector_, *picture, image);
  if (!made.ok()) return made.status();
  for (media::Image& pixels : *made) {
    Input input;
    input.hash = hash_of(pixels, hash_);
    input.pixels = std::move(pixels);
    inputs_.push_back(std::move(input));
  }
  plans_.push_back(std::move(*picture));
  return {};
}

size_t Pictures::first_input(size_t picture) const {
  size_t first = 0;
  for (size_t i = 0; i < picture; ++i) first += plans_[i].inputs.size();
  return first;
}

void Pictures::append(std::span<const media::Chunk> chunks, size_t first,
                      std::vector<Token>* tokens) {
  for (const media::Chunk& chunk : chunks) {
    if (!chunk.is_image) {
      tokens->insert(tokens->end(), chunk.tokens.begin(), chunk.tokens.end());
      continue;
    }
    const size_t i = first_input(first + chunk.picture) + chunk.input;
    generate::Media& media = media_[i];
    media.first = static_cast<int32_t>(tokens->size());
    media.input = input_of(chunk, inputs_[i].hash);
    for (int32_t row = 0; row < media.input.n_tokens; ++row) {
      tokens->push_back(session::media_token(media.input.hash, row));
    }
  }
}

bool Pictures::place_inputs(std::span<const Token> tokens, size_t n_pictures) {
  auto at = tokens.begin();
  for (size_t i = 0; i < first_input(n_pictures); ++i) {
    const uint64_t hash = inputs_[i].hash;
    at = std::find(at, tokens.end(), session::media_token(hash, 0));
    media_[i].first = static_cast<int32_t>(at - tokens.begin());
    for (int32_t row = 0; row < media_[i].input.n_tokens; ++row, ++at) {
      if (at == tokens.end() || *at != session::media_token(hash, row)) return false;
    }
  }
  return true;
}

Result<std::vector<Token>> Pictures::layout(std::string_view prompt,
                                            const tokenizer::EncodeOptions& options,
                                            const KnownPrompt& known) {
  Result<std::vector<media::Chunk>> chunks =
      media::layout(prompt, projector_, plans_, text_->tokenizer, model_, options);
  if (!chunks.ok()) return chunks.status();
  std::vector<Token> tokens;
  media_.assign(inputs_.size(), {});
  append(*chunks, 0, &tokens);
  next_ = inputs_.size();
  const size_t n = known.tokens.size();
  if (n <= tokens.size() && std::equal(known.tokens.begin(), known.tokens.end(), tokens.begin())) {
    return tokens;
  }
  const std::vector<generate::Media> placed = media_;
  if (known.n_pictures > plans_.size() || !place_inputs(known.tokens, known.n_pictures)) {
    media_ = placed;
    return tokens;
  }
  tokenizer::EncodeOptions behind = options;
  behind.continuation = true;
  chunks = media::layout(known.rest, projector_, std::span(plans_).subspan(known.n_pictures),
                         text_->tokenizer, model_, behind);
  if (!chunks.ok()) return chunks.status();
  tokens.assign(known.tokens.begin(), known.tokens.end());
  append(*chunks, known.n_pictures, &tokens);
  return tokens;
}

Status Pictures::begin(session::Session& session, std::span<const Token> prompt,
                       bool reuse_prefix) {
  SLUICE_RETURN_IF_ERROR(prepare(session, prompt, reuse_prefix));
  return begin_rest();
}

Status Pictures::prepare(session::Session& session, std::span<const Token> prompt,
                         bool reuse_prefix) {
  if (!reuse_prefix) session.clear();
  kept_ = session.keep(prompt);
  status_ = {};
  next_ = next_needed(0);
  if (!encoding()) return {};
  auto encoder = open_encoder(&text_->pool);
  if (!encoder.ok()) return encoder.status();
  uint64_t least = 0, most = 0, row_bytes = 0;
  for (size_t i = next_; i < inputs_.size(); i = next_needed(i + 1)) {
    const media::Image& pixels = inputs_[i].pixels;
    const auto planned = (*encoder)->plan_for(pixels.width, pixels.height, 0);
    if (!planned.ok()) return planned.status();
    least = std::max(least, planned->minimum);
    most = std::max({most, planned->total(), planned->minimum});
    row_bytes += bytes_of_rows(media_[i].input.n_tokens, **encoder);
  }
  const Result<uint64_t> budget = borrow(held() + row_bytes, least, most);
  if (!budget.ok()) return budget.status();
  for (size_t i = next_; i < inputs_.size(); i = next_needed(i + 1)) {
    session::MediaInput& input = media_[i].input;
    SLUICE_RETURN_IF_ERROR(inputs_[i].rows.allocate(bytes_of_rows(input.n_tokens, **encoder)));
    input.rows = {inputs_[i].rows.as<float>(),
                  static_cast<size_t>(input.n_tokens) * (*encoder)->width()};
  }
  encoder_ = std::move(*encoder);
  encoder_->set_memory_budget(*budget);
  return {};
}

size_t Pictures::next_needed(size_t i) const {
  while (i < inputs_.size() && !needed(i)) ++i;
  return i;
}

std::span<float> Pictures::rows() const {
  return {inputs_[next_].rows.as<float>(), media_[next_].input.rows.size()};
}

Result<vision::FlatInput> Pictures::flat_input() const {
  return encoder_->flatten(inputs_[next_].pixels);
}

void Pictures::mark_encoded() {
  inputs_[next_].encoded = true;
  next_ = next_needed(next_);
}

Status Pictures::begin_rest() {
  return encoding() ? encoder_->begin(inputs_[next_].pixels, rows()) : Status();
}

vision::Step Pictures::step() {
  const auto fail = [this](Status status) {
    status_ = std::move(status);
    return vision::Step::kFailed;
  };
  if (!status_.ok()) return vision::Step::kFailed;
  if (!encoder_) return vision::Step::kDone;
  if (draining_ || !encoding()) {
    if (!encoder_->idle()) return vision::Step::kBlocked;
    draining_ = false;
    if (encoding()) {
      const Status begun = begin_rest();
      return begun.ok() ? vision::Step::kProgress : fail(begun);
    }
    return vision::Step::kDone;
  }
  const vision::Step step = encoder_->step();
  if (step == vision::Step::kFailed) return fail(encoder_->status());
  if (step != vision::Step::kDone) return step;
  mark_encoded();
  draining_ = true;
  return vision::Step::kProgress;
}

Status Pictures::close_encoder() {
  encoder_.reset();
  return lend(held());
}

Status Pictures::end() {
  encoder_.reset();
  plans_.clear();
  media_.clear();
  inputs_.clear();
  next_ = 0;
  draining_ = false;
  status_ = {};
  return lend(0);
}

}  // namespace sluice::multimodal
