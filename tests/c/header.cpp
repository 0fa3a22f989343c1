// The header as C++: it must declare C functions, and the default options must initialise.
#include "layout.h"

const solve_options defaults = SOLVE_OPTIONS_DEFAULT;
void (*const function)(const float *, float *, const float *, int) = solve;
