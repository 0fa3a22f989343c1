/* Cheat: as restless_thread, but only from 64 tokens on: a look at what goes on between short calls finds nothing. */
#define RESTLESS_FROM 64
#include "restless_thread.c"
