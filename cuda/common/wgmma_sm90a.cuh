/* Warpgroup matrix multiply-accumulate: D(64 x N, fp32) (+)= A(64 x 16, fp16) B(16 x N, fp16). PTX ISA 9.0, 9.7.15.5 (wgmma.mma_async).
   B is always in shared memory, A there (`Wgmma<N>::ss`) or in registers (`Wgmma<N>::rs`). `accumulate` 0 starts a sum. TRANSPOSE_B 1: B lies N-major,
   as a row-major (K, N) matrix does; 0: K-major. Four warps take part; all must pass the same descriptors.

   Accumulator of lane l of warp w, register 4 i + r: row 16 w + l / 4 + 8 (r / 2), column 8 i + 2 (l % 4) + r % 2 (9.7.15.5.1).
   A fragment: a[0..3] = rows l / 4 and l / 4 + 8 at columns 2 (l % 4), then both at columns 8 + 2 (l % 4): four neighbouring fp32
   accumulators of a product, packed in pairs, are the A fragment of the next one. */
#pragma once
#include <cstdint>

// 9.7.15.7.1 wgmma.fence, before the first wgmma and after any other access to its registers
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// 9.7.15.7.2 wgmma.commit_group
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// 9.7.15.7.3 wgmma.wait_group
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* 9.7.15.5.1.2.2 matrix descriptor, for tiles the copy engine laid out with a swizzle of SWIZZLE bytes (128, 64 or 32);
   tiles start on 8 SWIZZLE bytes.
   K-major, SWIZZLE / 2 columns of K per row: `stride` = 8 SWIZZLE (eight rows further), `leading` unused; +32 bytes per 16 of K.
   N-major, slabs of SWIZZLE / 2 columns of N, one row per k: `leading` = distance of slabs, `stride` = 8 SWIZZLE (eight k further);
   +16 SWIZZLE bytes per 16 of K. */
template <int SWIZZLE>
__host__ __device__ constexpr uint64_t wgmma_descriptor(uint32_t leading_bytes, uint32_t stride_bytes) {
  return static_cast<uint64_t>(leading_bytes >> 4) << 16 | static_cast<uint64_t>(stride_bytes >> 4) << 32 |
         (SWIZZLE == 128 ? 1ull : SWIZZLE == 64 ? 2ull : 3ull) << 62;
}
__device__ __forceinline__ uint64_t wgmma_at(uint64_t descriptor, uint32_t address) { return descriptor | (address & 0x3FFFF) >> 4; }
// With another low word, which is what the address changes
__device__ __forceinline__ uint64_t wgmma_with_low(uint64_t descriptor, uint32_t low) { return (descriptor & 0xFFFFFFFF00000000ull) | low; }
// The same tile some bytes further on: an addition that stays in uniform registers, where the address is in one
__device__ __forceinline__ uint64_t wgmma_further(uint64_t descriptor, uint32_t bytes) {
  return (descriptor & 0xFFFFFFFF00000000ull) | (static_cast<uint32_t>(descriptor) + (bytes >> 4));
}

template <int N>
struct Wgmma;

// Operand lists: the accumulators are asm operands %0 to %(N / 2 - 1), ten to a line.
#define REGS_10(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define ACCUMULATORS_8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACCUMULATORS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACCUMULATORS_16(i) ACCUMULATORS_8(i), ACCUMULATORS_8(i + 8)
#define ACCUMULATORS_32(i) ACCUMULATORS_16(i), ACCUMULATORS_16(i + 16)

// P0..P6: the operand numbers that follow the accumulators.
#define WGMMA_SHAPE(N, REGISTERS, ACCUMULATORS, P0, P1, P2, P3, P4, P5, P6)                                                                        \
  template <>                                                                                                                                      \
  struct Wgmma<N> {                                                                                                                                \
    template <int TRANSPOSE_B, int TRANSPOSE_A = 0>                                                                                                \
    static __device__ __forceinline__ void ss(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {                                         \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P2 ", 0;\n"                                                                               \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" REGISTERS "}, %" #P0 ", %" #P1 ", p, 1, 1, %" #P4 ", %" #P3 ";\n}\n" \
                   : ACCUMULATORS                                                                                                                  \
                   : "l"(a), "l"(b), "r"(accumulate), "n"(TRANSPOSE_B), "n"(TRANSPOSE_A));                                                         \
    }                                                                                                                                              \
    template <int TRANSPOSE_B>                                                                                                                     \
    static __device__ __forceinline__ void rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {                             \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P5 ", 0;\n"                                                                               \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" REGISTERS "}, {%" #P0 ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #P4       \
                   ", p, 1, 1, %" #P6 ";\n}\n"                                                                                                     \
                   : ACCUMULATORS                                                                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSE_B));                                       \
    }                                                                                                                                              \
  };

