// The layout of a saved sequence. It belongs to a fingerprint. It is read and written in pieces of
// any size, directly from and to the sequence's own memory, so it needs no buffer. Little-endian:
//   header      magic "SKV5", position, fingerprint, total length, layers, checkpoints, pictures
//   u32         for each layer: the first position whose keys and values follow
//   u32         for each checkpoint: its position, ascending
//   4 u32       for each picture: first token, tokens, positions, columns (MediaSpan), ascending
//   i32         the tokens
//   for each layer, for each head: keys [position - first][dk], then values [...][dv], as in the
//               cache; for grouped types whole groups, then f16 copies of the incomplete group;
//               if the layer evicts, f16 copies of the sinks or heavy hitters; under
//               "heavy-hitter" also sums of attention and the observer queries of the open block
//   for the live state, then for each checkpoint: the state of each recurrent layer, f32
//   u64         hash of all of the above
#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "session/sequence.h"

namespace sluice::session {
namespace {

constexpr uint32_t kMagic = 0x35564b53;  // "SKV5"
constexpr uint64_t kSumBytes = sizeof(uint64_t);

}  // namespace

struct StateHeader {
  uint32_t magic = kMagic;
  uint32_t position = 0;
  Fingerprint fingerprint;
  uint64_t bytes = 0;
  uint32_t n_layer = 0;
  uint32_t n_checkpoints = 0;
  uint32_t n_media = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(StateHeader) == 32 + sizeof(Fingerprint));

namespace {

Status foreign() {
  return error(Code::kCorrupt, "the saved state is damaged or does not belong to this model");
}

}  // namespace

// The layout of one saved state, applied to one sequence.
struct StateForm {
  StateHeader header;
  std::vector<uint32_t> first;        // by layer
  std::vector<uint32_t> checkpoints;  // positions
  std::vector<uint32_t> media;        // four for each picture

  [[nodiscard]] static size_t head_bytes(const StateHeader& h) {
    return sizeof h + sizeof(uint32_t) * (h.n_layer + h.n_checkpoints + size_t{4} * h.n_media);
  }

  // The layout of what the sequence holds now.
  [[nodiscard]] static StateForm of(const Sequence& t, const Fingerprint& fingerprint) {
    StateForm f;
    f.header.fingerprint = fingerprint;
    f.header.position = static_cast<uint32_t>(t.position_);
    f.header.n_layer = static_cast<uint32_t>(t.cache_.shape().layers.size());
    f.header.n_checkpoints = static_cast<uint32_t>(t.checkpoints_.size());
    for (size_t i = 0; i < t.cache_.shape().layers.size(); ++i) {
      f.first.push_back(static_cast<uint32_t>(std::min(t.held_from(i, t.reached_), t.position_)));
    }
    for (const auto& c : t.checkpoints_) f.checkpoints.push_back(static_cast<uint32_t>(c.position));
    for (const MediaSpan& span : t.media_) {
      if (span.first >= t.position_) continue;
      ++f.header.n_media;
      for (const int32_t x : {span.first, span.n_tokens, span.n_positions, span.columns}) {
        f.media.push_back(static_cast<uint32_t>(x));
      }
    }
    if (f.header.n_media == 0) f.header.fingerprint.forget_projector();
    uint64_t body = 0;
    f.visit_body(t, [&body](void*, uint64_t n) { body += n; });
    f.header.bytes = head_bytes(f.header) + body + kSumBytes;
    return f;
  }

