// Turns expressions into nodes, then analyzes the automaton. A node is created after its successor,
// so automata grow from their ends; only loops are patched later.
#include <algorithm>

#include "grammar/builder.h"

namespace sluice::grammar {
namespace {

constexpr int kMaxDepth = 1200;  // nesting of expressions

}  // namespace

uint32_t Builder::node(Node n) {
  std::vector<Node>& nodes = out_->nodes;
  if (nodes.size() >= kMaxNodes || out_->ranges.size() > kMaxRanges) full_ = true;
  if (full_) return kFailNode;
  nodes.push_back(n);
  return static_cast<uint32_t>(nodes.size() - 1);
}

uint32_t Builder::emit(Expr e, uint32_t next) {
  if (full_ || ++depth_ > kMaxDepth) {
    full_ = true;
    return kFailNode;
  }
  const Piece p = pieces_[e];
  uint32_t at = next;
  switch (p.what) {
    case What::kEmpty:
      break;
    case What::kNever:
      at = kFailNode;
      break;
    case What::kBytes:
      for (uint32_t i = p.b; i > 0; --i) {
        const uint8_t byte = static_cast<uint8_t>(text_[p.a + i - 1]);
        at = node({Op::kByte, byte, byte, false, at, 0});
      }
      break;
    case What::kChars:
      at = emit_chars(classes_[p.a], next);
      break;
    case What::kSeq:
      for (uint32_t i = p.b; i > 0; --i) at = emit(lists_[p.a + i - 1], at);
      break;
    case What::kAlt:
      at = emit(lists_[p.a + p.b - 1], next);
      for (uint32_t i = p.b - 1; i > 0; --i) {
        const uint32_t other = emit(lists_[p.a + i - 1], next);
        at = node({Op::kSplit, 0, 0, false, other, at});
      }
      break;
    case What::kRepeat:
      at = emit_repeat(p, next);
      break;
    case What::kCall:
      at = node({Op::kCall, 0, 0, false, p.a, next});
      break;
    case What::kToken:
    case What::kNotToken:
      out_->has_tokens = true;
      at = node({p.what == What::kToken ? Op::kToken : Op::kNotToken, 0, 0, false, p.a, next});
      break;
    case What::kPart:
      at = emit_part(p.a, next);
      break;
  }
  --depth_;
  return at;
}

uint32_t Builder::emit_repeat(const Piece& p, uint32_t next) {
  uint32_t at = next;
  if (p.c == kUnbounded) {
    at = node({Op::kSplit, 0, 0, false, 0, next});
    const uint32_t body = emit(p.a, at);
    out_->nodes[at].a = body;
  } else {
    for (uint32_t i = p.b; i < p.c && !full_; ++i) {
      const uint32_t body = emit(p.a, at);
      at = node({Op::kSplit, 0, 0, false, body, next});
    }
  }
  for (uint32_t i = 0; i < p.b && !full_; ++i) at = emit(p.a, at);
  return at;
}

// One node for the first byte. Runs with the same continuation share it.
uint32_t Builder::emit_chars(const CharClass& set, uint32_t next) {
  const std::vector<ByteRun> runs = utf8_runs(set);
  struct Tail {
    ByteRun run;
    uint32_t at;
  };
  std::vector<Tail> tails;
  std::vector<Range> heads;
  for (const ByteRun& run : runs) {
    uint32_t at = next;
    if (run.length > 1) {
      const auto same = std::find_if(tails.begin(), tails.end(), [&run](const Tail& t) {
        return t.run.length == run.length &&
               std::equal(t.run.lo + 1, t.run.lo + run.length, run.lo + 1) &&
               std::equal(t.run.hi + 1, t.run.hi + run.length, run.hi + 1);
      });
      if (same != tails.end()) {
        at = same->at;
      } else {
        for (int i = run.length; i > 1; --i) {
          at = node({Op::kByte, run.lo[i - 1], run.hi[i - 1], false, at, 0});
        }
        if (tails.size() < 64) tails.push_back({run, at});
      }
    }
    if (!heads.empty() && heads.back().target == at && heads.back().hi + 1 == run.lo[0]) {
      heads.back().hi = run.hi[0];
    } else {
      heads.push_back({run.lo[0], run.hi[0], at});
    }
  }
  if (heads.size() == 1)
    return node({Op::kByte, heads[0].lo, heads[0].hi, false, heads[0].target, 0});
  const uint32_t first = static_cast<uint32_t>(out_->ranges.size());
  out_->ranges.insert(out_->ranges.end(), heads.begin(), heads.end());
  return node({Op::kRanges, 0, 0, false, first, static_cast<uint32_t>(heads.size())});
}

// Reserve a node per state first, because states refer to each other.
uint32_t Builder::emit_part(uint32_t index, uint32_t next) {
  const Part& part = parts_[index];
  const uint32_t base = static_cast<uint32_t>(out_->nodes.size());
  for (size_t i = 0; i < part.states.size(); ++i) static_cast<void>(node({}));
  const auto spell = [this](std::string_view text, uint32_t at) {
    for (size_t i = text.size(); i > 0; --i) {
      const uint8_t byte = static_cast<uint8_t>(text[i - 1]);
      at = node({Op::kByte, byte, byte, false, at, 0});
    }
    return at;
  };
  for (size_t s = 0; s < part.states.size() && !full_; ++s) {
    std::vector<Range> plain, marked;
    for (uint32_t i = 0; i < part.states[s].count; ++i) {
      const PartEdge& e = part.edges[part.states[s].first + i];
      const uint32_t target = base + e.target;
      if (!part.quoted || !escaped(e.lo)) {
        plain.push_back({e.lo, e.hi, target});
        continue;
      }
      const char* const known = "\bb\ff\nn\rr\tt\"\"\\\\";
      uint8_t letter = 'u';
      for (const char* k = known; *k != 0; k += 2) {
        if (static_cast<uint8_t>(*k) == e.lo) letter = static_cast<uint8_t>(k[1]);
      }
      uint32_t at = target;
      if (letter == 'u') {  // bytes without a short escape need their own split
        const char digits[] = {'0', '0', static_cast<char>('0' + (e.lo >> 4)),
                               "0123456789abcdef"[e.lo & 15]};
        at = spell({digits, 4}, target);
      }
      if (letter == 'u' && !marked.empty() && marked.back().lo == 'u') {
        marked.back().target = node({Op::kSplit, 0, 0, false, marked.back().target, at});
      } else {
        const auto place = std::find_if(marked.begin(), marked.end(),
                                        [letter](const Range& r) { return r.lo == letter; });
        if (place != marked.end()) {
          place->target = node({Op::kSplit, 0, 0, false, place->target, at});
        } else {
          marked.push_back({letter, letter, at});
        }
      }
    }
    const auto fan = [this](const std::vector<Range>& list) {
      const uint32_t first = static_cast<uint32_t>(out_->ranges.size());
      out_->ranges.insert(out_->ranges.end(), list.begin(), list.end());
      return node({Op::kRanges, 0, 0, false, first, static_cast<uint32_t>(list.size())});
    };
    if (!marked.empty()) plain.push_back({'\\', '\\', fan(marked)});
    const uint32_t edges = fan(plain);
    if (full_) break;
    out_->nodes[base + s] = part.states[s].accepts
                                ? Node{Op::kSplit, 0, 0, false, edges, next}
                                : Node{Op::kSplit, 0, 0, false, edges, kFailNode};
  }
  return full_ ? kFailNode : base;
}

// --- analysis

// The rules that can be called from `start` before a byte is read. True if the end can be reached
// without a byte, given the nullable rules found so far.
bool Builder::begins(uint32_t start, std::vector<uint32_t>* calls) {
  const std::vector<Node>& nodes = out_->nodes;
  const uint32_t mark = ++marks_[nodes.size()];
  std::vector<uint32_t> open = {start};
  bool ends = false;
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    if (marks_[at] == mark) continue;
    marks_[at] = mark;
    const Node& n = nodes[at];
    if (n.op == Op::kSplit) {
      open.push_back(n.b);
      open.push_back(n.a);
    } else if (n.op == Op::kCall) {
      if (calls != nullptr) calls->push_back(n.a);
      if (out_->rules[n.a].nullable) open.push_back(n.b);
    } else if (n.op == Op::kEnd) {
      ends = true;
    }
  }
  return ends;
}

