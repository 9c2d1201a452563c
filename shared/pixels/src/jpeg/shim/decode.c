/* Opens a JPEG, and decodes a rectangle of it row by row. */

#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "shim.h"

#define ROWS_AT_ONCE 16

#if LIBJPEG_TURBO_VERSION_NUMBER < 3001000
#error "libjpeg-turbo 3.1 or newer is needed"
#endif
#if BITS_IN_JSAMPLE != 8 || JPEG_LIB_VERSION != 62
#error "the 8-bit interface with the structures of libjpeg 6b is needed"
#endif

/* Without a fixed threshold, glibc takes ever larger blocks from an arena per thread, and keeps them once freed. */
void ddlp_map_large_blocks(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

int ddlp_reason_of(int msg_code)
{
    switch (msg_code) {
    case JERR_INPUT_EOF:
    case JERR_INPUT_EMPTY:
        return DDLP_TRUNCATED;
    case JERR_OUT_OF_MEMORY:
        return DDLP_NO_MEMORY;
    case JERR_NO_BACKING_STORE:
    case JERR_WIDTH_OVERFLOW:
        return DDLP_TOO_MUCH_MEMORY;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_J_COLORSPACE:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_IMAGE_TOO_BIG:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
        return DDLP_UNSUPPORTED;
    default:
        return DDLP_MALFORMED;
    }
}

static void fail(struct ddlp_jpeg *jpeg, int reason)
{
    (*jpeg->errors.format_message)((j_common_ptr)&jpeg->cinfo, jpeg->message);
    jpeg->reason = reason;
    longjmp(jpeg->jump, 1);
}

/* Any error after the source has run out counts as a truncated file. */
static void on_error(j_common_ptr cinfo)
{
    struct ddlp_jpeg *jpeg = cinfo->client_data;
    fail(jpeg, jpeg->ended ? DDLP_TRUNCATED : ddlp_reason_of(cinfo->err->msg_code));
}

/* If the entropy decoder wants bits behind the last byte, image data is missing, not only the end marker. */
static void on_message(j_common_ptr cinfo, int level)
{
    struct ddlp_jpeg *jpeg = cinfo->client_data;
    if (level >= 0)
        return;
    if (jpeg->ended && cinfo->err->msg_code == JWRN_HIT_MARKER)
        fail(jpeg, DDLP_TRUNCATED);
    if (jpeg->warnings < UINT32_MAX)
        jpeg->warnings++;
}

static void on_output(j_common_ptr cinfo) { (void)cinfo; }

static void on_progress(j_common_ptr cinfo)
{
    struct ddlp_jpeg *jpeg = cinfo->client_data;
    if (jpeg->first_scan_only && jpeg->cinfo.input_iMCU_row >= jpeg->cinfo.total_iMCU_rows)
        jpeg->cinfo.unread_marker = JPEG_EOI;
    if ((uint32_t)jpeg->cinfo.input_scan_number > jpeg->scans_max) {
        snprintf(jpeg->message, sizeof(jpeg->message), "more than %u scans", jpeg->scans_max);
        jpeg->reason = DDLP_TOO_MANY_SCANS;
        longjmp(jpeg->jump, 1);
    }
}

static void source_begin(j_decompress_ptr cinfo) { (void)cinfo; }
static void source_end(j_decompress_ptr cinfo) { (void)cinfo; }

/* As libjpeg's own memory source does, appends an end marker, so that a file that lacks only its end marker decodes. */
static boolean source_fill(j_decompress_ptr cinfo)
{
    static const JOCTET end[2] = { 0xFF, JPEG_EOI };
    struct ddlp_jpeg *jpeg = cinfo->client_data;
    if (!jpeg->ended) {
        jpeg->ended = 1;
        WARNMS(cinfo, JWRN_JPEG_EOF);
    }
    cinfo->src->next_input_byte = end;
    cinfo->src->bytes_in_buffer = 2;
    return TRUE;
}

static void source_skip(j_decompress_ptr cinfo, long count)
{
    if (count <= 0)
        return;
    if ((unsigned long)count > cinfo->src->bytes_in_buffer) {
        source_fill(cinfo);
        return;
    }
    cinfo->src->next_input_byte += count;
    cinfo->src->bytes_in_buffer -= (size_t)count;
}

struct ddlp_jpeg *ddlp_new(void) { return calloc(1, sizeof(struct ddlp_jpeg)); }

void ddlp_close(struct ddlp_jpeg *jpeg)
{
    if (jpeg->open)
        jpeg_destroy_decompress(&jpeg->cinfo);
    jpeg->open = 0;
    jpeg->coefficients = NULL;
}

void ddlp_free(struct ddlp_jpeg *jpeg)
{
    ddlp_close(jpeg);
    free(jpeg);
}

const char *ddlp_message(const struct ddlp_jpeg *jpeg) { return jpeg->message; }
uint32_t ddlp_warnings(const struct ddlp_jpeg *jpeg) { return jpeg->warnings; }

static void describe(const struct jpeg_decompress_struct *cinfo, struct ddlp_header *header)
{
    memset(header, 0, sizeof(*header));
    header->width = cinfo->image_width;
    header->height = cinfo->image_height;
    header->components = (uint32_t)cinfo->num_components;
    header->color_space = (uint32_t)cinfo->jpeg_color_space;
    header->precision = (uint32_t)cinfo->data_precision;
    header->progressive = cinfo->progressive_mode != 0;
    header->arithmetic = cinfo->arith_code != 0;
    header->multiple_scans = jpeg_has_multiple_scans((j_decompress_ptr)cinfo) != 0;
    header->restart_interval = cinfo->restart_interval;
    header->mcu_width = (uint32_t)cinfo->max_h_samp_factor * DCTSIZE;
    header->mcu_height = (uint32_t)cinfo->max_v_samp_factor * DCTSIZE;
    for (int i = 0; i < cinfo->num_components; i++) {
        const jpeg_component_info *part = &cinfo->comp_info[i];
        header->coefficient_bytes += (uint64_t)part->width_in_blocks * part->height_in_blocks * sizeof(JBLOCK);
        if (i < 4) {
            header->h_samp[i] = (uint32_t)part->h_samp_factor;
            header->v_samp[i] = (uint32_t)part->v_samp_factor;
            header->blocks_wide[i] = part->width_in_blocks;
            header->blocks_high[i] = part->height_in_blocks;
        }
    }
}

/*
 * A libjpeg object keeps the tables of the file before it and would decode an abbreviated stream with them: the pixels
 * of a sample would depend on the sample before it. So each file gets a new object.
 */
int ddlp_open(struct ddlp_jpeg *jpeg, const uint8_t *data, size_t len, uint32_t scans_max, uint64_t memory_max,
              int keep_markers, struct ddlp_header *header)
{
    ddlp_close(jpeg);
    jpeg->ended = 0;
    jpeg->first_scan_only = 0;
    jpeg->reason = 0;
    jpeg->warnings = 0;
    jpeg->scans_max = scans_max;
    jpeg->message[0] = 0;
    memset(&jpeg->cinfo, 0, sizeof(jpeg->cinfo));
    jpeg->cinfo.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->errors.output_message = on_output;
    jpeg->cinfo.client_data = jpeg;
    if (setjmp(jpeg->jump)) {
        ddlp_close(jpeg);
        return jpeg->reason;
    }
    jpeg->open = 1;
    jpeg_create_decompress(&jpeg->cinfo);
    jpeg->progress.progress_monitor = on_progress;
    jpeg->cinfo.progress = &jpeg->progress;
    jpeg->cinfo.mem->max_memory_to_use = memory_max > LONG_MAX ? LONG_MAX : (long)memory_max;
    jpeg->source.init_source = source_begin;
    jpeg->source.fill_input_buffer = source_fill;
    jpeg->source.skip_input_data = source_skip;
    jpeg->source.resync_to_restart = jpeg_resync_to_restart;
    jpeg->source.term_source = source_end;
    jpeg->source.next_input_byte = data;
    jpeg->source.bytes_in_buffer = len;
    jpeg->cinfo.src = &jpeg->source;
    if (keep_markers) {
        jpeg_save_markers(&jpeg->cinfo, JPEG_COM, 0xFFFF);
        for (int app = 0; app < 16; app++)
            jpeg_save_markers(&jpeg->cinfo, JPEG_APP0 + app, 0xFFFF);
    }
    jpeg_read_header(&jpeg->cinfo, TRUE);
    describe(&jpeg->cinfo, header);
    return 0;
}

/*
 * Checks that the image is complete. In files of several scans and in arithmetic coding libjpeg does not warn about
 * missing bits: there an end marker has to follow.
 */
int ddlp_check_end(struct ddlp_jpeg *jpeg)
{
    if (!jpeg->ended || !(jpeg->cinfo.arith_code || jpeg_has_multiple_scans(&jpeg->cinfo)))
        return 0;
    snprintf(jpeg->message, sizeof(jpeg->message), "no end marker follows its last scan");
    return DDLP_TRUNCATED;
}

/*
 * Starts decoding columns [*x, *x + *width) at row skip_rows. Sets *x and *width to the wider range that libjpeg can
 * cut out. The output is RGB, or the stored colours if the file has four components.
 */
int ddlp_start(struct ddlp_jpeg *jpeg, uint32_t *x, uint32_t *width, uint32_t skip_rows)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    if (setjmp(jpeg->jump))
        return jpeg->reason;
    cinfo->out_color_space = cinfo->num_components == 4 ? JCS_CMYK : JCS_RGB;
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->do_fancy_upsampling = TRUE;
    /* Smoothing guesses the coefficients that an incomplete progressive file lacks, from blocks up to two away. */
    cinfo->do_block_smoothing = FALSE;
    jpeg_start_decompress(cinfo);
    if (ddlp_check_end(jpeg))
        return DDLP_TRUNCATED;
    if (*x > 0 || *width < cinfo->output_width) {
        JDIMENSION left = *x, across = *width;
        jpeg_crop_scanline(cinfo, &left, &across);
        *x = left;
        *width = across;
    }
    if (skip_rows > 0 && jpeg_skip_scanlines(cinfo, skip_rows) != skip_rows)
        return DDLP_MALFORMED;
    return 0;
}

int ddlp_rows(struct ddlp_jpeg *jpeg, uint8_t *out, size_t stride, uint32_t rows)
{
    JSAMPROW lines[ROWS_AT_ONCE];
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    if (setjmp(jpeg->jump))
        return jpeg->reason;
    for (uint32_t done = 0; done < rows;) {
        uint32_t wanted = rows - done < ROWS_AT_ONCE ? rows - done : ROWS_AT_ONCE;
        for (uint32_t i = 0; i < wanted; i++)
            lines[i] = out + (size_t)(done + i) * stride;
        uint32_t got = jpeg_read_scanlines(cinfo, lines, wanted);
        if (got == 0)
            return DDLP_MALFORMED;
        done += got;
    }
    return ddlp_check_end(jpeg);
}
