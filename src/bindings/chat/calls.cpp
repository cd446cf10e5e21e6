// The error of the last call, for both binaries of chat.
#include "bindings/chat/calls.h"

namespace sluice::bindings {

Status& last_error() {
  static Status error;
  return error;
}

}  // namespace sluice::bindings

SLUICE_EXPORT const char* error_code() {
  return sluice::code_name(sluice::bindings::last_error().code());
}

SLUICE_EXPORT const char* error_message() {
  return sluice::bindings::last_error().message().c_str();
}
