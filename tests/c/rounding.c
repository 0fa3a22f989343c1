/* The first caller's rounding, traps and treatment of subnormal numbers are its own: results are those of a process that has changed nothing. */
#define _GNU_SOURCE
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "solve.h"

enum { ROWS = 40, LEN = ROWS * SOLVE_D };

static float weights[SOLVE_WEIGHTS_LEN];
static float x[LEN];
static float output[LEN];

static float uniform(float width) { return width * (2.0f * (float)rand() / (float)RAND_MAX - 1.0f); }

static void check(int fine, const char *what) {
    if (!fine) {
        printf("FAILED: %s: %s\n", what, solve_last_error());
        exit(1);
    }
}

int main(void) {
    float *wanted = mmap(NULL, LEN * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int all = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW;
    int i, traps, status = -1;
    pid_t child;
#ifdef __SSE__
    unsigned sse;
#endif
    check(wanted != MAP_FAILED, "mmap");
    for (i = 0; i < SOLVE_WEIGHTS_LEN; i++) weights[i] = uniform(0.03f);
    for (i = 0; i < LEN; i++) x[i] = uniform(1.0f);
    /* Attention and the feed-forward layer meet subnormal numbers, and one row numbers that are none. */
    for (i = 0; i < SOLVE_D; i++) x[LEN - 1 - i] *= 1e30f;

    child = fork();
    if (child == 0) {
        solve(x, wanted, weights, ROWS);
        _exit((int)solve_last_status());
    }
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child");

    fesetround(FE_UPWARD);
#ifdef __SSE__
    _mm_setcsr(_mm_getcsr() | 0x8040); /* subnormal numbers are zeros */
#endif
    traps = feenableexcept(all); /* -1 where a processor has none */
#ifdef __SSE__
    sse = _mm_getcsr();
#endif
    solve(x, output, weights, ROWS);
    check(fegetround() == FE_UPWARD, "the caller's rounding stays");
    check(traps == -1 || fegetexcept() == all, "the caller's traps stay");
#ifdef __SSE__
    /* All but the flags of what has happened: the C library tells what it knows of the x87 alone. */
    check((sse & 0xffc0) == (_mm_getcsr() & 0xffc0), "the caller's rounding, traps and subnormal numbers stay");
#endif
    check(solve_last_status() == SOLVE_STATUS_OK, "solve");
    check(memcmp(output, wanted, LEN * sizeof(float)) == 0, "the same bits");
    return 0;
}
