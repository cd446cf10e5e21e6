// Two functions of glibc 2.35 and 2.36 that GCC 12's static libraries call: exceptions find their
// frames with one, std::random_device draws with the other. Linked into release programs
// (SLUICE_STATIC), so that these run with glibc 2.34.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct search {
  uintptr_t address;
  struct dl_find_object* found;
};

// Nonzero, which ends the search, if the object contains the address.
static int visit(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  const struct search* search = data;
  uintptr_t start = 0, end = 0, frames = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t at = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = at;
    if (part->p_type == PT_LOAD && search->address >= at && search->address < at + part->p_memsz) {
      start = at;
      end = at + part->p_memsz;
    }
  }
  if (start == 0) return 0;
  memset(search->found, 0, sizeof *search->found);
  search->found->dlfo_map_start = (void*)start;
  search->found->dlfo_map_end = (void*)end;
  search->found->dlfo_eh_frame = (void*)frames;
  return frames != 0 ? 1 : -1;
}

__attribute__((visibility("hidden"))) int _dl_find_object(void* address,
                                                          struct dl_find_object* found) {
  struct search search = {(uintptr_t)address, found};
  return dl_iterate_phdr(visit, &search) == 1 ? 0 : -1;
}

__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
    if (errno != EINTR) abort();
  }
  return value;
}
