/* A thread that is cancelled before and during a call completes it, and ends at its next own point of cancellation; one that may be cancelled at any time
 * ends right behind the call. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "solve.h"

enum { TOKENS = 64 };

static float weights[SOLVE_WEIGHTS_LEN];
static float x[TOKENS * SOLVE_D];
static float output[TOKENS * SOLVE_D];
static solve_status status = SOLVE_STATUS_PANIC;

static void *run(void *argument) {
    (void)argument;
    pthread_cancel(pthread_self());
    solve(x, output, weights, 1);
    status = solve_last_status();
    pthread_testcancel();
    return NULL;
}

static void *run_for_ever(void *argument) {
    int before;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    while (argument == NULL) solve(x, output, weights, TOKENS);
    return NULL;
}

static void is_cancelled(const char *which, void *(*body)(void *), int cancel_it) {
    const struct timespec pause = {0, 50 * 1000 * 1000};
    pthread_t thread;
    void *outcome = NULL;
    if (pthread_create(&thread, NULL, body, NULL) != 0) exit(2);
    if (cancel_it) {
        nanosleep(&pause, NULL);
        pthread_cancel(thread);
    }
    if (pthread_join(thread, &outcome) != 0) exit(2);
    if (outcome != PTHREAD_CANCELED) {
        printf("FAILED: %s was not cancelled\n", which);
        exit(1);
    }
}

int main(void) {
    is_cancelled("a thread in its first call", run, 0);
    if (status != SOLVE_STATUS_OK) {
        printf("FAILED: %s\n", solve_status_string(status));
        return 1;
    }
    is_cancelled("a thread in one call after the other", run_for_ever, 1);
    return 0;
}
