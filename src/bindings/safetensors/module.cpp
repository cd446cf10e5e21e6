// safetensors.wasm: reads Hugging Face directories for the browser's engine, which supports only
// GGUF. An instance either requests a directory's files, like the opener, and builds a GGUF header
// from them, or transforms tensor data that it is given (hf/tensor_transform.h). It has no threads
// and does no I/O. web/io/safetensors.ts calls it and declares the types of these functions.
// Numbers that may exceed 32 bits are doubles. If memory runs out it aborts; the caller handles
// that.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/aligned.h"
#include "gguf/write.h"
#include "open/opener.h"

#define SLUICE_EXPORT extern "C" __attribute__((used, visibility("default")))

namespace {

using sluice::Status;
using sluice::hf::Derived;

struct Bytes {
  const void* data = nullptr;
  uint32_t size = 0;
};

struct Wanted {
  double offset = 0, length = 0;
  uint32_t want = 0, file = 0, choice = 0, optional = 0;
  Bytes name;
};

struct Described {
  Bytes header, made, derived;
};

struct Part {
  double offset = 0, scales = 0;
  uint32_t kind = 0, bytes = 0, run = 0, file = 0, scale_file = 0;
  uint32_t stored = 0, scale_bytes = 0, within = 0;
};

struct State {
  std::unique_ptr<sluice::open::Opener> opener;
  sluice::open::FileRequest need;
  Wanted wanted;
  std::string header;
  Described described;
  Status error;
  // For transforming tensors.
  std::span<const Derived> runs;
  sluice::AlignedBuffer copy, stored, scales, made;
  Part part;
};

State& state() {
  static State s;
  return s;
}

std::string text(const char* data, uint32_t size) {
  return {data, size};
}

bool checked(Status status) {
  state().error = std::move(status);
  return state().error.ok();
}

template <typename Container>
Bytes bytes_of(const Container& c) {
  return {c.data(), static_cast<uint32_t>(c.size() * sizeof *c.data())};
}

}  // namespace

// Begins reading a directory: by its address, or by the names of selected files, each of which ends
// with a slash. `projector`: its vision projector, not the text model.
SLUICE_EXPORT void source(const char* address, uint32_t n_address, const char* names,
                          uint32_t n_names, bool projector) {
  sluice::open::Source from;
  from.address = text(address, n_address);
  from.projector = projector;
  const std::string all = text(names, n_names);
  for (size_t at = 0, end; at < all.size(); at = end + 1) {
    end = all.find('/', at);
    from.names.push_back(all.substr(at, end - at));
  }
  state().opener.reset(
      new sluice::open::Opener(sluice::open::Opener::of_directory(std::move(from))));
}

// The next file request; null: see error_code().
SLUICE_EXPORT const Wanted* need() {
  State& s = state();
  auto need = s.opener->need();
  if (!need.ok()) return checked(need.status()), nullptr;
  s.need = std::move(*need);
  s.wanted = {static_cast<double>(s.need.offset),
              static_cast<double>(s.need.length),
              static_cast<uint32_t>(s.need.want),
              s.need.file,
              s.need.choice,
              s.need.optional,
              bytes_of(s.need.name)};
  return &s.wanted;
}

SLUICE_EXPORT bool opened(double size) {
  return checked(state().opener->opened(static_cast<uint64_t>(size)));
}

SLUICE_EXPORT bool absent(const char* why, uint32_t n_why) {
  return checked(state().opener->absent(text(why, n_why)));
}

SLUICE_EXPORT uint8_t* reserve(uint32_t size) {
  const auto place = state().opener->reserve(size);
  return checked(place.status()) ? place->data() : nullptr;
}

SLUICE_EXPORT bool supply() {
  return checked(state().opener->supply());
}

// The GGUF header and transforms for the engine, when need() requests nothing more; null: see
// error_code().
SLUICE_EXPORT const Described* describe() {
  State& s = state();
  auto header = sluice::gguf::write_placed(&s.opener->header());
  if (!checked(header.status())) return nullptr;
  s.header = std::move(*header);
  s.described = {bytes_of(s.header), bytes_of(s.opener->synthesized_file()),
                 bytes_of(s.opener->derived())};
  return &s.described;
}

SLUICE_EXPORT const char* error_code() {
  return sluice::code_name(state().error.code());
}

SLUICE_EXPORT const char* error_message() {
  return state().error.message().c_str();
}

// A buffer of `size` bytes for `derived` of describe(), to be filled before derive(); null: out of
// memory.
SLUICE_EXPORT void* runs_room(uint32_t size) {
  State& s = state();
  if (!checked(s.copy.allocate(size))) return nullptr;
  s.runs = {s.copy.as<const Derived>(), size / sizeof(Derived)};
  return s.copy.data();
}

// Allocates the memory for transforming tensors.
SLUICE_EXPORT bool derive() {
  State& s = state();
  const sluice::hf::LineRoom room = sluice::hf::line_room(s.runs);
  return checked(s.stored.allocate(room.stored)) && checked(s.scales.allocate(room.stored / 16)) &&
         checked(s.made.allocate(room.made));
}

// Buffers for a line as stored, and for its scales.
SLUICE_EXPORT void* stored_room() {
  return state().stored.data();
}
SLUICE_EXPORT void* scales_room() {
  return state().scales.data();
}

// The part of the transformed data that begins at `offset`; null: there is none.
SLUICE_EXPORT const Part* next_part(double offset, uint32_t length) {
  State& s = state();
  const auto p = sluice::hf::next_part(s.runs, static_cast<uint64_t>(offset), length);
  if (!p) return nullptr;
  s.part = {static_cast<double>(p->offset),
            static_cast<double>(p->scales),
            static_cast<uint32_t>(p->kind),
            static_cast<uint32_t>(p->bytes),
            p->run,
            p->file,
            p->scale_file,
            static_cast<uint32_t>(p->stored),
            static_cast<uint32_t>(p->scale_bytes),
            static_cast<uint32_t>(p->within)};
  return &s.part;
}

SLUICE_EXPORT const void* make_line(uint32_t run) {
  State& s = state();
  sluice::hf::make_line(s.runs[run], s.stored.as<uint8_t>(), s.scales.as<uint8_t>(),
                        s.made.as<uint8_t>());
  return s.made.data();
}
