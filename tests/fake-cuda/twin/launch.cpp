// Runs the threads of a block as fibers, in an order that the seed decides. A barrier switches to the next thread.

#include "launch.h"

#include "cuda.h"

#include <cstdlib>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

Dimensions threadIdx, blockIdx, blockDim, gridDim;

extern "C" __attribute__((visibility("hidden"))) uint8_t __start_kernel_shared[], __stop_kernel_shared[];

namespace {

constexpr int ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719;
constexpr uint32_t MAX_THREADS = 1024;
constexpr size_t STACK_BYTES = 64 << 10;
constexpr uint64_t STACK_END = 0x57ac4e4d57ac4e4d;
constexpr uint8_t SHARED_POISON = 0xb5;

#if defined(__x86_64__)

// Saves the registers that a call keeps and the stack pointer, and continues where `to` was saved.
typedef void* Saved;
extern "C" void fake_cuda_switch(Saved* from, Saved to);
asm(R"(
    .text
    .hidden fake_cuda_switch
    .globl fake_cuda_switch
    .type fake_cuda_switch, @function
fake_cuda_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size fake_cuda_switch, .-fake_cuda_switch
)");

void switch_to(Saved& from, Saved& to) { fake_cuda_switch(&from, to); }

// Makes a fiber begin with `entry`. A function expects its stack 8 bytes below a multiple of 16.
void prepare(Saved& fiber, uint8_t* stack, void (*entry)()) {
    auto top = reinterpret_cast<void**>(stack + STACK_BYTES) - 2;
    *top = reinterpret_cast<void*>(entry);
    fiber = top - 6;
}

#else

typedef ucontext_t Saved;

void switch_to(Saved& from, Saved& to) { swapcontext(&from, &to); }

void prepare(Saved& fiber, uint8_t* stack, void (*entry)()) {
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = stack;
    fiber.uc_stack.ss_size = STACK_BYTES;
    fiber.uc_link = nullptr;
    makecontext(&fiber, entry, 0);
}

#endif

enum class State { READY, AT_BARRIER, ENDED };

struct Fiber {
    Saved saved;
    State state;
};

// One launch runs at a time: the driver's lock is held.
Saved scheduler;
Fiber fibers[MAX_THREADS];
uint8_t* stacks;
uint32_t current;
const Kernel* kernel;
const Launch* launch;
Fault* found;

uint64_t random_state;
uint64_t random_number() {
    uint64_t z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

// Returns the lowest address of a thread's stack, where a word shows whether the thread needs more.
uint8_t* stack_of(uint32_t thread) {
    if (!stacks) {
        void* memory = mmap(nullptr, MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) abort();
        stacks = static_cast<uint8_t*>(memory);
    }
    return stacks + thread * STACK_BYTES;
}

uint64_t& lowest_word(uint32_t thread) { return *reinterpret_cast<uint64_t*>(stack_of(thread)); }

void leave(State state) {
    fibers[current].state = state;
    switch_to(fibers[current].saved, scheduler);
}

void run_thread() {
    kernel->call(launch->arguments);
    leave(State::ENDED);
    abort();
}

[[noreturn]] void fail(int code, uint64_t address, size_t bytes) {
    *found = {code, uint32_t(bytes), address, {blockIdx.x, blockIdx.y, blockIdx.z}, current};
    leave(State::ENDED);
    abort();
}

Dimensions place_of(uint32_t thread) {
    return {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}

void run_block() {
    const uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
    memset(__start_kernel_shared, SHARED_POISON, __stop_kernel_shared - __start_kernel_shared);
    uint32_t order[MAX_THREADS];
    for (uint32_t at = 0; at < threads; ++at) {
        order[at] = at;
        fibers[at].state = State::READY;
        lowest_word(at) = STACK_END;
        prepare(fibers[at].saved, stack_of(at), run_thread);
    }
    for (;;) {
        for (uint32_t at = threads; at > 1; --at) std::swap(order[at - 1], order[random_number() % at]);
        uint32_t waiting = 0;
        for (uint32_t at = 0; at < threads; ++at) {
            current = order[at];
            threadIdx = place_of(current);
            switch_to(scheduler, fibers[current].saved);
            if (lowest_word(current) != STACK_END) abort();
            if (found->code) return;
            waiting += fibers[current].state == State::AT_BARRIER;
        }
        if (waiting == 0) return;
        if (waiting < threads) {
            *found = {LAUNCH_FAILED, 0, 0, {blockIdx.x, blockIdx.y, blockIdx.z}, current};
            return;
        }
    }
}

Region* find(uint64_t address, size_t bytes) {
    uint64_t low = 0, high = launch->region_count;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (launch->regions[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return nullptr;
    Region* region = launch->regions + low - 1;
    const uint64_t offset = address - region->address;
    return bytes <= region->bytes && offset <= region->bytes - bytes ? region : nullptr;
}

// The regions of the last accesses.
Region* recent[4];
uint32_t oldest;

void extend(Touched& touched, uint64_t address, size_t bytes) {
    if (touched.end == 0 || address < touched.start) touched.start = address;
    if (address + bytes > touched.end) touched.end = address + bytes;
}

uint8_t* access(Region* region, uint64_t address, size_t bytes, bool writes) {
    extend(writes ? region->written : region->read, address, bytes);
    return region->storage + (address - region->address);
}

}  // namespace

void __syncthreads() { leave(State::AT_BARRIER); }

uint8_t* translate(uint64_t address, size_t bytes, size_t alignment, bool writes) {
    if (address % alignment != 0) fail(MISALIGNED_ADDRESS, address, bytes);
    for (Region* region : recent)
        if (region && address - region->address < region->bytes && bytes <= region->bytes - (address - region->address))
            return access(region, address, bytes, writes);
    Region* region = find(address, bytes);
    if (!region) fail(ILLEGAL_ADDRESS, address, bytes);
    recent[oldest++ % 4] = region;
    return access(region, address, bytes, writes);
}

extern "C" void fake_cuda_launch(const Kernel* which, const Launch* how, Fault* fault) {
    kernel = which, launch = how, found = fault;
    *found = {};
    memset(recent, 0, sizeof recent);
    random_state = launch->seed;
    gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]};
    blockDim = {launch->block[0], launch->block[1], launch->block[2]};
    const uint64_t blocks = uint64_t(gridDim.x) * gridDim.y * gridDim.z;
    // Blocks run forwards or backwards, from any of them on.
    const uint64_t first = random_number() % blocks;
    const bool forwards = random_number() % 2;
    for (uint64_t at = 0; at < blocks && !found->code; ++at) {
        const uint64_t block = (forwards ? first + at : first + blocks - at) % blocks;
        blockIdx = {uint32_t(block % gridDim.x), uint32_t(block / gridDim.x % gridDim.y),
                    uint32_t(block / gridDim.x / gridDim.y)};
        run_block();
    }
}

// What the compiler calls where the sanitizer finds undefined behaviour. Each ends the launch.
extern "C" {
void __ubsan_handle_type_mismatch_v1_abort(void*, uintptr_t pointer) { fail(MISALIGNED_ADDRESS, pointer, 0); }
void __ubsan_handle_out_of_bounds_abort(void*, uintptr_t index) { fail(ILLEGAL_ADDRESS, index, 0); }
void __ubsan_handle_shift_out_of_bounds_abort(void*, uintptr_t, uintptr_t) { fail(LAUNCH_FAILED, 0, 0); }
void __ubsan_handle_divrem_overflow_abort(void*, uintptr_t, uintptr_t) { fail(LAUNCH_FAILED, 0, 0); }
void __ubsan_handle_add_overflow_abort(void*, uintptr_t, uintptr_t) { fail(LAUNCH_FAILED, 0, 0); }
void __ubsan_handle_sub_overflow_abort(void*, uintptr_t, uintptr_t) { fail(LAUNCH_FAILED, 0, 0); }
void __ubsan_handle_mul_overflow_abort(void*, uintptr_t, uintptr_t) { fail(LAUNCH_FAILED, 0, 0); }
void __ubsan_handle_negate_overflow_abort(void*, uintptr_t) { fail(LAUNCH_FAILED, 0, 0); }
}
