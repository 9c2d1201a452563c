// What a kernel's source needs of CUDA, for g++. A kernel reads and writes device memory by `load` and `store` alone:
// its pointers contain device addresses, which the host cannot touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define ON_CPU
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads)
// All shared memory lies in one section, so that the launch finds and poisons it.
#define __shared__ static __attribute__((section("kernel_shared")))

struct Dimensions {
    unsigned x, y, z;
};
extern Dimensions threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

__attribute__((noinline)) void __syncthreads();

// Returns where the bytes of a device address lie. Ends the launch with an error if the access is not allowed.
uint8_t* translate(uint64_t address, size_t bytes, size_t alignment, bool writes);

template <class T> __forceinline__ T load(const T* from) {
    T value;
    std::memcpy(&value, translate(reinterpret_cast<uint64_t>(from), sizeof(T), alignof(T), false), sizeof(T));
    return value;
}

template <class T> __forceinline__ void store(T* to, T value) {
    std::memcpy(translate(reinterpret_cast<uint64_t>(to), sizeof(T), alignof(T), true), &value, sizeof(T));
}

__forceinline__ unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

__forceinline__ float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
