// libc's own name for clock_gettime(). Emscripten's optimizer removes what calls it; engine-demo is
// linked without the optimizer.
#include <ctime>

extern "C" {

int __clock_gettime(clockid_t id, timespec* time);
int __clock_gettime(clockid_t id, timespec* time) {
  return clock_gettime(id, time);
}

}  // extern "C"
