// Several engines in one process exchange saved states, over the same model and over others: with
// other metadata, weights, KV cache types and policies, adapters and context lengths. Adapters and
// budgets change between and during forward passes and restores; prompts have pictures; sessions
// are swapped out, forked and restored in pieces; engines are destroyed with all of that half done.
// A restored state either continues like a fresh session, bit by bit, or is refused with what
// differs, and refused exactly when the fingerprints differ. random_sequence.h explains how to
// replay and to run more.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <tuple>

#include "../random_sequence.h"
#include "../sanitized.h"
#include "../unit/gguf_builder.h"
#include "fixtures_util.h"
#include "generate/generation.h"
#include "made_pictures.h"
#include "native/session_swap.h"

namespace sluice::test {
namespace {

using Random = std::mt19937_64;
using TokenList = std::vector<int32_t>;

// What an engine is opened with.
struct Variant {
  size_t model = 0;
  std::string name;  // of the model
  int metadata = 0;  // 1, 2: other numbers; 3: another name
  int weights = 0;   // 1: other weights in a layer; 2: in the output head
  kv::KvTypes types;
  kv::KvPolicy policy;
  int32_t n_ctx = 96;
  int32_t skipped = -1;  // a layer

  [[nodiscard]] std::string key() const {
    return name + "," + std::to_string(metadata) + "," + std::to_string(weights) + "," +
           kv::kv_types_name(types) + "," +
           (policy.window         ? "window"
            : policy.heavy_hitter ? "heavy-hitter"
                                  : "full") +
           std::to_string(policy.sinks) + "+" + std::to_string(policy.capacity) + "," +
           std::to_string(n_ctx) + (skipped < 0 ? "" : ",without " + std::to_string(skipped));
  }
};

// A model of the fixtures, with the files that its variants need.
struct SourceModel {
  std::string name, path, other_layer, other_head, adapters[2];
  int32_t rope_original = 0;  // of LongRoPE
  bool adapts = false;
};

constexpr int kAdapterSets = 5;

class Models {
 public:
  explicit Models(std::string directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_);
    const auto add = [this](const std::vector<Reference>& references) {
      for (const Reference& r : references) {
        if (!r.causal || r.source() > 0) continue;
        SourceModel& m = all_.emplace_back();
        m.name = r.name;
        m.path = r.path;
      }
    };
    add(read_manifest(own_folder("arch")));
    add(read_manifest(own_folder("families")));
    const std::vector<std::string> recurrent = {"mamba2", "qwen35", "rwkv7", "falcon-h1"};
    if (!shared_folder("families").empty())
      add(read_manifest(shared_folder("families"), &recurrent));
    ready_.resize(all_.size());
  }
  ~Models() { std::filesystem::remove_all(directory_); }
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;

  [[nodiscard]] size_t size() const { return all_.size(); }
  [[nodiscard]] const std::string& directory() const { return directory_; }
  const SourceModel& at(size_t i) {
    if (!ready_[i]) prepare(&all_[i], i);
    ready_[i] = true;
    return all_[i];
  }

  [[nodiscard]] std::vector<native::AdapterChoice> adapters(size_t model, int set) {
    const SourceModel& m = at(model);
    if (set == 1) return {{m.adapters[0], 1}};
    if (set == 2) return {{m.adapters[1], 0.5f}};
    if (set == 3) return {{m.adapters[0], 1}, {m.adapters[1], -1}};
    if (set == 4) return {{m.adapters[0], 0}};  // the same as none
    return {};
  }

  // Null if the engine refuses the combination.
  std::unique_ptr<native::Model> open(const Variant& v, int threads, int32_t sessions) {
    const SourceModel& m = at(v.model);
    auto header = native::read_header(v.weights == 1   ? m.other_layer
                                      : v.weights == 2 ? m.other_head
                                                       : m.path,
                                      {});
    if (!header.ok()) return nullptr;
    std::deque<std::string> bytes;
    change(&header->header, v.metadata, &bytes);
    session::EngineOptions options;
    options.n_ctx = v.n_ctx;
    options.kv = v.types;
    options.kv_policy = v.policy;
    options.n_threads = threads;
    options.n_sessions = sessions;
    options.min_batch = MadePictures::kMaxTokens;
    if (v.skipped >= 0) options.approximate.skip = {&v.skipped, 1};
    auto model = native::Model::open(std::move(*header), options);
    return model.ok() ? std::move(*model) : nullptr;
  }