  // Calls segment(memory, bytes) for everything between head and hash, in order. `memory` is null
  // for data that the sequence has no slot for, and for a KV cache on the GPU.
  template <typename Segment>
  void visit_body(const Sequence& t, Segment&& segment) const {
    const int64_t position = header.position;
    segment(const_cast<Token*>(t.tokens_.data()), static_cast<uint64_t>(position) * sizeof(Token));
    for (size_t i = 0; i < first.size(); ++i) {
      const int32_t layer = static_cast<int32_t>(i);
      const kv::LayerShape& l = t.cache_.layer(layer);
      for (int32_t head = 0; head < l.heads; ++head) {
        for (const kv::KvPart p : kv::kKvParts) {
          const kv::LayerShape::Part part = l.part(p);
          const int64_t group = position - position % kernels::kKvGroup;
          const bool ring = p < kv::KvPart::kRecentKeys,
                     recent = !ring && p < kv::KvPart::kKeptKeys;
          const int64_t from = ring ? first[i] : recent ? group : 0;
          const int64_t to = ring || recent ? position : units_kept(l, p, first[i]);
          visit_units(part, t.cache_.part(layer, head, p), from / part.positions,
                      to / part.positions, segment);
        }
      }
    }
    visit_states(t, t.live_, segment);
    // Only the latest checkpoints are restored if not all fit.
    const size_t room = static_cast<size_t>(t.cache_.shape().n_checkpoints);
    const size_t skipped = checkpoints.size() - std::min(checkpoints.size(), room);
    for (size_t i = 0; i < checkpoints.size(); ++i) {
      visit_states(t, i < skipped ? -1 : copy_of(t, i - skipped), segment);
    }
  }

 private:
  // Units of the parts that are kept outside the rings.
  [[nodiscard]] int64_t units_kept(const kv::LayerShape& l, kv::KvPart p, uint32_t gone) const {
    const int32_t position = static_cast<int32_t>(header.position);
    if (l.slots == 0) return std::min(position, l.sinks);
    if (p < kv::KvPart::kAttended) return std::min<int64_t>(gone, l.slots);
    if (p == kv::KvPart::kAttended) return gone > 0 ? l.part(p).units : 0;
    // A block that is still to be evicted needs all observers of the previous block.
    const bool leaves = static_cast<int32_t>(gone) < l.seen_from(position);
    return leaves ? l.observers : position % l.eviction.block / l.observer_stride();
  }

  // The copy of a sequence's i-th checkpoint; during a restore they are in order.
  [[nodiscard]] static int32_t copy_of(const Sequence& t, size_t i) {
    return t.restore_.active ? 2 + static_cast<int32_t>(i) : t.checkpoints_[i].copy;
  }

  // Visits units [from, to) of a part; only the last part.units of them have memory.
  template <typename Segment>
  static void visit_units(const kv::LayerShape::Part& part, uint8_t* memory, int64_t from,
                          int64_t to, Segment& segment) {
    if (part.total() == 0) return;
    const uint64_t bytes = static_cast<uint64_t>(part.bytes);
    if (to - part.units > from) {
      segment(nullptr, static_cast<uint64_t>(to - part.units - from) * bytes);
      from = to - part.units;
    }
    while (from < to) {
      const int64_t place = from % part.units;
      const int64_t n = std::min(to - from, part.units - place);
      segment(memory == nullptr ? nullptr : memory + place * part.bytes,
              static_cast<uint64_t>(n) * bytes);
      from += n;
    }
  }

