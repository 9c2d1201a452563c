//! Who uses the drive: a host, as it names itself in Connect.

/// A host. Result slots and programs belong to name and identifier together, so that several runs on one machine, which
/// share the machine's name, stay apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectedHost {
    /// Host NQN.
    pub nqn: String,
    /// Host identifier.
    pub id: [u8; 16],
}
