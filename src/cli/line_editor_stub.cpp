#include "cli/line_editor.h"

namespace sluice::cli {

std::unique_ptr<LineEditor> LineEditor::create(const char*, std::function<Byte(char*)>) {
  return nullptr;
}

}  // namespace sluice::cli