  template <typename Segment>
  static void visit_states(const Sequence& t, int32_t copy, Segment& segment) {
    for (size_t i = 0; i < t.cache_.shape().layers.size(); ++i) {
      const int32_t layer = static_cast<int32_t>(i);
      const int64_t n = t.cache_.layer(layer).state;
      if (n == 0) continue;
      segment(copy < 0 ? nullptr : static_cast<void*>(t.cache_.state(layer, copy)),
              static_cast<uint64_t>(n) * sizeof(float));
    }
  }
};

uint64_t Sequence::state_bytes() const {
  return StateForm::of(*this, {}).header.bytes;
}

Status Sequence::read_state(const Fingerprint& fingerprint, uint64_t offset,
                            std::span<uint8_t> out) const {
  const StateForm form = StateForm::of(*this, fingerprint);
  const uint64_t total = form.header.bytes;
  if (offset > total || out.size() > total - offset) {
    return error(Code::kInvalidArgument, "the saved state has %llu bytes",
                 static_cast<unsigned long long>(total));
  }
  const bool whole = offset + out.size() > total - kSumBytes;  // includes the hash
  Hash64 sum;
  uint64_t at = 0;
  const auto segment = [&](const void* memory, uint64_t n) {
    const uint8_t* from = static_cast<const uint8_t*>(memory);
    if (from != nullptr) {
      if (whole && at < total - kSumBytes) sum.add({from, static_cast<size_t>(n)});
      const uint64_t begin = std::max(at, offset), end = std::min(at + n, offset + out.size());
      if (begin < end) std::memcpy(&out[begin - offset], from + (begin - at), end - begin);
    }
    at += n;
  };
  segment(&form.header, sizeof form.header);
  segment(form.first.data(), form.first.size() * sizeof(uint32_t));
  segment(form.checkpoints.data(), form.checkpoints.size() * sizeof(uint32_t));
  segment(form.media.data(), form.media.size() * sizeof(uint32_t));
  form.visit_body(*this, segment);
  const uint64_t value = sum.value();
  segment(&value, sizeof value);
  return {};
}

Status Sequence::begin_restore(uint64_t bytes) {
  clear();
  if (bytes < sizeof(StateHeader) + kSumBytes) return foreign();
  ++restores_;
  restore_.active = true;
  restore_.total = bytes;
  return {};
}

namespace {

// Validates the header. Errors are final.
Status check_head(const StateHeader& h, const kv::KvShape& shape, const Fingerprint& fingerprint,
                  uint64_t total) {
  constexpr uint32_t kMaxCheckpoints = 1 << 16, kMaxPictures = 1 << 16;
  if (h.magic != kMagic || h.bytes != total) return foreign();
  if (const char* what = fingerprint.difference(h.fingerprint)) {
    return error(Code::kCorrupt, "this engine cannot continue the saved state: the %s differ",
                 what);
  }
  if (h.n_layer != shape.layers.size() || h.n_checkpoints > kMaxCheckpoints ||
      h.n_media > kMaxPictures) {
    return foreign();
  }
  if (h.position > static_cast<uint32_t>(shape.n_ctx)) {
    return error(Code::kContextFull, "the saved state has %u tokens but the context holds %d",
                 h.position, shape.n_ctx);
  }
  return {};
}

// Whether the lists in the head are plausible.
bool plausible(const StateForm& form, const kv::KvShape& shape) {
  for (size_t i = 0; i < form.first.size(); ++i) {
    const int32_t position = static_cast<int32_t>(form.header.position);
    const uint32_t needed = static_cast<uint32_t>(shape.layers[i].seen_from(position));
    if (shape.layers[i].heads > 0 && form.first[i] > needed) return false;
    if (form.first[i] > form.header.position) return false;
    // A block is evicted before the query of its position, or has been already.
    if (shape.layers[i].slots > 0 && form.first[i] != needed &&
        form.first[i] != static_cast<uint32_t>(shape.layers[i].seen_from(position - 1))) {
      return false;
    }
  }
  uint32_t before = 0;
  for (const uint32_t c : form.checkpoints) {
    if (c <= before || c > form.header.position) return false;
    before = c;
  }
  uint64_t end = 0;
  for (size_t i = 0; i < form.media.size(); i += 4) {
    const uint64_t first = form.media[i], n = form.media[i + 1];
    const uint32_t positions = form.media[i + 2], columns = form.media[i + 3];
    if (first < end || n == 0 || first + n > form.header.position) return false;
    if (positions == 0 || positions > n || (columns > 0 && n % columns != 0)) return false;
    end = first + n;
  }
  return true;
}

}  // namespace

Status Sequence::write_state(const Fingerprint& fingerprint, int64_t n_vocab,
                             std::span<const uint8_t> piece) {
  if (!restore_.active) return error(Code::kInvalidArgument, "no saved state is being restored");
  const auto fail = [this](Status status) {
    clear();
    return status;
  };
  Restore& r = restore_;
  if (piece.size() > r.total - r.done) return fail(foreign());
  // The head is collected until it is complete; everything after it is written to its final place.
  size_t used = 0;
  const auto gather = [&](size_t bytes) {
    const size_t n = std::min(bytes - std::min(bytes, r.head.size()), piece.size() - used);
    r.head.insert(r.head.end(), piece.begin() + static_cast<int64_t>(used),
                  piece.begin() + static_cast<int64_t>(used + n));
    used += n;
    return r.head.size() >= bytes;
  };
  const uint64_t summed = r.total - kSumBytes;
  if (r.done < summed) {
    r.hash.add(piece.first(std::min<size_t>(piece.size(), static_cast<size_t>(summed - r.done))));
  }
  r.done += piece.size();
  StateForm form;
  const auto more = [&] { return r.done < r.total ? Status() : fail(foreign()); };
  if (!gather(sizeof form.header)) return more();
  std::memcpy(&form.header, r.head.data(), sizeof form.header);
  if (Status s = check_head(form.header, cache_.shape(), fingerprint, r.total); !s.ok()) {
    return fail(std::move(s));
  }
  if (!gather(StateForm::head_bytes(form.header))) return more();
  size_t listed = sizeof form.header;
  const auto list = [&r, &listed](size_t n) {
    std::vector<uint32_t> out(n);
    if (n > 0) std::memcpy(out.data(), &r.head[listed], n * sizeof(uint32_t));
    listed += n * sizeof(uint32_t);
    return out;
  };
  form.first = list(form.header.n_layer);
  form.checkpoints = list(form.header.n_checkpoints);
  form.media = list(size_t{4} * form.header.n_media);
  if (!plausible(form, cache_.shape())) return fail(foreign());

  const uint64_t from = r.done - (piece.size() - used);  // offset of the rest of the piece
  uint64_t at = r.head.size();
  const auto copy_in = [&](void* memory, uint64_t n) {
    const uint64_t begin = std::max(at, from), end = std::min(at + n, r.done);
    if (begin < end && memory != nullptr) {
      std::memcpy(static_cast<uint8_t*>(memory) + (begin - at), &piece[used + (begin - from)],
                  end - begin);
    }
    at += n;
  };
  form.visit_body(*this, copy_in);
  copy_in(&r.sum, sizeof r.sum);
  if (at != r.total) return fail(foreign());
  if (r.done < r.total) return {};
  return finish_restore(form, n_vocab);
}

// All bytes have arrived: verifies the hash and completes the restore.
Status Sequence::finish_restore(const StateForm& form, int64_t n_vocab) {
  const int32_t position = static_cast<int32_t>(form.header.position);
  source_ = source_of({tokens_.data(), static_cast<size_t>(position)});
  bool known = cache_.shape().answers ? position == 0 || source_ > 0 : source_ == 0;
  size_t picture = 0;
  for (int32_t i = 0; i < position; ++i) {
    const auto at = [&](size_t field) {
      return static_cast<int32_t>(form.media[4 * picture + field]);
    };
    while (4 * picture < form.media.size() && at(0) + at(1) <= i) ++picture;
    const bool in_picture = 4 * picture < form.media.size() && at(0) <= i;
    const Token own = tokens_[static_cast<size_t>(i)];
    known = known && token(i) < n_vocab && (own < 0) == (i < source_) &&
            (own >= kMediaToken) == in_picture;
  }
  if (!known || restore_.hash.value() != restore_.sum) {
    clear();
    return foreign();
  }
  const size_t room = static_cast<size_t>(cache_.shape().n_checkpoints);
  const size_t n = std::min(form.checkpoints.size(), room);
  const size_t skipped = form.checkpoints.size() - n;
  for (size_t i = 0; i < n; ++i) {
    checkpoints_.push_back(
        {static_cast<int32_t>(form.checkpoints[skipped + i]), 2 + static_cast<int32_t>(i)});
  }
  media_.clear();
  for (size_t i = 0; i < form.media.size(); i += 4) {
    const auto at = [&](size_t field) { return static_cast<int32_t>(form.media[i + field]); };
    media_.push_back({at(0), at(1), at(2), at(3)});
  }
  end_restore();
  position_ = reached_ = position;
  restored_ = 0;
  copied_ = position - position % kernels::kKvGroup;
  for (size_t i = 0; i < form.first.size(); ++i) {
    const kv::LayerShape& layer = cache_.layer(static_cast<int32_t>(i));
    if (layer.slots > 0) gone_[i] = static_cast<int32_t>(form.first[i]);
    if (layer.heads == 0 || layer.slots > 0) continue;
    restored_ = std::max(restored_, static_cast<int32_t>(form.first[i]));
  }
  return {};
}

}  // namespace sluice::session