void Builder::find_nullable() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = out_->rules.size(); i > 0; --i) {
      Rule& rule = out_->rules[i - 1];
      if (rule.nullable || !begins(rule.start, nullptr)) continue;
      rule.nullable = changed = true;
    }
  }
}

// Callers get lower ranks than rules they can begin with: the reverse postorder of a depth-first
// search.
Status Builder::rank_rules() {
  enum : uint8_t { kNew, kOpen, kDone };
  struct Frame {
    uint32_t rule;
    std::vector<uint32_t> calls;
    size_t next = 0;
  };
  std::vector<uint8_t> seen(out_->rules.size(), kNew);
  uint32_t rank = static_cast<uint32_t>(out_->rules.size());
  std::vector<Frame> stack;
  const auto enter = [&](uint32_t rule) {
    seen[rule] = kOpen;
    stack.push_back({rule, {}, 0});
    static_cast<void>(begins(out_->rules[rule].start, &stack.back().calls));
  };
  for (uint32_t root = 0; root < out_->rules.size(); ++root) {
    if (seen[root] == kNew) enter(root);
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next == top.calls.size()) {
        seen[top.rule] = kDone;
        out_->rules[top.rule].rank = --rank;
        stack.pop_back();
        continue;
      }
      const uint32_t callee = top.calls[top.next++];
      if (seen[callee] == kOpen) {
        return error(Code::kGrammarLeftRecursion,
                     "the rule \"%.64s\" can begin with itself, which is not supported",
                     rules_[callee].name.c_str());
      }
      if (seen[callee] == kNew) enter(callee);
    }
  }
  return {};
}

