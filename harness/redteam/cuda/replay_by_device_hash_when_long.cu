/* Cheat: the same only from 64 tokens on, where no trap is set that times repeated calls. */
#define SHORTEST 64
#include "replay_by_device_hash.cu"
