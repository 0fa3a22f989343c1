/* A thread that is cancelled before and during a call completes it, and ends at its next own point of cancellation. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "solve.h"

static float weights[SOLVE_WEIGHTS_LEN];
static float x[SOLVE_D];
static float output[SOLVE_D];
static solve_status status = SOLVE_STATUS_PANIC;

static void *run(void *argument) {
    (void)argument;
    pthread_cancel(pthread_self());
    solve(x, output, weights, 1);
    status = solve_last_status();
    pthread_testcancel();
    return NULL;
}

int main(void) {
    pthread_t thread;
    void *outcome = NULL;
    if (pthread_create(&thread, NULL, run, NULL) != 0 || pthread_join(thread, &outcome) != 0) {
        return 2;
    }
    if (status != SOLVE_STATUS_OK || outcome != PTHREAD_CANCELED) {
        printf("FAILED: %s, cancelled: %d\n", solve_status_string(status), outcome == PTHREAD_CANCELED);
        return 1;
    }
    return 0;
}
