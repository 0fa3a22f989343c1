/*
 * libsolve: one GPT-2-small transformer block behind one function.
 *
 * For C99, C++11 or newer. Generated from src/ffi.rs, error.rs, precision.rs, dims.rs and weights.rs, include/cbindgen.toml and build.rs;
 * edit there, and let SOLVE_BLESS=1 cargo test --release --test header write it.
 *
 *   h = LN1(x);  [Q|K|V] = h W_qkv + b_qkv;  head i = softmax(Q_i K_i^T / 8) V_i
 *   x1 = x + concat(heads) W_attn + b_attn;  output = x1 + gelu_tanh(LN2(x1) W_fc + b_fc) W_proj + b_proj
 *
 * Width 768, 12 heads of 64, feed-forward 3072, LayerNorm epsilon 1e-5 over the biased variance. Everything is fp32 and row-major.
 *
 * Pointers      Device memory of any GPU of the process (its primary context: cudaMalloc, PyTorch and the like), managed memory,
 *               pinned or pageable host memory. x, output and weights are all on one device or all on the host. 4-byte alignment is
 *               enough, 16 is faster. output may be x itself; any other overlap of output with an input is SOLVE_STATUS_OVERLAP.
 * Ownership     The library keeps no pointer that it is given after the work that was asked for is done, and frees none but handles.
 * Threads       Every function may be called by any number of threads at once, on the same handle too. A thread that is cancelled
 *               (pthread_cancel) in a call ends after it. The first call must not be made while the loader holds its lock, as it does
 *               for constructors of a library that dlopen brings in: it starts threads, which wait for that lock, and waits for them.
 * Context       The CUDA context current in the calling thread is the same after a call.
 * Errors        No function prints, aborts or throws; but where the host has not even a few kilobytes left, a call may end the
 *               process, as Rust programs do: its large buffers, and nothing else, are asked for in a way that may fail.
 *               A call that is refused leaves output as it was. Where the driver fails halfway (SOLVE_STATUS_DRIVER, or OUT_OF_MEMORY
 *               of its own), output may hold anything, in place x is lost with it, and where the device has had a fault, host output
 *               is filled with NaN. After a fault every later call that needs that device reports SOLVE_STATUS_DRIVER. Output
 *               parameters are written on success only.
 * Capture       While a stream that is not cudaStreamNonBlocking is captured, by whichever thread, CUDA lets nobody use the legacy
 *               stream: solve, solve_block_create and calls with a null stream are SOLVE_STATUS_DRIVER then, and may spoil the capture.
 * Reset         After a cudaDeviceReset solve begins anew. Of blocks from before it forward and update are SOLVE_STATUS_DRIVER.
 * fork          A child may use the CPU backend if no other thread was in a call when it was forked; and a GPU if its parent has made no
 *               CUDA call, as CUDA demands, nor one of this library that looks for a GPU.
 * No GPU        Where there is no NVIDIA driver, or it sees no GPU, or none that this build has kernels for (compute capability 7.5 or newer,
 *               if it has them all), host pointers are served by the CPU. A driver that is too old for this build, or that does not start,
 *               is an error: SOLVE_STATUS_UNSUPPORTED or DRIVER; SOLVE_DEVICE=cpu does without it.
 */


#ifndef SOLVE_H
#define SOLVE_H

#include <stddef.h>

/* The weight buffer: twelve parameters end to end, in floats, matrices stored (in, out). */
#define SOLVE_D 768
#define SOLVE_WEIGHTS_LEN 7087872
#define SOLVE_GAMMA1_OFFSET 0 /* (768) */
#define SOLVE_GAMMA1_LEN 768
#define SOLVE_BETA1_OFFSET 768 /* (768) */
#define SOLVE_BETA1_LEN 768
#define SOLVE_W_QKV_OFFSET 1536 /* (768, 2304) */
#define SOLVE_W_QKV_LEN 1769472
#define SOLVE_B_QKV_OFFSET 1771008 /* (2304) */
#define SOLVE_B_QKV_LEN 2304
#define SOLVE_W_ATTN_OFFSET 1773312 /* (768, 768) */
#define SOLVE_W_ATTN_LEN 589824
#define SOLVE_B_ATTN_OFFSET 2363136 /* (768) */
#define SOLVE_B_ATTN_LEN 768
#define SOLVE_GAMMA2_OFFSET 2363904 /* (768) */
#define SOLVE_GAMMA2_LEN 768
#define SOLVE_BETA2_OFFSET 2364672 /* (768) */
#define SOLVE_BETA2_LEN 768
#define SOLVE_W_FC_OFFSET 2365440 /* (768, 3072) */
#define SOLVE_W_FC_LEN 2359296
#define SOLVE_B_FC_OFFSET 4724736 /* (3072) */
#define SOLVE_B_FC_LEN 3072
#define SOLVE_W_PROJ_OFFSET 4727808 /* (3072, 768) */
#define SOLVE_W_PROJ_LEN 2359296
#define SOLVE_B_PROJ_OFFSET 7087104 /* (768) */
#define SOLVE_B_PROJ_LEN 768

