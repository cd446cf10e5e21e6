// How the responses of one chat template are read and planned, as chat.wasm keeps it: parsed once
// for all responses (answers.cpp) and requests (exchange.cpp).
#pragma once

#include <utility>
#include <vector>

#include "chat/answer.h"

namespace sluice::bindings {

struct Formats {
  Formats(const std::string& source, std::vector<chat::ControlToken> tokens)
      : controls(std::move(tokens)), formats(chat::AnswerFormat(source, controls)) {}
  std::vector<chat::ControlToken> controls;
  chat::AnswerFormats formats;
};

}  // namespace sluice::bindings
