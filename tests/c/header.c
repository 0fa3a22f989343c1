/* The header as C. */
#include "layout.h"

const solve_options defaults = SOLVE_OPTIONS_DEFAULT;
