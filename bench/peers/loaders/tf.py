"""tf.data. Variant `aa` resizes with antialiasing."""
import tensorflow as tf
from work import CIFAR, IMAGENET, PADDING, RESIZED, SIZE, SMALL


def prepare(work):
    """Returns a function that goes through an epoch, and a note."""
    tf.config.threading.set_inter_op_parallelism_threads(work.threads)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    antialias = work.variant == "aa"
    mean, deviation = ([255 * value for value in values] for values in (CIFAR if work.name == "W3" else IMAGENET))

    def resize(image, height, width):
        return tf.image.resize(image, [height, width], "bilinear", antialias=antialias)

    def train(path):
        encoded = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(encoded), tf.zeros([1, 0, 4]), min_object_covered=0.0,
            area_range=(0.08, 1.0), aspect_ratio_range=(3 / 4, 4 / 3), max_attempts=10,
            use_image_if_no_bounding_boxes=True)
        image = tf.image.decode_and_crop_jpeg(encoded, tf.concat([begin[:2], size[:2]], 0), channels=3)
        return tf.image.random_flip_left_right(resize(image, SIZE, SIZE))

    def validation(path):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        shape = tf.shape(image)
        shorter = tf.minimum(shape[0], shape[1])
        height, width = RESIZED * shape[0] // shorter, RESIZED * shape[1] // shorter
        image = resize(image, height, width)
        return tf.image.crop_to_bounding_box(image, (height - SIZE) // 2, (width - SIZE) // 2, SIZE, SIZE)

    def small(image):
        padded = tf.pad(image, [[PADDING] * 2, [PADDING] * 2, [0, 0]])
        return tf.image.random_flip_left_right(tf.image.random_crop(padded, [SMALL, SMALL, 3]))

    samples = work.arrays()[0] if work.name == "W3" else work.files()
    step = {"W1": train, "W2": validation, "W3": small}[work.name]
    batches = (
        tf.data.Dataset.from_tensor_slices(samples).shuffle(len(samples))
        .map(lambda sample: (tf.cast(step(sample), tf.float32) - mean) / deviation,
             num_parallel_calls=work.threads, deterministic=False)
        .batch(work.batch).map(lambda images: tf.transpose(images, [0, 3, 1, 2])).prefetch(2))
    options = tf.data.Options()
    options.threading.private_threadpool_size = work.threads
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    batches = batches.with_options(options)
    decoding = {"W1": "decodes crops", "W2": "decodes whole images", "W3": "takes arrays from NumPy"}[work.name]
    return (lambda: sum(int(images.shape[0]) for images in batches),
            f"TensorFlow {tf.__version__}: {decoding}, bilinear, antialiasing {'on' if antialias else 'off'}")