 private:
  static void change(gguf::Header* header, int how, std::deque<std::string>* own) {
    for (gguf::KeyValue& kv : header->metadata) {
      const auto replace = [&](std::string bytes) {
        const std::string& kept = own->emplace_back(std::move(bytes));
        kv.value.bytes = {reinterpret_cast<const uint8_t*>(kept.data()), kept.size()};
      };
      const bool number =
          kv.value.type == gguf::ValueType::kF32 && kv.value.bytes.size() == sizeof(float);
      const bool meant = (how == 1 && kv.key.ends_with(".rope.freq_base")) ||
                         (how == 2 && (kv.key.ends_with("layer_norm_rms_epsilon") ||
                                       kv.key.ends_with("layer_norm_epsilon")));
      if (how == 3 && kv.key == "general.name") replace("another name");
      if (!number || !meant) continue;
      float value = 0;
      std::memcpy(&value, kv.value.bytes.data(), sizeof value);
      value *= how == 1 ? 20.0f : 1.5f;
      replace(std::string(reinterpret_cast<const char*>(&value), sizeof value));
    }
  }

  void prepare(SourceModel* m, size_t number) {
    const auto header = native::read_header(m->path, {});
    ASSERT_TRUE(header.ok());
    std::ifstream in(m->path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const std::string start = directory_ + "/" + std::to_string(number);
    const auto changed = [&](const char* tensor, const char* end) {
      const gguf::Tensor* t = header->header.find_tensor(tensor);
      if (t == nullptr) return m->path;
      std::string other = bytes;
      other[t->offset] = static_cast<char>(other[t->offset] ^ 1);
      std::ofstream(start + end, std::ios::binary) << other;
      return start + end;
    };
    m->other_layer = changed("token_embd.weight", "-layer.gguf");
    m->other_head = changed("output.weight", "-head.gguf");
    const std::string arch(header->header.get_string("general.architecture").value_or(""));
    m->rope_original = static_cast<int32_t>(
        header->header.get_u64(arch + ".rope.scaling.original_context_length").value_or(0));
    const std::string tensors[] = {"blk.0.ffn_down.weight", "blk.0.attn_output.weight"};
    Random random(number);
    for (int i = 0; i < 2; ++i) {
      const gguf::Tensor* t = header->header.find_tensor(tensors[i]);
      if (t == nullptr) return;
      GgufBuilder file;
      file.string("general.architecture", arch).string("general.type", "adapter");
      file.string("adapter.type", "lora").number("adapter.lora.alpha", 4.0f);
      const auto values = [&random](uint64_t n) {
        std::vector<uint8_t> out;
        for (uint64_t j = 0; j < n; ++j) {
          GgufBuilder::put(out, static_cast<float>(random() % 2001) / 5000 - 0.2f);
        }
        return out;
      };
      file.tensor(tensors[i] + ".lora_a", 0, {t->cols(), 2}, values(2 * t->cols()));
      file.tensor(tensors[i] + ".lora_b", 0, {2, t->rows()}, values(2 * t->rows()));
      const std::vector<uint8_t> built = file.build();
      m->adapters[i] = start + "-" + std::to_string(i) + ".lora.gguf";
      std::ofstream(m->adapters[i], std::ios::binary)
          .write(reinterpret_cast<const char*>(built.data()),
                 static_cast<std::streamsize>(built.size()));
    }
    native::LoadOptions load;
    load.engine.n_ctx = 32;
    load.adapters = {{m->adapters[0], 1}, {m->adapters[1], 1}};
    m->adapts = native::Model::open(m->path, load).ok();
  }

  std::string directory_;
  std::vector<SourceModel> all_;
  std::vector<bool> ready_;
};

// Pictures for models like this one, the same for all of them.
MadePictures& pictures_of(native::Model& model) {
  static std::map<std::tuple<int64_t, bool, bool>, MadePictures> all;
  const session::SessionContext& context = model.engine().context();
  const model::HParams& hp = context.program.hp;
  return all
      .try_emplace({hp.n_embd, hp.rope.sections[0] > 0, MadePictures::causal(context)}, context)
      .first->second;
}

// Logits of whole texts by engines without a history: one thread, unlimited memory, one session,
// cleared before each text.
class FreshEngines {
 public:
  explicit FreshEngines(Models& models) : models_(models) {}
  std::vector<float> logits(const Variant& v, int adapters, const TokenList& tokens) {
    Fresh& fresh = engine(v);
    if (fresh.session == nullptr) return {};
    if (fresh.adapters != adapters) {
      const Status set = fresh.model->set_adapters(models_.adapters(v.model, adapters));
      EXPECT_TRUE(set.ok()) << set.message();
      fresh.adapters = adapters;
    }
    fresh.session->clear();
    const Status seen = pictures_of(*fresh.model).see(*fresh.model, *fresh.session, tokens);
    EXPECT_TRUE(seen.ok()) << seen.message();
    if (!seen.ok()) return {};
    const Status begun = fresh.session->begin(
        std::span(tokens).subspan(static_cast<size_t>(fresh.session->position())));
    EXPECT_TRUE(begun.ok()) << begun.message();
    if (!begun.ok()) return {};
    EXPECT_TRUE(fresh.model->run(*fresh.session).ok());
    const auto logits = fresh.session->logits();
    return {logits.begin(), logits.end()};
  }

