// Conversions of the finishing kernels on their own, for numbers that images do not reach.

extern "C" __global__ void narrow_f16(const u32* from, u16* to, u32 count) {
    for (u32 at = threadIdx.x; at < count; at += blockDim.x)
        store(to + at, F16::narrow(__uint_as_float(load(from + at))));
}

extern "C" __global__ void narrow_bf16(const u32* from, u16* to, u32 count) {
    for (u32 at = threadIdx.x; at < count; at += blockDim.x)
        store(to + at, Bf16::narrow(__uint_as_float(load(from + at))));
}

extern "C" __global__ void widen_f16(const u16* from, u32* to, u32 count) {
    for (u32 at = threadIdx.x; at < count; at += blockDim.x)
        store(to + at, F16::widen(load(from + at)));
}
