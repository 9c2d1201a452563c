/* The quantised coefficients of a whole JPEG: reads them, changes them, and writes a file of them. */

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/*
 * Decodes every scan into coefficients. With first_scan_only, stops at the end of the scan of a file that has only one,
 * as decoding to pixels does, and reads nothing that follows.
 */
int ddlp_coefficients(struct ddlp_jpeg *jpeg, int first_scan_only)
{
    if (setjmp(jpeg->jump))
        return jpeg->reason;
    jpeg->first_scan_only = first_scan_only && !jpeg_has_multiple_scans(&jpeg->cinfo);
    jpeg->coefficients = jpeg_read_coefficients(&jpeg->cinfo);
    return ddlp_check_end(jpeg);
}

/* Returns one row of blocks of a component, writable, in natural order; *quant is NULL if no scan holds it. */
int ddlp_block_row(struct ddlp_jpeg *jpeg, uint32_t component, uint32_t row, int16_t **blocks, const uint16_t **quant)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    if (setjmp(jpeg->jump))
        return jpeg->reason;
    jpeg_component_info *part = &cinfo->comp_info[component];
    JBLOCKARRAY rows =
        (*cinfo->mem->access_virt_barray)((j_common_ptr)cinfo, jpeg->coefficients[component], row, 1, TRUE);
    *blocks = &rows[0][0][0];
    *quant = part->quant_table ? part->quant_table->quantval : NULL;
    return 0;
}

struct writer {
    struct jpeg_compress_struct cinfo;
    jpeg_scan_info scans[MAX_COMPS_IN_SCAN];
    struct jpeg_error_mgr errors;
    jmp_buf jump;
    char *message;
    struct ddlp_sink sink;
};

static void on_error(j_common_ptr cinfo)
{
    struct writer *writer = cinfo->client_data;
    (*cinfo->err->format_message)(cinfo, writer->message);
    longjmp(writer->jump, 1);
}

static void on_message(j_common_ptr cinfo, int level)
{
    (void)cinfo;
    (void)level;
}

/*
 * The encoder itself writes the JFIF and Adobe markers that define colours. For four components it writes no JFIF
 * marker: there it has no meaning, and one with an unknown version would cause the same warning again.
 */
static int written_by_encoder(const struct jpeg_compress_struct *cinfo, jpeg_saved_marker_ptr marker)
{
    if (marker->marker == JPEG_APP0 && marker->data_length >= 5 && memcmp(marker->data, "JFIF", 5) == 0)
        return 1;
    return cinfo->write_Adobe_marker && marker->marker == JPEG_APP0 + 14 && marker->data_length >= 5 &&
           memcmp(marker->data, "Adobe", 5) == 0;
}

/*
 * Gives each component its own slot for its quantisation table, if a table is missing or has changed since the
 * component's scan began. Otherwise the encoder refuses the file.
 */
static void settle_tables(struct jpeg_decompress_struct *cinfo)
{
    int settled = 1;
    for (int i = 0; i < cinfo->num_components; i++) {
        const jpeg_component_info *part = &cinfo->comp_info[i];
        int at = part->quant_tbl_no;
        const JQUANT_TBL *there = at >= 0 && at < NUM_QUANT_TBLS ? cinfo->quant_tbl_ptrs[at] : NULL;
        if (!there || (part->quant_table &&
                       memcmp(there->quantval, part->quant_table->quantval, sizeof(there->quantval)) != 0))
            settled = 0;
    }
    if (settled)
        return;
    for (int i = 0; i < cinfo->num_components && i < NUM_QUANT_TBLS; i++) {
        jpeg_component_info *part = &cinfo->comp_info[i];
        JQUANT_TBL *table = jpeg_alloc_quant_table((j_common_ptr)cinfo);
        /* All coefficients of a component without a scan are 0. */
        for (int k = 0; k < DCTSIZE2; k++)
            table->quantval[k] = part->quant_table ? part->quant_table->quantval[k] : 1;
        cinfo->quant_tbl_ptrs[i] = table;
        part->quant_tbl_no = i;
    }
}

/* Returns whether the components fit into one scan. A file with a scan for each component may have more blocks. */
static int fits_one_scan(const struct jpeg_decompress_struct *cinfo)
{
    int blocks = 0;
    for (int i = 0; i < cinfo->num_components; i++)
        blocks += cinfo->comp_info[i].h_samp_factor * cinfo->comp_info[i].v_samp_factor;
    return cinfo->num_components == 1 || blocks <= C_MAX_BLOCKS_IN_MCU;
}

static void write_a_scan_for_each_component(struct writer *writer)
{
    int count = writer->cinfo.num_components;
    for (int i = 0; i < count && i < MAX_COMPS_IN_SCAN; i++)
        writer->scans[i] = (jpeg_scan_info){ .comps_in_scan = 1, .component_index = { i }, .Se = DCTSIZE2 - 1 };
    writer->cinfo.scan_info = writer->scans;
    writer->cinfo.num_scans = count;
}

static int give_up(struct writer *writer)
{
    jpeg_destroy_compress(&writer->cinfo);
    free(writer->sink.buffer);
    free(writer);
    return DDLP_MALFORMED;
}

/* Does not keep the source's scan script: the same coefficients are promised, not the same bytes. */
int ddlp_rewrite(struct ddlp_jpeg *jpeg, int script, uint8_t **out, size_t *len)
{
    int progressive = script == DDLP_PROGRESSIVE || (script == DDLP_AS_SOURCE && jpeg->cinfo.progressive_mode);
    struct writer *writer = calloc(1, sizeof(*writer));
    if (!writer) {
        snprintf(jpeg->message, sizeof(jpeg->message), "out of memory");
        return DDLP_NO_MEMORY;
    }
    writer->message = jpeg->message;
    writer->cinfo.err = jpeg_std_error(&writer->errors);
    writer->errors.error_exit = on_error;
    writer->errors.emit_message = on_message;
    writer->cinfo.client_data = writer;
    if (setjmp(writer->jump))
        return give_up(writer);
    /* Errors of reading the source's blocks are reported to the source's object. */
    if (setjmp(jpeg->jump))
        return give_up(writer);
    jpeg_create_compress(&writer->cinfo);
    ddlp_sink_attach(&writer->sink, &writer->cinfo);
    settle_tables(&jpeg->cinfo);
    jpeg_copy_critical_parameters(&jpeg->cinfo, &writer->cinfo);
    writer->cinfo.optimize_coding = TRUE;
    /* Restart intervals belong to the source's scans: only a sequential file of a sequential source has such scans. */
    if (!fits_one_scan(&jpeg->cinfo))
        write_a_scan_for_each_component(writer);
    else if (progressive)
        jpeg_simple_progression(&writer->cinfo);
    else if (!jpeg->cinfo.progressive_mode)
        writer->cinfo.restart_interval = jpeg->cinfo.restart_interval;
    jpeg_write_coefficients(&writer->cinfo, jpeg->coefficients);
    for (jpeg_saved_marker_ptr marker = jpeg->cinfo.marker_list; marker; marker = marker->next)
        if (!written_by_encoder(&writer->cinfo, marker))
            jpeg_write_marker(&writer->cinfo, marker->marker, marker->data, marker->data_length);
    jpeg_finish_compress(&writer->cinfo);
    jpeg_destroy_compress(&writer->cinfo);
    *out = writer->sink.buffer;
    *len = writer->sink.len;
    free(writer);
    return 0;
}
