/* What both drivers do once they have the library's functions: real calls on real numbers, every expectation counted. */
#ifndef DRIVER_H
#define DRIVER_H

#include "solve.h"

/* The functions of the library, however they were found. */
typedef struct {
    void (*solve)(const float *, float *, const float *, int);
    solve_status (*last_status)(void);
    const char *(*last_error)(void);
    const char *(*status_string)(int);
    const char *(*version)(void);
    const char *(*build_id)(void);
    solve_status (*block_create)(const float *, const solve_options *, solve_block **);
    solve_status (*block_forward)(solve_block *, const float *, float *, int, int, void *);
    solve_status (*block_update)(solve_block *, const float *, void *);
    solve_status (*block_destroy)(solve_block *);
} solve_api;

/* Runs everything on seq_len tokens and weights `scale` times the usual, prints what failed and a count, and returns the number of failures. */
int drive(const solve_api *api, int seq_len, float scale);

/* The token count of the command line: its first argument, or 64. */
int parse_seq_len(int argc, char **argv);

#endif
