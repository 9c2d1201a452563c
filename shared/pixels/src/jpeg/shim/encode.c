/* Encodes pixels, for demo data and tests. */

#include <stdlib.h>
#include <string.h>

#include "shim.h"

struct encoder {
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    jmp_buf jump;
    int reason;
    char *message;
    struct ddlp_sink sink;
};

static void on_error(j_common_ptr cinfo)
{
    struct encoder *encoder = cinfo->client_data;
    (*cinfo->err->format_message)(cinfo, encoder->message);
    encoder->reason = ddlp_reason_of(cinfo->err->msg_code);
    longjmp(encoder->jump, 1);
}

static void on_message(j_common_ptr cinfo, int level)
{
    (void)cinfo;
    (void)level;
}

static void configure(struct jpeg_compress_struct *cinfo, const struct ddlp_encode_params *params)
{
    static const J_COLOR_SPACE input[5] = { JCS_UNKNOWN, JCS_GRAYSCALE, JCS_UNKNOWN, JCS_RGB, JCS_CMYK };
    cinfo->image_width = params->width;
    cinfo->image_height = params->height;
    cinfo->input_components = (int)params->components;
    cinfo->in_color_space = input[params->components];
    jpeg_set_defaults(cinfo);
    jpeg_set_colorspace(cinfo, (J_COLOR_SPACE)params->color_space);
    jpeg_set_quality(cinfo, (int)params->quality, TRUE);
    for (int i = 0; i < cinfo->num_components; i++) {
        /* The second and third component are subsampled; the first and, in a file of inks, black are not. */
        int full = i == 0 || i == 3;
        cinfo->comp_info[i].h_samp_factor = full ? (int)params->h_samp : 1;
        cinfo->comp_info[i].v_samp_factor = full ? (int)params->v_samp : 1;
    }
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->optimize_coding = params->optimize != 0;
    cinfo->arith_code = params->arithmetic != 0;
    cinfo->restart_in_rows = (int)params->restart_rows;
    cinfo->restart_interval = params->restart_mcus;
    if (params->progressive)
        jpeg_simple_progression(cinfo);
}

int ddlp_encode(const struct ddlp_encode_params *params, const uint8_t *pixels, size_t stride, uint8_t **out,
                size_t *len, char *message)
{
    struct encoder *encoder = calloc(1, sizeof(*encoder));
    if (!encoder) {
        snprintf(message, JMSG_LENGTH_MAX, "out of memory");
        return DDLP_NO_MEMORY;
    }
    encoder->message = message;
    encoder->cinfo.err = jpeg_std_error(&encoder->errors);
    encoder->errors.error_exit = on_error;
    encoder->errors.emit_message = on_message;
    encoder->cinfo.client_data = encoder;
    if (setjmp(encoder->jump)) {
        int reason = encoder->reason;
        jpeg_destroy_compress(&encoder->cinfo);
        free(encoder->sink.buffer);
        free(encoder);
        return reason;
    }
    jpeg_create_compress(&encoder->cinfo);
    ddlp_sink_attach(&encoder->sink, &encoder->cinfo);
    configure(&encoder->cinfo, params);
    jpeg_start_compress(&encoder->cinfo, TRUE);
    if (params->app1_len > 0)
        jpeg_write_marker(&encoder->cinfo, JPEG_APP0 + 1, params->app1, params->app1_len);
    while (encoder->cinfo.next_scanline < encoder->cinfo.image_height) {
        JSAMPROW row = (JSAMPROW)(pixels + (size_t)encoder->cinfo.next_scanline * stride);
        jpeg_write_scanlines(&encoder->cinfo, &row, 1);
    }
    jpeg_finish_compress(&encoder->cinfo);
    jpeg_destroy_compress(&encoder->cinfo);
    *out = encoder->sink.buffer;
    *len = encoder->sink.len;
    free(encoder);
    return 0;
}
