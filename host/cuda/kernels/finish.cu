// Finishes the rows of a batch: from u8 rows of RGB as prepared (NHWC) to elements as they are delivered. There is a
// kernel for each type of elements. What it writes equals, bit by bit, what the loader's threads compute on the host.
//
//   values   Each byte of a channel becomes the value that `table` has for it: 3 x 256 elements. finish_u8 keeps the
//            bytes and reads no table.
//   order    `planar` 0: the channels of a pixel together (NHWC). 1: three planes (NCHW).
//   mix      0: none.
//            1: each element becomes other * rest + own * weight, rounded after each of the three operations. Elements
//            of 16 bits are then rounded to the nearest one, ties to even. Bytes take `weight15`, the weight in steps
//            of 2^-15.
//            2: in the window, x0 <= x < x1 and y0 <= y < y1, the other row's elements.
//            The other row is the row before; that of the first row is the last one.
//
// Any grid computes the whole batch: the blocks in x take turns with groups of pixels, those in y and z with images. A
// block has at most 256 threads, an image less than 2^30 pixels. Rows and output may have any alignment that fits their
// elements. Four elements are read and written at once if every row is aligned for that: images of 4 * n pixels, in
// memory from an allocator. A block fills its table once, so a thread should make about 16 pixels.
//
// Tests run this source on the CPU. There, `load` and `store` check addresses: nothing else may access the device's
// memory. CUDA's headers are not there, so all that rounds is written out. Compile with -fmad=false: a fused
// multiplication and addition rounds once instead of twice.

#ifndef ON_CPU
template <class T> __device__ __forceinline__ T load(const T* from) { return *from; }
template <class T> __device__ __forceinline__ void store(T* to, T value) { *to = value; }
// The compiler would write the words one by one.
__device__ __forceinline__ void store(uint2* to, uint2 value) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(value.x), "r"(value.y));
}
__device__ __forceinline__ void store(uint4* to, uint4 value) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w));
}
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "sizes that the host assumes");

constexpr u32 THREADS = 256;
constexpr u32 CHANNELS = 3;
constexpr u32 LEVELS = 256;
// Words of an interleaved image that a thread reads at once.
constexpr u32 WORDS = 2;

enum Mix : u32 { NONE = 0, BLEND = 1, PASTE = 2 };

struct Batch {
    const u8* rows;
    u32 count;
    u32 pixels;
    u32 width;
    u32 mix;
    float weight;
    float rest;
    int weight15;
    u32 x0, y0, x1, y1;

    // Returns whether the window contains a pixel.
    __device__ __forceinline__ bool pastes(u32 pixel) const {
        const u32 y = pixel / width, x = pixel - y * width;
        return x0 <= x && x < x1 && y0 <= y && y < y1;
    }
};

// Four elements of a type as they lie in memory, in words that are read and written at once.
template <class Element> struct Four;
template <> struct Four<u8> {
    typedef u32 Words;
    static __device__ __forceinline__ u32 words(const u8 (&at)[4]) {
        return u32(at[0]) | u32(at[1]) << 8 | u32(at[2]) << 16 | u32(at[3]) << 24;
    }
};
template <> struct Four<u16> {
    typedef uint2 Words;
    static __device__ __forceinline__ uint2 words(const u16 (&at)[4]) {
        return {u32(at[0]) | u32(at[1]) << 16, u32(at[2]) | u32(at[3]) << 16};
    }
};
template <> struct Four<u32> {
    typedef uint4 Words;
    static __device__ __forceinline__ uint4 words(const u32 (&at)[4]) { return {at[0], at[1], at[2], at[3]}; }
};

// Byte `at` of words.
__device__ __forceinline__ u8 byte_of(const u32* words, u32 at) { return u8(words[at / 4] >> at % 4 * 8); }

// Each type of elements has `Element`, as it lies in memory, and
//   widen(element)   what blending computes with, as the bits of a float
//   narrow(value)    the element nearest to a float

struct F32 {
    typedef u32 Element;
    static __device__ __forceinline__ u32 widen(u32 element) { return element; }
    static __device__ __forceinline__ u32 narrow(float value) { return __float_as_uint(value); }
};