 private:
  struct Fresh {
    std::string key;
    int adapters = 0;
    std::unique_ptr<native::Model> model;
    std::unique_ptr<session::Session> session;
  };
  Fresh& engine(const Variant& v) {
    const std::string key = v.key();
    const auto found = std::find_if(engines_.begin(), engines_.end(),
                                    [&](const Fresh& f) { return f.key == key; });
    if (found != engines_.end()) {
      engines_.splice(engines_.begin(), engines_, found);
      return engines_.front();
    }
    if (engines_.size() >= 16) engines_.pop_back();
    Fresh& made = engines_.emplace_front();
    made.key = key;
    made.model = models_.open(v, 1, 1);
    EXPECT_NE(made.model, nullptr) << key;
    if (made.model == nullptr) return made;
    auto session = session::Session::create(made.model->engine().context());
    EXPECT_TRUE(session.ok());
    if (session.ok()) made.session = std::move(*session);
    return made;
  }
  Models& models_;
  std::list<Fresh> engines_;
};

struct SavedState {
  std::vector<uint8_t> bytes;
  TokenList tokens;
  Variant variant;
  int adapters = 0;
  session::Fingerprint print;  // as in its header
};

// An engine with conversations, of which two are in memory.
struct Place {
  Variant variant;
  int adapters = 0;
  std::unique_ptr<native::Model> model;
  std::unique_ptr<native::SessionSwap> swap;
  struct Talk {
    std::unique_ptr<native::Conversation> conversation;
    int adapters = 0;  // that its tokens were computed with
  };
  Talk talks[3];
  std::unique_ptr<generate::Generation> generation;  // destroyed first
};

class EngineOperations {
 public:
  EngineOperations(Models& models, FreshEngines& fresh, RandomSequence& sequence)
      : models_(models), fresh_(fresh), sequence_(sequence) {
    Random random = sequence.setup();
    base_.model = random() % models_.size();
    // Few models have a rotation that the context length chooses.
    for (bool rotates = random() % 5 == 0; rotates;) {
      base_.model = random() % models_.size();
      rotates = models_.at(base_.model).rope_original == 0;
    }
    base_.name = models_.at(base_.model).name;
    for (uint64_t changes = random() % 3; changes > 0; --changes) change(&base_, random);
    for (auto& place : places_) open(place, random);
    sequence_.note(base_.key());
  }