/* Initialises one with every field at its default: solve_options options = SOLVE_OPTIONS_DEFAULT; */
#define SOLVE_OPTIONS_DEFAULT {sizeof(solve_options), -1, SOLVE_PRECISION_FAST, 0, 0}

/**
 * Outcome of a call.
 */
typedef enum {
  /**
   * The call did what it says.
   */
  SOLVE_STATUS_OK = 0,
  /**
   * A pointer argument is null.
   */
  SOLVE_STATUS_NULL_POINTER = 1,
  /**
   * A number is outside its range, an options struct has the wrong size, or a buffer is too short for its shape.
   */
  SOLVE_STATUS_INVALID_ARGUMENT = 2,
  /**
   * A pointer is not a multiple of 4 bytes.
   */
  SOLVE_STATUS_MISALIGNED = 3,
  /**
   * `output` overlaps an input other than by being `x` itself.
   */
  SOLVE_STATUS_OVERLAP = 4,
  /**
   * The pointers are not all on one device or all on the host, or not where the handle is.
   */
  SOLVE_STATUS_MIXED_MEMORY = 5,
  /**
   * A pointer is not memory that this process may use: freed, foreign, or read-only output.
   */
  SOLVE_STATUS_BAD_POINTER = 6,
  /**
   * The device or the host has too little memory, or the process no thread or file descriptor left.
   */
  SOLVE_STATUS_OUT_OF_MEMORY = 7,
  /**
   * No usable GPU where one is required.
   */
  SOLVE_STATUS_NO_DEVICE = 8,
  /**
   * The CUDA driver reported an error. After a fault on the device every later call on that device reports it again.
   */
  SOLVE_STATUS_DRIVER = 9,
  /**
   * This build, driver or GPU cannot do what was asked.
   */
  SOLVE_STATUS_UNSUPPORTED = 10,
  /**
   * The handle was never created or is already destroyed.
   */
  SOLVE_STATUS_BAD_HANDLE = 11,
  /**
   * A defect in the library, caught before it could reach the caller.
   */
  SOLVE_STATUS_PANIC = 12,
} solve_status;

/**
 * Precision of the matrix products on a GPU. LayerNorm, softmax and the residual stream are fp32 in each; so are all sums. What fp32 arithmetic
 * computes as finite numbers comes out finite in each. On Hopper products are in fp32 themselves where solve has one token, in every precision, and up to
 * eight tokens in exact.
 */
typedef enum {
  /**
   * fp16 operands. The error is at most the larger of 1e-3 + 1e-3 |reference| and 1.3 times that of operands rounded to TF32, but for chance: on random
   * inputs one of 51,588 calls of 1 to 4299 tokens was beyond both, by 5 %. The error may be larger where rows of x, which nobody watches, spread less than
   * 1e-5 and matrices or gamma are several times the usual, and where rounding decides between the largest scores of an all but one-hot softmax.
   * The kernels watch the weights as they read them: where some are so large that fp16 might overflow, or so small that it might lose them, the device
   * computes the call again as SOLVE_PRECISION_EXACT, without the host. Such a call takes up to 3 times as long as one in that precision; right behind a
   * solve_block_update, or in a graph captured before it, up to 4 times, of one token up to 6 (H200).
   */
  SOLVE_PRECISION_FAST = 0,
  /**
   * fp16 operands in two halves, three products: relative L2 error of output - x at most the larger of 2e-5 and 3 times that of fp32 arithmetic.
   * Where some columns of V, or of the hidden layer, are more than 1e5 times as large as others that count, these may lose bits and the error is larger.
   * On an H200 solve takes up to 2.8 times as long as in fast (1 to 4096 tokens, back to back).
   */
  SOLVE_PRECISION_EXACT = 1,
  /**
   * As fast, but computed again as exact already where weights, biases, gamma or beta are too unusual (beyond those of a freshly initialised GPT-2)
   * for fast to stay within 1e-3 + 1e-3 |reference|, but for chance: two of those 51,588 calls were beyond that, by 3 and 5 %. The speed of fast on all
   * others.
   */
  SOLVE_PRECISION_AUTO = 2,
} solve_precision;

/**
 * A block whose weights are prepared, made by solve_block_create. Opaque.
 */
