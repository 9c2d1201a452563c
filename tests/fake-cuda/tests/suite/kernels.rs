//! The finishing kernels against the host's functions, bit by bit.

use ddlp_pixels::{DType, ImageLayout, Normalize, Normalizer, Shape, blend};
use half::{bf16, f16};
use zerocopy::{FromBytes, IntoBytes};

use crate::driver::{Cuda, Either, Gpu, PTX, SUCCESS};

const TYPES: [(&str, DType); 4] =
    [("finish_u8", DType::U8), ("finish_f16", DType::F16), ("finish_bf16", DType::Bf16), ("finish_f32", DType::F32)];

/// What is done to the rows of a batch.
#[derive(Clone, Copy, Debug)]
enum Mix {
    None,
    Blend(f64),
    /// A window: left, top, right and bottom.
    Paste([u32; 4]),
}

/// A batch to be finished.
#[derive(Clone, Copy, Debug)]
struct Case {
    shape: Shape,
    count: usize,
    planar: bool,
    mix: Mix,
}

/// Computes a batch on the host: elements of each row, then the mix of the rows.
fn on_the_host(dtype: DType, case: Case, normalize: &Normalize, rows: &[u8]) -> Vec<u8> {
    let Case { shape, count, planar, mix } = case;
    let layout = if planar { ImageLayout::Nchw } else { ImageLayout::Nhwc };
    let row_bytes = shape.bytes() * dtype.bytes();
    let normalizer = dtype.is_float().then(|| Normalizer::new(normalize, dtype, layout));
    // Words are aligned for all types.
    let aligned = |bytes: usize| vec![0u64; bytes.div_ceil(8)];
    let finished: Vec<Vec<u64>> = rows
        .chunks(shape.bytes())
        .map(|row| {
            let mut out = aligned(row_bytes);
            let bytes = &mut out.as_mut_bytes()[..row_bytes];
            if let Some(normalizer) = &normalizer {
                normalizer.write(row, shape, bytes);
            } else if planar {
                planes(row, bytes);
            } else {
                bytes.copy_from_slice(row);
            }
            out
        })
        .collect();
    let mut all = Vec::new();
    for (at, own) in finished.iter().enumerate() {
        let other = &finished[at.checked_sub(1).unwrap_or(count - 1)];
        let mut row = own.clone();
        let (row, other) = (&mut row.as_mut_bytes()[..row_bytes], &other.as_bytes()[..row_bytes]);
        match mix {
            Mix::None => {}
            Mix::Blend(weight) => blend(dtype, weight, row, other),
            Mix::Paste(window) => paste(shape, planar, dtype.bytes(), window, row, other),
        }
        all.extend_from_slice(row);
    }
    all
}

fn planes(row: &[u8], out: &mut [u8]) {
    let pixels = row.len() / 3;
    for (at, &byte) in row.iter().enumerate() {
        out[at % 3 * pixels + at / 3] = byte;
    }
}

fn paste(shape: Shape, planar: bool, bytes: usize, [x0, y0, x1, y1]: [u32; 4], row: &mut [u8], other: &[u8]) {
    let pixels = (shape.width * shape.height) as usize;
    for (y, x) in (y0..y1).flat_map(|y| (x0..x1).map(move |x| (y, x))) {
        let pixel = (y * shape.width + x) as usize;
        for channel in 0..3 {
            let element = if planar { channel * pixels + pixel } else { pixel * 3 + channel };
            let extent = element * bytes..(element + 1) * bytes;
            row[extent.clone()].copy_from_slice(&other[extent]);
        }
    }
}

/// Returns the table of a type: its value of each byte of each channel.
fn table(dtype: DType, normalize: &Normalize) -> Vec<u8> {
    let pixels: Vec<u8> = (0..=255).flat_map(|value| [value; 3]).collect();
    let mut out = vec![0u64; 768 * dtype.bytes() / 8];
    let shape = Shape { height: 1, width: 256, channels: 3 };
    Normalizer::new(normalize, dtype, ImageLayout::Nchw).write(&pixels, shape, out.as_mut_bytes());
    out.as_bytes().to_vec()
}