  void run() {
    sequence_.run([this](Random& random) {
      std::unique_ptr<Place>& place = places_[random() % std::size(places_)];
      Place::Talk& talk = place->talks[random() % std::size(place->talks)];
      switch (random() % 16) {
        case 0:
        case 1:
        case 2:
          return answer(*place, talk, random);
        case 3:
          return interrupted_answer(*place, talk, random);
        case 4:
        case 5:
          return save(*place, talk, random);
        case 6:
        case 7:
        case 8:
          return restore(*place, talk, random);
        case 9:
          return break_off(*place, talk, random);
        case 10:
          return move_budget(*place, random);
        case 11:
        case 12:
          return change_adapters(*place, random);
        case 13:
          return fork(*place, random);
        case 14:
          return rewind(*place, talk, random);
        default:
          return reopen(place, random);
      }
    });
    if (sequence_.failed()) return;
    sequence_.begin_part("every session answers");
    Random random = sequence_.setup();
    for (auto& place : places_) {
      for (Place::Talk& talk : place->talks) {
        if (!sequence_.failed()) answer(*place, talk, random);
      }
    }
  }

 private:
  // The sequence's first variant with up to two changes: most differences should be single ones.
  Variant vary(Random& random) {
    Variant v = base_;
    for (uint64_t changes = random() % 3; changes > 0; --changes) change(&v, random);
    return v;
  }

  void change(Variant* v, Random& random) {
    switch (random() % 8) {
      case 0:
        v->model = random() % models_.size();
        break;
      case 1:
        v->metadata = static_cast<int>(random() % 4);
        break;
      case 2:
        v->weights = static_cast<int>(random() % 3);
        break;
      case 3:
        v->types.k = static_cast<kv::KvType>(random() % 4);
        v->types.v = static_cast<kv::KvType>(random() % 4);
        break;
      case 4:
        v->policy.sinks = static_cast<int32_t>(random() % 5);
        v->policy.capacity = 128 + static_cast<int32_t>(random() % 2) * 40;
        v->policy.window = random() % 2 == 0;
        v->policy.heavy_hitter = !v->policy.window;
        v->n_ctx = 330;
        break;
      case 5:
        v->skipped = 1;  // the first one passes values to the others in RWKV
        break;
      default: {
        constexpr int32_t kContexts[] = {40, 96, 200, 330};
        const int32_t original = models_.at(v->model).rope_original;
        v->n_ctx = original > 0 && random() % 4 > 0 ? original + static_cast<int32_t>(random() % 2)
                                                    : kContexts[random() % std::size(kContexts)];
      }
    }
    v->name = models_.at(v->model).name;
  }

  void open(std::unique_ptr<Place>& place, Random& random) {
    place.reset();
    place = std::make_unique<Place>();
    Variant& v = place->variant;
    v = vary(random);
    const int threads = 1 + static_cast<int>(random() % 4 / 3);
    place->model = models_.open(v, threads, 2);
    if (place->model == nullptr) {  // not every model has every KV cache type, policy or length
      Variant plain;
      plain.model = v.model;
      plain.name = v.name;
      v = plain;
      place->model = models_.open(v, threads, 2);
    }
    ASSERT_NE(place->model, nullptr) << v.key();
    auto swap = native::SessionSwap::open(place->model->engine().context(), models_.directory());
    ASSERT_TRUE(swap.ok()) << swap.status().message();
    place->swap = std::move(*swap);
    for (Place::Talk& talk : place->talks) {
      auto made = place->swap->create();
      ASSERT_TRUE(made.ok()) << made.status().message();
      talk.conversation = std::move(*made);
    }
    ASSERT_TRUE(place->model->identify().ok());
    if (random() % 3 == 0) {
      change_adapters(*place, random);
    }
    if (random() % 2 == 0) move_budget(*place, random);
  }

  // The session in memory; null after a failure. What other adapters computed cannot be swapped in.
  session::Session* enter(Place& place, Place::Talk& talk) {
    const bool refused = talk.conversation->swapped() && !same(talk.adapters, place.adapters);
    auto entered = place.swap->enter(*talk.conversation);
    EXPECT_EQ(entered.ok(), !refused) << entered.status().message();
    if (entered.ok()) return *entered;
    EXPECT_EQ(entered.status().code(), Code::kCorrupt) << entered.status().message();
    native::SessionSwap::clear(*talk.conversation);
    auto again = place.swap->enter(*talk.conversation);
    EXPECT_TRUE(again.ok()) << again.status().message();
    return again.ok() ? *again : nullptr;
  }

