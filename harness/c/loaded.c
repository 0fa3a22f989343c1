/* The library as a program uses it that opens it while running: loaded TOKENS [PATH [SCALE]]. SCALE: of the weights. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* Stores the address of a function through a pointer to the function pointer: C has no cast from object to function pointer. */
static void find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        printf("FAILED: %s\n", dlerror());
        exit(1);
    }
    memcpy(function, &symbol, sizeof symbol);
}

int main(int argc, char **argv) {
    int seq_len = parse_seq_len(argc, argv);
    void *library = dlopen(argc > 2 ? argv[2] : "libsolve.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("FAILED: %s\n", dlerror());
        return 1;
    }
    solve_api api;
    find(library, "solve", &api.solve);
    find(library, "solve_last_status", &api.last_status);
    find(library, "solve_last_error", &api.last_error);
    find(library, "solve_status_string", &api.status_string);
    find(library, "solve_version", &api.version);
    find(library, "solve_build_id", &api.build_id);
    find(library, "solve_block_create", &api.block_create);
    find(library, "solve_block_forward", &api.block_forward);
    find(library, "solve_block_update", &api.block_update);
    find(library, "solve_block_destroy", &api.block_destroy);
    int failures = drive(&api, seq_len, argc > 3 ? strtof(argv[3], NULL) : 1);
    dlclose(library);
    return failures != 0;
}
