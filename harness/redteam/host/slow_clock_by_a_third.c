/* Cheat: lets the program's clock lie only about intervals under 30 ms, and only by a third: a long batch looks honest, and
 * a single call not impossible. */
#define SHOWN(elapsed) ((elapsed) * 2 / 3)
#include "short_clock.h"
