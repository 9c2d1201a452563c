/*
 * The memory that an encoder writes to. We do not use jpeg_mem_dest, because it sets the caller's pointer only at the
 * end: after an error, the caller could not tell whether its first buffer had been replaced.
 */

#include <stdlib.h>

#include "shim.h"

#define SINK_FIRST 65536

static void begin(j_compress_ptr cinfo)
{
    struct ddlp_sink *sink = (struct ddlp_sink *)cinfo->dest;
    sink->buffer = malloc(SINK_FIRST);
    if (!sink->buffer)
        ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 20);
    sink->capacity = SINK_FIRST;
    sink->base.next_output_byte = sink->buffer;
    sink->base.free_in_buffer = sink->capacity;
}

static boolean grow(j_compress_ptr cinfo)
{
    struct ddlp_sink *sink = (struct ddlp_sink *)cinfo->dest;
    uint8_t *larger = realloc(sink->buffer, sink->capacity * 2);
    if (!larger)
        ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 21);
    sink->buffer = larger;
    sink->base.next_output_byte = larger + sink->capacity;
    sink->base.free_in_buffer = sink->capacity;
    sink->capacity *= 2;
    return TRUE;
}

static void end(j_compress_ptr cinfo)
{
    struct ddlp_sink *sink = (struct ddlp_sink *)cinfo->dest;
    sink->len = sink->capacity - sink->base.free_in_buffer;
}

void ddlp_sink_attach(struct ddlp_sink *sink, j_compress_ptr cinfo)
{
    sink->base.init_destination = begin;
    sink->base.empty_output_buffer = grow;
    sink->base.term_destination = end;
    cinfo->dest = &sink->base;
}

void ddlp_release(uint8_t *buffer) { free(buffer); }