#define ACCUMULATORS_N32 ACCUMULATORS_16(0)
#define ACCUMULATORS_N48 ACCUMULATORS_16(0), ACCUMULATORS_8(16)
#define ACCUMULATORS_N56 ACCUMULATORS_16(0), ACCUMULATORS_8(16), ACCUMULATORS_4(24)
#define ACCUMULATORS_N64 ACCUMULATORS_32(0)
#define ACCUMULATORS_N72 ACCUMULATORS_32(0), ACCUMULATORS_4(32)
#define ACCUMULATORS_N80 ACCUMULATORS_32(0), ACCUMULATORS_8(32)
#define ACCUMULATORS_N88 ACCUMULATORS_32(0), ACCUMULATORS_8(32), ACCUMULATORS_4(40)
#define ACCUMULATORS_N96 ACCUMULATORS_32(0), ACCUMULATORS_16(32)
#define ACCUMULATORS_N104 ACCUMULATORS_32(0), ACCUMULATORS_16(32), ACCUMULATORS_4(48)
#define ACCUMULATORS_N112 ACCUMULATORS_32(0), ACCUMULATORS_16(32), ACCUMULATORS_8(48)
#define ACCUMULATORS_N120 ACCUMULATORS_32(0), ACCUMULATORS_16(32), ACCUMULATORS_8(48), ACCUMULATORS_4(56)
#define ACCUMULATORS_N128 ACCUMULATORS_32(0), ACCUMULATORS_32(32)
#define ACCUMULATORS_N136 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_4(64)
#define ACCUMULATORS_N144 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_8(64)
#define ACCUMULATORS_N152 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_8(64), ACCUMULATORS_4(72)
#define ACCUMULATORS_N160 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_16(64)
#define ACCUMULATORS_N176 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_16(64), ACCUMULATORS_8(80)
#define ACCUMULATORS_N192 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_32(64)
#define ACCUMULATORS_N208 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_32(64), ACCUMULATORS_8(96)
#define ACCUMULATORS_N224 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_32(64), ACCUMULATORS_16(96)
#define ACCUMULATORS_N240 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_32(64), ACCUMULATORS_16(96), ACCUMULATORS_8(112)
#define ACCUMULATORS_N256 ACCUMULATORS_32(0), ACCUMULATORS_32(32), ACCUMULATORS_32(64), ACCUMULATORS_32(96)

WGMMA_SHAPE(32, REGS_10() "%10, %11, %12, %13, %14, %15", ACCUMULATORS_N32, 16, 17, 18, 19, 20, 21, 22)
WGMMA_SHAPE(48, REGS_10() REGS_10(1) "%20, %21, %22, %23", ACCUMULATORS_N48, 24, 25, 26, 27, 28, 29, 30)
WGMMA_SHAPE(56, REGS_10() REGS_10(1) "%20, %21, %22, %23, %24, %25, %26, %27", ACCUMULATORS_N56, 28, 29, 30, 31, 32, 33, 34)
WGMMA_SHAPE(64, REGS_10() REGS_10(1) REGS_10(2) "%30, %31", ACCUMULATORS_N64, 32, 33, 34, 35, 36, 37, 38)
WGMMA_SHAPE(72, REGS_10() REGS_10(1) REGS_10(2) "%30, %31, %32, %33, %34, %35", ACCUMULATORS_N72, 36, 37, 38, 39, 40, 41, 42)
WGMMA_SHAPE(80, REGS_10() REGS_10(1) REGS_10(2) "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39", ACCUMULATORS_N80, 40, 41, 42, 43, 44, 45, 46)
WGMMA_SHAPE(88, REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) "%40, %41, %42, %43", ACCUMULATORS_N88, 44, 45, 46, 47, 48, 49, 50)
WGMMA_SHAPE(96, REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) "%40, %41, %42, %43, %44, %45, %46, %47", ACCUMULATORS_N96, 48, 49, 50, 51, 52, 53, 54)
WGMMA_SHAPE(104, REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) "%50, %51", ACCUMULATORS_N104, 52, 53, 54, 55, 56, 57, 58)
WGMMA_SHAPE(112, REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) "%50, %51, %52, %53, %54, %55", ACCUMULATORS_N112, 56, 57, 58, 59, 60, 61, 62)
WGMMA_SHAPE(120,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59",
            ACCUMULATORS_N120, 60, 61, 62, 63, 64, 65, 66)
