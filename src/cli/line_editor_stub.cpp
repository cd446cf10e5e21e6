// Replaces line_editor.cpp in a build without libedit: there is no line editor.
#include "cli/line_editor.h"

namespace sluice::cli {

std::unique_ptr<LineEditor> LineEditor::create(const char*, std::function<Byte(char*)>) {
  return nullptr;
}

}  // namespace sluice::cli
