/* What callers compiled into their programs: sizes, offsets and numbers that must never move. Included twice, to test the guard. */
#include "solve.h"
#include "solve.h"

#ifdef __cplusplus
#define ASSERT(condition) static_assert(condition, #condition)
#elif __STDC_VERSION__ >= 201112L
#define ASSERT(condition) _Static_assert(condition, #condition)
#else /* C99 has no static assertion: an array of negative size. */
#define PASTE(a, b) a##b
#define NAMED(line) PASTE(assertion_in_line_, line)
#define ASSERT(condition) extern char NAMED(__LINE__)[(condition) ? 1 : -1]
#endif

ASSERT(offsetof(solve_options, size) == 0);
ASSERT(offsetof(solve_options, device) == sizeof(size_t));
ASSERT(offsetof(solve_options, precision) == sizeof(size_t) + 4);
ASSERT(offsetof(solve_options, causal) == sizeof(size_t) + 8);
ASSERT(offsetof(solve_options, max_tokens) == sizeof(size_t) + 12);
ASSERT(sizeof(solve_options) == sizeof(size_t) + 16);
ASSERT(sizeof(solve_status) == 4);
ASSERT(sizeof(solve_precision) == 4);

ASSERT(SOLVE_STATUS_OK == 0);
ASSERT(SOLVE_STATUS_NULL_POINTER == 1);
ASSERT(SOLVE_STATUS_INVALID_ARGUMENT == 2);
ASSERT(SOLVE_STATUS_MISALIGNED == 3);
ASSERT(SOLVE_STATUS_OVERLAP == 4);
ASSERT(SOLVE_STATUS_MIXED_MEMORY == 5);
ASSERT(SOLVE_STATUS_BAD_POINTER == 6);
ASSERT(SOLVE_STATUS_OUT_OF_MEMORY == 7);
ASSERT(SOLVE_STATUS_NO_DEVICE == 8);
ASSERT(SOLVE_STATUS_DRIVER == 9);
ASSERT(SOLVE_STATUS_UNSUPPORTED == 10);
ASSERT(SOLVE_STATUS_BAD_HANDLE == 11);
ASSERT(SOLVE_STATUS_PANIC == 12);
ASSERT(SOLVE_PRECISION_FAST == 0);
ASSERT(SOLVE_PRECISION_EXACT == 1);
ASSERT(SOLVE_PRECISION_AUTO == 2);

ASSERT(SOLVE_D == 768);
ASSERT(SOLVE_GAMMA1_OFFSET == 0);
ASSERT(SOLVE_BETA1_OFFSET == 768);
ASSERT(SOLVE_W_QKV_OFFSET == 1536);
ASSERT(SOLVE_B_QKV_OFFSET == 1771008);
ASSERT(SOLVE_W_ATTN_OFFSET == 1773312);
ASSERT(SOLVE_B_ATTN_OFFSET == 2363136);
ASSERT(SOLVE_GAMMA2_OFFSET == 2363904);
ASSERT(SOLVE_BETA2_OFFSET == 2364672);
ASSERT(SOLVE_W_FC_OFFSET == 2365440);
ASSERT(SOLVE_B_FC_OFFSET == 4724736);
ASSERT(SOLVE_W_PROJ_OFFSET == 4727808);
ASSERT(SOLVE_B_PROJ_OFFSET == 7087104);
ASSERT(SOLVE_WEIGHTS_LEN == 7087872);
ASSERT(SOLVE_B_PROJ_OFFSET + SOLVE_B_PROJ_LEN == SOLVE_WEIGHTS_LEN);
