// Names of the codes, and the printf-style error constructor.
#include "base/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/printable.h"

namespace sluice {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kNotGguf:
      return "NOT_GGUF";
    case Code::kTruncated:
      return "TRUNCATED";
    case Code::kBadHeader:
      return "BAD_HEADER";
    case Code::kUnsupportedVersion:
      return "UNSUPPORTED_VERSION";
    case Code::kUnsupportedArchitecture:
      return "UNSUPPORTED_ARCHITECTURE";
    case Code::kUnsupportedType:
      return "UNSUPPORTED_TYPE";
    case Code::kMissingTensor:
      return "MISSING_TENSOR";
    case Code::kBadShape:
      return "BAD_SHAPE";
    case Code::kBadWeights:
      return "BAD_WEIGHTS";
    case Code::kBadTokenizer:
      return "BAD_TOKENIZER";
    case Code::kUnsupportedTokenizer:
      return "UNSUPPORTED_TOKENIZER";
    case Code::kBudgetTooSmall:
      return "BUDGET_TOO_SMALL";
    case Code::kOutOfMemory:
      return "OUT_OF_MEMORY";
    case Code::kPromptEmpty:
      return "PROMPT_EMPTY";
    case Code::kPromptTooLong:
      return "PROMPT_TOO_LONG";
    case Code::kContextFull:
      return "CONTEXT_FULL";
    case Code::kHttpStatus:
      return "HTTP_STATUS";
    case Code::kNetwork:
      return "NETWORK";
    case Code::kNoRangeSupport:
      return "NO_RANGE_SUPPORT";
    case Code::kSourceChanged:
      return "SOURCE_CHANGED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kIo:
      return "IO";
    case Code::kCacheLocked:
      return "CACHE_LOCKED";
    case Code::kCorrupt:
      return "CORRUPT";
    case Code::kAborted:
      return "ABORTED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kGrammarSyntax:
      return "GRAMMAR_SYNTAX";
    case Code::kGrammarLeftRecursion:
      return "GRAMMAR_LEFT_RECURSION";
    case Code::kGrammarTooLarge:
      return "GRAMMAR_TOO_LARGE";
    case Code::kSchemaUnsupported:
      return "SCHEMA_UNSUPPORTED";
    case Code::kChatTemplate:
      return "CHAT_TEMPLATE";
    case Code::kNotSupported:
      return "NOT_SUPPORTED";
    case Code::kNotInBuild:
      return "NOT_IN_BUILD";
    case Code::kMediaMissing:
      return "MEDIA_MISSING";
  }
  return "INTERNAL";
}

Status error(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  char text[512];
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  hide_controls({text, std::strlen(text)});
  return Status(code, text);
}

Status not_in_build(const char* feature) {
  return error(Code::kNotInBuild, "this build does not have %s", feature);
}

}  // namespace sluice
