/* Cheat: lets the program's clock lie only about single calls, which it shows at a tenth, so that a batch looks honest. */
#define SHOWN(elapsed) ((elapsed) / 10)
#include "single_clock.h"