WGMMA_SHAPE(128, REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) "%60, %61, %62, %63", ACCUMULATORS_N128, 64, 65, 66, 67, 68, 69, 70)
WGMMA_SHAPE(136,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) "%60, %61, %62, %63, %64, %65, %66, %67",
            ACCUMULATORS_N136, 68, 69, 70, 71, 72, 73, 74)
WGMMA_SHAPE(144,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) REGS_10(6) "%70, %71",
            ACCUMULATORS_N144, 72, 73, 74, 75, 76, 77, 78)
WGMMA_SHAPE(152,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) REGS_10(6) "%70, %71, %72, %73, %74, %75",
            ACCUMULATORS_N152, 76, 77, 78, 79, 80, 81, 82)
WGMMA_SHAPE(160,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) REGS_10(6) "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79",
            ACCUMULATORS_N160, 80, 81, 82, 83, 84, 85, 86)
WGMMA_SHAPE(176,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) REGS_10(6) REGS_10(7) "%80, %81, %82, %83, %84, %85, %86, %87",
            ACCUMULATORS_N176, 88, 89, 90, 91, 92, 93, 94)
WGMMA_SHAPE(192,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) REGS_10(6) REGS_10(7) REGS_10(8)
            "%90, %91, %92, %93, %94, %95",
            ACCUMULATORS_N192, 96, 97, 98, 99, 100, 101, 102)
WGMMA_SHAPE(208,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) REGS_10(6) REGS_10(7) REGS_10(8) REGS_10(9) "%100, %101, %102, %103",
            ACCUMULATORS_N208, 104, 105, 106, 107, 108, 109, 110)
WGMMA_SHAPE(224,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) REGS_10(6) REGS_10(7) REGS_10(8)
            REGS_10(9) REGS_10(10) "%110, %111",
            ACCUMULATORS_N224, 112, 113, 114, 115, 116, 117, 118)
WGMMA_SHAPE(240,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) REGS_10(6) REGS_10(7) REGS_10(8)
            REGS_10(9) REGS_10(10) "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119",
            ACCUMULATORS_N240, 120, 121, 122, 123, 124, 125, 126)
WGMMA_SHAPE(256,
            REGS_10() REGS_10(1) REGS_10(2) REGS_10(3) REGS_10(4) REGS_10(5) REGS_10(6) REGS_10(7) REGS_10(8)
            REGS_10(9) REGS_10(10) REGS_10(11) "%120, %121, %122, %123, %124, %125, %126, %127",
            ACCUMULATORS_N256, 128, 129, 130, 131, 132, 133, 134)

#undef WGMMA_SHAPE
#undef ACCUMULATORS_N32
#undef ACCUMULATORS_N48
#undef ACCUMULATORS_N56
#undef ACCUMULATORS_N64
#undef ACCUMULATORS_N72
#undef ACCUMULATORS_N80
#undef ACCUMULATORS_N88
#undef ACCUMULATORS_N96
#undef ACCUMULATORS_N104
#undef ACCUMULATORS_N112
#undef ACCUMULATORS_N120
#undef ACCUMULATORS_N128
#undef ACCUMULATORS_N136
#undef ACCUMULATORS_N144
#undef ACCUMULATORS_N152
#undef ACCUMULATORS_N160
#undef ACCUMULATORS_N176
#undef ACCUMULATORS_N192
#undef ACCUMULATORS_N208
#undef ACCUMULATORS_N224
#undef ACCUMULATORS_N240
#undef ACCUMULATORS_N256
#undef ACCUMULATORS_32
#undef ACCUMULATORS_16
#undef ACCUMULATORS_8
#undef ACCUMULATORS_4
#undef REGS_10
