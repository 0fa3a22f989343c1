/* The process goes on when main's thread has left, and so do calls. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "solve.h"

static float weights[SOLVE_WEIGHTS_LEN];
static float x[SOLVE_D];
static float output[SOLVE_D];

static void *run(void *argument) {
    /* Joined is a thread that has left. */
    if (pthread_join(*(pthread_t *)argument, NULL) != 0) {
        exit(2);
    }
    solve(x, output, weights, 1);
    if (solve_last_status() != SOLVE_STATUS_OK) {
        printf("FAILED: %s\n", solve_last_error());
        exit(1);
    }
    exit(0);
}

int main(void) {
    static pthread_t first;
    pthread_t thread;
    first = pthread_self();
    if (pthread_create(&thread, NULL, run, &first) != 0) {
        return 2;
    }
    pthread_exit(NULL);
}