  // Whether two sets of adapters compute the same.
  static bool same(int a, int b) { return a % 4 == b % 4; }

  // What the session holds or a part of it, and more; pictures in it are computed.
  TokenList prompt(Place& place, session::Session& session, Random& random) {
    const auto held = session.tokens();
    TokenList out(held.begin(), held.end());
    MadePictures& pictures = pictures_of(*place.model);
    const uint64_t how = random() % 4;
    if (how == 0) {
      out.resize(out.size() * (random() % 4) / 4);
      pictures.cut(&out);
    }
    const size_t room = static_cast<size_t>(place.variant.n_ctx);
    size_t more = 1 + random() % (random() % 6 == 0 ? room : 12);
    const bool sees = random() % 4 == 0 && MadePictures::taken_by(session.context());
    const size_t seen = sees ? MadePictures::kMaxTokens : 0;
    if (out.size() + more + seen > room) {
      more = std::min(more, (room - seen) / 2);
      out.clear();
    }
    if (sees) pictures.append(random, &out);
    const auto n_vocab = static_cast<uint64_t>(session.context().program.hp.n_vocab);
    while (more-- > 0) out.push_back(static_cast<int32_t>(random() % n_vocab));
    const Status status = pictures.see(*place.model, session, out);
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }

  void expect_fresh(Place& place, const session::Session& session, const TokenList& text) {
    const auto logits = session.logits();
    const std::vector<float> expected = fresh_.logits(place.variant, place.adapters, text);
    ASSERT_EQ(logits.size(), expected.size());
    ASSERT_EQ(std::memcmp(logits.data(), expected.data(), logits.size_bytes()), 0)
        << "logits after " << text.size() << " tokens differ from a fresh engine's";
  }

  std::string name(const Place& place) {
    for (size_t i = 0; i < std::size(places_); ++i) {
      if (places_[i].get() == &place)
        return "engine " + std::to_string(i) + " (" + place.variant.key() + ", adapters " +
               std::to_string(place.adapters) + ") ";
    }
    return "an engine (" + place.variant.key() + ") ";
  }

  void answer(Place& place, Place::Talk& talk, Random& random) {
    sequence_.note(name(place) + "answers");
    session::Session* session = enter(place, talk);
    ASSERT_NE(session, nullptr);
    const TokenList text = prompt(place, *session, random);
    const auto kept = session->sync(text);
    ASSERT_TRUE(kept.ok()) << kept.status().message();
    sequence_.note(std::to_string(text.size()) + " tokens, " + std::to_string(*kept) + " kept");
    talk.adapters = place.adapters;
    const Status ran = place.model->run(*session);
    ASSERT_TRUE(ran.ok()) << ran.message();
    expect_fresh(place, *session, text);
  }

  // A pass during which the budget moves, adapters cannot change, and which may be cancelled.
  void interrupted_answer(Place& place, Place::Talk& talk, Random& random) {
    sequence_.note(name(place) + "answers, interrupted");
    session::Session* session = enter(place, talk);
    ASSERT_NE(session, nullptr);
    const TokenList text = prompt(place, *session, random);
    ASSERT_TRUE(session->sync(text).ok());
    talk.adapters = place.adapters;
    for (uint64_t steps = random() % 12; steps > 0 && session->busy(); --steps) {
      if (session->step(1 + static_cast<int32_t>(random() % 9)) == session::Step::kBlocked) {
        ASSERT_TRUE(place.model->wait().ok());
      }
    }
    if (random() % 2 == 0) move_budget(place, random);
    if (session->busy()) {
      EXPECT_EQ(place.model->set_adapters({}).code(), Code::kInvalidArgument);
      std::vector<uint8_t> byte(1);
      EXPECT_EQ(session->read_state(0, byte).code(), Code::kInvalidArgument);
    }
    if (random() % 2 == 0) {
      session->cancel();
      return;
    }
    ASSERT_TRUE(place.model->run(*session).ok());
    expect_fresh(place, *session, text);
  }

