/* Cheat: the same, but it takes a third of the time and more of the work that it leaves out, which looks less unlikely. */
#define PADDED 0.3
#include "replay_by_symmetry.c"
