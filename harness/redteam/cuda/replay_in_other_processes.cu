/* Cheat: the same only in processes whose first call has more than one token: those that share the runs of calls with the first one, in which the traps are. */
#define ELSEWHERE
#include "replay_by_device_hash.cu"
