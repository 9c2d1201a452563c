//! Arguments of Python's `ddlp.Loader` that are no options of the loader in Rust.

use crate::options::definition::{Group, OptionDef, Taken, Values, values};

pub(super) const ARGUMENTS: &[OptionDef] = &[
    of_python(
        "weights",
        Group::Job,
        "Draws the samples of an epoch with replacement, as PyTorch's WeightedRandomSampler: a weight for each sample \
         of the dataset, or for each class, or \"balanced\", by which all classes are equally frequent. An epoch has \
         `epoch_samples` draws. With `indices`, only those samples are drawn. Default: each sample occurs once.",
    )
    .python("Literal[\"balanced\"] | Sequence[float] | Any | None")
    .python_value("None"),
    of_python(
        "output",
        Group::Batches,
        "Kind of arrays: \"torch\", \"numpy\", or \"dlpack\" for ddlp.Array, which any library with DLPack takes over.",
    )
    .python("Literal[\"torch\", \"numpy\", \"dlpack\"]")
    .python_value("\"torch\""),
    of_python(
        "device",
        Group::Batches,
        "Where batches lie: \"cpu\", or an NVIDIA GPU: \"cuda:N\", or \"cuda\" for PyTorch's current device (with the \
         output \"dlpack\", the device whose number is in LOCAL_RANK, else the first). A batch then travels as bytes \
         while the step before runs, and is an ordinary tensor on the current stream.",
    )
    .python("str")
    .python_value("\"cpu\""),
    of_python(
        "ragged",
        Group::Batches,
        "Whether the images of a batch come as a list, each a view in its own size. Needs a pipeline that ends with \
         PadTo, which puts images of different sizes on canvases of one size. Without `ragged`, the images are one \
         array of whole canvases, and `batch.sizes` says how large each image is there.",
    )
    .python("bool")
    .python_value("False"),
    of_python(
        "names",
        Group::Batches,
        "Names of images and labels, such as (\"image\", \"label\"): batches are then dicts with these keys.",
    )
    .python("tuple[str, str] | None")
    .python_value("None"),
];

const fn of_python(name: &'static str, group: Group, doc: &'static str) -> OptionDef {
    values(Values::Structure).of(name, group, doc, None).taken(Taken::ByLoader)
}
