// Kernels with one mistake each, and what they would be without it. The stand-in has to notice the mistake.

// Reads four bytes at once, wherever they lie.
extern "C" __global__ void wrong_alignment(const u8* from, u32* to, u32 offset) {
    if (threadIdx.x == 0) store(to, load(reinterpret_cast<const u32*>(from + offset)));
}

// Writes an element for each thread, whether the memory has room for it or not.
extern "C" __global__ void wrong_end(u8* to, u32 first) { store(to + first + threadIdx.x, u8(threadIdx.x)); }

// Reverses 64 bytes without a barrier between the threads' writes and reads.
extern "C" __global__ void wrong_race(const u8* from, u8* to) {
    __shared__ u8 shared[64];
    shared[threadIdx.x] = load(from + threadIdx.x);
    store(to + threadIdx.x, shared[63 - threadIdx.x]);
}

// Does it with the barrier.
extern "C" __global__ void right_race(const u8* from, u8* to) {
    __shared__ u8 shared[64];
    shared[threadIdx.x] = load(from + threadIdx.x);
    __syncthreads();
    store(to + threadIdx.x, shared[63 - threadIdx.x]);
}

// Has a barrier that half of the threads never reach.
extern "C" __global__ void wrong_barrier(u8* to) {
    if (threadIdx.x % 2 == 0) return;
    __syncthreads();
    store(to + threadIdx.x, u8(1));
}

// Reads beyond the end of shared memory.
extern "C" __global__ void wrong_index(u8* to, u32 at) {
    __shared__ u8 shared[64];
    shared[threadIdx.x] = u8(threadIdx.x);
    __syncthreads();
    store(to + threadIdx.x, shared[at + threadIdx.x]);
}

// Expects the shared memory of the block before.
extern "C" __global__ void wrong_stale(u8* to) {
    __shared__ u8 shared[64];
    if (blockIdx.x % 2 == 0) shared[threadIdx.x] = u8(7);
    __syncthreads();
    store(to + blockIdx.x * 64 + threadIdx.x, shared[threadIdx.x]);
}