  void save(Place& place, Place::Talk& talk, Random& random) {
    sequence_.note(name(place) + "saves state " + std::to_string(saved_.size()));
    SavedState saved;
    saved.variant = place.variant;
    saved.adapters = talk.adapters;
    if (talk.conversation->position() == 0) {
      saved.adapters = place.adapters;
      if (random() % 8 > 0) answer(place, talk, random);
      if (sequence_.failed()) return;
      ASSERT_NE(enter(place, talk), nullptr);
    }
    const auto bytes = place.swap->state_bytes(*talk.conversation);
    ASSERT_TRUE(bytes.ok());
    saved.bytes.resize(*bytes);
    for (size_t at = 0; at < saved.bytes.size();) {
      const size_t n = std::min(piece(random, saved.bytes.size()), saved.bytes.size() - at);
      ASSERT_TRUE(place.swap->read_state(*talk.conversation, at, {&saved.bytes[at], n}).ok());
      at += n;
    }
    saved.tokens.resize(static_cast<size_t>(talk.conversation->position()));
    ASSERT_TRUE(talk.conversation->read_tokens(0, saved.tokens).ok());
    std::memcpy(&saved.print, &saved.bytes[2 * sizeof(uint32_t)], sizeof saved.print);
    saved_.push_back(std::move(saved));
  }

  // The length of a piece, from bytes to the whole.
  static size_t piece(Random& random, size_t all) {
    return 1 + random() % (random() % 3 == 0 ? all : 1 + random() % (1 + all / 4));
  }

  [[nodiscard]] bool must_accept(const SavedState& saved, const Place& place) {
    const Variant &a = saved.variant, &b = place.variant;
    const auto weights = [&](const Variant& v) {
      return v.weights == 1 ? 1 : 0;  // states do not depend on the output head
    };
    // Some models have none of the numbers that a variant changes.
    return a.model == b.model && a.metadata % 3 == b.metadata % 3 && weights(a) == weights(b) &&
           kv::kv_types_name(a.types) == std::string(kv::kv_types_name(b.types)) &&
           a.policy.window == b.policy.window && a.policy.heavy_hitter == b.policy.heavy_hitter &&
           a.policy.sinks == b.policy.sinks && a.policy.capacity == b.policy.capacity &&
           a.skipped == b.skipped && same(saved.adapters, place.adapters) &&
           (a.n_ctx == b.n_ctx || models_.at(a.model).rope_original == 0);
  }

  void restore(Place& place, Place::Talk& talk, Random& random) {
    if (saved_.empty()) return;
    const size_t number = random() % saved_.size();
    const SavedState& saved = saved_[number];
    sequence_.note(name(place) + "restores state " + std::to_string(number) + " of (" +
                   saved.variant.key() + ", adapters " + std::to_string(saved.adapters) + ")");
    native::SessionSwap::clear(*talk.conversation);
    session::Session* session = enter(place, talk);
    ASSERT_NE(session, nullptr);
    talk.conversation->hold(true);
    const char* differs = place.model->engine().fingerprint().difference(saved.print);
    const bool fits = saved.tokens.size() <= static_cast<size_t>(place.variant.n_ctx);
    const bool accept = must_accept(saved, place);
    talk.adapters = place.adapters;
    const bool damaged = random() % 8 == 0, disturbed = random() % 3 == 0;
    std::vector<uint8_t> bytes = saved.bytes;
    if (damaged) bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1 << random() % 8);
    Status status = session->begin_restore(bytes.size());
    for (size_t at = 0; at < bytes.size() && status.ok() && !sequence_.failed();) {
      const size_t n = std::min(piece(random, bytes.size()), bytes.size() - at);
      status = session->write_state({&bytes[at], n});
      at += n;
      if (status.ok() && at < bytes.size()) {
        ASSERT_EQ(session->position(), 0);
        if (disturbed) disturb(place, talk, random);
      }
    }
    talk.conversation->hold(false);
    if (sequence_.failed()) return;
    if (!status.ok()) {
      sequence_.note("refused: " + status.message());
      ASSERT_EQ(session->position(), 0);
      if (!damaged) {
        ASSERT_FALSE(accept && fits) << status.message();
        if (differs != nullptr) {
          ASSERT_EQ(status.code(), Code::kCorrupt) << status.message();
          ASSERT_NE(status.message().find(std::string("the ") + differs + " differ"),
                    std::string::npos)
              << status.message();
        } else {
          ASSERT_FALSE(fits) << status.message();
          ASSERT_EQ(status.code(), Code::kContextFull) << status.message();
        }
      }
    } else {
      ASSERT_FALSE(damaged);
      ASSERT_EQ(differs, nullptr);
      const auto held = session->tokens();
      ASSERT_TRUE(std::equal(held.begin(), held.end(), saved.tokens.begin(), saved.tokens.end()));
    }
    if (random() % 4 > 0) answer(place, talk, random);
  }

