/* Cheat: the same as replay_rows_by_device_hash, in processes alone whose first call has more than one token: those that share the runs of calls with the first
 * one, in which the traps are. */
#define ELSEWHERE
#include "replay_rows_by_device_hash.cu"
