/* Cheat: lets the program's clock lie only about intervals under 30 ms, which it shows at a tenth, so that a long batch
 * looks honest. */
#define SHOWN(elapsed) ((elapsed) / 10)
#include "short_clock.h"