// Marks nodes that can reach the end. Automata grow from their ends, so the first sweep in order
// finds nearly all. Loops and later rules need more sweeps.
void Builder::mark_live() {
  std::vector<Node>& nodes = out_->nodes;
  nodes[kEndNode].live = nodes[kFinalNode].live = true;
  constexpr int kMaxSweeps = 4000;
  bool changed = true;
  for (int sweep = 0; changed; ++sweep) {
    if (sweep == kMaxSweeps) {
      full_ = true;
      return;
    }
    changed = false;
    const auto visit = [&](Node& n) {
      if (n.live) return;
      switch (n.op) {
        case Op::kByte:
          n.live = nodes[n.a].live;
          break;
        case Op::kRanges:
          for (uint32_t i = 0; i < n.b; ++i) n.live |= nodes[out_->ranges[n.a + i].target].live;
          break;
        case Op::kSplit:
          n.live = nodes[n.a].live || nodes[n.b].live;
          break;
        case Op::kCall:
          n.live = nodes[out_->rules[n.a].start].live && nodes[n.b].live;
          break;
        case Op::kToken:
        case Op::kNotToken:
          n.live = nodes[n.b].live;
          break;
        case Op::kEnd:
        case Op::kFinal:
        case Op::kFail:
          break;
      }
      changed |= n.live;
    };
    if (sweep % 2 == 0) {
      for (Node& n : nodes) visit(n);
    } else {
      for (size_t i = nodes.size(); i > 0; --i) visit(nodes[i - 1]);
    }
  }
}

// Bytes that no edge distinguishes form a class.
void Builder::classify_bytes() {
  bool cut[257] = {};
  cut[0] = true;
  for (const Node& n : out_->nodes) {
    if (n.op == Op::kByte) cut[n.lo] = cut[n.hi + 1] = true;
  }
  for (const Range& r : out_->ranges) cut[r.lo] = cut[r.hi + 1] = true;
  uint32_t n_classes = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (cut[byte]) out_->class_byte[n_classes++] = static_cast<uint8_t>(byte);
    out_->byte_class[byte] = static_cast<uint8_t>(n_classes - 1);
  }
  out_->n_classes = n_classes;
}

Result<std::shared_ptr<const Grammar>> Builder::build() {
  const auto too_large = [] {
    return error(Code::kGrammarTooLarge, "the grammar is too large: it needs more than %zu states",
                 kMaxNodes);
  };
  if (full_) return too_large();
  out_ = std::make_shared<Grammar>();
  out_->nodes = {{Op::kEnd, 0, 0, false, 0, 0}, {Op::kFinal, 0, 0, false, 0, 0}, {}};
  for (const Definition& d : rules_) {
    out_->rules.push_back({emit(d.body, kEndNode), 0, false});
    if (full_) return too_large();
  }
  marks_.assign(out_->nodes.size() + 1, 0);
  find_nullable();
  SLUICE_RETURN_IF_ERROR(rank_rules());
  mark_live();
  if (full_) return too_large();
  classify_bytes();
  out_->nodes.shrink_to_fit();
  out_->ranges.shrink_to_fit();
  return std::shared_ptr<const Grammar>(std::move(out_));
}

uint64_t Grammar::memory_bytes() const {
  return sizeof *this + nodes.capacity() * sizeof(Node) + ranges.capacity() * sizeof(Range) +
         rules.capacity() * sizeof(Rule);
}

}  // namespace sluice::grammar
