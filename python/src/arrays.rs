//! Decoded images of one size in an array, such as those of CIFAR and MNIST in torchvision.

use ddlp_host::dataset::{Dataset, Header, Identity, Location, ReadError, Unavailable};
use ddlp_host::pixels::Source;
use pyo3::pybacked::PyBackedBytes;

/// Images in memory, each as three planes.
pub struct Arrays {
    planes: PyBackedBytes,
    height: u32,
    width: u32,
    labels: Vec<u32>,
    classes: Vec<String>,
    identity: Identity,
}

impl Arrays {
    /// Takes images of this height and width, each as three planes of uint8 and with a label.
    ///
    /// # Panics
    ///
    /// If there are no images, or not as many labels.
    pub fn new(planes: PyBackedBytes, (height, width): (u32, u32), labels: Vec<u32>, classes: Vec<String>) -> Self {
        let bytes = labels.len() * height as usize * width as usize * 3;
        assert!(bytes > 0 && bytes == planes.len(), "each image has a label");
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"ddlp arrays 1").update(&height.to_le_bytes()).update(&width.to_le_bytes());
        hasher.update(&(classes.len() as u64).to_le_bytes());
        for class in &classes {
            hasher.update(&(class.len() as u64).to_le_bytes()).update(class.as_bytes());
        }
        for label in &labels {
            hasher.update(&label.to_le_bytes());
        }
        let identity = Identity::from_bytes(*hasher.update(&planes).finalize().as_bytes());
        Self { planes, height, width, labels, classes, identity }
    }

    fn image_bytes(&self) -> usize {
        self.height as usize * self.width as usize * 3
    }

    fn image(&self, index: u64) -> &[u8] {
        &self.planes[index as usize * self.image_bytes()..][..self.image_bytes()]
    }
}

impl Dataset for Arrays {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        self.labels[index as usize]
    }

    fn name(&self, index: u64) -> String {
        format!("image {index}")
    }

    fn location(&self, _: u64) -> Location {
        Location { file: "the array".into(), offset: 0, length: self.image_bytes() as u64 }
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        let samples = self.len();
        if index >= samples {
            return Err(Unavailable::OutOfRange { index, samples }.into());
        }
        Ok(Header::planar((self.width, self.height), 0..self.image_bytes() as u64))
    }

    fn read(&self, index: u64, _: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        out.copy_from_slice(&self.image(index)[offset as usize..][..out.len()]);
        Ok(())
    }

    fn in_memory(&self, index: u64) -> Option<Source<'_>> {
        Some(Source::Planar { width: self.width, height: self.height, bytes: self.image(index) })
    }

    fn is_resident(&self) -> bool {
        true
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn kind(&self) -> &'static str {
        "arrays"
    }
}
