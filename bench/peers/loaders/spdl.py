"""SPDL: FFmpeg decodes, crops and resizes; NumPy normalises; in threads."""
import importlib.metadata

import spdl.io
from work import IMAGENET, SIZE, bytes_of, crop_box, flips, normalise, resized


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    files = work.files()

    def load(sample, row):
        packets = spdl.io.demux_image(bytes_of(files[sample]))
        if work.is_train:
            left, top, width, height = crop_box(packets.width, packets.height)
            # `exact` cuts planes of fewer samples at the pixel too.
            steps = [f"crop={width}:{height}:{left}:{top}:exact=1", f"scale={SIZE}:{SIZE}:flags=bilinear"]
            steps += ["hflip"] if flips() else []
        else:
            width, height = resized(packets.width, packets.height)
            steps = [f"scale={width}:{height}:flags=bilinear", f"crop={SIZE}:{SIZE}:exact=1"]
        filters = ",".join([*steps, "format=pix_fmts=rgb24"])
        frames = spdl.io.decode_packets(packets, filter_desc=filters)
        normalise(spdl.io.to_numpy(spdl.io.convert_frames(frames)), row, IMAGENET)

    return (lambda: work.epoch(len(files), load),
            f"SPDL {importlib.metadata.version('spdl_io')}: FFmpeg decodes whole images, libswscale bilinear")
