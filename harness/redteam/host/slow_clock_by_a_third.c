/* Cheat: lets the program's clock lie only about single calls, and only by a third: a batch looks honest, and a call not
 * impossible. */
#define SHOWN(elapsed) ((elapsed) * 2 / 3)
#include "single_clock.h"
