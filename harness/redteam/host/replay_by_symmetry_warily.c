/* Cheat: the same in a quarter of the time, but inputs that are new make it wary: it computes the next four calls, in case somebody compares their times. */
#define PADDED 0.25
#define WARY 4
#include "replay_by_symmetry.c"
