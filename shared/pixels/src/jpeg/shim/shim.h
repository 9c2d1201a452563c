/*
 * The C side of the JPEG path: the parts of libjpeg-turbo's classic interface that a crop needs.
 *
 * Every function that can fail returns 0 or one of the DDLP_ codes; ddlp_message() then returns the message.
 * setjmp and longjmp stay within these files: an error of libjpeg ends the entry point and unwinds no Rust frame.
 */
#ifndef DDLP_SHIM_H
#define DDLP_SHIM_H

#include <limits.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>
#include <jerror.h>

/* The values of CorruptReason in error.rs. */
#define DDLP_TRUNCATED 3
#define DDLP_MALFORMED 4
#define DDLP_TOO_MANY_SCANS 6
#define DDLP_TOO_MUCH_MEMORY 7
#define DDLP_UNSUPPORTED 8

/* The scans that ddlp_rewrite() writes; mirrored by ffi::Script. */
#define DDLP_AS_SOURCE 0 /* progressive ones if the source is progressive */
#define DDLP_SEQUENTIAL 1
#define DDLP_PROGRESSIVE 2

/* The system refuses memory, which says nothing about the image. */
#define DDLP_NO_MEMORY 100

struct ddlp_jpeg {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    struct jpeg_source_mgr source;
    jmp_buf jump;
    int open;
    int ended; /* the source ran out before the decoder was done with it */
    int first_scan_only; /* read coefficients up to the end of the first scan only */
    int reason;
    uint32_t scans_max;
    uint32_t warnings;
    char message[JMSG_LENGTH_MAX];
    jvirt_barray_ptr *coefficients;
};

/* Mirrored by ffi::LibjpegHeader. */
struct ddlp_header {
    uint32_t width;
    uint32_t height;
    uint32_t components;
    uint32_t color_space;
    uint32_t precision;
    uint32_t progressive;
    uint32_t arithmetic;
    uint32_t multiple_scans;
    uint32_t restart_interval;
    uint32_t mcu_width;
    uint32_t mcu_height;
    uint32_t h_samp[4];
    uint32_t v_samp[4];
    uint32_t blocks_wide[4];
    uint32_t blocks_high[4];
    uint64_t coefficient_bytes;
};

/* Mirrored by ffi::EncodeParams. */
struct ddlp_encode_params {
    uint32_t width;
    uint32_t height;
    uint32_t components; /* of the input: 1 gray, 3 RGB, 4 CMYK as stored */
    uint32_t color_space; /* of the file: a J_COLOR_SPACE */
    uint32_t h_samp;
    uint32_t v_samp;
    uint32_t quality;
    uint32_t progressive;
    uint32_t optimize;
    uint32_t restart_rows;
    uint32_t restart_mcus;
    uint32_t arithmetic;
    const uint8_t *app1;
    uint32_t app1_len;
};

void ddlp_map_large_blocks(void);
struct ddlp_jpeg *ddlp_new(void);
void ddlp_free(struct ddlp_jpeg *jpeg);
void ddlp_close(struct ddlp_jpeg *jpeg);
const char *ddlp_message(const struct ddlp_jpeg *jpeg);
uint32_t ddlp_warnings(const struct ddlp_jpeg *jpeg);

int ddlp_open(struct ddlp_jpeg *jpeg, const uint8_t *data, size_t len, uint32_t scans_max, uint64_t memory_max,
              int keep_markers, struct ddlp_header *header);
int ddlp_start(struct ddlp_jpeg *jpeg, uint32_t *x, uint32_t *width, uint32_t skip_rows);
int ddlp_rows(struct ddlp_jpeg *jpeg, uint8_t *out, size_t stride, uint32_t rows);

int ddlp_coefficients(struct ddlp_jpeg *jpeg, int first_scan_only);
int ddlp_block_row(struct ddlp_jpeg *jpeg, uint32_t component, uint32_t row, int16_t **blocks, const uint16_t **quant);
int ddlp_rewrite(struct ddlp_jpeg *jpeg, int script, uint8_t **out, size_t *len);

int ddlp_encode(const struct ddlp_encode_params *params, const uint8_t *pixels, size_t stride, uint8_t **out,
                size_t *len, char *message);
void ddlp_release(uint8_t *buffer);

/* Used between the files of the shim. */
struct ddlp_sink {
    struct jpeg_destination_mgr base;
    uint8_t *buffer;
    size_t capacity;
    size_t len;
};
void ddlp_sink_attach(struct ddlp_sink *sink, j_compress_ptr cinfo);
int ddlp_reason_of(int msg_code);
int ddlp_check_end(struct ddlp_jpeg *jpeg);

#endif
