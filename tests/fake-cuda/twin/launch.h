// Runs kernels on the CPU. The types are those of src/twin.rs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

// From the first address that was accessed to the end of the last access; both 0 if there was none.
struct Touched {
    uint64_t start;
    uint64_t end;
};

// Memory that a kernel may access, by its address on the device.
struct Region {
    uint64_t address;
    uint64_t bytes;
    uint8_t* storage;
    Touched read;
    Touched written;
};

struct Launch {
    // In the order of their addresses.
    Region* regions;
    uint64_t region_count;
    uint32_t grid[3];
    uint32_t block[3];
    uint64_t seed;
    // Each parameter in a word of its own.
    const uint64_t* arguments;
};

// Why a launch ended early. The code is a result of the driver.
struct Fault {
    int32_t code;
    uint32_t bytes;
    uint64_t address;
    uint32_t block[3];
    uint32_t thread;
};

struct Kernel {
    const char* name;
    uint32_t parameters;
    uint32_t sizes[32];
    void (*call)(const uint64_t* arguments);
};

template <class T> T argument(const uint64_t& word) {
    T value;
    static_assert(sizeof(T) <= sizeof word, "a parameter fits a word");
    std::memcpy(&value, &word, sizeof value);
    return value;
}

template <auto function, class... P, size_t... I>
void call_with(void (*)(P...), const uint64_t* arguments, std::index_sequence<I...>) {
    function(argument<P>(arguments[I])...);
}

template <auto function, class... P> constexpr Kernel describe(const char* name, void (*)(P...)) {
    return {name, sizeof...(P), {uint32_t(sizeof(P))...}, [](const uint64_t* arguments) {
                call_with<function>(function, arguments, std::index_sequence_for<P...>{});
            }};
}

#define KERNEL(function) describe<function>(#function, function)