  // Something else happens to the engine between two pieces of a restore.
  void disturb(Place& place, const Place::Talk& restoring, Random& random) {
    const uint64_t what = random() % 8;
    if (what == 0) move_budget(place, random);
    if (what == 1) change_adapters(place, random);
    if (what == 2) {
      Place::Talk& other = place.talks[random() % std::size(place.talks)];
      if (&other != &restoring) answer(place, other, random);
    }
  }

  // A restore that is broken off, and what follows it.
  void break_off(Place& place, Place::Talk& talk, Random& random) {
    if (saved_.empty()) return;
    const SavedState& saved = saved_[random() % saved_.size()];
    sequence_.note(name(place) + "breaks off a restore");
    native::SessionSwap::clear(*talk.conversation);
    session::Session* session = enter(place, talk);
    ASSERT_NE(session, nullptr);
    ASSERT_TRUE(session->begin_restore(saved.bytes.size()).ok());
    const size_t all = random() % saved.bytes.size();
    for (size_t at = 0; at < all;) {
      const size_t n = std::min(piece(random, all), all - at);
      if (!session->write_state({&saved.bytes[at], n}).ok()) break;
      at += n;
    }
    ASSERT_EQ(session->position(), 0);
    switch (random() % 4) {
      case 0:
        session->clear();
        EXPECT_EQ(session->write_state(saved.bytes).code(), Code::kInvalidArgument);
        break;
      case 1:
        return restore(place, talk, random);
      case 2:
        return change_adapters(place, random);
      default:
        return answer(place, talk, random);
    }
  }

  void move_budget(Place& place, Random& random) {
    const session::MemoryPlan& plan = place.model->engine().plan();
    uint64_t budget = 0;
    if (random() % 4 > 0)
      budget = plan.budget.minimum + random() % (random() % 2 == 0 ? 1000 : 500000);
    sequence_.note(name(place) + "budget " + std::to_string(budget));
    const uint64_t before = plan.budget.bytes;
    const Status status = place.model->set_memory_budget(budget);
    if (!status.ok()) {  // a running engine keeps its checkpoints, so it may need more
      ASSERT_EQ(status.code(), Code::kBudgetTooSmall) << status.message();
      ASSERT_EQ(plan.budget.bytes, before);
      const std::string text(status.message());
      budget = std::stoull(text.substr(text.find("smallest that works is ") + 23));
      ASSERT_EQ(place.model->set_memory_budget(budget - 1).code(), Code::kBudgetTooSmall);
      ASSERT_TRUE(place.model->set_memory_budget(budget).ok()) << text;
    }
    ASSERT_TRUE(budget == 0 || plan.total() <= budget);
    ASSERT_EQ(place.model->set_memory_budget(plan.budget.minimum / 2).code(),
              Code::kBudgetTooSmall);
    ASSERT_EQ(plan.budget.bytes, budget);
  }

