// Converts between JavaScript and C++ values.
//
// Keys are passed as plain pointers. Embind's own `object[key]` and `set(key, value)` are templates
// over each literal's length and each value's type, and their copies would enlarge the binary.
#pragma once

#include <emscripten/val.h>

#include <span>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "generate/generation.h"
#include "session/report.h"

namespace sluice::bindings {

using emscripten::val;
using session::Token;

val field(const val& object, const char* key);
void put(val& object, const char* key, const val& value);
void put(val& object, const char* key, double value);
void put(val& object, const char* key, const std::string& value);
void put(val& object, const char* key, const session::ReportValue& value);
void put_flag(val& object, const char* key, bool value);
void push(val& list, const val& value);

size_t length_of(const val& list);
double number_or(const val& object, const char* key, double fallback);
bool is_true(const val& object, const char* key);
// The string; empty if the value is not a string.
std::string text_or_none(const val& object, const char* key);
std::string to_text(const val& object);

val copy_out(std::span<const uint8_t> bytes);
val copy_out(std::span<const Token> tokens);
val copy_out(std::span<const float> values);
// Copies a typed array to `out`, which has the same size.
void copy_in(const val& array, std::span<uint8_t> out);
std::vector<Token> to_tokens(const val& array);
std::string_view view_of(const AlignedBuffer& bytes);

tokenizer::EncodeOptions tokenize_options(unsigned how);  // a sum of TokenizeFlags
generate::Options answer_options(const val& options);
const char* finish_name(generate::Finish finish);

}  // namespace sluice::bindings
