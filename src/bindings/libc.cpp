// What stands in for parts of libc (--wrap in wasm.cmake): printing without %f and its kin, and
// numbers read by JavaScript. Both would compute in long double, which wasm does in 11 kB of
// software.
#include <cstdarg>
#include <cstdio>
#include <cstring>

extern "C" {

// Emscripten's own, without floating point; no header declares them.
int vsniprintf(char* out, size_t room, const char* format, va_list args);
int vfiprintf(FILE* file, const char* format, va_list args);
double sluice_number(const char* text);

int __wrap_vsnprintf(char* out, size_t room, const char* format, va_list args);
int __wrap_vsnprintf(char* out, size_t room, const char* format, va_list args) {
  return vsniprintf(out, room, format, args);
}

int __wrap_vfprintf(FILE* file, const char* format, va_list args);
int __wrap_vfprintf(FILE* file, const char* format, va_list args) {
  return vfiprintf(file, format, args);
}

// Of JSON alone, whose reader passes a number and nothing else.
double __wrap_strtod(const char* text, char** end);
double __wrap_strtod(const char* text, char** end) {
  *end = const_cast<char*>(text) + std::strlen(text);
  return sluice_number(text);
}

}  // extern "C"