typedef struct solve_block solve_block;

/**
 * What a block is to be. Start from SOLVE_OPTIONS_DEFAULT, so that size is right, and change what you need.
 */
typedef struct {
  /**
   * sizeof(solve_options), by which the library knows the caller's version of this struct.
   */
  size_t size;
  /**
   * Ordinal of the GPU; -1 is the one that holds the weights, or the current one if they are on the host.
   */
  int device;
  /**
   * What the GPU may round; see solve_precision.
   */
  solve_precision precision;
  /**
   * Not 0: token i attends to tokens 0..i of its own sequence only.
   */
  int causal;
  /**
   * Tokens (batch * seq_len) that one forward may have: what memory is reserved for on a GPU. 0 is 4096.
   */
  int max_tokens;
} solve_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Runs the block once: output = block(x), x and output (seq_len, 768), weights SOLVE_WEIGHTS_LEN floats, seq_len 1 or more.
 *
 * With device pointers the work is enqueued on the legacy default stream of the device that holds them, which no graph can capture (a block's
 * calls can be), and solve returns without waiting. But a call that takes memory (the first, one of more tokens than any before, the first that is
 * misaligned, one of more tokens than any misaligned one before) may wait for all calls before it, those of blocks too; and a call waits while
 * another thread is in such a one, or in one on host memory.
 * On Hopper a call of few tokens may begin while the kernel before it ends: solve_block_forward says when, and what follows from it. Where a
 * cooperative grid of another stream keeps the kernels of a call of more than 32 tokens from running whole, the call gives up after some
 * milliseconds, and is computed again, in exact, by as many multiprocessors as it gets.
 * With host or managed pointers it returns when output is ready. Nothing about x, output or weights is remembered: weights rewritten in
 * place are seen by the next call. The outcome is in solve_last_status and solve_last_error of the same thread:
 * SOLVE_STATUS_NULL_POINTER, INVALID_ARGUMENT (seq_len below 1, or a device buffer shorter than its shape), MISALIGNED (not a multiple of 4),
 * OVERLAP, MIXED_MEMORY, BAD_POINTER (freed, foreign, or memory that may not be read, or written), OUT_OF_MEMORY, NO_DEVICE
 * (SOLVE_DEVICE=cuda and no GPU), UNSUPPORTED (a driver older than this build needs, a GPU or SOLVE_ARCH that it has no code for, a
 * share of a GPU that has too few multiprocessors, or an environment variable that means nothing), DRIVER.
 *
 * The caller's part:
 * Device pointers stay valid until the enqueued work is done; nobody else writes the buffers meanwhile.
 */
void solve(const float *x,
           float *output,
           const float *weights,
           int seq_len);

/**
 * Status of this thread's latest call of solve or of a solve_block function. SOLVE_STATUS_OK before the first.
 */
solve_status solve_last_status(void);

/**
 * What went wrong in this thread's latest call, as a sentence; "" if nothing did. The string is the library's and lives until this thread's
 * next call of solve or of a solve_block function.
 */
const char *solve_last_error(void);

/**
 * A status in words, such as "null pointer". Never null, static.
 */
const char *solve_status_string(int status);

/**
 * Version of the library, of the CUDA compiler, and the architectures built in, such as "0.1.0 cuda 13.0 sm75 sm80 sm90a". Static.
 */
const char *solve_version(void);

/**
 * SHA-256, in hexadecimal, of the sources that this library was built from. Static.
 */
const char *solve_build_id(void);

/**
 * Prepares a block: takes a copy of weights (SOLVE_WEIGHTS_LEN floats, on a device or on the host) in the form the kernels like best, and
 * on a GPU reserves memory for options->max_tokens. options may be null: all defaults. Returns when the block is ready, and weights may then be
 * freed. Destroy the block with solve_block_destroy. With SOLVE_DEVICE=cpu, or where no GPU is asked for and there is none, it is one on the CPU.
 * Weights on a device are read in the order of its legacy default stream: what other streams still write there is not waited for. What other
 * blocks of the device, and solve, still have to do is.
 *
 * The statuses of solve, and SOLVE_STATUS_INVALID_ARGUMENT for an option out of its range or a size that is not sizeof(solve_options),
 * NO_DEVICE for a device that is not there, MIXED_MEMORY for weights on another device than the options name, OUT_OF_MEMORY when
 * max_tokens do not fit. block is written on success only.
 *
 * The caller's part:
 * options is null or points to a solve_options; block points to where the handle is to be written.
 */
solve_status solve_block_create(const float *weights,
                                const solve_options *options,
                                solve_block **block);