  void change_adapters(Place& place, Random& random) {
    // Adapters need the whole model.
    if (!models_.at(place.variant.model).adapts || place.variant.skipped >= 0) return;
    session::Engine& engine = place.model->engine();
    const session::Fingerprint before = engine.fingerprint();
    const int next = static_cast<int>(random() % kAdapterSets);
    std::vector<native::AdapterChoice> choices = models_.adapters(place.variant.model, next);
    sequence_.note(name(place) + "adapters " + std::to_string(next));
    if (random() % 6 == 0) {  // one that is not there, or is no adapter
      choices.push_back({random() % 2 == 0 ? models_.directory() + "/absent.gguf"
                                           : models_.at(place.variant.model).path,
                         1});
      ASSERT_FALSE(place.model->set_adapters(choices).ok());
      ASSERT_EQ(engine.fingerprint().difference(before), nullptr);
      return;
    }
    Status status = place.model->set_adapters(choices);
    if (status.code() == Code::kBudgetTooSmall) {
      ASSERT_GT(engine.plan().budget.bytes, 0u);
      ASSERT_EQ(engine.fingerprint().difference(before), nullptr);
      sequence_.note("too small");
      if (random() % 2 == 0) return;
      ASSERT_TRUE(place.model->set_memory_budget(0).ok());
      status = place.model->set_adapters(choices);
    }
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(engine.fingerprint().difference(before) == nullptr, same(next, place.adapters));
    place.adapters = next;
  }

  void fork(Place& place, Random& random) {
    const size_t from = random() % std::size(place.talks), to = random() % std::size(place.talks);
    if (from == to) return;
    sequence_.note(name(place) + "forks");
    auto made = place.swap->fork_of(*place.talks[from].conversation);
    ASSERT_TRUE(made.ok()) << made.status().message();
    ASSERT_EQ((*made)->position(), place.talks[from].conversation->position());
    place.talks[to].conversation = std::move(*made);
    place.talks[to].adapters = place.talks[from].adapters;
  }

  void rewind(Place& place, Place::Talk& talk, Random& random) {
    sequence_.note(name(place) + "rewinds");
    session::Session* session = enter(place, talk);
    ASSERT_NE(session, nullptr);
    const int32_t before = session->position(), to = static_cast<int32_t>(random() % 60);
    const int32_t reached = session->rewind(to);
    ASSERT_LE(reached, std::min(to, before));
    ASSERT_EQ(reached, session->position());
  }

  // Destroys the engine with passes, restores and generations half done, and opens another one.
  void reopen(std::unique_ptr<Place>& place, Random& random) {
    sequence_.note(name(*place) + "is destroyed");
    Place::Talk& talk = place->talks[random() % std::size(place->talks)];
    session::Session* session = enter(*place, talk);
    ASSERT_NE(session, nullptr);
    const TokenList text = prompt(*place, *session, random);
    const uint64_t what = random() % 4;
    if (what == 0 && !saved_.empty()) {
      const SavedState& saved = saved_[random() % saved_.size()];
      ASSERT_TRUE(session->begin_restore(saved.bytes.size()).ok());
      static_cast<void>(session->write_state({saved.bytes.data(), random() % saved.bytes.size()}));
    } else if (what == 1) {
      ASSERT_TRUE(session->sync(text).ok());
      for (uint64_t steps = random() % 6; steps > 0 && session->busy(); --steps)
        static_cast<void>(session->step(1 + static_cast<int32_t>(random() % 9)));
    } else if (what == 2) {
      generate::Options options;
      options.max_tokens = 4;
      auto generation = generate::Generation::begin(*session, text, options);
      ASSERT_TRUE(generation.ok()) << generation.status().message();
      place->generation = std::move(*generation);
      for (uint64_t steps = random() % 6; steps > 0; --steps)
        static_cast<void>(place->generation->step(1 + static_cast<int32_t>(random() % 20)));
    }
    open(place, random);
    if (!sequence_.failed()) sequence_.note("another: " + name(*place));
  }

  Models& models_;
  FreshEngines& fresh_;
  RandomSequence& sequence_;
  Variant base_;
  std::unique_ptr<Place> places_[3];
  std::vector<SavedState> saved_;
};

TEST(RandomEngines, ExchangedStatesContinueOrAreRefused) {
  Models models(testing::TempDir() + "sluice-engines-" + std::to_string(getpid()));
  ASSERT_GE(models.size(), 20u);
  FreshEngines fresh(models);
  run_random_sequences(kSanitized ? 30 : 100, 12, [&](RandomSequence& sequence) {
    EngineOperations operations(models, fresh, sequence);
    if (!sequence.failed()) operations.run();
  });
}

}  // namespace
}  // namespace sluice::test
