//! The builder of a loader: its options, and what is not plain data.

use crate::delivery::{BufferNeed, ChosenTarget, DeliveryError, DeliveryTarget};
use crate::drive::DriveSpec;
use crate::fidelity::FidelityOfEpoch;
use crate::options::LoaderOptions;
use crate::order::Choice;
use ddlp_dataset::{Dataset, FieldTable};
use ddlp_driver::Host;
use ddlp_pixels::{Fidelity, Field, Functions, Given};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Builder of a [`Loader`](crate::Loader), which collects its options.
#[derive(Clone, Default)]
#[must_use]
pub struct LoaderBuilder {
    pub(crate) options: LoaderOptions,
    pub(crate) dataset: Option<Arc<dyn Dataset>>,
    pub(crate) fields: Vec<(Field, Arc<Vec<u8>>)>,
    pub(crate) table: Option<Arc<FieldTable>>,
    pub(crate) host: Option<Host>,
    pub(crate) target: Option<ChosenTarget>,
    pub(crate) functions: Functions,
    pub(crate) choice: Choice,
    pub(crate) fidelity: Option<Arc<FidelityOfEpoch>>,
    pub(crate) given_up: Arc<AtomicBool>,
}

impl fmt::Debug for LoaderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dataset = self.dataset.as_ref().map(|dataset| dataset.kind());
        f.debug_struct("LoaderBuilder")
            .field("options", &self.options)
            .field("dataset", &dataset)
            .finish_non_exhaustive()
    }
}

impl LoaderBuilder {
    /// Sets the options that are plain data:
    ///
    /// ```
    /// use ddlp_host::{Loader, LoaderOptions};
    ///
    /// let options = LoaderOptions { batch_size: 64, epochs: 2, ..LoaderOptions::default() };
    /// let builder = Loader::builder().options(options);
    /// ```
    pub fn options(mut self, options: LoaderOptions) -> Self {
        self.options = options;
        self
    }

    /// Changes some of the options that are plain data: `.with(|o| o.batch_size = 64)`.
    pub fn with(mut self, change: impl FnOnce(&mut LoaderOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Uses an opened dataset. [`LoaderOptions::dataset`] is needed as well if a local drive takes part, and names the
    /// drive that holds the dataset if that drive is to take part by itself.
    pub fn dataset(mut self, dataset: Arc<dyn Dataset>) -> Self {
        self.dataset = Some(dataset);
        self
    }

    /// Lets another thread give up [`build`](Self::build): soon after it has set this flag, `build` stops reading the
    /// sizes of images, starts no drive, and fails.
    pub fn given_up_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.given_up = flag;
        self
    }

    /// Adds a field to every batch. `values` has the field's value for each sample of the dataset, in order and without
    /// gaps, in this machine's byte order. The field is of kind [`FieldKind::Vector`](crate::FieldKind::Vector); one
    /// named `label`, which equals [`Field::label`], takes the place of the dataset's labels. Drives know nothing of
    /// these fields.
    pub fn field(mut self, field: Field, values: Vec<u8>) -> Self {
        self.fields.push((field, Arc::new(values)));
        self
    }

    /// Takes fields from a table in memory instead of a file.
    pub fn fields_table(mut self, table: FieldTable) -> Self {
        self.table = Some(Arc::new(table));
        self
    }

    /// Adds a drive. Without any, the drive that holds the dataset takes part: [`LoaderOptions::drives`].
    pub fn drive(mut self, drive: DriveSpec) -> Self {
        self.options.drives.get_or_insert_default().push(drive);
        self
    }

    /// Sets this machine's identity for drives at `tcp://` addresses; their lists of allowed hosts name it. Default:
    /// [`LoaderOptions::host_nqn`].
    pub fn host(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// Chooses the samples of an epoch. States and plans know the choice by digests.
    pub fn choose(mut self, choice: Choice) -> Self {
        self.choice = choice;
        self
    }

    /// Sets a function that returns the fidelity of an epoch, in place of [`LoaderOptions::fidelity`]. The consumer's
    /// thread calls it once for each epoch, when the first batch of the epoch before is asked for: no batch of the
    /// epoch is prepared before. States know its answers.
    pub fn fidelity_by(mut self, fidelity: impl Fn(u32) -> Result<Fidelity, String> + Send + Sync + 'static) -> Self {
        self.fidelity = Some(Arc::new(fidelity));
        self
    }

    /// Adds a function that pipelines call by this name: the operation [`Function`](ddlp_pixels::ops::Function). It
    /// gets an image and writes the one that it makes to the slice. The threads of the CPU prong call it, several at a
    /// time, and perhaps twice for one image. Drives cannot call it, so none may take part in a run that needs it.
    /// States and plans know it by its name.
    pub fn function(
        mut self,
        name: &str,
        function: impl Fn(Given<'_>, &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        self.functions.add(name, Arc::new(function));
        self
    }

    /// Sets the delivery target, whose memory holds the batches: `make` makes the target once the loader knows what it
    /// needs. Default: buffers in this process's memory, and the result slots that local drives share with it.
    pub fn deliver_to(
        mut self,
        make: impl Fn(BufferNeed) -> Result<Arc<dyn DeliveryTarget>, DeliveryError> + Send + Sync + 'static,
    ) -> Self {
        self.target = Some(ChosenTarget { make: Arc::new(make), finishes: false });
        self
    }

    /// Sets a delivery target that finishes batches itself: its buffers hold the images as prepared, whatever
    /// [`dtype`](LoaderOptions::dtype) and [`layout`](LoaderOptions::layout) are, and neither threads nor MixUp and
    /// CutMix change them.
    /// [`Batch::finishing`](crate::Batch::finishing) says how to make the delivered elements. Otherwise as
    /// [`deliver_to`](Self::deliver_to).
    pub fn deliver_prepared_to(
        mut self,
        make: impl Fn(BufferNeed) -> Result<Arc<dyn DeliveryTarget>, DeliveryError> + Send + Sync + 'static,
    ) -> Self {
        self.target = Some(ChosenTarget { make: Arc::new(make), finishes: true });
        self
    }
}
