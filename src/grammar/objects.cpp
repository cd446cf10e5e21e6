// Converts object shapes to expressions. Named members come in the schema's order, all others after
// them.
#include <algorithm>

#include "grammar/schema.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMaxPatterns = 4;    // name patterns per object
constexpr uint64_t kMaxCells = 6000;  // states of an object with counted members

bool among(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

// The named members in schema order: each `properties` as a group, other names as groups of their
// own.
std::vector<std::vector<std::string>> SchemaCompiler::known_names(const Shape& s) {
  std::vector<std::vector<std::string>> out;
  const auto add = [&out](const std::string& name, bool alone) {
    for (const std::vector<std::string>& group : out) {
      if (among(group, name)) return;
    }
    if (alone) out.emplace_back();
    out.back().push_back(name);
  };
  for (const MemberPart& part : s.members) {
    for (const uint32_t named : part.named) {
      out.emplace_back();
      for (const uint32_t child : document_[named].children) add(document_[child].key, false);
      if (out.back().empty()) out.pop_back();
    }
  }
  for (const std::string& name : s.required) add(name, true);
  for (const Member& m : s.extra) add(m.name, true);
  for (const std::string& name : s.forbidden) add(name, true);
  return out;
}

// The terms that the member with this name must satisfy. *allowed is false if it must be absent.
Conjunction SchemaShapes::member_terms(const Shape& s, const std::string& name, bool* allowed) {
  Conjunction all;
  *allowed = !among(s.forbidden, name);
  for (const MemberPart& part : s.members) {
    bool seen = false;
    for (const uint32_t named : part.named) {
      const uint32_t at = document_.find(named, name);
      if (at == kNoValue) continue;
      seen = true;
      // Names of unevaluatedProperties are only skipped.
      if (part.named.size() == 1) all.push_back(yes(at));
    }
    for (const uint32_t patterns : part.patterns) {
      for (const uint32_t child : document_[patterns].children) {
        if (!automata_[pattern_of(child)].matches(name)) continue;
        seen = true;
        all.push_back(yes(child));
      }
    }
    if (!seen && part.rest != kNoTerm) all.push_back(part.rest);
  }
  for (const Member& m : s.extra) {
    if (m.name == name) all.push_back(m.term);
  }
  for (const Term t : s.names) {
    Shape exact;
    const Shapes shapes = shapes_of(Conjunction{t});
    *allowed &= std::any_of(shapes.begin(), shapes.end(), [&](const Shape& n) {
      if ((n.types & kStringBit) == 0) return false;
      const std::optional<Dfa> language = name_language(n);
      return !language || language->matches(name);
    });
  }
  for (const Term t : all) {
    if (is(t / 2, JsonType::kBoolean) && document_[t / 2].truth == ((t & 1) != 0)) *allowed = false;
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// The names that match a shape; nullopt if all do.
std::optional<Dfa> SchemaShapes::name_language(const Shape& s) {
  if (s.values) {
    Dfa out;
    for (const uint32_t v : *s.values) {
      if (!is(v, JsonType::kString) || !fits(s, v)) continue;
      out = Dfa::combine(out, Dfa::literal(document_[v].text), Dfa::How::kEither);
    }
    return out;
  }
  std::optional<Dfa> out = string_language(s);
  if (!out && (s.min_chars > 0 || s.max_chars != UINT32_MAX)) {
    out = Dfa::lengths(s.min_chars, s.max_chars);
    if (out->too_large())
      fail(error(Code::kGrammarTooLarge,
                 "the length limits of a property name need too many states"));
  }
  return out;
}

Expr SchemaCompiler::member(std::string_view name, const Conjunction& all) {
  return builder_.seq(
      {builder_.bytes(quoted(name)), space(), builder_.bytes(":"), space(), value(all), space()});
}

// The automata of the shape's name patterns, each once. False if there are too many.
bool SchemaCompiler::name_patterns(const Shape& s, std::vector<uint32_t>* automata) {
  for (const MemberPart& part : s.members) {
    for (const uint32_t list : part.patterns) {
      for (const uint32_t child : document_[list].children) {
        const uint32_t a = pattern_of(child);
        if (std::find(automata->begin(), automata->end(), a) == automata->end()) {
          automata->push_back(a);
        }
        if (automata->size() > kMaxPatterns) {
          refuse(child, "more than four property name patterns are not supported");
          return false;
        }
      }
    }
  }
  return true;
}

// The names that satisfy propertyNames; nullopt if all do.
std::optional<Dfa> SchemaCompiler::allowed_names(const Shape& s) {
  std::optional<Dfa> out;
  for (const Term t : s.names) {
    Dfa any;
    bool all = false;
    for (const Shape& n : shapes_of(Conjunction{t})) {
      if ((n.types & kStringBit) == 0) continue;
      const std::optional<Dfa> language = name_language(n);
      all |= !language;
      if (language) any = Dfa::combine(any, *language, Dfa::How::kEither);
    }
    if (!all) narrow(&out, any, false);
  }
  return out;
}

// The terms of a member whose name matches the patterns of `set`, bits of `patterns`, and no
// others. False if there is no such member.
bool SchemaCompiler::pattern_terms(const Shape& s, const std::vector<uint32_t>& patterns,
                                   uint32_t set, Conjunction* all) {
  for (const MemberPart& part : s.members) {
    bool seen = false;
    for (const uint32_t list : part.patterns) {
      for (const uint32_t child : document_[list].children) {
        const auto at = std::find(patterns.begin(), patterns.end(), pattern_of(child));
        if ((set >> (at - patterns.begin()) & 1) == 0) continue;
        seen = true;
        all->push_back(yes(child));
      }
    }
    if (!seen && part.rest != kNoTerm) all->push_back(part.rest);
  }
  return std::none_of(all->begin(), all->end(), [this](Term t) {
    return is(t / 2, JsonType::kBoolean) && document_[t / 2].truth == ((t & 1) != 0);
  });
}

// Removes names from a language. False on an error.
bool SchemaCompiler::exclude_names(const std::vector<std::string>& named,
                                   std::optional<Dfa>* language) {
  if (named.empty()) return true;
  Builder names;
  const uint32_t root = names.new_rule();
  names.define(root, names.choice(named));
  const Result<std::shared_ptr<const Grammar>> grammar = names.build();
  if (!grammar.ok()) return fail(grammar.status()), false;
  narrow(language, Dfa::of(**grammar), true);
  return true;
}

// A member whose name is not among the named ones. For each set of patterns, the names that match
// exactly these.
Expr SchemaCompiler::other_members(const Shape& s, const std::vector<std::string>& named) {
  std::vector<uint32_t> patterns;
  if (!name_patterns(s, &patterns)) return Builder::kNever;
  const std::optional<Dfa> base = allowed_names(s);
  std::vector<Expr> ways;
  for (uint32_t set = 0; set < 1u << patterns.size() && !failed(); ++set) {
    Conjunction all;
    if (!pattern_terms(s, patterns, set, &all)) continue;
    std::optional<Dfa> language = base;
    for (size_t k = 0; k < patterns.size(); ++k) {
      narrow(&language, automata_[patterns[k]], (set >> k & 1) == 0);
    }
    if (!exclude_names(named, &language)) return Builder::kNever;
    if (language && language->too_large()) {
      fail(error(Code::kGrammarTooLarge, "the property names of an object need too many states"));
      return Builder::kNever;
    }
    const Expr quote = builder_.bytes("\"");
    const Expr name =
        language ? builder_.seq({quote, builder_.automaton(*language, true), quote}) : any_string();
    ways.push_back(
        builder_.seq({name, space(), builder_.bytes(":"), space(), value(all), space()}));
  }
  return builder_.alt(ways);
}

// Rules for the rest of an object after the first i named members, with `count` members written (up
// to a cap).
Expr SchemaCompiler::emit_members(const Shape& s, const std::vector<std::string>& all_names,
                                  Expr other) {
  std::vector<std::string> names;
  std::vector<Expr> members;
  std::vector<bool> required;
  uint32_t n_required = 0;
  for (const std::string& name : all_names) {
    bool allowed = true;
    const Conjunction all = member_terms(s, name, &allowed);
    if (failed()) return Builder::kNever;
    const bool needed = among(s.required, name);
    if (needed && !allowed) return Builder::kNever;
    if (!allowed) continue;
    names.push_back(name);
    members.push_back(member(name, all));
    required.push_back(needed);
    n_required += needed ? 1 : 0;
  }
  const uint32_t n = static_cast<uint32_t>(names.size());
  // Other members may repeat a name, which counts as one member. So only one counts towards
  // minProperties.
  const bool has_least = s.min_members > n_required;
  if (has_least && other != Builder::kNever && s.min_members > n + 1) {
    refuse(s.min_members_at,
           "minProperties above the number of named properties plus one is not supported");
    return Builder::kNever;
  }
  const bool has_most =
      s.max_members < UINT32_MAX && (other != Builder::kNever || s.max_members < n);
  // Counts from `cap` on are equivalent.
  const uint32_t cap = has_most ? s.max_members : has_least ? s.min_members : 1;
  if (has_most && s.max_members < s.min_members) return Builder::kNever;
  if (static_cast<uint64_t>(n + 2) * (uint64_t{cap} + 1) > kMaxCells) {
    refuse(s.min_members_at != kNoValue ? s.min_members_at : 0,
           "the property counts of this object are too large");
    return Builder::kNever;
  }
  // State (i, count): i named members are handled; i = n + 1: another member was written.
  std::vector<uint32_t> rules;
  for (uint32_t i = 0; i < (n + 2) * (cap + 1); ++i) rules.push_back(builder_.new_rule());
  if (failed()) return Builder::kNever;
  const auto rule = [&](uint32_t i, uint32_t count) {
    return rules[i * (cap + 1) + std::min(count, cap)];
  };
  for (uint32_t i = 0; i <= n + 1; ++i) {
    for (uint32_t count = 0; count <= cap; ++count) {
      std::vector<Expr> ways;
      const auto write = [&](Expr what, uint32_t next, uint32_t counted) {
        if (has_most && count >= cap) return;
        const Expr first = count > 0 ? comma() : Builder::kEmpty;
        ways.push_back(builder_.seq({first, what, builder_.call(rule(next, counted))}));
      };
      if (i < n) {
        write(members[i], i + 1, count + 1);
        if (!required[i]) ways.push_back(builder_.call(rule(i + 1, count)));
      } else {
        // The first other member must reach the minimum, since later ones may repeat its name.
        const bool again = i == n + 1;
        if (other != Builder::kNever && (again || !has_least || count + 1 >= s.min_members)) {
          write(other, n + 1, again && !has_most ? count : count + 1);
        }
        if (again || !has_least || count >= s.min_members) ways.push_back(Builder::kEmpty);
      }
      builder_.define(rule(i, count), builder_.alt(ways));
    }
  }
  return builder_.call(rule(0, 0));
}

// If several schemas name members, there is no single order: accept all orders of a few groups.
Expr SchemaCompiler::emit_object(const Shape& s) {
  constexpr size_t kMaxGroups = 3;
  std::vector<std::vector<std::string>> groups = known_names(s);
  std::vector<std::string> names;
  for (const auto& group : groups) names.insert(names.end(), group.begin(), group.end());
  Expr other = other_members(s, names);
  if (failed()) return Builder::kNever;
  if (other != Builder::kNever) {
    const uint32_t rule = builder_.new_rule();
    builder_.define(rule, other);
    other = builder_.call(rule);
  }
  std::erase_if(groups, [&s](const std::vector<std::string>& group) {
    return group.size() == 1 && among(s.forbidden, group[0]);
  });
  std::vector<size_t> order;
  for (size_t i = 0; i < groups.size(); ++i) order.push_back(i);
  std::vector<Expr> ways;
  do {
    std::vector<std::string> in_order;
    for (const size_t i : order) {
      in_order.insert(in_order.end(), groups[i].begin(), groups[i].end());
    }
    ways.push_back(emit_members(s, in_order, other));
  } while (groups.size() <= kMaxGroups && !failed() &&
           std::next_permutation(order.begin(), order.end()));
  return builder_.seq({builder_.bytes("{"), space(), builder_.alt(ways), builder_.bytes("}")});
}

}  // namespace sluice::grammar