struct Bf16 {
    typedef u16 Element;
    static __device__ __forceinline__ u32 widen(u16 element) { return u32(element) << 16; }
    static __device__ __forceinline__ u16 narrow(float value) {
        const u32 bits = __float_as_uint(value);
        if ((bits & 0x7fffffff) > 0x7f800000) return u16(bits >> 16 | 0x40);
        // Adds half of the last place; at a tie only where the last place is odd.
        return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

struct F16 {
    typedef u16 Element;

    static __device__ __forceinline__ u32 widen(u16 element) {
        const u32 sign = u32(element & 0x8000) << 16, rest = element & 0x7fff;
        // Subnormal numbers are multiples of 2^-24.
        if (rest < 0x400) return sign | __float_as_uint(float(rest) * 0x1p-24f);
        const u32 exponent = rest < 0x7c00 ? 112 : 224;
        return sign | ((rest << 13) + (exponent << 23));
    }

    static __device__ __forceinline__ u16 narrow(float value) {
        const u32 bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
        if (rest > 0x7f800000) return u16(sign | 0x7e00 | (rest >> 13 & 0x3ff));
        // From 65520 on: the middle between the largest number and 2^16, which is infinite in 16 bits.
        if (rest >= 0x477ff000) return u16(sign | 0x7c00);
        // Below 2^-14 the last place is 2^-24, as it is in floats from 0.5 to 1: the addition rounds.
        if (rest < 0x38800000) return u16(sign | (__float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000));
        return u16(sign | ((rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13));
    }
};

// Values by a table in shared memory: as elements, or widened if the batch is blended.
template <class Type> struct Floats {
    typedef typename Type::Element Element;
    const u32 (&table)[CHANNELS * LEVELS];

    __device__ __forceinline__ Element one(u32 channel, u8 own) const {
        return Element(table[channel * LEVELS + own]);
    }

    __device__ __forceinline__ Element blend(const Batch& batch, u32 channel, u8 own, u8 other) const {
        const float mine = __uint_as_float(table[channel * LEVELS + own]);
        const float others = __uint_as_float(table[channel * LEVELS + other]);
        return Type::narrow(others * batch.rest + mine * batch.weight);
    }
};

struct Bytes {
    typedef u8 Element;

    __device__ __forceinline__ u8 one(u32, u8 own) const { return own; }

    __device__ __forceinline__ u8 blend(const Batch& batch, u32, u8 own, u8 other) const {
        const int product = (int(own) - int(other)) * batch.weight15;
        return u8(int(other) + (((product >> 14) + 1) >> 1));
    }
};

// One image of the batch.
template <class Values> struct Image {
    typedef typename Values::Element Element;
    const Batch& batch;
    const Values& values;
    const u8* own;
    const u8* other;
    Element* out;

    __device__ __forceinline__ void one_pixel(u32 pixel, bool planar) const {
        const u64 at = u64(pixel) * CHANNELS;
        const u8* from = (batch.mix == PASTE && batch.pastes(pixel) ? other : own) + at;
        for (u32 channel = 0; channel < CHANNELS; ++channel) {
            Element* to = out + (planar ? u64(channel) * batch.pixels + pixel : at + channel);
            const u8 mine = load(from + channel);
            if (batch.mix == BLEND)
                store(to, values.blend(batch, channel, mine, load(other + at + channel)));
            else
                store(to, values.one(channel, mine));
        }
    }

    // Replaces bytes in the window by those of the other row. The first byte belongs to a pixel's channel.
    template <u32 COUNT>
    __device__ __forceinline__ void paste(u32 pixel, u32 channel, u32 (&mine)[COUNT],
                                          const u32 (&others)[COUNT]) const {
        bool pasted = batch.pastes(pixel);
        for (u32 at = 0; at < COUNT * 4; ++at) {
            const u32 byte = pasted ? 0xffu << at % 4 * 8 : 0;
            mine[at / 4] = (others[at / 4] & byte) | (mine[at / 4] & ~byte);
            if (++channel == CHANNELS && at + 1 < COUNT * 4) {
                channel = 0;
                pasted = batch.pastes(++pixel);
            }
        }
    }

    // Four pixels, twelve bytes, to four elements in each plane.
    __device__ __forceinline__ void four_pixels(u32 pixel) const {
        const u32* from_own = reinterpret_cast<const u32*>(own + u64(pixel) * CHANNELS);
        const u32* from_other = reinterpret_cast<const u32*>(other + u64(pixel) * CHANNELS);
        u32 mine[CHANNELS], others[CHANNELS];
        for (u32 word = 0; word < CHANNELS; ++word) {
            mine[word] = load(from_own + word);
            others[word] = batch.mix == NONE ? 0 : load(from_other + word);
        }
        if (batch.mix == PASTE) paste(pixel, 0, mine, others);
        for (u32 channel = 0; channel < CHANNELS; ++channel) {
            Element plane[4];
            if (batch.mix == BLEND)
                for (u32 k = 0; k < 4; ++k) {
                    const u32 at = k * CHANNELS + channel;
                    plane[k] = values.blend(batch, channel, byte_of(mine, at), byte_of(others, at));
                }
            else
                for (u32 k = 0; k < 4; ++k) plane[k] = values.one(channel, byte_of(mine, k * CHANNELS + channel));
            write(u64(channel) * batch.pixels + pixel, plane);
        }
    }

    // Words of four bytes, to four elements each: WORDS words at distances of `step`, of the image's `words`. All are
    // read before the first one is written, so that the memory has enough to do.
    __device__ __forceinline__ void some_words(u64 first, u64 step, u64 words) const {
        u32 mine[WORDS][1], others[WORDS][1];
        for (u32 k = 0; k < WORDS; ++k) {
            const u64 word = first + k * step;
            mine[k][0] = word < words ? load(reinterpret_cast<const u32*>(own) + word) : 0;
            others[k][0] = word < words && batch.mix != NONE ? load(reinterpret_cast<const u32*>(other) + word) : 0;
        }
#pragma unroll
        for (u32 k = 0; k < WORDS; ++k)
            if (first + k * step < words) four_bytes(u32(first + k * step) * 4, mine[k], others[k]);
    }

    __device__ __forceinline__ void four_bytes(u32 at, u32 (&mine)[1], const u32 (&others)[1]) const {
        const u32 pixel = at / CHANNELS;
        u32 channel = at - pixel * CHANNELS;
        if (batch.mix == PASTE) paste(pixel, channel, mine, others);
        Element elements[4];
        for (u32 k = 0; k < 4; ++k) {
            if (batch.mix == BLEND)
                elements[k] = values.blend(batch, channel, byte_of(mine, k), byte_of(others, k));
            else
                elements[k] = values.one(channel, byte_of(mine, k));
            channel = channel + 1 == CHANNELS ? 0 : channel + 1;
        }
        write(at, elements);
    }

    __device__ __forceinline__ void write(u64 at, const Element (&elements)[4]) const {
        store(reinterpret_cast<typename Four<Element>::Words*>(out + at), Four<Element>::words(elements));
    }
};

template <class T> __device__ __forceinline__ bool is_aligned(const T* address, u32 bytes) {
    return reinterpret_cast<u64>(address) % bytes == 0;
}

template <class Values>
__device__ __forceinline__ void finish(const Batch& batch, const Values& values, typename Values::Element* out,
                                       bool planar) {
    const u64 thread = u64(blockIdx.x) * blockDim.x + threadIdx.x, threads = u64(gridDim.x) * blockDim.x;
    const u64 first = u64(blockIdx.z) * gridDim.y + blockIdx.y, images = u64(gridDim.y) * gridDim.z;
    const u64 row = u64(batch.pixels) * CHANNELS;
    const bool in_fours = batch.pixels % 4 == 0 && is_aligned(batch.rows, 4) && is_aligned(out, 4 * sizeof(*out));
    for (u64 image = first; image < batch.count; image += images) {
        const u64 before = image == 0 ? batch.count - 1 : image - 1;
        const u8 *own = batch.rows + image * row, *other = batch.rows + before * row;
        const Image<Values> finished = {batch, values, own, other, out + image * row};
        if (!in_fours)
            for (u64 at = thread; at < batch.pixels; at += threads) finished.one_pixel(u32(at), planar);
        else if (planar)
            for (u64 at = thread; at < batch.pixels / 4; at += threads) finished.four_pixels(u32(at) * 4);
        else
            for (u64 at = thread; at < row / 4; at += WORDS * threads) finished.some_words(at, threads, row / 4);
    }
}

// Fills the block's table.
template <class Type>
__device__ __forceinline__ void fill(u32 (&shared)[CHANNELS * LEVELS], const typename Type::Element* table, u32 mix) {
    for (u32 at = threadIdx.x; at < CHANNELS * LEVELS; at += blockDim.x) {
        const typename Type::Element element = load(table + at);
        shared[at] = mix == BLEND ? Type::widen(element) : u32(element);
    }
    __syncthreads();
}

#define BATCH_PARAMETERS                                                                                              \
    u32 count, u32 pixels, u32 width, u32 planar, u32 mix, float weight, float rest, int weight15, u32 x0, u32 y0,    \
        u32 x1, u32 y1
#define BATCH {rows, count, pixels, width, mix, weight, rest, weight15, x0, y0, x1, y1}

extern "C" __global__ void __launch_bounds__(THREADS)
    finish_u8(const u8* __restrict__ rows, u8* __restrict__ out, const u8*, BATCH_PARAMETERS) {
    const Batch batch = BATCH;
    finish(batch, Bytes{}, out, planar);
}

#define FINISH_FLOATS(name, Type)                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
        name(const u8* __restrict__ rows, Type::Element* __restrict__ out, const Type::Element* __restrict__ table,   \
             BATCH_PARAMETERS) {                                                                                      \
        __shared__ u32 values[CHANNELS * LEVELS];                                                                     \
        fill<Type>(values, table, mix);                                                                               \
        const Batch batch = BATCH;                                                                                    \
        finish(batch, Floats<Type>{values}, out, planar);                                                             \
    }

FINISH_FLOATS(finish_f16, F16)
FINISH_FLOATS(finish_bf16, Bf16)
FINISH_FLOATS(finish_f32, F32)
