"""What bench/profile says: functions by the stage they belong to, and the operating system's counters."""

# Stage: what the names of its functions begin with, or have in them. The first stage that matches has it.
STAGES = {
    "entropy codes": ("jpeg::baseline::scan", "jpeg::baseline::bits", "jpeg::baseline::huffman", "jpeg::baseline::rice",
                      "jpeg::baseline::checkpoints", "decode_mcu", "jpeg_fill_bit_buffer", "jpeg_make_d_derived_tbl",
                      "consume_data"),
    "inverse transform": ("jpeg::baseline::idct", "jpeg::baseline::block", "jpeg_idct", "jsimd_idct", "decompress_"),
    "upsampling and colour": ("jpeg::", "jsimd_", "_upsample", "ycc_"),
    "resizing": ("ddlp_pixels::resize",),
    "cutting": ("ddlp_pixels::planar",),
    "normalising": ("ddlp_pixels::normalize",),
    "checksums": ("crc32c",),
    "reading": ("copy_to_iter", "filemap_", "pread", "xas_load", "folio_mark_accessed", "ext4_", "shmem_", "copyout"),
    "fresh memory": ("clear_page", "page_fault", "handle_mm_fault", "do_anonymous_page", "get_page_from_freelist", "munmap",
                     "zap_", "free_unref", "charge"),
}
OTHER = "the rest"
# What perf counts.
COUNTERS = {
    "page-faults": "page faults",
    "context-switches": "context switches",
    "cpu-migrations": "migrations",
    "syscalls:sys_enter_futex": "futex calls",
    "syscalls:sys_enter_pread64": "reads",
}


def stage_of(symbol):
    """The stage of a function."""
    for stage, parts in STAGES.items():
        if any(part in symbol for part in parts):
            return stage
    return OTHER


def shares(report):
    """Each stage's share of the time, of perf's lines `period|[.] symbol|…`; largest first, the rest last."""
    periods = {}
    for line in report.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if line.startswith("#") or len(fields) < 2 or not fields[0].isdigit():
            continue
        stage = stage_of(fields[1])
        periods[stage] = periods.get(stage, 0) + int(fields[0])
    total = sum(periods.values())
    found = {stage: period / total for stage, period in periods.items()}
    return dict(sorted(found.items(), key=lambda pair: (pair[0] == OTHER, -pair[1])))


def table(found, cpu_us):
    """Lines: stage, share, and microseconds of the CPU time that an image took."""
    lines = [f"{'stage':<22}  share  µs/image"]
    lines += [f"{stage:<22}  {share:>5.1%}  {share * cpu_us:>8.1f}" for stage, share in found.items()]
    return [*lines, f"{'all':<22}         {cpu_us:>8.1f}"]


def counters(text):
    """Counts by event, of perf stat's lines `count|unit|event|…`; None where the machine has no such counter."""
    found = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) > 2 and not line.startswith("#"):
            found[fields[2].removesuffix(":u")] = int(fields[0]) if fields[0].isdigit() else None
    return found


def per_image(counts, images):
    """Lines: what `images` images more cost, from a short and a long run; start and end of the program fall out."""
    short, long = counts
    lines = ["for 1000 images"]
    for event, name in COUNTERS.items():
        known = short.get(event) is not None and long.get(event) is not None
        lines.append(f"  {name:<20}  {(long[event] - short[event]) * 1000 / images:>8.1f}" if known
                     else f"  {name:<20}  not visible")
    return lines
