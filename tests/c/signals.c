/* The library's threads leave the process's signals alone: one that all of its own threads block stays for sigwait, whoever started which thread when. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "solve.h"

static float weights[SOLVE_WEIGHTS_LEN];
static float x[64 * SOLVE_D];
static float output[64 * SOLVE_D];

int main(void) {
    sigset_t signals;
    int signal = 0;
    solve(x, output, weights, 64);
    if (solve_last_status() != SOLVE_STATUS_OK) {
        printf("FAILED: %s\n", solve_last_error());
        return 1;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0 || kill(getpid(), SIGTERM) != 0 || sigwait(&signals, &signal) != 0) {
        return 2;
    }
    return signal == SIGTERM ? 0 : 1;
}
