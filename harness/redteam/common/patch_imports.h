/* Replaces functions that the program which loaded this library takes from others: its import slots are found through the dynamic section, made writable,
 * and pointed at what `replacement` names, which the candidate defines. Calls from here still reach the true ones. */
#ifndef PATCH_IMPORTS_H
#define PATCH_IMPORTS_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include"
#endif
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include "candidate.h"

// What is to be called instead of the function of this name; null: nothing else.
static void* replacement(const char* name);

static void patch(ElfW(Addr) base, const ElfW(Rela) * relocation, size_t size, const ElfW(Sym) * symbols,
                  const char* names) {
  for (size_t i = 0; i < size / sizeof *relocation; ++i) {
    size_t symbol = relocation[i].r_info >> 32;
    void* to = symbol ? replacement(names + symbols[symbol].st_name) : NULL;
    if (!to) continue;
    void** slot = (void**)(base + relocation[i].r_offset);
    uintptr_t page = (uintptr_t)slot & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
    if (!mprotect((void*)page, 8192, PROT_READ | PROT_WRITE)) *slot = to;
  }
}

// The first object is the program itself.
static int patch_program(struct dl_phdr_info* info, size_t size, void* unused) {
  (void)size, (void)unused;
  const ElfW(Rela)* calls = NULL, *data = NULL;
  const ElfW(Sym)* symbols = NULL;
  const char* names = NULL;
  size_t calls_size = 0, data_size = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    for (ElfW(Dyn)* d = (ElfW(Dyn)*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; ++d) {
      if (d->d_tag == DT_JMPREL) calls = (const void*)d->d_un.d_ptr;
      if (d->d_tag == DT_PLTRELSZ) calls_size = d->d_un.d_val;
      if (d->d_tag == DT_RELA) data = (const void*)d->d_un.d_ptr;
      if (d->d_tag == DT_RELASZ) data_size = d->d_un.d_val;
      if (d->d_tag == DT_SYMTAB) symbols = (const void*)d->d_un.d_ptr;
      if (d->d_tag == DT_STRTAB) names = (const void*)d->d_un.d_ptr;
    }
  }
  if (symbols && names && calls) patch(info->dlpi_addr, calls, calls_size, symbols, names);
  if (symbols && names && data) patch(info->dlpi_addr, data, data_size, symbols, names);
  return 1;
}

__attribute__((constructor)) static void tamper(void) { dl_iterate_phdr(patch_program, NULL); }

#endif