fn bits(value: f32) -> u64 {
    value.to_bits().into()
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
struct Way {
    grid: [u32; 3],
    threads: u32,
    /// Elements by which rows and output lie away from addresses that the driver gave.
    shifts: [usize; 2],
}

/// Finishes a batch on the device.
fn on_the_device(gpu: &Cuda, function: u64, dtype: DType, case: Case, rows: &[u8], table: u64, way: Way) -> Vec<u8> {
    let Case { shape, count, planar, mix } = case;
    let bytes = rows.len() * dtype.bytes();
    let [shift, out_shift] = [way.shifts[0], way.shifts[1] * dtype.bytes()];
    let (from, to) = (gpu.allocate(rows.len() + shift), gpu.allocate(bytes + out_shift));
    let (rows_at, out_at) = (from + shift as u64, to + out_shift as u64);
    gpu.write(rows_at, rows);
    let (kind, weight, window) = match mix {
        Mix::None => (0, 1.0, [0; 4]),
        Mix::Blend(weight) => (1, weight, [0; 4]),
        Mix::Paste(window) => (2, 1.0, window),
    };
    let pixels = shape.width * shape.height;
    let mut arguments =
        vec![rows_at, out_at, table, count as u64, pixels.into(), shape.width.into(), planar.into(), kind];
    arguments.extend([bits(weight as f32), bits((1.0 - weight) as f32), (weight * 32_768.0).round() as u64]);
    arguments.extend(window.map(u64::from));
    assert_eq!(gpu.launch(function, way.grid, way.threads, &arguments, 0), SUCCESS);
    let found = gpu.read(out_at, bytes);
    assert_eq!((gpu.free(from), gpu.free(to)), (SUCCESS, SUCCESS));
    found
}

/// Compares all types and both orders of some sizes, counts and mixes.
fn check(
    gpu: &Either,
    normalize: Normalize,
    shapes: &[(u32, u32)],
    counts: &[usize],
    mixes: impl Fn(u32, u32) -> Vec<Mix>,
    ways: impl Fn(u32, u32) -> Vec<Way>,
) {
    let mut number = 1u32;
    for (name, dtype) in TYPES {
        let function = gpu.function(PTX, name);
        let table = if dtype.is_float() {
            let table = table(dtype, &normalize);
            let address = gpu.allocate(table.len());
            gpu.write(address, &table);
            address
        } else {
            0
        };
        for (&(height, width), &count) in shapes.iter().flat_map(|shape| counts.iter().map(move |count| (shape, count)))
        {
            let shape = Shape { height, width, channels: 3 };
            let mut byte = || {
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (number >> 24) as u8
            };
            let rows: Vec<u8> = (0..shape.bytes() * count).map(|_| byte()).collect();
            for (mix, planar) in mixes(height, width).into_iter().flat_map(|mix| [(mix, false), (mix, true)]) {
                let case = Case { shape, count, planar, mix };
                let expected = on_the_host(dtype, case, &normalize, &rows);
                for way in ways(height * width, count as u32) {
                    let found = on_the_device(gpu, function, dtype, case, &rows, table, way);
                    assert!(found == expected, "{name}, {case:?}, {way:?}");
                }
            }
        }
    }
    gpu.assert_no_mistake();
}

/// The grid that the product uses.
fn usual(pixels: u32, count: u32) -> Way {
    Way { grid: [pixels.div_ceil(4 * 4 * 256), count, 1], threads: 256, shifts: [0, 0] }
}

const WEIGHTS: [f64; 8] = [0.0, 1.0 / 32_768.0, 0.25, 0.3, 0.5, 20_001.0 / 32_768.0, 32_767.0 / 32_768.0, 1.0];

#[test]
fn every_mix_of_odd_sizes_equals_the_hosts() {
    let mixes = |height, width| {
        let mut mixes: Vec<Mix> = WEIGHTS.into_iter().map(Mix::Blend).collect();
        let (x, y) = (width / 2, height / 2);
        let windows = [[0, 0, 0, 0], [0, 0, width, height], [x, y, width, height], [0, y, x + 1, y + 1], [x, 0, x, y]];
        mixes.extend(windows.map(Mix::Paste));
        mixes.push(Mix::None);
        mixes
    };
    let sizes = [(1, 1), (3, 5), (7, 13), (8, 6), (5, 12)];
    check(&Either::new(1), Normalize::IMAGENET, &sizes, &[1, 2, 5], mixes, |pixels, count| vec![usual(pixels, count)]);
}

#[test]
fn any_grid_and_any_alignment_gives_the_same() {
    let mixes = |_, _| vec![Mix::None, Mix::Blend(0.3), Mix::Paste([1, 1, 4, 3])];
    let ways = |pixels, count| {
        let shifts = [[0, 0], [1, 0], [0, 1], [2, 2], [4, 4]];
        let mut ways: Vec<Way> = shifts.map(|shifts| Way { shifts, ..usual(pixels, count) }).to_vec();
        let grids = [([1, 1, 1], 256), ([3, 2, 2], 32), ([1, 3, 4], 1), ([2, 1, 3], 255)];
        ways.extend(grids.map(|(grid, threads)| Way { grid, threads, shifts: [0, 0] }));
        ways
    };
    check(&Either::new(2), Normalize::IMAGENET, &[(3, 5), (4, 6)], &[5], mixes, ways);
}

#[test]
fn numbers_beyond_a_types_range_equal_the_hosts() {
    // Subnormal numbers of 16 bits, of both signs; and numbers that are too large for them.
    let small = Normalize { mean: [0.5, 0.3, 0.9], std: [3e4, 2e3, 6e5] };
    let large = Normalize { mean: [0.0; 3], std: [1e-5, 2e-5, 1.0 / 65_520.0] };
    let mixes = |_, _| [0.25, 0.3, 20_001.0 / 32_768.0].map(Mix::Blend).to_vec();
    let gpu = Either::new(3);
    for normalize in [small, large] {
        check(&gpu, normalize, &[(64, 65)], &[2], mixes, |pixels, count| vec![usual(pixels, count)]);
    }
}

/// Converts numbers on the device: from elements of 4 bytes to elements of 2, or back.
fn converted(gpu: &Gpu, name: &str, numbers: &[u8], bytes: usize) -> Vec<u8> {
    let module = format!(
        ".version 8.0\n.target sm_75\n.visible .entry {name}(.param .u64 a, .param .u64 b, .param .u32 c) {{ ret; }}"
    );
    let (from, to, function) = (gpu.allocate(numbers.len()), gpu.allocate(bytes), gpu.function(&module, name));
    gpu.write(from, numbers);
    let count = numbers.len().max(bytes) / 4;
    assert_eq!(gpu.launch(function, [1, 1, 1], 256, &[from, to, count as u64], 0), SUCCESS);
    gpu.read(to, bytes)
}

#[test]
fn conversions_equal_those_of_the_host() {
    let gpu = Gpu::new(5);
    let narrow: Vec<u16> = (0..=u16::MAX).collect();
    // Every number of 16 bits, its neighbours among those of 32 bits, and the middles between two.
    let numbers: Vec<f32> = narrow
        .iter()
        .flat_map(|&bits| {
            let (f16, bf16) = (f16::from_bits(bits).to_f32().to_bits(), u32::from(bits) << 16);
            [f16, f16 + 0xfff, f16 + 0x1000, f16 + 0x1001, bf16 + 0x7fff, bf16 + 0x8000, bf16 + 0x8001, bf16 ^ 0x5555]
        })
        .map(f32::from_bits)
        .collect();
    let check = |name: &str, expected: Vec<u16>| {
        let found = converted(&gpu, name, numbers.as_bytes(), numbers.len() * 2);
        let found: &[u16] = <[u16]>::ref_from_bytes(&found).expect("aligned");
        let wrong = numbers.iter().zip(found.iter().zip(&expected)).find(|(_, (found, expected))| found != expected);
        assert_eq!(wrong, None, "{name}");
    };
    check("narrow_f16", numbers.iter().map(|&number| f16::from_f32(number).to_bits()).collect());
    check("narrow_bf16", numbers.iter().map(|&number| bf16::from_f32(number).to_bits()).collect());
    // A table has no NaN.
    let narrow: Vec<u16> = narrow.into_iter().filter(|&bits| !f16::from_bits(bits).is_nan()).collect();
    let wide: Vec<u32> = narrow.iter().map(|&bits| f16::from_bits(bits).to_f32().to_bits()).collect();
    let found = converted(&gpu, "widen_f16", narrow.as_bytes(), narrow.len() * 4);
    let wrong = (0..narrow.len()).find(|&at| found[at * 4..][..4] != wide[at].to_ne_bytes());
    assert_eq!(wrong.map(|at| narrow[at]), None);
    assert_eq!(gpu.stand_in.defects(), Vec::<String>::new());
}

/// A driver may fuse products and sums that do not say how they are rounded.
#[test]
fn the_module_rounds_each_product_and_sum() {
    assert!(PTX.contains("mul.rn.f32") && PTX.contains("add.rn.f32"));
    for word in ["mul.f32", "add.f32", "fma.", "ftz"] {
        assert!(!PTX.contains(word), "{word}");
    }
}

#[test]
fn large_images_equal_the_hosts() {
    let mixes = |_, _| vec![Mix::None, Mix::Blend(0.3), Mix::Paste([17, 30, 101, 224])];
    let ways = |pixels, count| vec![usual(pixels, count)];
    check(&Either::new(4), Normalize::IMAGENET, &[(224, 224)], &[3], mixes, ways);
}