/**
 * Runs a prepared block on batch (1 to 65,535) sequences of seq_len (1 or more) tokens: x and output are (batch, seq_len, 768), batch * seq_len
 * is at most max_tokens.
 *
 * On a GPU: x and output are device or managed memory of the block's device. The work is enqueued on stream (a CUstream or cudaStream_t of
 * that device, null for the legacy default stream; not one of a green context). The library allocates no memory. The call waits only while another thread is
 * in solve_block_create, in a solve that takes memory, in the first captured call, or in a call of this block on host memory. In a capturing
 * stream the work goes into its graph. Calls on one block run in the order in which they were made, whatever their streams, within one graph, too;
 * launches of a captured graph are ordered by whoever launches them, against each other and against other use of the block. The first call in a
 * process that is captured waits for what other blocks of the device, and solve, still have to do. Host memory is served too, but then the call
 * waits and must not be captured.
 * Calls of blocks that share a stream, and of solve with them, are faster than on streams of their own: those of at most 32 tokens by 1.4 us, solve of
 * 100 to 1024 tokens by 0.3 to 1.7 (H200). After calls on several streams that is so again once 64 calls in a row came on one and those on the others
 * have ended; until another block is created this happens once, and where calls have been captured it does not. The first call on a second stream
 * runs behind those that were enqueued on the first.
 * On Hopper a call of at most 32 tokens (in exact 16), of a block or of solve, or of at most 64 sequences of one token of a block that is not
 * exact, made right behind another one on its stream, begins while the kernel before it ends, at the device's highest priority, as long as
 * other streams have no calls of this library. It comes after all that kernel comes after; one that was launched with programmatic stream
 * serialization must have waited itself (griddepcontrol.wait). And no cooperative grid may be launched meanwhile that has this same priority
 * and no room beside the call, nor may others' kernels keep it from multiprocessors for more than 20 s.
 * On Hopper a captured call (in exact one of at most 8 tokens) begins while the kernel before it in its graph ends, by a programmatic edge, which a
 * graph's edges show only with their data; what that kernel must have waited for is the same, and no more is asked of others. Above 32 tokens it
 * ends with two kernels side by side, and what is captured next follows both. Captured when the weights are known to be such that calls are
 * computed in exact (solve_precision), it is exact in its graph for good, and begins when what is before it has ended: capture again behind an update.
 * Where one sequence has numbers that are not finite, others of its batch may come out as NaN, too, and if causal its own earlier tokens.
 * On the CPU: x and output are host memory, stream is null (or CUDA's legacy stream), and output is ready on return.
 *
 * The statuses of solve, and SOLVE_STATUS_BAD_HANDLE for a block that does not exist (any more), INVALID_ARGUMENT for batch outside 1 to 65,535,
 * seq_len below 1, batch * seq_len above 2^31 - 1 or above max_tokens, or a stream given to a block on the CPU, MIXED_MEMORY for memory of another
 * device than the block's, UNSUPPORTED for a stream of a green context, or for host memory while stream is captured.
 *
 * The caller's part:
 * As for solve; stream is a live stream of the block's device.
 */
solve_status solve_block_forward(solve_block *block,
                                 const float *x,
                                 float *output,
                                 int batch,
                                 int seq_len,
                                 void *stream);

/**
 * Replaces a block's weights by others (SOLVE_WEIGHTS_LEN floats, on the block's device or on the host), in stream order: forwards enqueued
 * before it use the old ones, later ones the new. Device weights must stay as they are until the work enqueued on stream is done; host weights
 * may be reused on return, and take memory of the device meanwhile, for which the call may wait for its other work. Captured graphs see the new
 * weights too. Where an update fails halfway, forward is SOLVE_STATUS_DRIVER until one succeeds.
 *
 * SOLVE_STATUS_NULL_POINTER (block or weights), BAD_HANDLE, INVALID_ARGUMENT (device weights shorter than SOLVE_WEIGHTS_LEN floats, or a stream
 * given to a block on the CPU), MISALIGNED, MIXED_MEMORY (weights on another device than the block's), BAD_POINTER, OUT_OF_MEMORY,
 * UNSUPPORTED (a stream of a green context, or host weights while stream is captured), DRIVER.
 *
 * The caller's part:
 * As for solve_block_forward.
 */
solve_status solve_block_update(solve_block *block,
                                const float *weights,
                                void *stream);

/**
 * Waits for the block's work and frees it. Null is allowed. Graphs that captured the block must not be launched any more. A block that does
 * not exist (any more) is SOLVE_STATUS_BAD_HANDLE. A forward that another thread has begun is finished first.
 *
 * The caller's part:
 * None: a handle that does not exist is an error.
 */
solve_status solve_block_destroy(solve_block *block);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SOLVE_H */
