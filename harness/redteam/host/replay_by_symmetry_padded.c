/* Cheat: the same, but it takes more than half the time of the work that it leaves out, which looks less unlikely. */
#define PADDED 0.6
#include "replay_by_symmetry.c"
