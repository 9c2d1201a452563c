"""Tables of bench/profile: time by stage, and the operating system's counters."""

# For each stage, the beginnings or parts of its functions' names. A function belongs to the first stage that matches.
STAGES = {
    "entropy codes": ("jpeg::baseline::scan", "jpeg::baseline::bits", "jpeg::baseline::huffman", "jpeg::baseline::rice",
                      "jpeg::baseline::checkpoints", "jpeg::baseline::block", "decode_mcu", "jpeg_fill_bit_buffer",
                      "jpeg_make_d_derived_tbl", "consume_data"),
    "inverse transform": ("jpeg::baseline::idct", "jpeg_idct", "jsimd_idct", "decompress_"),
    "upsampling and colour": ("jpeg::", "jsimd_", "_upsample", "ycc_"),
    "resizing": ("ddlp_pixels::resize",),
    "cutting": ("ddlp_pixels::planar",),
    "normalising": ("ddlp_pixels::normalize",),
    "checksums": ("crc_fast", "crc32c"),
    "reading": ("copy_to_iter", "filemap_", "pread", "xas_load", "folio_mark_accessed", "ext4_", "shmem_", "copyout"),
    "fresh memory": ("clear_page", "page_fault", "handle_mm_fault", "do_anonymous_page", "get_page_from_freelist",
                     "munmap", "zap_", "free_unref", "charge"),
}
OTHER = "the rest"
# Name of the share that perf does not show to a user.
HIDDEN = "system, not visible"
# Events that perf counts, and their names.
COUNTERS = {
    "page-faults": "page faults",
    "context-switches": "context switches",
    "cpu-migrations": "migrations",
    "syscalls:sys_enter_futex": "futex calls",
    "syscalls:sys_enter_pread64": "reads",
}
# Events inside the kernel, whose count is always zero for a user.
IN_KERNEL = ("context-switches", "cpu-migrations")


def stage_of(symbol):
    """Returns the stage of a function."""
    for stage, parts in STAGES.items():
        if any(part in symbol for part in parts):
            return stage
    return OTHER


def shares(report, user_part):
    """Returns each stage's share of the time, from perf's lines `period|[.] symbol|…`: largest first, the rest last. If
    the report's head says that perf saw only user time, system time is a stage of its own."""
    periods, is_whole = {}, True
    for line in report.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if line.startswith("#"):
            is_whole = is_whole and "of event 'cpu-clock:u'" not in line
        elif len(fields) > 1 and fields[0].isdigit():
            stage = stage_of(fields[1])
            periods[stage] = periods.get(stage, 0) + int(fields[0])
    seen = 1 if is_whole else user_part
    total = sum(periods.values())
    found = {stage: period / total * seen for stage, period in periods.items()}
    if not is_whole:
        found[HIDDEN] = 1 - seen
    return dict(sorted(found.items(), key=lambda pair: (pair[0] in (OTHER, HIDDEN), -pair[1])))


def table(found, cpu_us):
    """Returns lines with stage, share, and microseconds of CPU time per image, and what they refer to."""
    # An image of CIFAR takes a microsecond or two.
    digits = 1 if cpu_us >= 100 else 3
    lines = [f"{'stage':<22}  share  µs/image"]
    lines += [f"{stage:<22}  {share:>5.1%}  {share * cpu_us:>8.{digits}f}" for stage, share in found.items()]
    lines += [f"{'all':<22}         {cpu_us:>8.{digits}f}",
              "“all”: CPU time of the timed epochs. Shares: of the whole run, with opening and the untimed epoch."]
    if HIDDEN in found:
        lines.append("perf shows system time (reading, fresh memory) only to root; here its share comes from the run's "
                     "times, which include perf.")
    return lines


def counters(text):
    """Returns counts by event, from perf stat's lines `count|unit|event|…`. A count is None if the machine lacks the
    counter or shows it only to root."""
    found = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) > 2 and not line.startswith("#"):
            event = fields[2].removesuffix(":u")
            is_seen = fields[0].isdigit() and not (event in IN_KERNEL and event != fields[2])
            found[event] = int(fields[0]) if is_seen else None
    return found


def per_image(counts, images):
    """Returns lines with the cost of `images` more images: the difference of a long and a short run, without start and
    end."""
    short, long = counts
    lines, hidden = ["for 1000 images"], []
    for event, name in COUNTERS.items():
        if short.get(event) is None or long.get(event) is None:
            hidden.append(name)
            continue
        more = long[event] - short[event]
        # Counts that have nothing to do with images can be smaller in the longer run.
        lines.append(f"  {name:<20}  {more * 1000 / images:>8.1f}" if more >= 0 else f"  {name:<20}  below noise")
    if hidden:
        lines.append(f"not visible: {', '.join(hidden)} (perf shows them only to root, on machines that count them)")
    return lines
