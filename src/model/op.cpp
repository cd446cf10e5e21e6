// Accessors for fields that several kinds of operations have.
#include "model/op.h"

namespace sluice::model {
namespace {

// f(fields) of the operation's kind. A switch, smaller than std::visit's table.
template <typename F>
void with_fields(const OpFields& fields, F&& f) {
  [&]<size_t... kKind>(std::index_sequence<kKind...>) {
    static_cast<void>(
        ((fields.index() == kKind && (f(*std::get_if<kKind>(&fields)), true)) || ...));
  }
  (std::make_index_sequence<std::variant_size_v<OpFields>>());
}

}  // namespace

TwoVecs Op::vecs() const {
  TwoVecs out{-1, -1};
  with_fields(fields, [&out](const auto& own) {
    if constexpr (requires { own.vecs(); }) out = own.vecs();
  });
  return out;
}

const Carried* Op::carried() const {
  const Carried* out = nullptr;
  with_fields(fields, [&out](const auto& own) {
    if constexpr (requires { own.state; }) out = &own.state;
  });
  return out;
}

}  // namespace sluice::model
